//! A password that is changed on the server: a client that reads it anew continues, and one with a fixed password gets
//! the reason.

use std::sync::{Arc, Mutex};

use fencelock::observe::{Event, Observer};
use fencelock::{Client, ErrorKind, Guard, Health, Loss};
use fencelock_testbed::redis::{Server, Settings};

use crate::lab::{PATIENCE, client, patient, server, soon, until};
use crate::patience;

const RULES: &str = "on >one ~* &* +@all";

fn own_server() -> Server {
    server(Settings::default().with_user("me", RULES))
}

/// The URL of the server for the user, with the password or its option.
fn url(server: &Server, user: &str, options: &str) -> String {
    let at = format!("redis://{user}@{}", server.address());
    format!("{at}/0?renew_interval_ms=100&{options}")
}

/// The password is another one, and every connection of the user ends.
fn change(server: &Server) {
    server.ask(&["ACL", "SETUSER", "me", "resetpass", ">two"]).unwrap();
    assert_ne!(server.ask(&["CLIENT", "KILL", "USER", "me"]).unwrap().number(), Some(0));
}

/// Whether the user has a connection.
fn is_there(server: &Server) -> bool {
    server.ask(&["CLIENT", "LIST"]).unwrap().to_string().contains("user=me")
}

async fn keeps_its_lock(server: &Server, guard: Guard, change_it_here_too: impl FnOnce()) {
    change_it_here_too();
    change(server);
    until("it is connected again", async || is_there(server)).await;
    guard.check().unwrap();
    soon(guard.release()).await.unwrap();
}

#[tokio::test]
async fn a_password_that_is_asked_for_anew_may_change_while_a_lock_is_held() {
    let server = own_server();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    std::fs::write(&file, "").unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::write(&file, "one\n").unwrap();
    let options = format!("password_file={}", file.display());
    let client = client(&url(&server, "me", &options), 60_000).await;
    let guard = client.mutex("job").unwrap().acquire().await.unwrap();
    keeps_its_lock(&server, guard, || std::fs::write(&file, "two\n").unwrap()).await;
    client.close().await.unwrap();

    server.ask(&["ACL", "SETUSER", "me", "resetpass", ">one"]).unwrap();
    let password = Arc::new(Mutex::new("one".to_owned()));
    let asked = Arc::clone(&password);
    let builder = Client::builder()
        .connect_timeout(PATIENCE)
        .password(move || Ok::<_, fencelock::Error>(asked.lock().unwrap().clone()));
    let client = builder.connect(&url(&server, "me", "ttl_ms=60000")).await.unwrap();
    let guard = client.mutex("job").unwrap().acquire().await.unwrap();
    keeps_its_lock(&server, guard, || "two".clone_into(&mut password.lock().unwrap())).await;
}

#[tokio::test]
async fn a_file_of_the_password_that_cannot_be_read_or_that_other_users_can_read_is_named() {
    let server = own_server();
    let error = patience::refused(&url(&server, "me", "password_file=/no/such/file")).await;
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("/no/such/file"), "{error:?}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "one\n").unwrap();
    let options = format!("password_file={}", file.path().display());
    for (mode, is_taken) in [(0o640, false), (0o604, false), (0o600, true)] {
        std::fs::set_permissions(file.path(), std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        match patient(&url(&server, "me", &options)).await {
            Ok(client) => assert!(client.close().await.is_ok() && is_taken, "{mode:o}"),
            Err(error) => assert!(!is_taken && error.to_string().contains("chmod 600"), "{mode:o}: {error:?}"),
        }
    }
}

/// The kinds of the errors of renewals.
#[derive(Default)]
struct Failures(Mutex<Vec<(ErrorKind, bool)>>);

impl Observer for Failures {
    fn observe(&self, event: &Event<'_>) {
        if let Event::RenewalFailed { error, .. } = event {
            self.0.lock().unwrap().push((error.kind(), error.is_retryable()));
        }
    }
}

#[tokio::test]
async fn a_lock_that_is_lost_for_a_password_that_was_changed_says_so() {
    let server = own_server();
    let failures = Arc::new(Failures::default());
    let builder = Client::builder().observer(Arc::clone(&failures) as Arc<dyn Observer>);
    let client = builder.connect_timeout(PATIENCE).connect(&url(&server, "me:one", "ttl_ms=5000")).await.unwrap();
    let guard = client.mutex("job").unwrap().acquire().await.unwrap();
    assert_eq!(guard.refusal(), None);
    change(&server);
    until("health tells", async || matches!(client.health(), Health::Refused(_))).await;
    assert_eq!(soon(guard.lost()).await, Loss::Unconfirmed);
    assert!(guard.refusal().is_some_and(|why| why.contains("refused the user or the password")), "{guard:?}");
    let error = guard.check().unwrap_err();
    assert!(error.to_string().contains("WRONGPASS"), "{error}");
    assert!(failures.0.lock().unwrap().contains(&(ErrorKind::Denied, false)));
    until("health tells of the next session", async || client.health() == Health::Refused(std::time::Duration::ZERO))
        .await;
    server.ask(&["ACL", "SETUSER", "me", "resetpass", ">one"]).unwrap();
    until("all is well again", async || matches!(client.health(), Health::Confirmed(_))).await;
}
