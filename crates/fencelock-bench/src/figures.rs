//! The five rows and the plot with which `docs/benchmarks.md` begins, taken out of the tables behind them. `cargo xtask docs` writes
//! them anew.

use std::fmt::Write as _;

use crate::report::DOCUMENT;

type Result<T> = std::result::Result<T, String>;

const BENCHMARKS: &str = "docs/benchmarks.md";

/// Where a figure of a row stands: the section, how the head of its table begins, and the column.
struct Place {
    section: &'static str,
    table: &'static str,
    column: usize,
}

struct Row {
    title: &'static str,
    unit: &'static str,
    ours: &'static str,
    peer: Option<(&'static str, &'static str)>,
    cycle: Place,
    hand_over: Place,
}

const DEFAULT: &str = "fencelock, I/O thread on the other core";
const FAIR: (&str, &str) = ("Redisson, fair lock", "Redisson's fair lock");
const CURATOR: (&str, &str) = ("Curator", "Curator");

const fn place(section: &'static str, table: &'static str, column: usize) -> Place {
    Place { section, table, column }
}

/// What a reader wants to know first: each store as it is used when nothing is said, with 100 waiters, beside a peer that keeps
/// an order too (`filelock` keeps none; nothing of Python's does).
const ROWS: [Row; 5] = [
    Row {
        title: "`memory:`",
        unit: "µs",
        ours: DEFAULT,
        peer: None,
        cycle: place("`memory:`", "cycle", 1),
        hand_over: place("`memory:`", "hand-over | waiters", 3),
    },
    Row {
        title: "`file:`",
        unit: "µs",
        ours: DEFAULT,
        peer: Some(("Python's `filelock`", "Python's `filelock`")),
        cycle: place("`file:`", "cycle", 1),
        hand_over: place("`file:`", "hand-over | waiters", 3),
    },
    Row {
        title: "`redis:`, loopback",
        unit: "µs",
        ours: DEFAULT,
        peer: Some(FAIR),
        cycle: place("`redis:`", "cycle", 4),
        hand_over: place("`redis:`", "hand-over, loopback", 4),
    },
    Row {
        title: "`zk:`, loopback",
        unit: "µs",
        ours: DEFAULT,
        peer: Some(CURATOR),
        cycle: place("`zk:`", "cycle", 1),
        hand_over: place("`zk:`", "hand-over, loopback", 4),
    },
    Row {
        title: "`zk:`, 2 ms each way",
        unit: "ms",
        ours: DEFAULT,
        peer: Some(CURATOR),
        cycle: place("`zk:`", "cycle", 4),
        hand_over: place("`zk:`", "hand-over, 2 ms each way", 4),
    },
];

/// A row that was found: ours and the peer's, of a cycle and of a hand-over.
struct Found {
    row: &'static Row,
    cycle: (String, Option<String>),
    hand_over: (String, Option<String>),
}

fn found(text: &str) -> Result<Vec<Found>> {
    let pair = |row: &'static Row, place: &Place| {
        let peer = row.peer.map(|(label, _)| figure(text, place, label)).transpose()?;
        Ok::<_, String>((figure(text, place, row.ours)?, peer))
    };
    ROWS.iter()
        .map(|row| Ok(Found { row, cycle: pair(row, &row.cycle)?, hand_over: pair(row, &row.hand_over)? }))
        .collect()
}

/// The median in that place, as it is written there. Of rows that differ in what follows the label, the one of 100 waiters in one
/// process.
fn figure(text: &str, place: &Place, label: &str) -> Result<String> {
    let missing =
        || format!("{BENCHMARKS} has no figure of {label:?} in the table {:?} of {}", place.table, place.section);
    let section =
        text.split("\n## ").find(|section| section.lines().next() == Some(place.section)).ok_or_else(missing)?;
    let head = format!("| {}", place.table);
    let rows =
        section.lines().skip_while(|line| !line.starts_with(&head)).skip(2).take_while(|line| line.starts_with('|'));
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let one_process = |row: &Vec<String>| !place.table.ends_with("waiters") || row[1..3] == ["100", "1"];
    let row = rows.map(cells).find(|row| row[0] == label && one_process(row)).ok_or_else(missing)?;
    row.get(place.column).and_then(|cell| cell.split(' ').next()).map(str::to_owned).ok_or_else(missing)
}

/// The rows as a table.
fn table(text: &str) -> Result<String> {
    let mut table = "| | acquire and release, nobody else about | the same, by | hand-over, 100 waiters | the same, by |\n|---|---:|---|---:|---|\n".to_owned();
    for Found { row, cycle, hand_over } in found(text)? {
        let said = |figure: &Option<String>| match (figure, row.peer) {
            (Some(figure), Some((_, name))) => format!("{name}: {figure} {}", row.unit),
            _ => "nobody".to_owned(),
        };
        let (unit, title) = (row.unit, row.title);
        let _ = writeln!(
            table,
            "| {title} | {} {unit} | {} | {} {unit} | {} |",
            cycle.0,
            said(&cycle.1),
            hand_over.0,
            said(&hand_over.1)
        );
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
        let Some((_, peer)) = row.peer else { continue };
        for (what, (ours, theirs)) in [("cycle", cycle), ("hand-over", hand_over)] {
            let share = share(&ours, theirs.as_deref().unwrap_or_default())?;
            bar(&mut bars, top, &format!("{} {what} ÷ {peer}", row.title).replace('`', ""), share);
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

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# B\n\n## `x:`\n\n| cycle | p50 µs |\n|---|---:|\n| us | 10.5 (70) |\n\n| hand-over | waiters | processes | p50 |\n|---|---|---|---|\n| us | 2 | 1 | 3 |\n| us | 100 | 1 | 4 |\n";

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
        assert_eq!(figure(TEXT, &place("`x:`", "cycle", 1), "us").unwrap(), "10.5");
        assert_eq!(figure(TEXT, &place("`x:`", "hand-over | waiters", 3), "us").unwrap(), "4");
        assert!(figure(TEXT, &place("`x:`", "cycle", 1), "them").unwrap_err().contains("\"them\""));
    }

    #[test]
    fn a_bar_is_as_long_as_its_share_and_no_longer_than_twice_the_peers() {
        assert!((share("5", "10").unwrap() - 0.5).abs() < 1e-9);
        let mut bars = String::new();
        bar(&mut bars, 0.0, "x", 9.0);
        assert!(bars.contains("width=\"320.0\"") && bars.contains(">9.00<"), "{bars}");
        assert!(share("–", "1").is_err());
    }
}
