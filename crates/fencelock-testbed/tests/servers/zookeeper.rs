//! The server that tests share.

use std::net::TcpStream;

use fencelock_testbed::zookeeper::shared;

#[test]
fn tests_share_one_server_and_no_parent() {
    assert!(TcpStream::connect(shared().address()).is_ok());
    assert_ne!(shared().namespace(), shared().namespace());
    assert!(shared().url().starts_with(&format!("zk://{}/t", shared().address())));
}
