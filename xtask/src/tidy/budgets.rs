//! The most that rooms and documents may have: lines without tests, or words, by the table in `xtask/reviewed/budgets.txt`.

use super::Violation;
use super::source::Source;
use super::tree::Tree;

const TABLE: &str = "xtask/reviewed/budgets.txt";

/// Prints the table. A room may pass its aim by a tenth, or have its ceiling, if that is more.
pub(super) fn held(tree: &Tree) -> Vec<Violation> {
    let rows = tree.text(TABLE).into_iter().flat_map(str::lines).enumerate().filter(|(_, row)| !row.starts_with('#'));
    let over = rows.filter_map(|(index, row)| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let number = |cell: usize| cells[cell].parse::<usize>().expect("a number of lines or words");
        let (room, count, most) = (cells[0], counted(tree, cells[1]), number(2).max(number(3) * 11 / 10));
        println!("{room:<44} {count:>6} of {:>6}, aim {:>6}", number(2), number(3));
        let (fault, fix) = (format!("{room} has {count}, and may have {most}"), "say it with less; raise no ceiling");
        (count > most).then(|| Violation::at(TABLE, index + 1, fault, fix))
    });
    over.collect()
}

/// The `lines` or `words` of files whose paths begin with one of the listed ones, without paths listed after a `-`.
fn counted(tree: &Tree, what: &str) -> usize {
    let begins = |path: &str, with: bool| {
        let paths = what.split(' ').filter(|of| of.starts_with('-') != with);
        paths.map(|of| of.trim_start_matches('-')).any(|of| path.starts_with(of))
    };
    let is_wanted = |path: &str| begins(path, true) && !begins(path, false);
    let count = |(path, text): (&str, &str)| match (what.split(' ').next(), path.rsplit('.').next()) {
        (Some("words"), Some("md")) => {
            text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
        }
        (Some("lines"), Some("rs")) => Source::new(path, text).shipped_lines().count(),
        (Some("lines"), Some("lua" | "sql")) => text.lines().count(),
        _ => 0,
    };
    tree.files().filter(|(path, _)| is_wanted(path)).map(count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_that_outgrows_its_budget_is_found() {
        let table = "# why\nroom | lines a/ -a/b/ | 3 | 1\ntext | words d/ | 2 | 2\n";
        let found = |code: &str, text: &str| {
            let files = [(TABLE, table), ("a/c.rs", code), ("a/b/c.rs", code), ("d/a.md", text)];
            held(&Tree::of(&files)).into_iter().map(|violation| violation.line).collect::<Vec<_>>()
        };
        assert!(found("x\nx\nx\n#[cfg(test)]\nmod tests {\n}\n", "a b").is_empty());
        assert_eq!(found("x\nx\nx\nx\n", "a b c"), [2, 3]);
    }
}
