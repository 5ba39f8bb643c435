//! The type of TLS in a build without it.

use std::convert::Infallible;

use crate::error::Result;
use crate::net::Stream;

/// How connections are encrypted: not at all in this build, which has the feature `tls` switched off.
#[derive(Debug, Clone)]
pub struct Tls(Infallible);

impl Tls {
    /// A build without TLS has no configuration of it.
    #[must_use]
    pub fn new(config: Infallible) -> Self {
        Self(config)
    }

    /// Encrypts a stream.
    ///
    /// # Errors
    /// None: no value exists on which this could be called.
    pub async fn wrap(&self, _: Box<dyn Stream>, _: &str) -> Result<Box<dyn Stream>> {
        match self.0 {}
    }
}
