//! The ways to a server: socket files, TLS, passwords, several hosts after a failover.

use fencelock::postgres::Schema;
use fencelock::{Client, ErrorKind};
use fencelock_testbed::postgres::{Pooler, Server, Settings, Tls};

use crate::lab::{acquire, client, connection, queued, server, soon, with};

#[tokio::test]
async fn a_socket_file_is_a_way_to_the_server() {
    let own = server(Settings::default());
    let directory = own.sockets();
    let url = format!("postgres://fencelock@/fencelock?host={}&port={}", directory.display(), own.address().port());
    let (one, other) = (client(&url, 30_000).await, client(&own.url(), 30_000).await);
    let guard = acquire(&one, "job").await;
    assert_eq!(queued(&other, "job").await, 1);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_password_is_asked_for_and_a_wrong_one_is_told_and_never_shown() {
    let own = server(Settings { asks_passwords: true, ..Settings::default() });
    let guard = acquire(&client(&own.url(), 30_000).await, "job").await;
    guard.release().await.unwrap();
    for wrong in ["fencelock:hunter2@", "fencelock@"] {
        let error = Client::connect(&own.url().replace("fencelock:secret@", wrong)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
}

#[tokio::test]
async fn a_server_is_verified_by_its_certificate_and_one_that_does_not_encrypt_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    std::fs::write(&certificate, cert.pem()).unwrap();
    std::fs::write(&key, signing_key.serialize_pem()).unwrap();
    let tls = Tls { certificate: certificate.clone(), key };
    let own = server(Settings { tls: Some(tls), ..Settings::default() });
    let at = |host: &str| {
        let url = own.url().replace("127.0.0.1", host);
        with(&url, &format!("sslmode=verify-full&tls_ca={}&ttl_ms=30000", certificate.display()))
    };
    let one = Client::connect(&at("localhost")).await.unwrap();
    acquire(&one, "job").await.release().await.unwrap();
    let encrypted = own.sql("postgres", "SELECT count(*) FROM pg_stat_ssl WHERE ssl").unwrap();
    assert_ne!(encrypted.trim(), "0");
    let error = Client::connect(&at("127.0.0.1").replace("30000", "2000")).await.unwrap_err();
    assert!(error.to_string().contains("not trusted"), "{error}");
    let plain = server(Settings::default());
    let url = with(&plain.url().replace("127.0.0.1", "localhost"), "sslmode=verify-full&ttl_ms=2000");
    let error = Client::connect(&with(&url, &format!("tls_ca={}", certificate.display()))).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Denied && error.to_string().contains("does not encrypt"), "{error}");
}

#[tokio::test]
async fn of_several_hosts_the_one_that_takes_writes_is_found_again_after_a_failover() {
    let primary = server(Settings::default());
    let holder = client(&primary.url(), 20_000).await;
    acquire(&holder, "before").await.release().await.unwrap();
    let standby = Server::start(Settings { standby_of: Some(primary.address()), ..Settings::default() }).unwrap();
    let both = format!("postgres://fencelock:secret@{},{}/fencelock", primary.address(), standby.address());
    let one = client(&both, 20_000).await;
    let guard = acquire(&one, "job").await;
    crate::lab::until("the standby has it", async || {
        let asked = "SELECT count(*) FROM fencelock.place WHERE name = 'job'";
        standby.sql("fencelock", asked).is_ok_and(|said| said.trim() == "1")
    })
    .await;
    primary.kill();
    standby.promote().unwrap();
    let other = client(&both, 20_000).await;
    assert_eq!(soon(async { queued(&other, "job").await }).await, 1);
    guard.check().unwrap();
    soon(guard.release()).await.unwrap();
    acquire(&other, "job").await.release().await.unwrap();
}

/// What needs a session is refused; a transaction that holds a lock, or a fence, works.
#[tokio::test]
async fn a_pooler_in_transaction_mode_is_refused_and_one_in_session_mode_is_not() {
    let own = server(Settings::default());
    let direct = client(&own.url(), 30_000).await;
    let guard = acquire(&direct, "job").await;
    let through = |pooler: &Pooler| own.url().replace(&own.address().to_string(), &pooler.address().to_string());
    let transactions = Pooler::start(own.address(), "transaction").unwrap();
    let error = Client::connect(&through(&transactions)).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("transaction mode"), "{error}");
    let user = connection(&through(&transactions)).await;
    let token = guard.token().unwrap().to_i64();
    user.batch_execute(&format!("BEGIN; SELECT fencelock.hold('job', {token}); COMMIT")).await.unwrap();
    user.batch_execute(&format!("SELECT fencelock.fence('stock', {token})")).await.unwrap();
    let sessions = Pooler::start(own.address(), "session").unwrap();
    let pooled = client(&through(&sessions), 30_000).await;
    acquire(&pooled, "another").await.release().await.unwrap();
    guard.release().await.unwrap();
}

/// As after the death of the host on which the primary was: nothing there says that nobody listens.
#[tokio::test]
async fn a_host_that_is_silent_keeps_nobody_from_the_next_one() {
    let (silent, own) = (server(Settings::default()), server(Settings::default()));
    silent.pause();
    let both = format!("postgres://fencelock:secret@{},{}/fencelock", silent.address(), own.address());
    let one = client(&both, 30_000).await;
    let guard = acquire(&one, "job").await;
    let looker = Client::builder().session_when_needed(true).connect(&both).await.unwrap();
    assert_eq!(soon(queued(&looker, "job")).await, 1);
    guard.release().await.unwrap();
    let error = soon(Schema::of(&silent.url()).unwrap().migrate(&[])).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unreachable && error.to_string().contains("no answer"), "{error}");
}
