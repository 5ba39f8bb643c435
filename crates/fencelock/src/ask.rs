//! How `fencelock doctor` asks servers for their settings, over the connections of their stores.

use futures_core::future::BoxFuture;

use crate::engine::options::URL_OPTIONS;
use crate::error::Result;
use crate::store::{StoreUrl, known};

pub(crate) type AskFn = fn(StoreUrl, Questions) -> Result<Vec<AskedServer>>;

/// Questions about settings in the language of the server. Rows of SQL are answered as lines of a name, a tab and a value.
pub(crate) type Questions = &'static [&'static str];

/// The name of a server, and its answers. The request checks nothing that a lock needs.
pub(crate) type AskedServer = (String, BoxFuture<'static, Result<Vec<Result<String>>>>);

/// Asks the servers of the store that `url` names. For `fencelock doctor` alone, which asks in the servers' own languages.
///
/// # Errors
/// [`ErrorKind::Config`] for an unknown scheme, and for a URL that the store refuses.
#[doc(hidden)]
pub fn ask_servers(mut url: StoreUrl, questions: Questions) -> Result<Vec<AskedServer>> {
    URL_OPTIONS.iter().for_each(|option| drop(url.take(option)));
    known(&url)?.ask.map_or_else(|| Ok(Vec::new()), |ask| ask(url, questions))
}
