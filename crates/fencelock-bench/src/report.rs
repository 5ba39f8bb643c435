//! Markdown: tables, and the section of `docs/benchmarks.md` that a run replaces.

use std::fmt;
use std::path::Path;

use anyhow::{Context as _, Result};

/// The document, from the root of the repository.
pub(crate) const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks.md");

/// A table.
#[derive(Debug)]
pub(crate) struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<S: AsRef<str>>(head: &[S]) -> Self {
        Self { head: head.iter().map(|cell| cell.as_ref().to_owned()).collect(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let row: Vec<String> = cells.into_iter().collect();
        assert_eq!(row.len(), self.head.len(), "a row has a cell for every column: {row:?}");
        self.rows.push(row);
    }
}

impl Table {
    /// Whether the table has no row.
    pub(crate) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| {} |", self.head.join(" | "))?;
        writeln!(f, "|---|{}", "---:|".repeat(self.head.len().saturating_sub(1)))?;
        self.rows.iter().try_for_each(|row| writeln!(f, "| {} |", row.join(" | ")))
    }
}

/// Nanoseconds as microseconds, to three digits.
pub(crate) fn micros(nanos: f64) -> String {
    decimals(nanos / 1000.0)
}

/// Nanoseconds as milliseconds, to three digits.
pub(crate) fn millis(nanos: f64) -> String {
    decimals(nanos / 1_000_000.0)
}

/// To about three digits.
pub(crate) fn decimals(value: f64) -> String {
    match value {
        value if !value.is_finite() => "–".to_owned(),
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// Replaces the section `name` of the document by `section`.
pub(crate) fn write(name: &str, section: &str) -> Result<()> {
    write_to(Path::new(DOCUMENT), name, section)
}

/// Replaces the section `name` of another document.
pub(crate) fn write_to(path: &Path, name: &str, section: &str) -> Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    std::fs::write(path, replaced(&text, name, section)?).with_context(|| path.display().to_string())
}

fn replaced(text: &str, name: &str, section: &str) -> Result<String> {
    let begin = format!("<!-- made by `cargo xtask bench {name} --write`: begin -->");
    let end = format!("<!-- made by `cargo xtask bench {name} --write`: end -->");
    let missing = |mark: &str| format!("the document has no line {mark}");
    let (before, rest) = text.split_once(&begin).with_context(|| missing(&begin))?;
    let (_, after) = rest.split_once(&end).with_context(|| missing(&end))?;
    Ok(format!("{before}{begin}\n\n{}\n\n{end}{after}", section.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_the_marks_of_the_section_is_replaced() {
        let mark = |name: &str, which: &str| format!("<!-- made by `cargo xtask bench {name} --write`: {which} -->");
        let text = format!("a\n{}\nold\n{}\nb\n", mark("file", "begin"), mark("file", "end"));
        let new = replaced(&text, "file", "new\n").unwrap();
        assert_eq!(new, text.replace("\nold\n", "\n\nnew\n\n"));
        assert_eq!(replaced(&new, "file", "new\n").unwrap(), new);
        assert!(replaced(&text, "memory", "new").is_err());
    }

    #[test]
    fn the_document_has_a_section_for_every_store() {
        let text = std::fs::read_to_string(DOCUMENT).unwrap();
        for name in ["defaults", "file", "memory", "zookeeper", "redis", "postgres", "mysql", "etcd"] {
            replaced(&text, name, "").unwrap();
        }
    }
}
