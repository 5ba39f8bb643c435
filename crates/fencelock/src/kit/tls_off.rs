//! Refuses TLS options in a build without TLS.

use std::convert::Infallible;

use crate::error::{Error, ErrorKind, Result};
use crate::store::StoreUrl;

/// There is none.
#[derive(Debug, Clone)]
pub(crate) struct Tls(Infallible);

impl Tls {
    pub(crate) fn from_url(_: &mut StoreUrl, _: Option<&str>) -> Result<Self> {
        Err(Error::new(ErrorKind::Unsupported, "TLS", "this build has no TLS"))
    }

    pub(crate) fn configure<C, T>(&self, _: impl Fn(C) -> T) -> T {
        match self.0 {}
    }

    #[allow(clippy::unused_async, reason = "as with TLS")]
    pub(crate) async fn wrap<S>(&self, _: S, _: &str) -> Result<S> {
        match self.0 {}
    }
}
