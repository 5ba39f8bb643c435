//! TLS, as the store's URL asks for it: the same options, and the same verification, as the library's.

use fencelock::capability::StoreUrl;
use fencelock_zookeeper::{Stream, Tls};
use tokio::net::TcpStream;

/// What to trust, and what to show, by the options of `url`.
pub(super) fn of(url: &StoreUrl) -> Result<Tls, String> {
    let mut url = url.clone();
    let read = |path: String| std::fs::read(&path).map_err(|error| format!("{path}: {error}"));
    let [roots, chain, key] = ["tls_ca", "tls_cert", "tls_key"].map(|option| url.take(option).map(read).transpose());
    let roots = roots?;
    let tls = match (chain?, key?) {
        (Some(chain), Some(key)) => Tls::with_certificate(roots.as_deref(), &chain, &key),
        (None, None) => Tls::new(roots.as_deref()),
        _ => return Err("tls_cert and tls_key are given together".to_owned()),
    };
    tls.map_err(|error| error.to_string())
}

/// A connection to `host`, encrypted where there is `tls`.
pub(super) async fn dial(tls: Option<&Tls>, host: &str, port: u16) -> Result<Box<dyn Stream>, String> {
    let stream = TcpStream::connect((host, port)).await.map_err(|error| error.to_string())?;
    match tls {
        Some(tls) => wrap(tls, stream, host).await,
        None => Ok(Box::new(stream)),
    }
}

pub(super) async fn wrap(tls: &Tls, stream: TcpStream, host: &str) -> Result<Box<dyn Stream>, String> {
    tls.wrap(Box::new(stream), host).await.map_err(|error| error.to_string())
}
