//! `fencelock migrate`: makes what a store needs before its first lock, where clients may not.

use clap::Args;
use fencelock::postgres::{Migration, Schema};

use super::StoreArguments;
use crate::arguments;
use crate::libpq;
use crate::output::{Failure, Outcome, code};
use crate::show::print;

/// Make the schema that locks in PostgreSQL are kept in, or print the statements that do.
///
/// A client makes it by itself when its role may create schemas. Where it may not, run this as a role that may, with --grant for each role
/// of the clients; or give the output of --print to somebody who may. What is there already stays as it is.
#[derive(Debug, Args)]
pub(super) struct Migrate {
    /// The store, in the place of --store: postgres://user@host/database.
    #[arg(value_name = "URL", value_parser = arguments::store(), conflicts_with = "store")]
    url: Option<String>,
    /// Print the statements, and run none.
    #[arg(long)]
    print: bool,
    /// Let this role use the locks. May be given several times.
    #[arg(long, value_name = "ROLE")]
    grant: Vec<String>,
    /// Keep locks in unlogged tables: they hardly wait for the disk, and a crash of the server ends all of them.
    #[arg(long)]
    unlogged: bool,
}

impl Migrate {
    pub(super) async fn run(&self, store: &StoreArguments) -> Outcome<u8> {
        let url = match &self.url {
            Some(url) => libpq::complete(url)?,
            None => store.choose(true, &[])?.url.clone(),
        };
        if !url.starts_with("postgres:") && !url.starts_with("postgresql:") {
            let message = "only stores in PostgreSQL have a schema: name one, as in postgres://user@host/database";
            return Err(Failure::new(code::CONFIG, message.to_owned()));
        }
        let schema = Schema::of(&url)?;
        let schema = if self.unlogged { schema.unlogged() } else { schema };
        let roles: Vec<&str> = self.grant.iter().map(String::as_str).collect();
        if self.print {
            print(&schema.statements(&roles))?;
            return Ok(0);
        }
        let said = match schema.migrate(&roles).await? {
            Migration::Made => "the schema was made\n",
            _ => "the schema is there, and up to date\n",
        };
        print(said)?;
        Ok(0)
    }
}
