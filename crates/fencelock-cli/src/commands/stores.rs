//! `fencelock stores`: which stores this program knows, and what each promises.

use clap::Args;
use comfy_table::{ContentArrangement, Table};
use fencelock::capability::{Capability, Order, StoreInfo, Tokens, stores};
use serde::Serialize;
use textwrap::WordSplitter;

use crate::output::Outcome;
use crate::show::{print, print_json};

/// The comparison of textbooks, and which store is for what: docs/stores.md has the same.
const COMPARED: &str = concat!(include_str!("stores/measured.md"), "\n", include_str!("stores/choice.md"));

/// List the stores that this program knows, and what each promises.
///
/// With --compare: the table by which textbooks compare stores, and a choice for each purpose.
///
/// With --json: an array of objects with `scheme`, `example`, `options` (of its URL, besides those that every store
/// takes), `feature`, `compiled_in`, and `capability` (null when it is not compiled in) with `layout`, `liveness`,
/// `order`, `tokens`, `certainty`, `excludes` (whose locks are the same ones; empty for no other client's), `shared_claims`,
/// `notes` (whether a holder can write a note on its lock), `detection_slack_ms`, `wake_bound_ms` and `residue`;
/// and `layouts`, the other ones that its URL may ask for: an array of objects with `asked_by` (the option) and
/// `capability`.
#[derive(Debug, Args)]
pub(crate) struct Stores {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print what to take for what, and why.
    #[arg(long, conflicts_with = "json")]
    compare: bool,
}

impl Stores {
    pub(super) fn run(&self) -> Outcome<u8> {
        if self.compare {
            print(&tables(COMPARED))?;
            return Ok(0);
        }
        let mut known: Vec<_> = stores().iter().map(Known::new).collect();
        known.sort_by_key(|store| store.scheme);
        if self.json {
            print_json(&known)?;
        } else {
            let shown: Vec<_> = known.iter().map(Known::paragraph).collect();
            print(&shown.join("\n"))?;
        }
        Ok(0)
    }
}

/// `text` for people: each of its tables, which are Markdown, fits the lines of a terminal.
fn tables(text: &str) -> String {
    let block = |block: &str| {
        let cells =
            |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
        let mut rows = block.lines().filter(|line| line.starts_with('|') && !line.starts_with("|---")).map(cells);
        let Some(head) = rows.next() else { return format!("{block}\n\n") };
        let mut table = Table::new();
        table
            .load_style(comfy_table::presets::ASCII_HORIZONTAL_ONLY)
            .set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(WIDTH).set_header(head).add_rows(rows);
        format!("{table}\n\n")
    };
    text.split("\n\n").map(str::trim).filter(|part| !part.is_empty()).map(block).collect()
}

#[derive(Serialize)]
struct Known {
    scheme: &'static str,
    example: &'static str,
    options: &'static [&'static str],
    feature: &'static str,
    compiled_in: bool,
    capability: Option<Promises>,
    layouts: Vec<Layout>,
}

#[derive(Serialize)]
struct Layout {
    asked_by: &'static str,
    capability: Promises,
}

#[derive(Serialize)]
struct Promises {
    layout: &'static str,
    liveness: String,
    order: &'static str,
    tokens: &'static str,
    certainty: String,
    excludes: String,
    shared_claims: bool,
    notes: bool,
    detection_slack_ms: u64,
    wake_bound_ms: u64,
    residue: String,
}

impl Known {
    fn new(info: &StoreInfo) -> Self {
        let capability = info.capability.map(|capability| Promises::new(&capability()));
        let layout = |&(asked_by, capability): &(_, fn() -> Capability)| Layout {
            asked_by,
            capability: Promises::new(&capability()),
        };
        let layouts = info.layouts.iter().map(layout).collect();
        Self {
            scheme: info.scheme,
            example: info.example,
            options: info.options,
            feature: info.feature,
            compiled_in: capability.is_some(),
            capability,
            layouts,
        }
    }

    /// The URL, and what the store promises, a line or more for each.
    fn paragraph(&self) -> String {
        let Some(promises) = &self.capability else {
            return format!("{}\n  not compiled in (feature {})\n", self.example, self.feature);
        };
        let options = if self.options.is_empty() { "none of its own".to_owned() } else { self.options.join(" ") };
        let text = format!("{}\n{}", self.example, line("options", &options)) + &promises.lines();
        let other = |layout: &Layout| format!("  with {}\n{}", layout.asked_by, layout.capability.lines());
        text + &self.layouts.iter().map(other).collect::<String>()
    }
}

impl Promises {
    fn new(capability: &Capability) -> Self {
        let ms = |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self {
            layout: capability.layout,
            liveness: format!("{:?}", capability.liveness).to_lowercase(),
            order: order(capability.order),
            tokens: tokens(capability.tokens),
            certainty: listed(capability.presumes),
            excludes: listed(capability.same_as),
            shared_claims: capability.shared_claims,
            notes: capability.notes,
            detection_slack_ms: ms(capability.detection_slack),
            wake_bound_ms: ms(capability.wake_bound),
            residue: listed(capability.residue),
        }
    }

    fn lines(&self) -> String {
        let woken = format!("within {} ms", self.wake_bound_ms);
        let no_others = "fencelock only: locks of other programs are not seen";
        let lines = [
            ("layout", self.layout),
            ("liveness", &self.liveness),
            ("order", self.order),
            ("same as", if self.excludes.is_empty() { no_others } else { &self.excludes }),
            ("tokens", self.tokens),
            ("shared", if self.shared_claims { "readers, writers, permits" } else { "mutexes only" }),
            ("woken", &woken),
        ];
        lines.iter().map(|(what, said)| line(what, said)).collect()
    }
}

fn listed(said: &[impl ToString]) -> String {
    said.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

const COLUMNS: usize = 80;
const WIDTH: u16 = 100;

/// A line of `what` and `said`, broken between words where it would be too long.
fn line(what: &str, said: &str) -> String {
    let (head, rest) = (format!("  {what:<10}"), " ".repeat(12));
    let options = textwrap::Options::new(COLUMNS).initial_indent(&head).subsequent_indent(&rest);
    textwrap::fill(said, options.word_splitter(WordSplitter::NoHyphenation).break_words(false)) + "\n"
}

fn order(order: Order) -> &'static str {
    match order {
        Order::Fifo => "first come, first served",
        Order::None => "none",
        _ => "other",
    }
}

fn tokens(tokens: Tokens) -> &'static str {
    match tokens {
        Tokens::ClockFlooredCounter => "counter, floored by the clock",
        Tokens::CommitNumber => "commit number",
        Tokens::Counter => "counter",
        Tokens::None => "none",
        _ => "other",
    }
}
