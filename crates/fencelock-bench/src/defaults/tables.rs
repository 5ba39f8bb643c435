//! The figures of all rounds: least, median and most.

use anyhow::Result;

use super::{Row, TASKS, What};
use crate::bench::{Bench, Store};
use crate::contestant::Contestant;
use crate::report::{Table, decimals, micros};
use crate::stats::median;
use crate::{machine, python};

pub(super) fn machine(bench: &Bench) -> Result<String> {
    let mut machine = machine::describe(Some(bench.scratch.path()))?;
    if let Some(python) = &bench.python {
        machine.push_str(&format!("; {}", python::describe(python)?));
    }
    machine.push_str(&format!("; rounds: {}", bench.effort.rounds));
    Ok(machine)
}

pub(super) const fn store(store: Store) -> &'static str {
    match store {
        Store::Memory => "`memory:`",
        Store::File => "`file:`",
        Store::ZooKeeper => "`zk:`",
        Store::Redis => "`redis:`, loopback",
    }
}

pub(super) fn what(what: What) -> String {
    match what {
        What::Cycle => "cycle, p50 µs".to_owned(),
        What::HandOver(waiters) => format!("hand-over, {waiters} waiters in one process, p50 µs"),
        What::Processor => format!("client's processor µs per cycle, {TASKS} tasks"),
        What::Held => "bytes per held lock".to_owned(),
        What::Waiting => "bytes per waiting lock, the caller's future aside".to_owned(),
    }
}

pub(super) fn who(contestant: Contestant) -> &'static str {
    match contestant {
        Contestant::Own => "fencelock, nothing set",
        other => other.title(),
    }
}

/// The least and the most of what is not empty.
pub(super) fn ends(figures: &[f64]) -> (f64, f64) {
    let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
    (least, figures.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

pub(super) fn figures(rows: &[Row]) -> Table {
    let mut table = Table::new(&["what users get", "who", "least", "median", "most"]);
    for row in rows {
        let write = match row.what {
            What::Cycle | What::HandOver(_) | What::Processor => micros,
            What::Held | What::Waiting => decimals,
        };
        for (contestant, figures) in &row.figures {
            let (least, most) = ends(figures);
            let first = format!("{}: {}", store(row.store), what(row.what));
            let middle = median(figures.iter().copied());
            table.row([first, who(*contestant).to_owned(), write(least), write(middle), write(most)]);
        }
    }
    table
}
