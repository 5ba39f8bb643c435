//! TLS as a `mysql:` URL asks for it. The driver encrypts by itself, so this is not the stores' own.

use std::path::PathBuf;

use mysql_async::{ClientIdentity, SslOpts};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};

use super::mysql::bad;
use crate::error::Result;
use crate::store::StoreUrl;
use crate::store::secret::refuse_shared;

/// Takes `tls_ca` (instead of what the system trusts), `tls_cert` and `tls_key`: files of PEM blocks. The driver reads them when it connects.
pub(super) fn encrypted(url: &mut StoreUrl) -> Result<SslOpts> {
    // The driver takes the provider of the process, and a process with two of which none was chosen has none.
    if CryptoProvider::get_default().is_none() {
        // Another thread may choose one just now.
        let _ = ring::default_provider().install_default();
    }
    // An unreadable file is reported now.
    let file = |option: &'static str, path: String| -> Result<PathBuf> {
        let read = std::fs::read(&path).map_err(|error| {
            bad("a file of PEM blocks cannot be read").with("option", option).with("path", &path).with("cause", error)
        });
        read.map(|_| path.into())
    };
    let roots = match url.take("tls_ca") {
        Some(path) => vec![file("tls_ca", path)?.into()],
        None => {
            let found = rustls_native_certs::load_native_certs().certs;
            if found.is_empty() {
                return Err(bad("this system trusts no certificate authority: name one with tls_ca"));
            }
            found.into_iter().map(|certificate| certificate.to_vec().into()).collect()
        }
    };
    let identity = match (url.take("tls_cert"), url.take("tls_key")) {
        (None, None) => None,
        (Some(cert), Some(key)) => {
            refuse_shared("tls_key", key.as_ref())?;
            Some(ClientIdentity::new(file("tls_cert", cert)?.into(), file("tls_key", key)?.into()))
        }
        _ => return Err(bad("tls_cert and tls_key are given together")),
    };
    Ok(SslOpts::default().with_root_certs(roots).with_disable_built_in_roots(true).with_client_identity(identity))
}
