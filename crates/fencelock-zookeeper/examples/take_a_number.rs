//! Takes a number below the root, says who else has one, and goes: the beginning of every lock.

use fencelock_zookeeper::{Acl, Client, Config, CreateMode};

#[tokio::main(flavor = "current_thread")]
async fn main() -> fencelock_zookeeper::Result<()> {
    let connect = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:2181".to_owned());
    let (client, _events) = Client::connect(Config::new(&connect)?).await?;
    let acl = [Acl::open()];
    // Both are in line when the calls return, and travel together; only the awaiting takes time.
    let created = client.create("/lock-", b"", CreateMode::EphemeralSequential, &acl);
    let listed = client.get_children("/");
    println!("{} among {:?}", created.await?.path, listed.await?.0);
    client.close().await
}
