//! TLS by the options of a URL: authorities, and the client's certificate. Each server is always verified by the names in its certificate.

use std::fmt;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use crate::error::{Error, ErrorKind, Result};
use crate::store::StoreUrl;
use crate::store::secret::refuse_shared;

/// How a connection is encrypted.
#[derive(Clone)]
pub(crate) struct Tls(Arc<ClientConfig>);

impl Tls {
    /// Takes `tls_ca` (instead of the system's authorities), `tls_cert` and `tls_key`: PEM files. `spoken` is the protocol to negotiate.
    pub(crate) fn from_url(url: &mut StoreUrl, spoken: Option<&str>) -> Result<Self> {
        let (cert, key) = (url.take("tls_cert"), url.take("tls_key"));
        if cert.is_some() != key.is_some() {
            return Err(bad("tls_cert and tls_key are given together"));
        }
        let builder = builder(match url.take("tls_ca") {
            Some(path) => certificates("tls_ca", &path)?,
            None => rustls_native_certs::load_native_certs().certs,
        })?;
        let mut config = match cert.zip(key) {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => builder
                .with_client_auth_cert(certificates("tls_cert", &cert)?, private_key(&key)?)
                .map_err(|error| bad("the certificate of tls_cert cannot be used").with("cause", error))?,
        };
        config.alpn_protocols = spoken.into_iter().map(Into::into).collect();
        Ok(Self(Arc::new(config)))
    }

    /// Configures a client that encrypts its connections itself.
    pub(crate) fn configure<T>(&self, with: impl Fn(Arc<ClientConfig>) -> T) -> T {
        with(Arc::clone(&self.0))
    }

    /// Encrypts `stream` to `host`.
    pub(crate) async fn wrap<S>(&self, stream: S, host: &str) -> Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| bad("the host is no name that a certificate can have").with("host", host))?;
        let stream = TlsConnector::from(Arc::clone(&self.0)).connect(name, stream).await;
        stream.map_err(|error| {
            let message = "no TLS connection: the server's certificate is not trusted, or the server speaks no TLS";
            Error::new(ErrorKind::Unreachable, "connect", message).with("cause", error).retryable()
        })
    }
}

fn bad(message: &'static str) -> Error {
    Error::new(ErrorKind::Config, "TLS", message)
}

fn builder(
    roots: Vec<CertificateDer<'static>>,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>> {
    let mut trusted = RootCertStore::empty();
    let (added, _) = trusted.add_parsable_certificates(roots);
    if added == 0 {
        return Err(bad(
            "no certificate authority can be used, of this system's or of those in tls_ca: name one with tls_ca",
        ));
    }
    // The provider is a parameter, and not the process's default: a process with two providers has no default.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| bad("no version of TLS").with("cause", error))?;
    Ok(builder.with_root_certificates(trusted))
}

fn certificates(option: &'static str, path: &str) -> Result<Vec<CertificateDer<'static>>> {
    let unusable = |error: &dyn fmt::Display| {
        bad("a file of PEM certificates cannot be read").with("option", option).with("path", path).with("cause", error)
    };
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = read.map_err(|error| unusable(&error))?;
    if certificates.is_empty() { Err(unusable(&"there is none in it")) } else { Ok(certificates) }
}

fn private_key(path: &str) -> Result<PrivateKeyDer<'static>> {
    refuse_shared("tls_key", path.as_ref())?;
    PrivateKeyDer::from_pem_file(path)
        .map_err(|error| bad("the private key of tls_key cannot be read").with("path", path).with("cause", error))
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn files_without_a_certificate_and_keys_of_other_certificates_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| {
            let path = directory.path().join(name);
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            path.display().to_string()
        };
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(["a".to_owned()]).unwrap().self_signed(&key).unwrap();
        let (ca, key) = (file("a.crt", &certificate.pem()), file("a.key", &key.serialize_pem()));
        let other = file("other.key", &KeyPair::generate().unwrap().serialize_pem());
        let empty = file("empty", "");
        let broken = file("broken", "-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n");
        let read = |options: String| Tls::from_url(&mut StoreUrl::parse(&format!("x://h/?{options}")).unwrap(), None);
        assert!(read(format!("tls_ca={ca}&tls_cert={ca}&tls_key={key}")).is_ok());
        for wrong in [
            format!("tls_ca={empty}"),
            format!("tls_ca={broken}"),
            format!("tls_ca={ca}&tls_cert={empty}&tls_key={key}"),
            format!("tls_ca={ca}&tls_cert={ca}&tls_key={empty}"),
            format!("tls_ca={ca}&tls_cert={ca}&tls_key={other}"),
            format!("tls_ca={ca}&tls_cert={ca}"),
        ] {
            let error = read(wrong.clone()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{wrong}: {error}");
        }
    }
}
