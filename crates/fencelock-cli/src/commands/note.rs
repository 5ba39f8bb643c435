//! `fencelock note`: the note on a lock.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use clap::Args;
use fencelock::inspect::{Contender, NoteRead};
use fencelock::recipes::MultiGuard;
use fencelock::{AnyGuard, Client, ErrorKind, Name};
use futures_util::future::try_join_all;
use serde::Serialize;

use super::r#break::holders;
use super::several::Home;
use super::{CONNECT, StoreArguments, connect, farewell, said_already};
use crate::arguments;
use crate::keeper::Keeper;
use crate::nested::Around;
use crate::output::{Failure, Outcome, code, harmless};
use crate::settings::Chosen;
use crate::show::{hex, print_json};
use crate::times;

const NONE: u8 = 1;

/// Show, write or delete the note on a lock.
///
/// A note is up to 4096 bytes that only the holder of the lock writes, and any client reads. The note stays when the lock is given back.
/// Under `fencelock run` of the same name, or after `fencelock acquire`, the note is written under the lock that is held there;
/// otherwise the lock is taken for the moment. Exits with 1 when there is none to show.
///
/// With --json: an object with `name`, `store`, `value` (null if it is not UTF-8), `bytes`, `token` (a string), `host`, `pid`, `client` (who
/// wrote it), `written`, `expires` and `now` (RFC 3339, by the store's clock).
#[derive(Debug, Args)]
pub(crate) struct Note {
    /// The lock's name.
    #[arg(value_parser = arguments::name)]
    name: Name,
    /// Write this.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["delete", "json"])]
    set: Option<String>,
    /// With --set, delete it by itself after this long; without, it stays.
    #[arg(long, value_name = "DURATION", value_parser = arguments::duration, requires = "set", allow_hyphen_values = true)]
    ttl: Option<Duration>,
    /// Delete it.
    #[arg(long, conflicts_with = "json")]
    delete: bool,
    /// To write or delete, give up after waiting this long for the lock; 0 does not wait.
    #[arg(long, value_name = "DURATION", value_parser = arguments::duration_or_zero, allow_hyphen_values = true)]
    wait: Option<Duration>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Note {
    pub(super) async fn run(&self, store: &StoreArguments) -> Outcome<u8> {
        if self.set.is_some() || self.delete {
            return self.write(store).await;
        }
        let (chosen, client) = store.connect_to_look(true, std::slice::from_ref(&self.name)).await?;
        let Some(client) = client else { return Err(self.none(&chosen)) };
        let read = client.note(&self.name).await.map_err(|error| error.with("store from", &chosen.origin));
        farewell(&client, read.is_err()).await;
        self.show(&read?, &chosen)
    }

    fn show(&self, read: &NoteRead, chosen: &Chosen) -> Outcome<u8> {
        let Some(note) = &read.note else { return Err(self.none(chosen)) };
        if self.json {
            print_json(&Shown::new(&self.name, note, read, &chosen.name()))?;
            return Ok(0);
        }
        let mut stdout = io::stdout().lock();
        match note.text() {
            Some(text) if stdout.is_terminal() => writeln!(stdout, "{}", harmless(text, true))?,
            _ => {
                stdout.write_all(&note.value)?;
                stdout.write_all(b"\n")?;
            }
        }
        stdout.flush()?;
        Ok(0)
    }

    fn none(&self, chosen: &Chosen) -> Failure {
        Failure::new(NONE, format!("there is no note on {} in {}", self.name, chosen.shown()))
    }

    async fn write(&self, store: &StoreArguments) -> Outcome<u8> {
        let chosen = store.choose(false, std::slice::from_ref(&self.name))?;
        chosen.refuse_memory()?;
        let builder = Client::builder().connect_timeout(self.wait.unwrap_or(CONNECT));
        let client = connect(builder, &chosen, false).await?;
        let written = said_already(self.write_with(&client, &chosen).await);
        farewell(&client, written.is_err()).await;
        written.map(|()| 0)
    }

    async fn write_with(&self, client: &Client, chosen: &Chosen) -> Outcome<()> {
        let value = self.set.as_deref().map(str::as_bytes);
        let spares = async || if value.is_some() { spare_a_job(client, &self.name).await } else { Ok(()) };
        spares().await?;
        if let Some(holder) = self.held_around_us(client, chosen).await? {
            return Ok(client.write_note_under(&self.name, &holder, value, self.ttl).await?);
        }
        let lock = client.mutex(&self.name)?.purpose("fencelock note");
        let guard = lock.acquire_within(self.wait.unwrap_or(Duration::MAX)).await?;
        // A job may have run while this command waited.
        spares().await?;
        match value {
            Some(value) => guard.write_note(value, self.ttl).await?,
            None => guard.delete_note().await?,
        }
        Ok(guard.release().await?)
    }

    /// The holder of the lock that this command runs under, if it does: a `fencelock run` around it, or a keeper for a process around it.
    async fn held_around_us(&self, client: &Client, chosen: &Chosen) -> Outcome<Option<Contender>> {
        let held = holders(client, &self.name).await?;
        let around = Around::this_process()?;
        let token_of = |holder: &Contender| holder.grant?.token.map(|token| token.to_string());
        if let Some(run) = around.holds(&chosen.locks(), &self.name) {
            let ours = held.into_iter().find(|holder| run.token.is_some() && token_of(holder) == run.token);
            return match ours {
                Some(holder) => Ok(Some(holder)),
                None => Err(Failure::new(code::LOST, format!("{run}, and has lost it"))),
            };
        }
        let has_keeper =
            |holder: &Contender| Keeper::of(client, &self.name, holder).is_some_and(|keeper| keeper.is_around_us());
        Ok(held.into_iter().find(|holder| around.is_holder(holder) || has_keeper(holder)))
    }
}

#[derive(Serialize)]
struct Shown {
    name: String,
    store: String,
    value: Option<String>,
    bytes: usize,
    token: Option<String>,
    host: Option<String>,
    pid: Option<u32>,
    client: String,
    written: String,
    expires: Option<String>,
    now: String,
}

impl Shown {
    fn new(name: &Name, note: &fencelock::inspect::Note, read: &NoteRead, store: &str) -> Self {
        let named = Some(&note.owner).filter(|owner| !owner.host.is_empty());
        let time = times::to_millisecond;
        Self {
            name: name.to_string(),
            store: store.to_owned(),
            value: note.text().map(str::to_owned),
            bytes: note.value.len(),
            token: note.token.map(|token| token.to_string()),
            host: named.map(|owner| owner.host.clone()),
            pid: named.map(|owner| owner.pid),
            client: hex(note.owner.client),
            written: time(note.written),
            expires: note.expires.map(time),
            now: time(read.now),
        }
    }
}

/// Refuses to overwrite the record of a job.
async fn spare_a_job(client: &Client, name: &Name) -> Outcome<()> {
    let is_of_a_job = |note: &fencelock::inspect::Note| {
        let record = note.text().and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok());
        record.is_some_and(|record| record.get("job").is_some() && record.get("slot").is_some())
    };
    if client.note(name).await?.note.as_ref().is_some_and(is_of_a_job) {
        let message = format!(
            "the note on {name} says what became of a job's runs: `fencelock note {name} --delete` forgets them first"
        );
        return Err(Failure::new(code::USAGE, message));
    }
    Ok(())
}

