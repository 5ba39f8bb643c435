//! Servers that are refused as masters, and secrets.

use fencelock::{Error, ErrorKind};
use fencelock_testbed::redis::{Role, Server, Settings};
use fencelock_testbed::{Proxy, Way};

use crate::lab::{client, patient, refused, server, until};
use crate::masters::takes_ours;
use crate::patience;

fn url(addresses: impl IntoIterator<Item = std::net::SocketAddr>) -> String {
    let addresses: Vec<_> = addresses.into_iter().map(|address| address.to_string()).collect();
    format!("redlock://{}?rejoin_ms=0", addresses.join(","))
}

async fn refusal(url: &str) -> Error {
    match patient(url).await {
        Ok(client) => client.mutex("job").unwrap().try_acquire().await.expect_err("it is refused"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn one_server_under_two_names_is_refused() {
    let servers: Vec<Server> = (0..2).map(|_| server(Settings::default())).collect();
    let twin = Proxy::start(servers[0].address()).unwrap();
    let error = refusal(&url(servers.iter().map(Server::address).chain([twin.address()]))).await;
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("one server"), "{error}");
}

#[tokio::test]
async fn a_master_that_copies_another_is_refused() {
    let servers: Vec<Server> = (0..2).map(|_| server(Settings::default())).collect();
    let replica = server(Settings::role(Role::ReplicaOf(servers[0].address())));
    until("it copies", async || replica.info("master_link_status").unwrap() == "up").await;
    let error = refusal(&url(servers.iter().map(Server::address).chain([replica.address()]))).await;
    assert!(matches!(error.kind(), ErrorKind::Denied | ErrorKind::Config), "{error}");
    assert!(error.to_string().contains("replica") || error.to_string().contains("copies"), "{error}");
}

#[tokio::test]
async fn an_outage_names_each_master_that_is_missing_and_why() {
    let servers: Vec<Server> = (0..5).map(|_| server(Settings::default())).collect();
    let silent = Proxy::start(servers[2].address()).unwrap();
    silent.hold(Way::Both);
    servers[3].kill();
    servers[4].ask(&["CONFIG", "SET", "requirepass", "s3cret"]).unwrap();
    let addresses = [0, 1, 2, 3, 4].map(|index| if index == 2 { silent.address() } else { servers[index].address() });
    servers[1].kill();
    let store = fencelock::store::open_url(fencelock::store::StoreUrl::parse(&url(addresses)).unwrap()).await.unwrap();
    let error = store.queue(&fencelock::Name::new("job").unwrap(), fencelock::inspect::Page::ALL).await.unwrap_err();
    let said = error.to_string();
    assert!(error.is_outage() && said.contains("answered 1 of 5"), "{said}");
    for (index, why) in
        [(1, "Connection refused"), (2, "no answer"), (3, "Connection refused"), (4, "wants a password")]
    {
        let named = format!("missing redis://{}/0: ", addresses[index]);
        let reason = said.split_once(&named).unwrap_or_else(|| panic!("{named} in {said}")).1;
        assert!(reason.split(", missing").next().unwrap().contains(why), "{named}{why} in {said}");
    }
    assert!(!said.contains(&format!("missing redis://{}/0", addresses[0])), "{said}");
}

#[tokio::test]
async fn each_master_has_its_own_password_and_no_error_tells_it() {
    let server = |password: &str| server(Settings { password: Some(password.to_owned()), ..Settings::default() });
    let servers = [server("s3cret-1"), server("s3cret-2"), server("s3cret-2")];
    let [a, b, c] = [0, 1, 2].map(|index| servers[index].address());
    let own = client(&format!("redlock://:s3cret-1@{a},:s3cret-2@{b},:s3cret-2@{c}?rejoin_ms=0"), 60_000).await;
    takes_ours(&own, "job").await.release().await.unwrap();
    let error = refused(&format!("redlock://:s3cret-2@{a},{b},{c}?rejoin_ms=0")).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
    let common = patience::refused(&format!("redlock://{b},:s3cret-2@{c},:s3cret-1@{a}")).await;
    assert_eq!(common.kind(), ErrorKind::Denied, "{common}");
}

#[tokio::test]
async fn a_drift_that_takes_half_of_the_ttl_and_kinds_of_locks_that_there_are_not_are_refused() {
    let servers: Vec<Server> = (0..3).map(|_| server(Settings::default())).collect();
    let url = url(servers.iter().map(Server::address));
    let error = refused(&format!("{url}&drift_ms=4000&ttl_ms=8000")).await;
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("drift_ms"), "{error}");
    let client = client(&url, 60_000).await;
    for error in [client.rwlock("page").map(drop).unwrap_err(), client.semaphore("seats", 3).map(drop).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
}
