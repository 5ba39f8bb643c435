//! The tables of a section, and that of the defaults.

use clap::ValueEnum as _;

use crate::contestant::Contestant::{self, Current, Filelock, Own};
use crate::measured::{Measured, Row};
use crate::report::{Table, decimals, micros};
use crate::what::{Network, Store, Way, What};

/// The tables of a store, in the order of the document; none of a family without rows.
pub(crate) fn of(store: Store, networks: &[Network], measured: &Measured) -> Vec<Table> {
    let mut tables = vec![cycle("cycle, p50 (p99)", store, measured)];
    if store == Store::Redis {
        tables.push(cycle("cycle, three masters, p50 (p99)", Store::Redlock, measured));
    }
    let ways = Way::ALL.into_iter().flat_map(|way| networks.iter().map(move |network| (way, *network)));
    let column = |(way, network): (Way, Network)| {
        let head = if store.has_server() { format!(", {}", network.title()) } else { String::new() };
        (format!("{}{head}", way.title()), What::Rate(way), network)
    };
    tables.push(table("sections/s (least ÷ most served)", store, measured, ways.map(column).collect(), false));
    let mut queues = Vec::new();
    for Row { what, network, .. } in measured.0.iter().filter(|row| row.store == store) {
        if let What::HandOver(shape) = *what {
            let way = if store.has_server() { format!("{}: ", network.title()) } else { String::new() };
            let of = if shape.sessions > 1 { format!(" of {} processes", shape.sessions) } else { String::new() };
            let column = (format!("{way}{}{of}, {}", shape.waiters, network.unit().0), *what, *network);
            if !queues.contains(&column) {
                queues.push(column);
            }
        }
    }
    tables.push(table("hand-over, p50", store, measured, queues, true));
    tables.retain(|table| !table.is_empty());
    tables
}

fn cycle(first: &str, store: Store, measured: &Measured) -> Table {
    let column = |network: Network| {
        let (unit, _) = network.unit();
        let head = if store.has_server() { format!("{}, {unit}", network.title()) } else { unit.to_owned() };
        (head, What::Cycle, network)
    };
    let networks = [Network::OneCore, Network::Loopback, Network::Delay];
    let mut columns = networks.map(column).to_vec();
    columns.push(("server's processor, µs a cycle".to_owned(), What::Server, Network::Loopback));
    table(first, store, measured, columns, false)
}

/// A row for each contestant; only columns with a figure.
fn table(
    first: &str,
    store: Store,
    measured: &Measured,
    mut columns: Vec<(String, What, Network)>,
    has_order: bool,
) -> Table {
    let get = |who, network, what| measured.value(store, network, who, what);
    let all = Contestant::value_variants();
    columns.retain(|(_, what, network)| all.iter().any(|who| get(*who, *network, *what).is_some()));
    let mut head: Vec<_> = [first].into_iter().chain(columns.iter().map(|(head, ..)| &**head)).collect();
    head.extend(has_order.then_some("order kept"));
    let mut table = Table::new(&head);
    for &who in all.iter().filter(|who| columns.iter().any(|(_, what, network)| get(**who, *network, *what).is_some()))
    {
        let cell = |(_, what, network): &(String, What, Network)| {
            let own = |what| get(who, *network, what).filter(|figure| figure.is_finite());
            let (_, time) = network.unit();
            own(*what).map(|figure| match *what {
                What::Cycle => {
                    format!("{} ({})", time(figure), own(What::CycleTail).map_or_else(String::new, time))
                }
                What::Rate(way) if !way.is_apart() => {
                    format!("{figure:.0} ({})", own(What::Served(way)).map_or_else(String::new, decimals))
                }
                What::Rate(_) => format!("{figure:.0}"),
                What::HandOver(_) => time(figure),
                _ => micros(figure),
            })
        };
        let cells = columns.iter().map(|column| cell(column).unwrap_or_else(|| "–".to_owned()));
        let orders = measured.0.iter().filter(|row| (row.store, row.contestant) == (store, who));
        let orders = orders.filter(|row| matches!(row.what, What::Order(_))).map(Row::value);
        let order = orders.reduce(f64::min).map(|order| format!("{:.0} %", 100.0 * order));
        let order = has_order.then(|| order.unwrap_or_else(|| "–".to_owned()));
        table.row([who.title().to_owned()].into_iter().chain(cells).chain(order));
    }
    table
}

/// A row for each figure, below a row for its place: each contestant's median, with the least and the most of several rounds. Goals
/// judge more figures.
pub(crate) fn defaults(measured: &Measured) -> Table {
    let mut table =
        Table::new(&["figures for users", "nothing set", "`Io::CurrentRuntime`", "floor", "Python's `filelock`"]);
    let whats = |row: &&Row| match row.what {
        What::HandOver(shape) => shape.sessions == 1 && shape.waiters <= 100,
        what => matches!(what, What::Cycle | What::Rate(_) | What::Held | What::Waiting),
    };
    let mut rows: Vec<_> = measured.0.iter().filter(|row| row.contestant == Own).filter(whats).collect();
    rows.sort_by_key(|row| (row.store.has_server(), row.store.place(row.network)));
    let mut last = String::new();
    for Row { store, network, what, .. } in rows {
        let place = store.place(*network);
        if place != last {
            last.clone_from(&place);
            table.row([place, String::new(), String::new(), String::new(), String::new()]);
        }
        let (unit, write) = what.unit();
        let cell = |contestants: &[Contestant]| {
            let row = contestants.iter().find_map(|who| measured.row(*store, *network, *who, *what));
            row.map_or_else(
                || "–".to_owned(),
                |row| {
                    let median = write(row.value());
                    let least = row.rounds.iter().copied().fold(f64::INFINITY, f64::min);
                    let most = row.rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    if least < most { format!("{median} ({}–{})", write(least), write(most)) } else { median }
                },
            )
        };
        // ZooKeeper has a floor with a list and one without: a cycle is compared with the first, other figures with the second.
        let floors = match what {
            What::Cycle => [Contestant::floor(*store); 2],
            _ => [Contestant::ZkFloor, Contestant::floor(*store)],
        };
        let first = format!("{}{unit}", what.title());
        table.row([first, cell(&[Own]), cell(&[Current]), cell(&floors), cell(&[Filelock])]);
    }
    table
}
