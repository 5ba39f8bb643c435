//! A password that must appear nowhere: in no log at the finest level, no span, no metric, no error, no event and no `Debug`.

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fencelock::Client;
use fencelock::observe::{Event, Observer};
use fencelock_testbed::redis::Settings;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};

use crate::lab::{PATIENCE, server, soon, until};

const SECRET: &str = "canary-7f3a9c";

/// All output, as text.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<String>>);

impl Said {
    fn add(&self, text: impl fmt::Display) {
        writeln!(self.0.lock().unwrap(), "{text}").unwrap();
    }

    fn contains(&self, text: &str) -> bool {
        self.0.lock().unwrap().contains(text)
    }
}

struct Fields<'a>(&'a Said);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.add(format_args!("{field} {value:?}"));
    }
}

/// A subscriber to everything.
struct Listener(Said, AtomicU64);

impl Subscriber for Listener {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.0.add(format_args!("span {}:{}", span.metadata().target(), span.metadata().name()));
        span.record(&mut Fields(&self.0));
        Id::from_u64(self.1.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut Fields(&self.0));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut Fields(&self.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Observer for Said {
    fn observe(&self, event: &Event<'_>) {
        self.add(format_args!("{event:?}"));
    }
}

/// Fails to connect with the secret in the URL, and records the error.
async fn fails(said: &Said, url: &str) {
    let error = Client::builder().observer(Arc::new(said.clone())).connect(url).await.unwrap_err();
    said.add(format_args!("{error} {error:?} {error:#?}"));
    let mut source = std::error::Error::source(&error);
    while let Some(error) = source {
        said.add(format_args!("{error} {error:?}"));
        source = error.source();
    }
}

#[tokio::test]
async fn a_password_is_in_no_log_no_span_no_error_no_event_and_no_debug() {
    let said = Said::default();
    tracing::subscriber::set_global_default(Listener(said.clone(), AtomicU64::new(0))).unwrap();
    let server = server(Settings::default().with_user("me", &format!("on >{SECRET} ~* &* +@all")));
    let address = server.address();
    let url = format!("redis://me:{SECRET}@{address}/0?ttl_ms=6000");

    let builder = Client::builder().observer(Arc::new(said.clone()));
    said.add(format_args!(
        "{builder:?} {:?}",
        Client::builder().password(|| Ok::<_, fencelock::Error>(SECRET.to_owned()))
    ));
    let client = builder.connect_timeout(PATIENCE).connect(&url).await.unwrap();
    let guard = client.mutex("job").unwrap().acquire().await.unwrap();
    said.add(format_args!("{client:?} {guard:?} {:?} {:?}", client.capability(), client.mutex("job").unwrap()));
    soon(guard.release()).await.unwrap();
    assert!(["acquire", "hold", "release"].iter().all(|span| said.contains(&format!("span fencelock:{span}\n"))));

    // The session is lost, and its reopening fails: with a changed password, and without a server.
    let guard = client.mutex("job").unwrap().acquire().await.unwrap();
    server.ask(&["ACL", "SETUSER", "me", "resetpass", ">another"]).unwrap();
    server.ask(&["CLIENT", "KILL", "USER", "me"]).unwrap();
    until("the password is refused", async || said.contains("WRONGPASS")).await;
    server.kill();
    until("the server is missed", async || guard.check().is_err() && said.contains("SessionLost")).await;
    fails(&said, &url).await;
    for url in [
        format!("rediss://me:{SECRET}@{address}/0"),
        format!("redis://me:{SECRET}@{address}/0?layout=nonsense"),
        format!("redis://me:{SECRET}@{address}/0?layout=plain"),
        format!("redlock://me:{SECRET}@{address},127.0.0.1:1,127.0.0.1:2"),
        format!("zk://me:{SECRET}@127.0.0.1:1/locks?request_deadline_ms=50"),
        format!("postgres://me:{SECRET}@127.0.0.1:1/database?sslmode=disable"),
        format!("postgres://127.0.0.1:1/database?user=me&password={SECRET}&sslmode=nonsense"),
        format!("nonsense://me:{SECRET}@127.0.0.1"),
        format!("redis://me:{SECRET}@{address}:99999/0"),
        format!("redis://me:{SECRET}@/0?ttl_ms=1"),
    ] {
        fails(&said, &url).await;
    }
    let all = said.0.lock().unwrap();
    let shown: Vec<_> = all.lines().filter(|line| line.contains(SECRET)).collect();
    assert!(shown.is_empty(), "{shown:#?}");
    assert!(all.lines().count() > 50, "{all}");
}
