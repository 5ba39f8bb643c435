//! Certificates of servers and clients, in files.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

type Authority = CertifiedIssuer<'static, KeyPair>;

pub(crate) fn authority() -> Authority {
    let mut params = CertificateParams::default();
    // OpenSSL treats a certificate whose issuer has the name of its subject as self-signed.
    params.distinguished_name.push(DnType::CommonName, "an authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Writes `<name>.key`, `<name>.crt`, and both in one file, `<name>.pem`.
pub(crate) fn identity(authority: &Authority, directory: &Path, name: &str) {
    let key = KeyPair::generate().unwrap();
    let chain = CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, authority).unwrap().pem();
    let key = key.serialize_pem();
    fs::write(directory.join(format!("{name}.pem")), format!("{key}{chain}")).unwrap();
    fs::write(directory.join(format!("{name}.key")), key).unwrap();
    fs::write(directory.join(format!("{name}.crt")), chain).unwrap();
}

/// The identities of the server `127.0.0.1` and of `client` by the authority of `ours.pem`. The authority of `other.pem` has signed neither.
pub(crate) fn certificates() -> tempfile::TempDir {
    let (ours, other, directory) = (authority(), authority(), tempfile::tempdir().unwrap());
    let path = directory.path();
    identity(&ours, path, "127.0.0.1");
    identity(&ours, path, "client");
    fs::set_permissions(path.join("client.key"), Permissions::from_mode(0o600)).unwrap();
    fs::write(path.join("ours.pem"), ours.pem()).unwrap();
    fs::write(path.join("other.pem"), other.pem()).unwrap();
    directory
}
