//! A server that falls silent is left in time, and an idle session is kept alive.

use std::time::{Duration, Instant};

use crate::common::{event, is_reconnected, soon, through};
use fencelock_testbed::zookeeper::shared;
use fencelock_testbed::{PATIENCE, Proxy, Way, wait_until, within};
use fencelock_zookeeper::{Client, Config};

#[tokio::test]
async fn a_server_that_falls_silent_is_left_for_another_while_the_session_lives() {
    let proxies = [Proxy::start(shared().address()).unwrap(), Proxy::start(shared().address()).unwrap()];
    let connect = format!("{},{}", proxies[0].address(), proxies[1].address());
    let config = Config::new(&connect).unwrap().session_timeout(Duration::from_secs(6));
    let (client, mut events) = Client::connect(config).await.unwrap();
    let silent = proxies.iter().find(|proxy| proxy.address().to_string() == client.session().server).unwrap();
    silent.hole(Way::Both);
    let start = Instant::now();
    let error = soon(client.exists("/")).await.unwrap_err();
    assert!(error.outcome_unknown());
    event(&mut events, is_reconnected).await;
    // Leaving may take two thirds of the timeout; the rest is for a busy machine.
    within(Duration::from_secs(6), start.elapsed(), "leaving a server that says nothing");
    assert_ne!(client.session().server, silent.address().to_string());
    assert!(soon(client.exists("/")).await.unwrap().is_some());
}

#[tokio::test]
async fn an_idle_session_lives_on() {
    let (proxy, client, _events) = through(Duration::from_secs(3)).await;
    let (_, before) = proxy.bytes();
    // The answer to a ping has twenty bytes; nothing else goes over an idle connection. Four are more than a timeout.
    let waited = move || (wait_until(PATIENCE, || proxy.bytes().1 >= before + 4 * 20), proxy);
    let (pinged, _proxy) = tokio::task::spawn_blocking(waited).await.unwrap();
    assert!(pinged);
    assert!(client.exists("/").await.unwrap().is_some());
    assert_eq!(client.connection_epoch(), 1);
}
