//! The parts of the documents that are made from the code say what the code says; `cargo xtask docs` writes them anew.

use std::fmt::Write as _;
use std::time::Duration;

use fencelock::{Capability, Liveness, Order, Pace, StoreInfo, Tokens, stores};

const BEGIN: &str = "<!-- made by `cargo xtask docs`: begin -->";
const END: &str = "<!-- made by `cargo xtask docs`: end -->";

/// Compares the made part of a document with what it should be, or writes it where `FENCELOCK_WRITE_DOCUMENTS` is set.
fn says(document: &str, made: &str) {
    let path = format!("{}/../../docs/{document}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let now = format!("{before}{BEGIN}\n\n{made}\n{END}{after}");
    if std::env::var_os("FENCELOCK_WRITE_DOCUMENTS").is_some() {
        std::fs::write(path, now).unwrap();
    } else {
        assert!(now == text, "{document} is not what the code says: run `cargo xtask docs`");
    }
}

#[test]
fn the_stores_have_the_capabilities_that_their_document_lists() {
    says("stores.md", &format!("{}\n{}", table(stores()), layouts(stores())));
}

#[test]
fn run_takes_the_kinds_of_locks_that_its_document_lists() {
    says("command.md", &kinds(stores()));
}

/// Which kinds of locks `fencelock run` takes on which store: the one that lives in a single process it refuses.
fn kinds(stores: &[StoreInfo]) -> String {
    let mut table = "| on | `run` takes |\n|---|---|\n".to_owned();
    for info in stores {
        let Some(capability) = info.capability.map(|capability| capability()) else { continue };
        let kinds = match (capability.liveness, capability.permits) {
            (Liveness::Memory, _) => "nothing: no other process sees it (64)",
            (_, true) => "mutexes, `--shared`, `--exclusive`, `--permits`",
            (_, false) => "mutexes; `--shared`, `--exclusive` and `--permits` are refused (64)",
        };
        let _ = writeln!(table, "| `{}:` | {kinds} |", info.scheme);
    }
    table
}

/// A column for each family: schemes that promise the same share one.
fn table(stores: &[StoreInfo]) -> String {
    let mut families: Vec<(Vec<&StoreInfo>, Capability)> = Vec::new();
    for info in stores {
        let Some(capability) = info.capability.map(|capability| capability()) else { continue };
        match families.last_mut() {
            Some((family, promised)) if *promised == capability => family.push(info),
            _ => families.push((vec![info], capability)),
        }
    }
    let heads: Vec<_> = families.iter().map(|(family, _)| each(family, |info| format!("`{}:`", info.scheme))).collect();
    let mut table = format!("| | {} |\n|---|{}\n", heads.join(" | "), "---|".repeat(heads.len()));
    for (title, cell) in ROWS {
        let cells: Vec<_> =
            families.iter().map(|(family, capability)| each(family, |info| cell(info, capability))).collect();
        let _ = writeln!(table, "| {title} | {} |", cells.join(" | "));
    }
    table
}

/// What is said of a family: once what its members share, and after each other what they do not.
fn each(family: &[&StoreInfo], cell: impl Fn(&StoreInfo) -> String) -> String {
    let mut cells: Vec<String> = family.iter().map(|info| cell(info)).collect();
    cells.dedup();
    cells.join("<br>")
}

/// What other layouts promise, a line for each. The same store over TLS or a socket file has the same ones.
fn layouts(stores: &[StoreInfo]) -> String {
    let heads =
        ["layout", "the same locks as", "order", "fencing tokens", "readers, writers, permits", "an idle name leaves"];
    let mut table = format!("| URL | {} |\n|---|{}\n", heads.join(" | "), "---|".repeat(heads.len()));
    let mut told: Vec<&str> = Vec::new();
    for info in stores.iter().filter(|info| !info.layouts.is_empty()) {
        let asked: Vec<_> = info.layouts.iter().map(|(asked, _)| *asked).collect();
        if told == asked {
            continue;
        }
        told = asked;
        for (asked, capability) in info.layouts {
            let capability = capability();
            let cells: Vec<_> = ROWS
                .iter()
                .filter(|(title, _)| heads.contains(title))
                .map(|(_, cell)| cell(info, &capability))
                .collect();
            let _ = writeln!(table, "| `{}:…?{asked}` | {} |", info.scheme, cells.join(" | "));
        }
    }
    table
}

type Cell = fn(&StoreInfo, &Capability) -> String;

const ROWS: &[(&str, Cell)] = &[
    ("URL", |info, _| format!("`{}`", info.example)),
    ("cargo feature", |info, _| format!("`{}`", info.feature)),
    ("options of its own", |info, _| options(info.options)),
    ("layout", |_, capability| format!("`{}`", capability.layout)),
    ("a place lives by", |_, capability| liveness(capability.liveness)),
    ("the same locks as", |_, capability| others(capability.excludes)),
    ("order", |_, capability| order(capability.order)),
    ("fencing tokens", |_, capability| tokens(capability.tokens)),
    ("validity presumes", |_, capability| or_none(capability.certainty)),
    ("readers, writers, permits", |_, capability| claims(capability)),
    ("notes on locks", |_, capability| if capability.notes { "yes" } else { "no" }.to_owned()),
    ("a dead session's places go within ttl plus", |_, capability| duration(capability.detection_slack)),
    ("a waiter hears of a change within", |_, capability| duration(capability.wake_bound)),
    ("renewals in a ttl, by default", |_, capability| renewals(&capability.pace)),
    ("the shortest ttl", |_, capability| duration(capability.pace.least_ttl)),
    ("the safety margin is at least, by default", |_, capability| duration(capability.pace.least_margin)),
    ("an idle name leaves", |_, capability| or_none(capability.residue)),
];

fn renewals(pace: &Pace) -> String {
    let most = pace.longest_interval.map(|most| format!(", and one every {} at least", duration(most)));
    format!("{}{}", pace.renewals_per_ttl, most.unwrap_or_default())
}

fn options(options: &[&str]) -> String {
    if options.is_empty() {
        return "none".to_owned();
    }
    options.iter().map(|option| format!("`{option}`")).collect::<Vec<_>>().join(" ")
}

fn liveness(liveness: Liveness) -> String {
    match liveness {
        Liveness::Process => "its process: the kernel tells, time plays no part",
        Liveness::Session => "its session, by the servers' monotonic clock",
        Liveness::Lease => "its lease, by the store's wall clock",
        Liveness::Memory => "the memory of one process",
        _ => "see its notes",
    }
    .to_owned()
}

fn order(order: Order) -> String {
    match order {
        Order::Fifo => "first come, first served",
        Order::None => "none: the client that tries at the right moment",
        _ => "see its notes",
    }
    .to_owned()
}

fn tokens(tokens: Tokens) -> String {
    match tokens {
        Tokens::ClockFlooredCounter => "a counter, floored by the store's clock",
        Tokens::CommitNumber => "the number of the commit",
        Tokens::Counter => "a counter, which rises as long as the store keeps it",
        Tokens::None => "none",
        _ => "see its notes",
    }
    .to_owned()
}

fn duration(duration: Duration) -> String {
    if duration.is_zero() { "nothing".to_owned() } else { format!("{duration:?}") }
}

fn others(excludes: &str) -> String {
    let nobody = "no other client's: whatever else is locked there is held beside ours";
    if excludes.is_empty() { nobody.to_owned() } else { excludes.to_owned() }
}

fn or_none(text: &str) -> String {
    if text.is_empty() { "nothing".to_owned() } else { text.to_owned() }
}

fn claims(capability: &Capability) -> String {
    match (capability.shared_claims, capability.permits) {
        (true, true) => "yes",
        (true, false) => "readers and writers",
        _ => "no",
    }
    .to_owned()
}
