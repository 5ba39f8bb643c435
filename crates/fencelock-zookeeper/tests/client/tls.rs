//! TLS to a real server, and to one with the wrong name.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{LASTING, PATIENCE, put, soon};
use fencelock_testbed::zookeeper::{self, Ensemble, Settings};
use fencelock_zookeeper::rustls::crypto::ring::default_provider;
use fencelock_zookeeper::rustls::pki_types::pem::PemObject as _;
use fencelock_zookeeper::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use fencelock_zookeeper::rustls::{ClientConfig, RootCertStore};
use fencelock_zookeeper::{Client, Config, CreateMode, ErrorKind, Tls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

/// A certificate authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A chain and its key, both as PEM.
struct Identity {
    chain: String,
    key: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    fn identity(&self, name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &self.0).unwrap();
        Identity { chain: certificate.pem(), key: key.serialize_pem() }
    }
}

/// A server that asks its clients for certificates, and calls itself `name`.
fn server(authority: &Authority, name: &str) -> (Ensemble, TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let (identity, trusted) = (directory.path().join("identity.pem"), directory.path().join("trusted.pem"));
    let Identity { chain, key } = authority.identity(name);
    fs::write(&identity, key + &chain).unwrap();
    fs::write(&trusted, authority.pem()).unwrap();
    let tls = zookeeper::Tls { identity, trusted, asks_clients: true };
    let ensemble = Ensemble::start(Settings { tls: Some(tls), ..Settings::default() }).unwrap();
    let address = ensemble.server(0).secure_address().unwrap().to_string();
    (ensemble, directory, address)
}

fn tls(trusted: &Authority, shown: Option<Identity>) -> Tls {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.0.der().clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let config = match shown {
        Some(Identity { chain, key }) => {
            let chain = vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()];
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap()
        }
        None => builder.with_no_client_auth(),
    };
    Tls::new(Arc::new(config))
}

/// A configuration of the server, with a certificate of `authority`.
fn config(address: &str, trusted: &Authority, authority: &Authority) -> Config {
    let tls = tls(trusted, Some(authority.identity("client")));
    Config::new(address).unwrap().tls(tls).session_timeout(LASTING).connect_deadline(PATIENCE)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_opened_only_where_both_sides_trust_each_other() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (_server, _directory, address) = server(&authority, "127.0.0.1");
    let (client, _events) = soon(Client::connect(config(&address, &authority, &authority))).await.unwrap();
    put(&client, "/a", CreateMode::Persistent).await;
    // Enough at once that the encryption has to hold some of it back.
    let data = vec![7; 200_000];
    let written: Vec<_> = (0..20).map(|_| client.set_data("/a", &data, None)).collect();
    for answer in written {
        soon(answer).await.unwrap();
    }
    assert_eq!(soon(client.get_data("/a")).await.unwrap().0, data);
    client.close().await.unwrap();

    let brief = |config: Config| config.connect_deadline(Duration::from_secs(5));
    let stranger = soon(Client::connect(brief(config(&address, &other, &authority)))).await.unwrap_err();
    assert!(stranger.to_string().contains("TLS"), "{stranger}");
    soon(Client::connect(brief(config(&address, &authority, &other)))).await.unwrap_err();
    let nameless = tls(&authority, None);
    soon(Client::connect(brief(Config::new(&address).unwrap().tls(nameless)))).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_known_by_the_name_in_its_certificate_and_no_other() {
    let authority = Authority::new();
    let (_server, _directory, address) = server(&authority, "localhost");
    let right = config(&address.replace("127.0.0.1", "localhost"), &authority, &authority);
    let (client, _events) = soon(Client::connect(right)).await.unwrap();
    client.close().await.unwrap();
    // The server has completed a handshake, and answers fast now.
    let brief = config(&address, &authority, &authority).connect_deadline(Duration::from_secs(10));
    let error = soon(Client::connect(brief)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.to_string().contains("not valid for name"), "{error}");
}
