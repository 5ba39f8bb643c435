//! TLS: what to trust, and what to show.

use std::fmt;
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use crate::error::{Error, ErrorKind, Result};
use crate::net::Stream;

/// How connections are encrypted. Servers are verified by the names in their certificates (subject alternative names) against the host of the
/// connect string; nothing is looked up in reverse, and there is no way to leave verification out.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
    shows_certificate: bool,
}

impl Tls {
    /// Trusts the certificate authorities in `roots_pem`, one PEM certificate or several; with `None` those that the system trusts.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when there is none, or one cannot be read.
    pub fn new(roots_pem: Option<&[u8]>) -> Result<Self> {
        let config = builder(roots_pem)?.with_no_client_auth();
        Ok(Self { config: Arc::new(config), server_name: None, shows_certificate: false })
    }

    /// The same, and shows the servers a certificate of our own: its chain and its private key, each as PEM.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when one of them cannot be read, or the key is not that of the certificate.
    pub fn with_certificate(roots_pem: Option<&[u8]>, chain_pem: &[u8], key_pem: &[u8]) -> Result<Self> {
        let chain = certificates(chain_pem, "the client's certificate")?;
        let key = PrivateKeyDer::from_pem_slice(key_pem)
            .map_err(|error| refused(format!("the client's private key cannot be read: {error}")))?;
        let config = builder(roots_pem)?
            .with_client_auth_cert(chain, key)
            .map_err(|error| refused(format!("the client's certificate cannot be used: {error}")))?;
        Ok(Self { config: Arc::new(config), server_name: None, shows_certificate: true })
    }

    /// Expects this name (or IP address) in the certificates instead of the host of the connect string.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when it is no name.
    pub fn server_name(mut self, name: &str) -> Result<Self> {
        self.server_name = Some(parse_name(name)?);
        Ok(self)
    }

    /// Encrypts `stream` to `host` as connections of clients are: for what else is said to the servers, as their four-letter words.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`] when the server is not trusted, or speaks no TLS; [`ErrorKind::Config`] when `host` is no name that a
    /// certificate can have.
    pub async fn wrap(&self, stream: Box<dyn Stream>, host: &str) -> Result<Box<dyn Stream>> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => parse_name(host)?,
        };
        let stream = TlsConnector::from(Arc::clone(&self.config)).connect(name, stream).await;
        let stream = stream
            .map_err(|error| Error::new(ErrorKind::Unreachable, "connect", format!("no TLS connection: {error}")))?;
        Ok(Box::new(stream))
    }
}

fn builder(roots_pem: Option<&[u8]>) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>> {
    let roots = roots_pem.map_or_else(system_roots, given_roots)?;
    // Handed in, never taken from the process: a process with two providers would have none.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(format!("no version of TLS: {error}")))?;
    Ok(builder.with_root_certificates(roots))
}

fn given_roots(pem: &[u8]) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem, "the certificate authority")? {
        roots.add(certificate).map_err(|error| refused(format!("a certificate authority cannot be used: {error}")))?;
    }
    Ok(roots)
}

/// Passes over what cannot be read: systems trust dozens.
fn system_roots() -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if added == 0 {
        return Err(refused("this system trusts no certificate authority: name one".to_owned()));
    }
    Ok(roots)
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>> {
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(refused(format!("{what}: there is no PEM certificate in it"))),
        Err(error) => Err(refused(format!("{what} cannot be read: {error}"))),
    }
}

fn parse_name(name: &str) -> Result<ServerName<'static>> {
    ServerName::try_from(name.to_owned())
        .map_err(|_| refused(format!("{name:?} is no name that a certificate can have")))
}

fn refused(message: String) -> Error {
    Error::new(ErrorKind::Config, "set up TLS", message)
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("server_name", &self.server_name)
            .field("shows_certificate", &self.shows_certificate)
            .finish_non_exhaustive()
    }
}
