//! `fencelock migrate`: makes the tables and functions of a store, where clients may not.

use clap::Args;
use fencelock::{mysql, postgres};

use super::StoreArguments;
use crate::arguments;
use crate::libpq;
use crate::output::{Failure, Outcome, code};
use crate::show::print;

const NO_SCHEMA: &str =
    "only stores in PostgreSQL, MariaDB and MySQL have a schema: name one, as in postgres://user@host/database";

/// Make the tables and functions for locks in PostgreSQL, MariaDB or MySQL, or print the statements that do.
///
/// A client makes them by itself when its role may. Where the role may not, run this as a role that may, with --grant for each role of the
/// clients; or give the output of --print to an administrator. Existing tables and functions stay unchanged.
#[derive(Debug, Args)]
pub(super) struct Migrate {
    /// The store, in the place of --store: postgres://user@host/database, mysql://user@host/database.
    #[arg(value_name = "URL", value_parser = arguments::store, conflicts_with = "store")]
    url: Option<String>,
    /// Print the statements, and run none.
    #[arg(long)]
    print: bool,
    /// Let this role use the locks; in MariaDB and MySQL an account: user, or user@host. May be given several times.
    #[arg(long, value_name = "ROLE")]
    grant: Vec<String>,
    /// PostgreSQL only: keep locks in unlogged tables: they hardly wait for the disk, and a crash of the server ends all of them.
    #[arg(long)]
    unlogged: bool,
}

impl Migrate {
    pub(super) async fn run(&self, store: &StoreArguments) -> Outcome<u8> {
        let url = match &self.url {
            Some(url) => libpq::complete(url)?,
            None => store.choose(true, &[])?.url.clone(),
        };
        let refuse = |message: &str| Err(Failure::new(code::CONFIG, message.to_owned()));
        let roles: Vec<&str> = self.grant.iter().map(String::as_str).collect();
        let said = match url.split_once(':').map_or("", |(scheme, _)| scheme) {
            "postgres" | "postgresql" => {
                let schema = postgres::Schema::of(&url)?;
                let schema = if self.unlogged { schema.unlogged() } else { schema };
                match self.print {
                    true => schema.statements(&roles),
                    false => outcome_of(schema.migrate(&roles).await? == postgres::Migration::Made),
                }
            }
            "mysql" | "mariadb" if self.unlogged => return refuse("only PostgreSQL has unlogged tables"),
            "mysql" | "mariadb" => {
                let schema = mysql::Schema::of(&url)?;
                match self.print {
                    true => schema.statements(&roles),
                    false => outcome_of(schema.migrate(&roles).await? == mysql::Migration::Made),
                }
            }
            _ => return refuse(NO_SCHEMA),
        };
        print(&said)?;
        Ok(0)
    }
}

fn outcome_of(is_new: bool) -> String {
    if is_new { "the schema was made\n" } else { "the schema is there, and up to date\n" }.to_owned()
}
