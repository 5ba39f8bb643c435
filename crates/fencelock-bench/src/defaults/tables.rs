//! The figures of all rounds: least, median and most.

use super::{BETWEEN, Figure, TASKS, What};
use crate::bench::Store;
use crate::contestant::Contestant;
use crate::families::Row;
use crate::report::{Table, decimals, micros};
use crate::site::Network;
use crate::stats::median;

/// The store, and what is before its server.
pub(super) fn place(store: Store, network: Network) -> String {
    let scheme = match store {
        Store::Memory => return "`memory:`".to_owned(),
        Store::File => return "`file:`".to_owned(),
        Store::ZooKeeper => "zk",
        Store::Redis => "redis",
        Store::Postgres => "postgres",
        Store::Mysql => "mysql",
        Store::Redlock => "redlock",
    };
    format!("`{scheme}:`, {}", network.title())
}

pub(super) fn what(what: What) -> String {
    match what {
        What::Cycle => "cycle, p50 µs".to_owned(),
        What::HandOver(waiters) => format!("hand-over, {waiters} waiters in one process, p50 µs"),
        What::Between => format!("hand-over between two clients, {BETWEEN} waiters, p50 µs"),
        What::Names => format!("{TASKS} tasks on {TASKS} names, µs per cycle of them all"),
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

pub(super) fn figures(rows: &[Row<Figure>]) -> Table {
    let mut table = Table::new(&["what users get", "who", "least", "median", "most"]);
    for Row { contestant, network, figure: Figure { store, what: of, rounds } } in rows {
        let write = match of {
            What::Cycle | What::HandOver(_) | What::Between | What::Names | What::Processor => micros,
            What::Held | What::Waiting => decimals,
        };
        let (least, most) = ends(rounds);
        let first = format!("{}: {}", place(*store, *network), what(*of));
        let middle = median(rounds.iter().copied());
        table.row([first, who(*contestant).to_owned(), write(least), write(middle), write(most)]);
    }
    table
}
