//! A configuration is loaded once for eight services, and once more whenever its version changes: each service watches for that.
//!
//! Its source objects: a second load of a version fails. `cargo run -p fencelock-examples --bin config -- URL` runs it on any store
//! that processes share and that keeps notes.

use std::error::Error;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, id};
use std::time::Duration;

use fencelock::Client;

const SERVICES: usize = 8;
const VERSIONS: usize = 5;
const PAUSE: Duration = Duration::from_millis(10);
type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [url, name, source] = &arguments[..] {
        return serve(url, name, Path::new(source)).await;
    }
    let own = std::env::temp_dir().join(format!("fencelock-example-config-{}", id()));
    let (source, name) = (own.join("source"), format!("example/config/{}", id()));
    fs::create_dir_all(&source)?;
    let url = arguments.first().cloned().unwrap_or_else(|| format!("file://{}", own.join("locks").display()));
    let service = |_| Command::new(std::env::current_exe()?).args([&url, &name]).arg(&source).spawn();
    let mut services = (0..SERVICES).map(service).collect::<Result<Vec<_>, _>>()?;
    let client = Client::connect(&url).await?;
    for version in 1..=VERSIONS {
        client.mutex(&name)?.run(async |guard| guard.write_note(version.to_string(), None).await).await??;
        // A file marks the load of a version, and a file of each service marks that the service has it.
        while fs::read_dir(&source)?.count() < version * (1 + SERVICES) {
            assert!(services.iter_mut().all(|one| one.try_wait().is_ok_and(|end| end.is_none_or(|end| end.success()))));
            tokio::time::sleep(PAUSE).await;
        }
    }
    assert!(services.iter_mut().all(|one| one.wait().is_ok_and(|end| end.success())), "a service failed");
    fs::remove_dir_all(&own)?;
    println!("{SERVICES} services on {url} followed {VERSIONS} versions, each of which one of them loaded for all");
    Ok(client.close().await?)
}

/// A service, which looks for a new version again and again.
async fn serve(url: &str, name: &str, source: &Path) -> Outcome {
    let (client, mut has) = (Client::connect(url).await?, 0);
    while has < VERSIONS {
        let version = client.note(name).await?.note.map_or(Ok(0), |note| note.text().unwrap_or_default().parse())?;
        assert!(version >= has, "the version went back");
        if version > has {
            let load = async || -> Outcome<_> {
                File::create_new(source.join(version.to_string()))?;
                Ok(format!("limit = {version}").into_bytes())
            };
            let config = client.once(format!("{name}/{version}"), "1")?.get_or_make(load).await?;
            assert_eq!(config.strip_prefix(b"limit = "), Some(version.to_string().as_bytes()));
            File::create_new(source.join(format!("{version}-{}", id())))?;
            has = version;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(client.close().await?)
}
