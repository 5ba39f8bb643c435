//! The search for a server that takes locks, by the answers of Sentinels or of the nodes of a Cluster.

use std::future::pending;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use crate::error::{Error, ErrorKind, Result};
use crate::kit::address::HostPort;
use crate::kit::pause::spread;
use crate::store::Tasks;
use crate::stores::redis::wire::{Address, Connection, Dialler, begin};
use crate::time::Clock;

/// How long other servers may take to answer once one has.
const GRACE: Duration = Duration::from_millis(200);

/// The pause before the search begins again, unless a message arrives first.
const AGAIN: Duration = Duration::from_secs(1);

/// The hint for a server that other servers name, and that does not answer.
const MAP: &str = "if only the servers know this address, the option `map` names the one to dial";

impl Dialler {
    /// Searches for the server that takes locks, and connects. Repeats a failed search within the time limit of a connection.
    pub(crate) async fn find(&self, number: u64, tasks: &Tasks) -> Result<Arc<Connection>> {
        // A Cluster sends no messages. The second search begins at once there: the refusing node may have named the new owner.
        let is_cluster = !matches!(self.config.address, Address::Primary(_));
        let (mut pause, again) = if is_cluster { (Duration::ZERO, AGAIN * 3 / 10) } else { (AGAIN, AGAIN) };
        let alone = |found: Result<_>| found.map(|(server, named)| (server, named, pending().boxed()));
        loop {
            let within = self.patience / 2;
            let found = match &self.config.address {
                Address::Primary(sentinels) => sentinels.find(&*self.clock, within).await.map(|found| {
                    let (server, named) = (sentinels.dialled(&found), found.server.clone());
                    (server, named, sentinels.clone().moved(found, Arc::clone(&self.clock)).boxed())
                }),
                Address::Owner(slot) => alone(slot.find((&self.clock, tasks, within)).await),
                Address::Nodes(nodes) => alone(nodes.find((&self.clock, tasks, within), None).await),
                Address::Tcp(_) | Address::Unix(_) => unreachable!("an address needs no search"),
            };
            let (unfit, moved) = match found {
                Ok((server, named, mut moved)) => {
                    let config = self.config.at(server.clone());
                    let greeted = tokio::select! {
                        biased;
                        greeted = self.greeted(&config, number, tasks) => greeted,
                        () = &mut moved => continue,
                    };
                    match greeted {
                        Ok(ready) => return Ok(begin(ready, moved)),
                        Err(error) if named != server => (error.with("named", named), moved),
                        Err(error) if error.kind() == ErrorKind::Unreachable => (error.with("hint", MAP), moved),
                        Err(error) => (error, moved),
                    }
                }
                Err(error) => (error, pending().boxed()),
            };
            if !unfit.is_retryable() {
                return Err(unfit);
            }
            tracing::debug!(error = %unfit, "no server is found that takes locks");
            *self.unfit.lock().unwrap_or_else(PoisonError::into_inner) = Some(unfit);
            let until = self.clock.now().after(spread(std::mem::replace(&mut pause, again)));
            tokio::select! {
                () = moved => {}
                () = self.clock.sleep_until(until) => {}
            }
        }
    }
}

/// Asks all servers within `patience`, and returns the newest answer. Without an answer, the error lists each server's error, and is permanent
/// if all of them are.
pub(crate) async fn newest<'a, T, N: Ord>(
    all: impl Iterator<Item = (&'a HostPort, impl Future<Output = Result<T>>)>,
    newness: impl Fn(&T) -> N,
    (clock, patience): (&dyn Clock, Duration),
    (shown, message, one, many): (&str, &'static str, &'static str, &'static str),
) -> Result<T> {
    let (servers, asks): (Vec<_>, FuturesUnordered<_>) =
        all.map(|(server, answer)| (server, async move { (server, answer.await) })).unzip();
    let (mut asks, mut newest, mut refused) = (asks, None::<T>, Vec::new());
    let mut until = clock.now().after(patience);
    loop {
        tokio::select! {
            biased;
            answer = asks.next() => match answer {
                Some((_, Ok(answer))) => {
                    until = until.min(clock.now().after(GRACE));
                    newest = newest.into_iter().chain([answer]).max_by_key(&newness);
                }
                Some((server, Err(error))) => refused.push((server, error)),
                None => break,
            },
            () = clock.sleep_until(until) => break,
        }
    }
    if let Some(newest) = newest {
        return Ok(newest);
    }
    if refused.len() == servers.len() && refused.iter().all(|(_, error)| !error.is_retryable()) {
        let (server, error) = refused.swap_remove(0);
        return Err(error.with(one, server));
    }
    let silent = servers.iter().filter(|server| refused.iter().all(|(refuses, _)| refuses != *server));
    let silent = silent.map(|server| format!("{server}: no answer"));
    let each = refused.iter().map(|(server, error)| format!("{server}: {error}")).chain(silent);
    let error = Error::new(ErrorKind::Unreachable, "connect", message).with("server", shown).retryable();
    Err(error.with(many, each.collect::<Vec<_>>().join("; ")))
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;
    use crate::stores::memory::VirtualClock;

    #[test]
    fn servers_that_have_all_refused_are_not_waited_for() {
        let (clock, server) = (VirtualClock::new(), HostPort { host: "a".to_owned(), port: 1 });
        let refused = || ready(Err::<(), _>(Error::new(ErrorKind::Unreachable, "connect", "refused").retryable()));
        let all = [(&server, refused()), (&server, refused())].into_iter();
        let answer = newest(all, |()| 0, (&clock, Duration::from_secs(3)), ("shown", "none answers", "one", "many"));
        let error = answer.now_or_never().expect("no answer is missing").unwrap_err();
        assert!(error.is_retryable() && error.to_string().contains("none answers"), "{error}");
    }
}
