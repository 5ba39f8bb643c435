//! The replacement of TLS to MySQL in a build without it.

use mysql_async::SslOpts;

use crate::error::{Error, ErrorKind, Result};
use crate::store::StoreUrl;

pub(super) fn encrypted(_: &mut StoreUrl) -> Result<SslOpts> {
    let message = "this build has no TLS to MySQL: say sslmode=disable where the network is trusted";
    Err(Error::new(ErrorKind::Unsupported, "TLS", message).with("feature", "mysql-tls"))
}
