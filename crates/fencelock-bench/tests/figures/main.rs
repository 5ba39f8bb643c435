//! The five rows and the plot with which `docs/benchmarks.md` begins, taken out of the tables behind them. `cargo xtask docs` writes
//! them anew.

use std::fmt::Write as _;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks.md");

type Result<T> = std::result::Result<T, String>;

const BENCHMARKS: &str = "docs/benchmarks.md";

/// Where two figures of one run stand: the section, how the head of the table begins, and for ours and the peer's the label of the row and
/// the head of the column.
struct Place {
    section: &'static str,
    table: &'static str,
    ours: (&'static str, &'static str),
    peer: Option<(&'static str, &'static str)>,
}

struct Row {
    title: &'static str,
    peer: &'static str,
    cycle: Place,
    hand_over: Place,
}

const DEFAULTS: &str = "Figures for users";
const DEFAULT: &str = "fencelock, I/O thread apart";

/// A figure of the table for users, in its row, and the figure of `filelock`, where it takes part.
const fn users(row: &'static str, filelock: bool) -> Place {
    let peer = if filelock { Some((row, "Python's `filelock`")) } else { None };
    Place { section: DEFAULTS, table: "figures for users", ours: (row, "nothing set"), peer }
}

/// A figure of a store's own section, and the peer's in the same column.
const fn compared(section: &'static str, table: &'static str, column: &'static str, peer: &'static str) -> Place {
    Place { section, table, ours: (DEFAULT, column), peer: Some((peer, column)) }
}

/// The first figures for a reader: each store with its defaults, with 100 waiters, on loopback, and a peer that was measured in
/// the same run.
const ROWS: [Row; 5] = [
    Row {
        title: "`memory:`",
        peer: "none",
        cycle: users("`memory:` | cycle, µs", false),
        hand_over: users("`memory:` | hand-over, 100 waiters, µs", false),
    },
    Row {
        title: "`file:`",
        peer: "Python's `filelock`",
        cycle: users("`file:` | cycle, µs", true),
        hand_over: users("`file:` | hand-over, 100 waiters, µs", true),
    },
    Row {
        title: "`redis:`",
        peer: "Redisson's fair lock",
        cycle: compared("`redis:`", "cycle, p50", "loopback, µs", "Redisson, fair lock"),
        hand_over: compared("`redis:`", "hand-over", "loopback: 100, µs", "Redisson, fair lock"),
    },
    Row {
        title: "`zk:`",
        peer: "Curator",
        cycle: compared("`zk:`", "cycle, p50", "loopback, µs", "Curator"),
        hand_over: compared("`zk:`", "hand-over", "loopback: 100, µs", "Curator"),
    },
    Row {
        title: "`postgres:`",
        peer: "a table by hand",
        cycle: compared("`postgres:`", "cycle, p50", "loopback, µs", "a table with a unique key, by hand"),
        hand_over: compared("`postgres:`", "hand-over", "loopback: 100, µs", "a table with a unique key, by hand"),
    },
];

/// Our figure and the peer's, where they exist.
type Pair = (Option<String>, Option<String>);

/// A row with its figures of a cycle and of a hand-over.
struct Found {
    row: &'static Row,
    cycle: Pair,
    hand_over: Pair,
}

fn found(text: &str) -> Result<Vec<Found>> {
    let pair = |place: &Place| {
        let ours = figure(text, place, place.ours)?;
        Ok::<_, String>((ours, place.peer.map(|peer| figure(text, place, peer)).transpose()?.flatten()))
    };
    ROWS.iter().map(|row| Ok(Found { row, cycle: pair(&row.cycle)?, hand_over: pair(&row.hand_over)? })).collect()
}

/// The median in that place, in the text of that place; `None` for a dash, or where the run left that table or row out.
fn figure(text: &str, place: &Place, (label, column): (&str, &str)) -> Result<Option<String>> {
    let missing = || format!("{BENCHMARKS} has no section {:?}", place.section);
    let section =
        text.split("\n## ").find(|section| section.lines().next() == Some(place.section)).ok_or_else(missing)?;
    let head = format!("| {}", place.table);
    let mut rows = section.lines().skip_while(|line| !line.starts_with(&head)).take_while(|line| line.starts_with('|'));
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let Some(heads) = rows.next().map(cells) else { return Ok(None) };
    let Some(column) = heads.iter().position(|head| head == column) else { return Ok(None) };
    // A row below the row of its store, as in "`file:` | cycle, µs".
    let (store, label) = label.split_once(" | ").unwrap_or(("", label));
    let mut rows = rows.map(cells).skip_while(|row| !store.is_empty() && row[0] != store);
    let Some(row) = rows.find(|row| row[0] == label) else { return Ok(None) };
    Ok(row.get(column).and_then(|cell| cell.split(' ').next()).filter(|median| *median != "–").map(str::to_owned))
}

