//! `fencelock jobs`: the last run of each job.

use std::time::Duration;

use clap::Args;
use fencelock::jobs::{EarlierRun, JobStatus, RunState};
use fencelock::{Client, ErrorKind, Name};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::Serialize;

use super::StoreArguments;
use crate::arguments;
use crate::locks::READS;
use crate::output::Outcome;
use crate::show::{age, hex, print_json, print_store, print_table, told};

/// What `jobs --check` exits with when something is wrong.
const WRONG: u8 = 1;

/// Show the last run of jobs, as `run --once-per` and `run --slot` leave it in the store, which must be named.
///
/// Without names, all jobs that have a record. The table shows up to five runs of each, the last one first.
///
/// With --json: an array of objects with `name`, `store`, `state` ("running", "succeeded", "failed", "died", or "never": no run is
/// known), `slot`, `schedule` (null for a slot of --slot), `host`, `pid` and `client` (who ran it), `token` (a string), `began` (RFC 3339, by
/// the store's clock), `took_ms` (null while it runs, and of one that died), `attempt` (which run for its slot), `detail` (how it ended),
/// `missed_before` (slots without a run before it), `missed` (slots that began since without a run, up to 1000; null for a slot of --slot),
/// `ahead` (whether the record is from the future of the store's clock, which was set back), `last_success` (when the last run that
/// succeeded ended) and `earlier` (up to four runs before, each with `slot`, `state`, `detail`, `host`, `began` and `took_ms`).
#[derive(Debug, Args)]
pub(crate) struct Jobs {
    /// The jobs' names, which are those of their locks.
    #[arg(value_name = "NAME", value_parser = arguments::name())]
    names: Vec<Name>,
    /// Exit with 1 if one of them failed, died, never ran, has missed a slot, or has a record from the future of the store's clock.
    #[arg(long, requires = "names")]
    check: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Jobs {
    pub(super) async fn run(&self, store: &StoreArguments) -> Outcome<u8> {
        let (chosen, client) = store.named().connect_to_watch(&self.names).await?;
        let found = self.look(&client).await;
        super::farewell(&client, found.is_err()).await;
        let found = found.map_err(|error| error.with("store from", &chosen.origin))?;
        let shown: Vec<_> =
            found.iter().map(|(name, status)| Shown::new(name, status.as_ref(), &chosen.name())).collect();
        if self.json {
            print_json(&shown)?;
        } else {
            let heads = ["JOB", "STATE", "SLOT", "WHO", "BEGAN", "TOOK", "ATTEMPT", "MISSED", "DETAIL"];
            print_table(&heads, shown.iter().flat_map(Shown::rows))?;
            print_store(&chosen)?;
        }
        Ok(if self.check && shown.iter().any(Shown::is_wrong) { WRONG } else { 0 })
    }

    async fn look(&self, client: &Client) -> fencelock::Result<Vec<(Name, Option<JobStatus>)>> {
        let all = self.names.is_empty();
        let names = if all { client.job_names().await? } else { self.names.clone() };
        let looks = stream::iter(names).map(async |name| match client.job_status(&name).await {
            // Its record was deleted, and its lock may have another note by now.
            Err(error) if all && error.kind() == ErrorKind::Layout => Ok(None),
            Ok(None) if all => Ok(None),
            status => Ok(Some((name, status?))),
        });
        looks.buffered(READS).try_filter_map(async |found| Ok(found)).try_collect().await
    }
}

/// One job.
#[derive(Debug, Serialize)]
struct Shown {
    name: String,
    store: String,
    state: String,
    slot: Option<String>,
    schedule: Option<String>,
    host: Option<String>,
    pid: Option<u32>,
    client: Option<String>,
    token: Option<String>,
    began: Option<String>,
    took_ms: Option<u64>,
    attempt: Option<u32>,
    detail: Option<String>,
    missed_before: Option<u64>,
    missed: Option<u64>,
    ahead: Option<bool>,
    last_success: Option<String>,
    earlier: Vec<EarlierRun>,
    #[serde(skip)]
    who: Option<String>,
    #[serde(skip)]
    age: Option<String>,
}

impl Shown {
    fn new(name: &Name, status: Option<&JobStatus>, store: &str) -> Self {
        let last = status.map(|status| &status.last);
        let named = last.map(|last| &last.owner).filter(|owner| !owner.host.is_empty());
        let age = status.and_then(|status| age(status.last.began, status.now));
        Self {
            name: name.to_string(),
            store: store.to_owned(),
            state: last.map_or_else(|| "never".to_owned(), |last| word(last.state)),
            slot: last.map(|last| last.slot.clone()),
            schedule: last.and_then(|last| last.schedule.clone()),
            host: named.map(|owner| owner.host.clone()),
            pid: named.map(|owner| owner.pid),
            client: last.map(|last| hex(last.owner.client)),
            token: last.and_then(|last| last.token).map(|token| token.to_string()),
            began: last.map(|last| humantime::format_rfc3339_millis(last.began).to_string()),
            took_ms: last.and_then(|last| last.took?.as_millis().try_into().ok()),
            attempt: last.map(|last| last.attempt),
            detail: last.and_then(|last| last.detail.clone()),
            missed_before: last.map(|last| last.missed),
            missed: status.and_then(|status| status.missed),
            ahead: status.map(|status| status.is_ahead),
            last_success: status
                .and_then(|status| Some(humantime::format_rfc3339_millis(status.succeeded?).to_string())),
            earlier: status.map(|status| status.earlier.clone()).unwrap_or_default(),
            who: last.map(|last| last.owner.to_string()),
            age,
        }
    }

    fn is_wrong(&self) -> bool {
        let has_missed = [self.missed_before, self.missed].into_iter().flatten().any(|missed| missed > 0);
        !matches!(&*self.state, "running" | "succeeded") || has_missed || self.ahead == Some(true)
    }

    /// The last run, and those before it.
    fn rows(&self) -> impl Iterator<Item = Vec<String>> {
        let took = |ms: Option<u64>| told(ms.map(|ms| humantime::format_duration(Duration::from_millis(ms))).as_ref());
        let last = vec![
            self.name.clone(),
            self.state.clone(),
            told(self.slot.as_ref()),
            told(self.who.as_ref()),
            told(self.age.as_ref()),
            took(self.took_ms),
            told(self.attempt.as_ref()),
            told(self.missed.as_ref()),
            self.detail.clone().unwrap_or_default(),
        ];
        let before = self.earlier.iter().map(move |run| {
            let [name, attempt, missed] = [const { String::new() }; 3];
            let (state, began, detail) = (word(run.state), run.began.clone(), run.detail.clone());
            let (slot, host) = (run.slot.clone(), run.host.clone());
            vec![name, state, slot, host, began, took(run.took_ms), attempt, missed, detail.unwrap_or_default()]
        });
        [last].into_iter().chain(before)
    }
}

fn word(state: RunState) -> String {
    format!("{state:?}").to_lowercase()
}
