//! `fencelock break`: ends a grant on purpose.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use clap::Args;
use fencelock::inspect::{Contender, Expiry, Page};
use fencelock::{Client, ErrorKind, Name};

use super::{StoreArguments, farewell, said_already};
use crate::arguments;
use crate::locks;
use crate::output::{Failure, Outcome, code, harmless, say, say_lines};
use crate::settings::Chosen;
use crate::show::Shown;

/// Nothing was broken: the lock had no holder, the grant was gone already, or the answer was no.
const NOTHING: u8 = 1;

/// Break a held lock.
///
/// Ends exactly the grant that it names, never a later one, and says whose it was. Asks first on a terminal, and needs
/// --yes elsewhere. The holder is notified, with the reason: `fencelock run` stops its command. A holder that cannot be
/// notified (stopped, cut off, or another client's) continues: only the resource can refuse its writes, by the higher
/// token of the next grant. The store keeps a record, which `fencelock show` shows.
///
/// Exits with 1 when nothing was broken: the lock was free, the grant was gone already, or the answer was no.
#[derive(Debug, Args)]
pub(crate) struct Break {
    /// The lock's name.
    #[arg(value_parser = arguments::name)]
    name: Name,
    /// The reason, which the record and the holder get.
    #[arg(long, value_name = "TEXT", value_parser = arguments::reason)]
    reason: String,
    /// Break the grant with this token; needed where several hold the lock.
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
    /// With --yes, break the grant of another client, too, which is not notified and continues.
    #[arg(long)]
    untold: bool,
    /// Break a key that another client wrote without a ttl, too. The key may be no lock at all, but data, which is
    /// deleted.
    #[arg(long)]
    endless: bool,
}

impl Break {
    pub(super) async fn run(&self, store: &StoreArguments) -> Outcome<u8> {
        if !self.yes && !io::stdin().is_terminal() {
            return Err(Failure::new(code::USAGE, "there is no terminal to ask on: give --yes to break the lock"));
        }
        let (chosen, client) = store.connect_to_look(true, std::slice::from_ref(&self.name)).await?;
        let Some(client) = client else {
            return Err(self.no_holder(&chosen));
        };
        let ended = said_already(self.run_with(&client, &chosen).await);
        farewell(&client, ended.is_err()).await;
        ended
    }

    async fn run_with(&self, client: &Client, chosen: &Chosen) -> Outcome<u8> {
        let holders = holders(client, &self.name).await;
        let holders = holders.map_err(|error| error.with("store from", &chosen.origin))?;
        let now = locks::now(client, chosen).await;
        let holders: Vec<_> = holders.iter().enumerate().filter(|(_, holder)| self.is_meant(holder)).collect();
        let (index, holder) = match holders[..] {
            [] => return Err(self.no_holder(chosen)),
            [(index, holder)] => (index, holder),
            _ => {
                let each = holders.iter().map(|(index, holder)| {
                    format!("\n  {}", harmless(&Shown::new(&self.name, *index, holder, now).sentence(), false))
                });
                let message = format!("several hold {}, say which by --token:{}", self.name, each.collect::<String>());
                say_lines(&message);
                return Ok(code::USAGE);
            }
        };
        let whose = format!(
            "{} in {}, held by {}",
            self.name,
            chosen.shown(),
            Shown::new(&self.name, index + 1, holder, now).sentence()
        );
        if holder.foreign.is_some() && holder.expiry == Expiry::Never && !self.endless {
            let message = format!(
                "this has no ttl and may be no lock at all, but data; give --endless as well to delete it: {whose}"
            );
            return Err(Failure::new(code::USAGE, message));
        }
        let untold = holder.foreign.map(|foreign| {
            format!("{} is not notified: this holder continues, while the next one holds too", foreign.what)
        });
        if let Some(untold) = untold.as_ref().filter(|_| self.yes && !self.untold) {
            let message = format!("{untold}; give --untold as well to break it: {whose}");
            return Err(Failure::new(code::USAGE, message));
        }
        untold.iter().for_each(say);
        if !self.yes && !asked(&whose)? {
            say("nothing was broken");
            return Ok(NOTHING);
        }
        if client.break_grant(&self.name, holder, &self.reason).await? {
            writeln!(io::stdout().lock(), "broke {}", harmless(&whose, false))?;
            return Ok(0);
        }
        Err(Failure::new(NOTHING, format!("the grant was gone already, nothing was broken: {whose}")))
    }

    fn is_meant(&self, contender: &Contender) -> bool {
        let token = contender.grant.map(|grant| grant.token.map(|token| token.to_string()));
        match (&self.token, token) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(meant), Some(token)) => token.as_ref() == Some(meant),
        }
    }

    fn no_holder(&self, chosen: &Chosen) -> Failure {
        let with = self.token.as_ref().map_or_else(String::new, |token| format!(" with the token {token}"));
        Failure::new(NOTHING, format!("no client holds {}{with} in {}: nothing was broken", self.name, chosen.shown()))
    }
}

/// The holders of `name`, all at the front of its queue.
pub(super) async fn holders(client: &Client, name: &Name) -> fencelock::Result<Vec<Contender>> {
    /// How many contenders are read at a time.
    const PAGE: usize = 1000;
    let mut holders = Vec::new();
    loop {
        let queue = client.queue_page(name, Page { skip: holders.len(), limit: PAGE }).await?;
        let read = queue.contenders.len();
        let before = holders.len();
        holders.extend(queue.contenders.into_iter().take_while(|contender| contender.grant.is_some()));
        if holders.len() - before < PAGE || read < PAGE {
            return Ok(holders);
        }
    }
}

/// Asks on the terminal; anything but yes is no.
fn asked(whose: &str) -> Outcome<bool> {
    let mut terminal = io::stderr().lock();
    write!(terminal, "break {}? [y/N] ", harmless(whose, false))?;
    terminal.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// The records of broken grants; a store without breaks has none.
pub(super) async fn records(client: &Client, name: &Name) -> Outcome<Vec<fencelock::inspect::Break>> {
    match client.breaks(name).await {
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(Vec::new()),
        records => Ok(records?),
    }
}