/// Refuses the address of a leader where a store keeps no notes.
pub(super) fn check_notes(homes: &[Home]) -> Outcome<()> {
    match homes.iter().find(|home| !home.client.capability().notes) {
        Some(home) => {
            let message = format!("{} keeps no notes, and so no --address", home.chosen.shown());
            Err(Failure::new(code::USAGE, message))
        }
        None => Ok(()),
    }
}

/// Writes the address of its holder on the lock of `guard`, or deletes it.
pub(super) async fn write_address(homes: &[Home], guard: &MultiGuard, address: Option<&str>) -> Outcome<()> {
    let write = async |home: &Home, guard: &AnyGuard| {
        let (client, name) = (&home.client, guard.name());
        if address.is_some() {
            spare_a_job(client, name).await?;
        }
        let held = holders(client, name).await?;
        let ours = held.iter().find(|holder| holder.owner.as_ref() == Some(client.owner()));
        let Some(ours) = ours else { return Ok(()) };
        match client.write_note_under(name, ours, address.map(str::as_bytes), None).await {
            Err(error) if error.kind() != ErrorKind::Lost => Err(Failure::from(error)),
            _ => Ok(()),
        }
    };
    try_join_all(homes.iter().zip(guard.guards()).map(|(home, guard)| write(home, guard))).await.map(drop)
}
