//! `fencelock jobs`: the last run of each job.

use std::time::Duration;

use clap::Args;
use fencelock::jobs::{EarlierRun, JobStatus, RunState};
use fencelock::{ErrorKind, Name};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::Serialize;

use super::{Failures, StoreArguments, watch_at};
use crate::arguments;
use crate::locks::READS;
use crate::output::Outcome;
use crate::settings::Chosen;
use crate::show::{ago, hex, print_json, print_store, print_table, shown_or_dash};
use crate::times;

const WRONG: u8 = 1;

/// Show the last run of jobs, as `run --once-per` and `run --slot` leave it in the store, which must be named.
///
/// Without names, all jobs that have a record, in all stores where the configuration has routes. The table shows up to five runs of each, the newest first.
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
    #[arg(value_name = "NAME", value_parser = arguments::name)]
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
        let store = store.named();
        // Each store, and the jobs that are asked for in it.
        let mut stores: Vec<(Chosen, Vec<Name>)> = match self.names.is_empty() {
            true => store.choose_every()?.into_iter().map(|chosen| (chosen, Vec::new())).collect(),
            false => Vec::new(),
        };
        for name in &self.names {
            let chosen = store.choose(true, std::slice::from_ref(name))?;
            chosen.refuse_memory()?;
            match stores.iter_mut().find(|(other, _)| other.url == chosen.url) {
                Some((_, names)) => names.push(name.clone()),
                None => stores.push((chosen, vec![name.clone()])),
            }
        }
        let (mut shown, mut failures) = (Vec::new(), Failures::default());
        for (chosen, names) in &stores {
            shown.extend(failures.note(look(chosen, names).await).into_iter().flatten());
        }
        if failures.0.is_some() && (shown.is_empty() || self.check) {
            return failures.0.map_or(Ok(0), Err);
        }
        if self.json {
            print_json(&shown)?;
        } else {
            let heads = ["JOB", "STATE", "SLOT", "WHO", "BEGAN", "TOOK", "ATTEMPT", "MISSED", "DETAIL", "STORE"];
            let cells = heads.len() - usize::from(stores.len() == 1);
            print_table(&heads[..cells], shown.iter().flat_map(Shown::rows).map(|row| row[..cells].to_vec()))?;
            stores.iter().try_for_each(|(chosen, _)| print_store(chosen))?;
        }
        let is_wrong = self.check && shown.iter().any(Shown::is_wrong);
        failures.0.map_or(Ok(if is_wrong { WRONG } else { 0 }), Err)
    }
}

/// The jobs called `names` in the store `chosen`. Without names, all jobs that have a record.
async fn look(chosen: &Chosen, names: &[Name]) -> Outcome<Vec<Shown>> {
    let client = watch_at(chosen).await?;
    let look = async |name: Name| match client.job_status(&name).await {
        // The record was deleted. The lock may have another program's note by now.
        Err(error) if names.is_empty() && error.kind() == ErrorKind::Layout => Ok(None),
        Ok(None) if names.is_empty() => Ok(None),
        status => Ok(Some(Shown::new(&name, status?.as_ref(), &chosen.name()))),
    };
    let found = async {
        let names = if names.is_empty() { client.job_names().await? } else { names.to_vec() };
        let looks = stream::iter(names).map(look).buffered(READS);
        looks.try_filter_map(async |found| Ok(found)).try_collect().await
    };
    let found: fencelock::Result<_> = found.await;
    super::farewell(&client, found.is_err()).await;
    Ok(found.map_err(|error| error.with("store from", &chosen.origin))?)
}

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
            began: last.map(|last| times::to_millisecond(last.began)),
            took_ms: last.and_then(|last| last.took?.as_millis().try_into().ok()),
            attempt: last.map(|last| last.attempt),
            detail: last.and_then(|last| last.detail.clone()),
            missed_before: last.map(|last| last.missed),
            missed: status.and_then(|status| status.missed),
            ahead: status.map(|status| status.is_ahead),
            last_success: status.and_then(|status| status.succeeded.map(times::to_millisecond)),
            earlier: status.map(|status| status.earlier.clone()).unwrap_or_default(),
            who: last.map(|last| last.owner.to_string()),
            age: status.and_then(|status| status.now.duration_since(status.last.began).ok()).map(ago),
        }
    }

    fn is_wrong(&self) -> bool {
        let has_missed = [self.missed_before, self.missed].into_iter().flatten().any(|missed| missed > 0);
        !matches!(&*self.state, "running" | "succeeded") || has_missed || self.ahead == Some(true)
    }

    fn rows(&self) -> impl Iterator<Item = Vec<String>> {
        let took = |ms: Option<u64>| shown_or_dash(ms.map(|ms| times::shown(Duration::from_millis(ms))).as_ref());
        let last = vec![
            self.name.clone(),
            self.state.clone(),
            shown_or_dash(self.slot.as_ref()),
            shown_or_dash(self.who.as_ref()),
            shown_or_dash(self.age.as_ref()),
            took(self.took_ms),
            shown_or_dash(self.attempt.as_ref()),
            shown_or_dash(self.missed.as_ref()),
            self.detail.clone().unwrap_or_default(),
            self.store.clone(),
        ];
        let before = self.earlier.iter().map(move |run| {
            let [name, attempt, missed, store] = [const { String::new() }; 4];
            let (state, began, detail) = (word(run.state), run.began.clone(), run.detail.clone());
            let (slot, host) = (run.slot.clone(), run.host.clone());
            vec![name, state, slot, host, began, took(run.took_ms), attempt, missed, detail.unwrap_or_default(), store]
        });
        [last].into_iter().chain(before)
    }
}

fn word(state: RunState) -> String {
    format!("{state:?}").to_lowercase()
}
