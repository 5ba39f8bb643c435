//! The layouts of Redisson on a server that refuses something, or holds unexpected values.

use fencelock::{ErrorKind, Name};
use fencelock_testbed::redis::{Reply, Server};

use crate::lab::{acquired, acquiring, client, soon, until};
use crate::theirs::{CHANNEL, TAKEN, THREAD, asked, is_subscribed, locks, redisson, takes_ours, unlocks, with_layout};

#[tokio::test]
async fn a_server_without_memory_takes_no_client_in_and_lets_every_client_out() {
    for layout in ["redisson", "redisson-fenced"] {
        let (server, url) = with_layout(layout);
        let client = client(&url, 30_000).await;
        let guard = takes_ours(&client, "job").await;
        let reads =
            if layout == "redisson" { Some(soon(client.rwlock("page").unwrap().read()).await.unwrap()) } else { None };
        server.ask(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
        let mut refused = vec![client.mutex("other").unwrap().try_acquire().await.unwrap_err()];
        if reads.is_some() {
            refused.push(client.rwlock("more").unwrap().try_read().await.unwrap_err());
            refused.push(client.rwlock("more").unwrap().try_write().await.unwrap_err());
        }
        for error in refused {
            assert_eq!(error.kind(), ErrorKind::Exhausted, "{layout}: {error:?}");
            assert!(error.to_string().contains("memory"), "{error}");
        }
        for name in ["other", "more", "{more}:*"] {
            assert_eq!(server.ask(&["KEYS", name]).unwrap().items(), [], "what was refused took effect");
        }
        guard.release().await.unwrap();
        if let Some(reads) = reads {
            reads.release().await.unwrap();
        }
        assert_eq!(
            (asked(&server, "EXISTS", "job"), asked(&server, "EXISTS", "page")),
            ("0".to_owned(), "0".to_owned())
        );
        server.ask(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
        takes_ours(&client, "other").await.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_holder_with_a_counter_that_counts_nothing_is_shown_and_broken() {
    let (server, url) = with_layout("redisson-fenced");
    let (client, job) = (client(&url, 60_000).await, Name::new("job").unwrap());
    for counter in ["text", "-3", "2251799813685248", "99999999999999999999999"] {
        assert_eq!(locks(&server, "job", THREAD, 600_000), TAKEN);
        server.ask(&["SET", "redisson_lock_token:{job}", counter]).unwrap();
        let queue = client.queue(&job).await.unwrap();
        let [holder] = &queue.contenders[..] else { panic!("{queue:?}") };
        assert_eq!(holder.grant.unwrap().token, None, "{counter}");
        assert!(client.break_grant(&job, holder, "it is stuck").await.unwrap(), "{counter}");
        let error = client.mutex("job").unwrap().try_acquire().await.expect_err("there is no token for it");
        assert!(!error.is_contention() && !error.is_retryable(), "{counter}: {error}");
        server.ask(&["DEL", "job"]).unwrap();
    }
}

/// Lets the user subscribe to these channels, too.
fn may_hear(server: &Server, channels: &str) -> Reply {
    server.ask(&["ACL", "SETUSER", "deaf", channels]).unwrap()
}

#[tokio::test]
async fn a_channel_that_was_refused_is_asked_for_again() {
    let (server, _) = redisson();
    server.ask(&["ACL", "SETUSER", "deaf", "on", ">secret", "~*", "+@all", "resetchannels"]).unwrap();
    may_hear(&server, "&redisson_lock__channel:{fencelock:*");
    let client = client(&format!("redis://deaf:secret@{}?layout=redisson", server.address()), 60_000).await;
    assert_eq!(locks(&server, "job", THREAD, 600_000), TAKEN);
    let waits = acquiring(&client, "job");
    until("it is refused", async || refusals(&server) > 0).await;
    may_hear(&server, "&redisson_lock__channel:*");
    until("a client subscribes", async || is_subscribed(&server)).await;
    assert_eq!(unlocks(&server, "job", THREAD, CHANNEL), 1);
    acquired(waits).await.release().await.unwrap();
}

/// How many commands the server refused that a user may not run.
fn refusals(server: &Server) -> usize {
    server.ask(&["ACL", "LOG"]).unwrap().items().len()
}
