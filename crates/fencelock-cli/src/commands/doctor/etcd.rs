//! The version and the metrics of a member of etcd, by HTTP, which need no user.

use fencelock::capability::StoreUrl;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::checks::{Check, Facts, Severity, checks};
use super::tls;

const LONGEST: u64 = 4 * 1024 * 1024;

pub(super) async fn facts(url: &StoreUrl, server: &str) -> Result<Facts, String> {
    let mut facts = Facts::default();
    let version = get(url, server, "/version").await?;
    let version = version.split_once(r#""etcdserver":""#).and_then(|(_, rest)| rest.split('"').next());
    facts.set("version", version.ok_or("it does not answer as etcd does")?);
    let metrics = get(url, server, "/metrics").await?;
    facts.read(&metrics, ' ');
    // Each member counts the bytes that it sent to each of the others.
    facts.set("peers", metrics.lines().filter(|line| line.starts_with("etcd_network_peer_sent_bytes_total")).count());
    Ok(facts)
}

async fn get(url: &StoreUrl, server: &str, path: &str) -> Result<String, String> {
    let tls = if url.scheme() == "etcds" { Some(tls::of(url)?) } else { None };
    let given = server.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let (host, port) = given.unwrap_or((server, 2379));
    let mut stream = tls::dial(tls.as_ref(), host.trim_matches(['[', ']']), port).await?;
    let mut answer = Vec::new();
    let asked = async {
        let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        stream.flush().await?;
        stream.take(LONGEST).read_to_end(&mut answer).await
    };
    match asked.await {
        Err(error) if answer.is_empty() => Err(error.to_string()),
        _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
    }
}

checks! {
    Problem, |facts| facts.is("etcd_server_has_leader", "0").then(|| "the member has no leader".to_owned()),
        "without a majority of members no lock is granted and none is renewed", "a majority of the members running, and a way between them";
    Warning, |facts| facts.is("peers", "0").then(|| "there is one member".to_owned()),
        "the failure of the member ends every lock", "three members or five";
    Note, |facts| (facts.is("servers", "1") && !facts.is("peers", "0")).then(|| "the URL names one member of several".to_owned()),
        "a client whose only member fails finds no other one", "all members in the URL";
    Warning, |facts| {
        let used = facts.nearly("etcd_mvcc_db_total_size_in_bytes", "etcd_server_quota_backend_bytes")?;
        Some(format!("the database has {used} bytes"))
    }, "a full etcd grants no lock (NOSPACE)", "--auto-compaction-retention, `etcdctl defrag`, or a higher --quota-backend-bytes";
    Note, |facts| {
        let version = facts.text("version");
        let parts: Vec<u32> = version.split('.').filter_map(|part| part.parse().ok()).collect();
        matches!(parts[..], [major, minor, ..] if (major, minor) < (3, 5)).then(|| format!("the member is etcd {version}"))
    }, "releases before 3.5 get no corrections any more", "a release that is maintained";
}
