//! The table by which textbooks choose a store, measured: what they say, what their own code does here, and what fencelock does with
//! nothing set.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::What;
use crate::bench::{Bench, Store};
use crate::contestant::Contestant::{self, MyTable, Own, PgTable, PlainFloor, ZkFloorListed};
use crate::families::figure;
use crate::report::{self, Table, millis};
use crate::run::Run;
use crate::site::{Kept, Network};
use crate::stats::median;
use crate::{Files, machine, section};

/// What textbooks say of a store, and whose row is their code.
struct Textbook {
    store: Store,
    title: &'static str,
    says: &'static str,
    code: Option<Contestant>,
}

const TEXTBOOKS: [Textbook; 5] = [
    Textbook { store: Store::ZooKeeper, title: "ZooKeeper", says: "1,000/s, 10 ms", code: Some(ZkFloorListed) },
    Textbook { store: Store::Redis, title: "Redis", says: "10,000/s, 1 ms", code: Some(PlainFloor) },
    Textbook { store: Store::Postgres, title: "PostgreSQL", says: "a database: 100/s, 50 ms", code: Some(PgTable) },
    Textbook { store: Store::Mysql, title: "MariaDB", says: "a database: 100/s, 50 ms", code: Some(MyTable) },
    Textbook { store: Store::File, title: "a directory", says: "nothing", code: None },
];

const HEAD: [&str; 4] = ["", "tutorials say", "the tutorial's code, here", "fencelock, here"];

/// Where the command has it from, and the document that has the same.
const TEXTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fencelock-cli/src/commands/stores");
const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/stores.md");

pub(crate) fn measure(options: &section::Options) -> Result<()> {
    let busy = machine::is_busy();
    let files = Files { without_filelock: true, ..Files::default() };
    let mut table = Table::new(&HEAD);
    for textbook in &TEXTBOOKS {
        let mut bench = Bench::new(textbook.store, options, &files)?;
        if !bench.quick && options.rounds.is_none() {
            bench.effort.rounds = super::ROUNDS;
        }
        let run = Run::new(bench)?;
        run.site.keep(Kept::Any)?;
        table.row(row(&run, textbook)?);
    }
    let quick = options.quick.then(|| "; **a quick run, whose figures say nothing**".to_owned());
    let warnings: String = busy.map(|busy| format!("; **{busy}**")).into_iter().chain(quick).collect();
    let text = format!(
        "{table}\nCycles per second of 64 tasks on 64 names, of one process, and the median of one acquire and release with nobody else about. Each store is one server on this machine, and what a database or ZooKeeper says is on its disk. The tutorial's code is ephemeral sequential nodes with a list, `SET NX PX` with a script that deletes, and the table `distributed_lock`. Measured on {}{warnings}.\n",
        machine::describe(Some(&std::env::temp_dir()))?
    );
    print!("{text}");
    if options.write { write(&text) } else { Ok(()) }
}

/// A row: the median of all rounds of each.
fn row(run: &Run, textbook: &Textbook) -> Result<[String; 4]> {
    let Textbook { store, title, says, code } = textbook;
    let contestants: Vec<_> = code.iter().copied().chain([Own]).collect();
    let network = Network::Loopback;
    let measured = |what: What| {
        eprintln!("measuring: {title}, {what:?}");
        let round = |contestant| what.round(run, contestant, network);
        run.rows(&contestants, network, title, round, median)
    };
    let cycle = measured(What::Cycle).with_context(|| format!("{store:?}"))?;
    let names = measured(What::Names).with_context(|| format!("{store:?}"))?;
    let cell = |who| {
        let both = figure(&names, who, network).zip(figure(&cycle, who, network));
        both.map_or_else(
            || "–".to_owned(),
            |(each, cycle)| format!("{}/s, {} ms", thousands(1e9 / each), millis(*cycle)),
        )
    };
    Ok([(*title).to_owned(), (*says).to_owned(), code.map_or_else(|| "–".to_owned(), cell), cell(Own)])
}

/// To two digits, as textbooks say it.
fn thousands(rate: f64) -> String {
    let unit = 10_f64.powf((rate.log10().floor() - 1.0).max(0.0));
    let rounded = format!("{:.0}", (rate / unit).round() * unit);
    match rounded.len() {
        length @ 4.. => format!("{},{}", &rounded[..length - 3], &rounded[length - 3..]),
        _ => rounded,
    }
}

fn write(text: &str) -> Result<()> {
    let texts = Path::new(TEXTS);
    std::fs::write(texts.join("measured.md"), text).context("measured.md")?;
    let choice = std::fs::read_to_string(texts.join("choice.md")).context("choice.md")?;
    report::write_to(Path::new(DOCUMENT), "stores", &format!("{text}\n{choice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_told_to_two_digits() {
        for (rate, text) in [(1234.0, "1,200"), (987.0, "990"), (45_678.0, "46,000"), (99_900.0, "100,000"), (7.2, "7")]
        {
            assert_eq!(thousands(rate), text);
        }
    }
}
