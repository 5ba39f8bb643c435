//! The policy of an acquire when its store is out of reach.

use crate::client::Client;

/// The policy of an acquire when its store is out of reach ([`Error::is_outage`](crate::Error::is_outage)), an open
/// [`Breaker`](crate::Breaker) included. The option `on_outage` of a lock sets it; the default is [`OnOutage::Fail`].
///
/// **A store is out of reach** when it refuses the connection or the request, or when the client has waited for any answer of it for a
/// [request deadline](crate::Timing::request_deadline) and got none. Every other wait that ends without the lock is
/// [`TimedOut`](crate::ErrorKind::TimedOut), however short it was: such a wait counts for no breaker, and no policy applies to it. If the
/// store had not answered its request, the message says "not answered yet". An outage younger than the deadline may end a wait so, too. A
/// grant that came too late to be used counts as an outage.
///
/// **All but `Fail` means that two can hold the lock at once**: a client with a grant of the store (from before the outage, from a store
/// that this process alone does not reach, or from after the outage), and one in each process that continued without the store. Such a
/// guard says so ([`Guard::is_degraded`](crate::Guard::is_degraded)), has no token, and is counted
/// ([`Event::Degraded`](crate::observe::Event::Degraded)). Choose it where work done twice is better than work not done, and never for a
/// resource that a token protects.
///
/// Each acquire asks the store first. So the first one after the outage is granted by the store again; a degraded guard stays held until it
/// is given back.
///
/// # Examples
/// ```
/// use fencelock::{Client, OnOutage};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> fencelock::Result<()> {
/// # let (client, local) = (Client::connect("memory:").await?, Client::connect("memory:local").await?);
/// // Once per host, at least, while the servers are away.
/// let report = client.mutex("report")?.on_outage(OnOutage::DegradeTo(local));
/// let guard = report.acquire().await?;
/// assert!(!guard.is_degraded());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum OnOutage {
    /// The acquire fails.
    #[default]
    Fail,
    /// The acquire is granted at once, without any lock: no caller is excluded, not even in this process.
    /// [`Guard::remaining`](crate::Guard::remaining) is zero; `max_hold` holds; closing the client does not end it.
    RunWithout,
    /// The acquire asks the store of another client, under the same name and with the same options, for the rest of its wait limit, and
    /// once if nothing is left. Clients that degrade to the same store exclude each other there. The guard is that client's: its validity
    /// and its loss depend on that store alone. That store's reply is the result, an outage of its own included.
    DegradeTo(Client),
}
