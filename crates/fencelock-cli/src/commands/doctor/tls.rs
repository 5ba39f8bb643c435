//! TLS as the store's URL asks for it, with the options and the verification of the library, which has read the files by now.

use std::error::Error;

use fencelock::capability::StoreUrl;
use fencelock_zookeeper::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use fencelock_zookeeper::{Stream, Tls, rustls};
use tokio::net::TcpStream;

/// The authorities to trust, and the certificate to show, by the options of `url`.
pub(super) fn of(url: &StoreUrl) -> Result<Tls, String> {
    config(url.clone()).map(|config| Tls::new(config.into())).map_err(|error| error.to_string())
}

fn config(mut url: StoreUrl) -> Result<rustls::ClientConfig, Box<dyn Error>> {
    let read = |path: String| CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, _>>();
    let system = || Ok(rustls_native_certs::load_native_certs().certs);
    let mut trusted = rustls::RootCertStore::empty();
    trusted.add_parsable_certificates(url.take("tls_ca").map_or_else(system, read)?);
    let builder = rustls::ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into());
    let builder = builder.with_safe_default_protocol_versions()?.with_root_certificates(trusted);
    Ok(match url.take("tls_cert").zip(url.take("tls_key")) {
        Some((chain, key)) => builder.with_client_auth_cert(read(chain)?, PrivateKeyDer::from_pem_file(key)?)?,
        None => builder.with_no_client_auth(),
    })
}

/// A connection to `host`, encrypted where there is `tls`.
pub(super) async fn dial(tls: Option<&Tls>, host: &str, port: u16) -> Result<Box<dyn Stream>, String> {
    let stream = Box::new(TcpStream::connect((host, port)).await.map_err(|error| error.to_string())?);
    match tls {
        Some(tls) => tls.wrap(stream, host).await.map_err(|error| error.to_string()),
        None => Ok(stream),
    }
}
