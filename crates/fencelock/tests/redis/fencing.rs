//! The script that guards keys of Redis against late holders.

use fencelock::fencing::REDIS_FENCE;
use fencelock_testbed::redis::{Server, Settings};

use crate::lab::{client, server};

/// The reply of the script to these arguments.
fn run(server: &Server, arguments: &[&str]) -> String {
    let request = [&["EVAL", REDIS_FENCE, "2", "{stock}:fence", "{stock}"], arguments].concat();
    server.ask(&request).map_or_else(|error| error.to_string(), |reply| reply.to_string())
}

fn get(server: &Server, key: &str) -> String {
    server.ask(&["GET", key]).unwrap().to_string()
}

#[tokio::test]
async fn a_claim_closes_a_key_to_older_holders_before_the_new_one_writes() {
    let server = server(Settings::default());
    let client = client(&server.url(), 60_000).await;
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let guard = client.mutex("stock").unwrap().acquire().await.unwrap();
        tokens.push(guard.token().unwrap().to_string());
        guard.release().await.unwrap();
    }
    let (early, late) = (&*tokens[0], &*tokens[1]);
    assert_eq!(run(&server, &[early]), "OK");
    assert_eq!(run(&server, &[early, "SET", "41"]), "OK");
    assert_eq!(run(&server, &[late]), "OK");
    let refused = run(&server, &[early, "SET", "40"]);
    assert!(refused.starts_with("FENCED") && refused.ends_with(late), "{refused}");
    assert_eq!(get(&server, "{stock}"), "41");
    assert_eq!(run(&server, &[late, "INCRBY", "-2"]), "39");
}

/// Numbers of Lua are exact up to 2^53; other clients may have shorter tokens, such as counters.
#[test]
fn tokens_are_compared_exactly_however_large_they_are() {
    let server = server(Settings::default());
    let rising = [
        "0",
        "9",
        "10",
        "9007199254740992",
        "9007199254740993",
        "9007199254740994",
        "9223372036854775806",
        "9223372036854775807",
    ];
    for (at, token) in rising.iter().enumerate() {
        assert_eq!(run(&server, &[token, "SET", token]), "OK", "{token}");
        for older in &rising[..at] {
            assert!(run(&server, &[older, "SET", "x"]).starts_with("FENCED"), "{older} after {token}");
        }
        assert_eq!(get(&server, "{stock}"), *token);
    }
}

#[test]
fn without_a_token_nothing_is_done() {
    let server = server(Settings::default());
    for none in [&[][..], &[""], &["SET", "41"], &["-1", "SET", "41"], &["007", "SET", "41"], &["1.5"], &["1e3"]] {
        assert!(run(&server, none).starts_with("NOTOKEN"), "{none:?}");
    }
    assert_eq!(server.ask(&["DBSIZE"]).unwrap().number(), Some(0));
}
