//! The figures of all rounds: least, median and most.

use super::{Figure, TASKS, What};
use crate::bench::Store;
use crate::contestant::Contestant;
use crate::families::Row;
use crate::report::{Table, micros};
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

/// Times are the p50 of a round; of what a waiting lock takes, the caller's future is left aside.
pub(super) fn what(what: What) -> String {
    match what {
        What::Cycle => "cycle, µs".to_owned(),
        What::HandOver(waiters) => format!("hand-over, {waiters} waiters, µs"),
        What::Between => "hand-over between two clients, µs".to_owned(),
        What::Names => format!("{TASKS} tasks on {TASKS} names, µs each"),
        What::Processor => "client's processor, µs a cycle".to_owned(),
        What::Held => "bytes per held lock".to_owned(),
        What::Waiting => "bytes per waiting lock".to_owned(),
    }
}

/// The least and the most of what is not empty.
pub(super) fn ends(figures: &[f64]) -> (f64, f64) {
    let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
    (least, figures.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

/// A row for each place and what was measured there: median, and least to most, of each contestant.
pub(super) fn figures(rows: &[Row<Figure>]) -> Table {
    let mut table =
        Table::new(&["what users get", "nothing set", "`Io::CurrentRuntime`", "floor", "Python's `filelock`"]);
    let is_ours = |row: &&Row<Figure>| row.contestant == Contestant::Own;
    for Row { network, figure: Figure { store, what: of, .. }, .. } in rows.iter().filter(is_ours) {
        let cell = |contestants: &[Contestant]| {
            let is_it = |row: &&Row<Figure>| {
                (row.figure.store, row.network, row.figure.what) == (*store, *network, *of)
                    && contestants.contains(&row.contestant)
            };
            rows.iter().find(is_it).map_or_else(|| "–".to_owned(), |row| rounds(*of, &row.figure.rounds))
        };
        // Where one floor lists and the other does not, a cycle is held to the first, all else to the second.
        let floor = if *of == What::Cycle { store.floor() } else { Contestant::ZkFloor };
        let first = format!("{}: {}", place(*store, *network), what(*of));
        let others = [cell(&[Contestant::Current]), cell(&[store.floor(), floor]), cell(&[Contestant::Filelock])];
        table.row([first, cell(&[Contestant::Own])].into_iter().chain(others));
    }
    table
}

fn rounds(of: What, rounds: &[f64]) -> String {
    let write: fn(f64) -> String = match of {
        What::Cycle | What::HandOver(_) | What::Between | What::Names | What::Processor => micros,
        What::Held | What::Waiting => |bytes: f64| format!("{bytes:.0}"),
    };
    let (least, most) = ends(rounds);
    format!("{} ({}–{})", write(median(rounds.iter().copied())), write(least), write(most))
}