/// The rows as a table.
fn table(text: &str) -> Result<String> {
    let mut table = "| µs | acquire and release, uncontended | the peer | hand-over, 100 waiters | the peer |\n|---|---:|---:|---:|---:|\n".to_owned();
    for Found { row, cycle, hand_over } in found(text)? {
        let said = |figure: Option<String>| figure.unwrap_or_else(|| "–".to_owned());
        let title =
            if row.peer == "none" { row.title.to_owned() } else { format!("{} (peer: {})", row.title, row.peer) };
        let cells = [cycle.0, cycle.1, hand_over.0, hand_over.1].map(said);
        let _ = writeln!(table, "| {title} | {} |", cells.join(" | "));
    }
    Ok(table)
}

const LEFT: f64 = 300.0;
/// The length of a bar that is as long as the peer's.
const WHOLE: f64 = 160.0;
const LINE: f64 = 26.0;

/// The rows that have a peer as bars: the share of the peer's time that ours takes.
fn plot(text: &str) -> Result<String> {
    let mut bars = String::new();
    let mut top = 34.0;
    for Found { row, cycle, hand_over } in found(text)? {
        for (what, pair) in [("cycle", cycle), ("hand-over", hand_over)] {
            let (Some(ours), Some(theirs)) = pair else { continue };
            let label = format!("{} {what} ÷ {}", row.title, row.peer).replace('`', "");
            bar(&mut bars, top, &label, share(&ours, &theirs)?);
            top += LINE;
        }
    }
    let (width, height, end) = (LEFT + WHOLE * 2.0 + 90.0, top + 12.0, top - 4.0);
    let line = LEFT + WHOLE;
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{line}\" y=\"20\" text-anchor=\"middle\" fill=\"#555\">as long as the peer takes</text>\n\
         {bars}<line x1=\"{line}\" y1=\"28\" x2=\"{line}\" y2=\"{end}\" stroke=\"#555\" stroke-dasharray=\"4 3\"/>\n</svg>\n"
    ))
}

fn bar(bars: &mut String, top: f64, label: &str, share: f64) {
    let (length, colour) = (WHOLE * share.min(2.0), if share <= 1.0 { "#2a7" } else { "#c63" });
    let (text, base, end) = (LEFT - 8.0, top + 13.0, LEFT + length + 6.0);
    let _ = writeln!(bars, "<text x=\"{text}\" y=\"{base}\" text-anchor=\"end\" fill=\"#222\">{label}</text>");
    let _ = writeln!(bars, "<rect x=\"{LEFT}\" y=\"{top}\" width=\"{length:.1}\" height=\"17\" fill=\"{colour}\"/>");
    let _ = writeln!(bars, "<text x=\"{end:.1}\" y=\"{base}\" fill=\"#222\">{share:.2}</text>");
}

fn share(ours: &str, theirs: &str) -> Result<f64> {
    let number = |text: &str| text.parse::<f64>().map_err(|_| format!("{text:?} in {BENCHMARKS} is no figure"));
    Ok(number(ours)? / number(theirs)?)
}

const TEXT: &str =
    "# B\n\n## `x:`\n\n| cycle, p50 (p99) | far, µs | near, µs |\n|---|---:|---:|\n| us | 10.5 (70) | – |\n";

const BEGIN: &str = "<!-- made by `cargo xtask docs`: begin -->";
const END: &str = "<!-- made by `cargo xtask docs`: end -->";

/// Compares, or writes where `FENCELOCK_WRITE_DOCUMENTS` is set.
#[test]
fn the_document_begins_with_the_figures_of_its_tables() {
    let svg = DOCUMENT.replace(".md", ".svg");
    let (text, plotted) = (std::fs::read_to_string(DOCUMENT).unwrap(), std::fs::read_to_string(&svg).unwrap());
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let now = format!("{before}{BEGIN}\n\n{}\n{END}{after}", table(&text).unwrap());
    let plot = plot(&text).unwrap();
    if std::env::var_os("FENCELOCK_WRITE_DOCUMENTS").is_some() {
        std::fs::write(DOCUMENT, now).unwrap();
        std::fs::write(svg, plot).unwrap();
    } else {
        assert!(now == text && plot == plotted, "run `cargo xtask docs`");
    }
}

#[test]
fn a_figure_is_found_by_section_table_row_and_column() {
    let place = |section| Place { section, table: "cycle", ours: ("", ""), peer: None };
    assert_eq!(figure(TEXT, &place("`x:`"), ("us", "far, µs")).unwrap().as_deref(), Some("10.5"));
    for none in [("us", "near, µs"), ("us", "off, µs"), ("them", "far, µs")] {
        assert_eq!(figure(TEXT, &place("`x:`"), none).unwrap(), None);
    }
    assert!(figure(TEXT, &place("`y:`"), ("us", "far, µs")).is_err());
    let below = TEXT.replace("| us |", "| `y:` |  |  |\n| us | 1 | 1 |\n| `x:` |  |  |\n| us |");
    assert_eq!(figure(&below, &place("`x:`"), ("`x:` | us", "far, µs")).unwrap().as_deref(), Some("10.5"));
}

#[test]
fn a_bar_is_as_long_as_its_share_and_no_longer_than_twice_the_peers() {
    assert!((share("5", "10").unwrap() - 0.5).abs() < 1e-9);
    let mut bars = String::new();
    bar(&mut bars, 0.0, "x", 9.0);
    assert!(bars.contains("width=\"320.0\"") && bars.contains(">9.00<"), "{bars}");
    assert!(share("–", "1").is_err());
}
