//! A server that is away for a while: what waits for it, and what says so.

use std::time::{Duration, Instant};

use fencelock::{Client, ErrorKind};
use fencelock_testbed::redis::Settings;

use crate::lab::{PATIENCE, server, soon};

#[tokio::test]
async fn a_client_that_has_time_to_connect_waits_until_the_server_runs() {
    let server = server(Settings::default());
    server.kill();
    let url = server.url();
    let connecting = tokio::spawn(async move { Client::builder().connect_timeout(PATIENCE).connect(&url).await });
    assert_eq!(Client::connect(&server.url()).await.unwrap_err().kind(), ErrorKind::Unreachable);
    server.restart().unwrap();
    let client = soon(connecting).await.unwrap().unwrap();
    client.mutex("job").unwrap().acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_client_whose_time_to_connect_is_up_names_the_server_that_it_did_not_reach() {
    let server = server(Settings::default());
    server.kill();
    let start = Instant::now();
    let limit = Duration::from_millis(500);
    let error = Client::builder().connect_timeout(limit).connect(&server.url()).await.unwrap_err();
    assert!(start.elapsed() >= limit, "{:?}", start.elapsed());
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.to_string().contains(&server.address().to_string()), "{error}");
    // What no retry can help is told at once.
    let secure = server_with_password();
    let error = Client::builder().connect_timeout(PATIENCE).connect(&secure.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
}

fn server_with_password() -> fencelock_testbed::redis::Server {
    server(Settings { password: Some("secret".to_owned()), ..Settings::default() })
}
