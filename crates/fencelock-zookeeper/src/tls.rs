//! TLS: connections encrypted as a configuration of rustls says.

use std::fmt;
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::error::{Error, ErrorKind, Result};
use crate::net::Stream;

/// How connections are encrypted: which authorities the client trusts, and which certificate it shows, by a configuration of
/// [`rustls`](crate::rustls). The name in a server's certificate is compared with the host of the connect string.
#[derive(Clone)]
pub struct Tls(Arc<ClientConfig>);

impl Tls {
    /// Encrypts by `config`.
    #[must_use]
    pub fn new(config: Arc<ClientConfig>) -> Self {
        Self(config)
    }

    /// Encrypts `stream` to `host` as a client's connections are encrypted, for four-letter words.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`] when the server is not trusted, or speaks no TLS; [`ErrorKind::Config`] when `host` is no name that a
    /// certificate can have.
    pub async fn wrap(&self, stream: Box<dyn Stream>, host: &str) -> Result<Box<dyn Stream>> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            let message = format!("{host:?} is no name that a certificate can have");
            Error::new(ErrorKind::Config, "set up TLS", message)
        })?;
        let stream = TlsConnector::from(Arc::clone(&self.0)).connect(name, stream).await;
        let stream = stream
            .map_err(|error| Error::new(ErrorKind::Unreachable, "connect", format!("no TLS connection: {error}")))?;
        Ok(Box::new(stream))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}
