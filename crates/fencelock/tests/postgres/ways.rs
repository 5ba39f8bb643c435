//! The ways to a server: socket files, TLS, passwords. Several hosts: `tests/deep/postgres/ways.rs`. A pooler: `pooled.rs`.

use fencelock::{ErrorKind, Health, Loss};
use fencelock_testbed::postgres::{Server, Settings, Tls};

use crate::lab::{acquire, client, queued, refused, refused_because, server, soon, until, with};

#[tokio::test]
async fn a_socket_file_is_a_way_to_the_server() {
    let own = server(Settings::default());
    let directory = own.sockets();
    let url = format!("postgres://fencelock@/fencelock?host={}&port={}", directory.display(), own.address().port());
    let (one, other) = (client(&url, 60_000).await, client(&own.url(), 60_000).await);
    let guard = acquire(&one, "job").await;
    assert_eq!(queued(&other, "job").await, 1);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_password_is_asked_for_and_a_wrong_one_is_reported_and_never_shown() {
    let own = server(Settings { asks_passwords: true, ..Settings::default() });
    let guard = acquire(&client(&own.url(), 60_000).await, "job").await;
    guard.release().await.unwrap();
    for wrong in ["fencelock:hunter2@", "fencelock@"] {
        let error = refused(&own.url().replace("fencelock:secret@", wrong)).await;
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
}

/// The password is another one, and every connection of the user ends.
fn change_password(own: &Server) {
    own.sql("postgres", "ALTER ROLE fencelock PASSWORD 'other'").unwrap();
    own.sql("postgres", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'fencelock'").unwrap();
}

#[tokio::test]
async fn a_password_that_is_read_anew_may_change_while_a_lock_is_held_and_else_the_loss_tells_of_it() {
    let own = server(Settings { asks_passwords: true, ..Settings::default() });
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    std::fs::write(&file, "").unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::write(&file, "secret\n").unwrap();
    let url = with(&own.url(), "renew_interval_ms=200");
    let asking = with(&url.replace(":secret@", "@"), &format!("password_file={}", file.display()));
    let (asking, fixed) = (client(&asking, 60_000).await, client(&url, 20_000).await);
    let (kept, lost) = (acquire(&asking, "kept").await, acquire(&fixed, "lost").await);
    std::fs::write(&file, "other\n").unwrap();
    change_password(&own);
    assert_eq!(soon(lost.lost()).await, Loss::Unconfirmed);
    let error = lost.check().unwrap_err();
    assert!(error.to_string().contains("password") && error.to_string().contains("28P01"), "{error}");
    until("health tells", async || matches!(fixed.health(), Health::Refused(_))).await;
    soon(kept.release()).await.unwrap();
    acquire(&asking, "kept").await.check().unwrap();
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
        with(&url, &format!("sslmode=verify-full&tls_ca={}", certificate.display()))
    };
    let one = client(&at("localhost"), 60_000).await;
    acquire(&one, "job").await.release().await.unwrap();
    let encrypted = own.sql("postgres", "SELECT count(*) FROM pg_stat_ssl WHERE ssl").unwrap();
    assert_ne!(encrypted.trim(), "0");
    refused_because(&at("127.0.0.1"), "not trusted").await;
    let plain = server(Settings::default());
    let url = with(&plain.url().replace("127.0.0.1", "localhost"), "sslmode=verify-full&ttl_ms=60000");
    let error = refused(&with(&url, &format!("tls_ca={}", certificate.display()))).await;
    assert!(error.kind() == ErrorKind::Denied && error.to_string().contains("does not encrypt"), "{error}");
}
