//! The report of the night is made once, by one of five hosts, although the one that begins it dies in the middle.
//!
//! The desk objects: a report that lies there already cannot be put there again. `cargo run -p fencelock-examples --bin report -- URL`
//! runs it on any store that processes share and that keeps notes; a lease of a host that died has to run out there first.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, id};

use fencelock::Client;
use fencelock::jobs::{RunState, Slot};

const HOSTS: usize = 5;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [url, night, desk] = &arguments[..] {
        return host(url, night, Path::new(desk)).await;
    }
    let own = std::env::temp_dir().join(format!("fencelock-example-report-{}", id()));
    let (desk, night) = (own.join("desk"), format!("night {}", id()));
    fs::create_dir_all(&desk)?;
    let url = arguments.first().cloned().unwrap_or_else(|| format!("file://{}", own.join("locks").display()));
    let host = |_| Command::new(std::env::current_exe()?).args([&url, &night]).arg(&desk).spawn();
    let mut died = 0;
    for mut host in (0..HOSTS).map(host).collect::<Result<Vec<_>, _>>()? {
        died += usize::from(!host.wait()?.success());
    }
    assert_eq!(died, 1, "one host dies, and no other one");
    assert_eq!(fs::read_to_string(desk.join("pages"))?, "1.1 1.2 2.1 2.2 2.3 ", "the second run does all of it");
    let client = Client::connect(&url).await?;
    let last = client.job_status("example/report").await?.expect("it ran").last;
    assert_eq!((last.state, last.attempt, &last.slot), (RunState::Succeeded, 2, &night));
    client.close().await?;
    fs::remove_dir_all(&own)?;
    println!("of {HOSTS} hosts on {url} one made the report after another one had died over it");
    Ok(())
}

/// A host. Every host asks for the report, and waits while another host makes it.
async fn host(url: &str, night: &str, desk: &Path) -> Result<(), Box<dyn Error + Send + Sync>> {
    let client = Client::connect(url).await?;
    let report = client.job("example/report", Slot::named(night)?)?;
    let write = async |this: fencelock::jobs::JobRun| {
        for page in 1..=3 {
            if (this.attempt, page) == (1, 3) {
                std::process::abort(); // the power fails
            }
            write!(OpenOptions::new().create(true).append(true).open(desk.join("pages"))?, "{}.{page} ", this.attempt)?;
        }
        File::create_new(desk.join("report"))?;
        Ok::<_, Box<dyn Error + Send + Sync>>(())
    };
    report.run(write).await?;
    Ok(client.close().await?)
}
