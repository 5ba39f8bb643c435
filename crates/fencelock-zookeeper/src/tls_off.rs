//! What stands in for TLS in a build without it.

use std::convert::Infallible;

use crate::error::{Error, ErrorKind, Result};
use crate::net::Stream;

/// How connections are encrypted: not at all in this build, which has the feature `tls` switched off.
#[derive(Debug, Clone)]
pub struct Tls(Infallible);

impl Tls {
    /// Trusts certificate authorities.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] always: this build has no TLS.
    pub fn new(_roots_pem: Option<&[u8]>) -> Result<Self> {
        Err(Error::new(
            ErrorKind::Config,
            "set up TLS",
            "this build has no TLS: switch on `tls` of fencelock-zookeeper, or `zookeeper-tls` of fencelock".to_owned(),
        ))
    }

    /// The same, and shows a certificate.
    ///
    /// # Errors
    /// As [`Tls::new`].
    pub fn with_certificate(roots_pem: Option<&[u8]>, _chain_pem: &[u8], _key_pem: &[u8]) -> Result<Self> {
        Self::new(roots_pem)
    }

    /// Expects another name in the certificates.
    ///
    /// # Errors
    /// None: there is nothing to call this on.
    pub fn server_name(self, _name: &str) -> Result<Self> {
        match self.0 {}
    }

    /// Encrypts a stream.
    ///
    /// # Errors
    /// None: there is nothing to call this on.
    pub async fn wrap(&self, _: Box<dyn Stream>, _: &str) -> Result<Box<dyn Stream>> {
        match self.0 {}
    }
}
