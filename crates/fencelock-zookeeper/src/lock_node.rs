//! Finding the node of a lock, so that a write can depend on it.

use crate::client::Client;
use crate::error::{ErrorKind, Result};

impl Client {
    /// The child of `parent` that the transaction `czxid` created, if it is there: of a lock, the node of the grant with that fencing token.
    ///
    /// A write that belongs under the lock is one [`Client::multi`] with a check of that node: the servers do it only while the grant
    /// lasts, however late it arrives. No resource has to compare tokens, and there is no gap before the first write of the next holder.
    ///
    /// The call lists the children, and asks for one after the other, by the numbers at their ends: a holder is among the first.
    ///
    /// ```no_run
    /// use fencelock_zookeeper::{Client, ErrorKind, Operation};
    ///
    /// /// Writes under the lock `/locks/stock`; `token` is `guard.token()` of the crate `fencelock`, as an `i64`.
    /// async fn sell(client: &Client, token: i64, left_over: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
    ///     let node = client.child_created_by("/locks/stock", token).await?.ok_or("the lock is lost")?;
    ///     let write = Operation::set_data("/stock", left_over, None);
    ///     match client.multi(&[Operation::check(&node, None), write]).await {
    ///         Err(error) if error.refused_operation() == Some(0) && error.kind() == ErrorKind::NoNode => {
    ///             Err("the lock was lost, and nothing was written".into())
    ///         }
    ///         done => Ok(done.map(drop)?),
    ///     }
    /// }
    /// ```
    ///
    /// The node of a reader that was a writer is younger than its token: so the call does not find it.
    ///
    /// # Errors
    /// [`ErrorKind::NoAuth`]; the errors of any request. A parent that is not there has no such child.
    ///
    /// # Cancel safety
    /// The call reads, and can be dropped at any time.
    pub async fn child_created_by(&self, parent: &str, czxid: i64) -> Result<Option<String>> {
        // The lock's session may be on another server, which is ahead of ours.
        self.sync(parent).await?;
        let mut children = match self.get_children(parent).await {
            Err(error) if error.kind() == ErrorKind::NoNode => return Ok(None),
            answer => answer?.0,
        };
        children.sort_by_cached_key(|child| number_of(child));
        for child in children {
            let path = format!("{}/{child}", parent.trim_end_matches('/'));
            if self.exists(&path).await?.is_some_and(|stat| stat.czxid == czxid) {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }
}

/// The number at the end of a name: ten characters. A name without a number comes last.
fn number_of(child: &str) -> i64 {
    let digits = child.len().checked_sub(10).and_then(|at| child.get(at..));
    digits.and_then(|digits| digits.parse::<i32>().ok()).map_or(i64::MAX, i64::from)
}
