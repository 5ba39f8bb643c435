//! Sentences of comments and documents: how they open, and which words they avoid. The table in `xtask/reviewed/english.txt` holds the words,
//! and for each file the faults that it had once. A file never has more.

use std::collections::BTreeMap;

use super::Violation;
use super::tree::Tree;

pub(super) const TABLE: &str = "xtask/reviewed/english.txt";

/// Openings and banned words, and the faults that each file may have.
#[derive(Default)]
struct Reviewed<'t> {
    openings: Vec<&'t str>,
    banned: Vec<&'t str>,
    most: BTreeMap<&'t str, Faults>,
}

/// How many sentences of a file open badly, and how many banned words stand in it.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
struct Faults {
    openings: usize,
    banned: usize,
}

impl<'t> Reviewed<'t> {
    fn of(table: &'t str) -> Self {
        let mut reviewed = Self::default();
        for row in table.lines().filter(|row| !row.starts_with('#')) {
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            match cells[..] {
                ["opening", word] => reviewed.openings.push(word),
                ["banned", word] => reviewed.banned.push(word),
                [path, openings, banned] => {
                    let number = |cell: &str| cell.parse().expect("a number of faults");
                    reviewed.most.insert(path, Faults { openings: number(openings), banned: number(banned) });
                }
                _ => panic!("{TABLE}: a row of one or two words, or a path and two numbers: {row}"),
            }
        }
        reviewed
    }

    fn faults(&self, path: &str, text: &str) -> Faults {
        let mut faults = Faults::default();
        for sentence in sentences(path, text) {
            let plain = words(&sentence);
            faults.openings += usize::from(self.openings.iter().any(|word| plain.starts_with(&words(word))));
            faults.banned += self.banned.iter().map(|word| plain.matches(&words(word)).count()).sum::<usize>();
        }
        faults
    }
}

pub(super) fn plain(tree: &Tree) -> Vec<Violation> {
    let reviewed = Reviewed::of(tree.text(TABLE).unwrap_or_default());
    let over = tree.files().filter_map(|(path, text)| {
        let (has, most) = (reviewed.faults(path, text), reviewed.most.get(path).copied().unwrap_or_default());
        let fault = match () {
            () if has.openings > most.openings => {
                format!("{} sentences open with a word of the table, {} may", has.openings, most.openings)
            }
            () if has.banned > most.banned => format!("{} banned words, {} may stand here", has.banned, most.banned),
            () => return None,
        };
        let fix =
            "begin with a named thing, use the trade's verb; after a move, move its row: `cargo xtask tidy --lower`";
        Some(Violation::at(path, 0, fault, fix))
    });
    over.collect()
}

/// The table with each file's faults of today, where they are fewer than the table allows. A file without a row gets none.
pub(super) fn lowered(tree: &Tree) -> String {
    let table = tree.text(TABLE).unwrap_or_default();
    let reviewed = Reviewed::of(table);
    let rows = table.lines().filter_map(|row| {
        let path = row.split('|').next().unwrap_or_default().trim();
        let Some(most) = reviewed.most.get(path) else { return Some(row.to_owned()) };
        let has = reviewed.faults(path, tree.text(path).unwrap_or_default());
        let (openings, banned) = (has.openings.min(most.openings), has.banned.min(most.banned));
        (openings + banned > 0).then(|| format!("{path} | {openings} | {banned}"))
    });
    rows.map(|row| row + "\n").collect()
}

/// Lower-case words with a space on both sides of each.
fn words(text: &str) -> String {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '\'').filter(|word| !word.is_empty());
    words.fold(" ".to_owned(), |all, word| all + &word.to_lowercase() + " ")
}

/// The sentences of a file's comments, or of a document outside its code.
fn sentences(path: &str, text: &str) -> Vec<String> {
    let ending = path.rsplit('.').next().unwrap_or_default();
    let mark = match ending {
        "rs" => Some("//"),
        "sql" | "lua" => Some("--"),
        "md" => None,
        _ => return Vec::new(),
    };
    let (mut blocks, mut open, mut fenced) = (vec![String::new()], false, false);
    for line in text.lines().map(str::trim_start) {
        let fence = line.trim_start_matches(['/', '!', ' ']).starts_with("```");
        fenced ^= fence;
        let prose = match mark {
            Some(mark) => line.strip_prefix(mark).map(|prose| prose.trim_start_matches(['/', '!', ' '])),
            None => Some(line.trim_start_matches(['#', '-', '>', '|', ' '])),
        };
        match prose.filter(|prose| !fence && !fenced && !prose.is_empty()) {
            Some(prose) if open => blocks.last_mut().expect("there is one block at least").extend([" ", prose]),
            Some(prose) => blocks.push(prose.to_owned()),
            None => {}
        }
        open = prose.is_some_and(|prose| !prose.is_empty()) && mark.is_some();
    }
    blocks.iter().flat_map(|block| split(block)).collect()
}

fn split(block: &str) -> Vec<String> {
    let mut sentences = vec![String::new()];
    // Code between backticks is one word.
    let prose: Vec<_> = block.split('`').step_by(2).collect();
    for word in prose.join("code").replace(['|', '·'], ". ").split(' ') {
        let last = sentences.last_mut().expect("there is one sentence at least");
        last.extend([word, " "]);
        if word.ends_with(['.', ':', ';', '?', '!']) {
            sentences.push(String::new());
        }
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = "# why\nopening | who\nopening | it\nbanned | goes on\n";

    #[test]
    fn a_file_with_more_faults_than_its_row_is_found_and_one_with_as_many_is_not() {
        let table = format!("{WORDS}a.rs | 1 | 1\n");
        let found = |path: &'static str, text: &str| !plain(&Tree::of(&[(TABLE, &table), (path, text)])).is_empty();
        assert!(!found("a.rs", "// Who waits\n// goes on.\nlet who = 1;\n"));
        assert!(found("a.rs", "// Who waits. It ends.\n"));
        assert!(found("a.rs", "/// A wait goes on and goes on.\n"));
        assert!(found("b.md", "| The wait | who waits |\n"));
        assert!(!found("b.md", "The wait\n```\nwho goes on\n```\n") && !found("b.rs", "// Whoever\n"));
    }

    #[test]
    fn the_table_is_only_ever_lowered() {
        let table = format!("{WORDS}a.rs | 2 | 0\nb.rs | 1 | 1\nc.rs | 1 | 0\n");
        let tree = Tree::of(&[
            (TABLE, &table),
            ("a.rs", "// Who. It goes on.\n// It. It.\n"),
            ("b.rs", "// It.\n"),
            ("d.rs", "// It.\n"),
        ]);
        assert_eq!(lowered(&tree), format!("{WORDS}a.rs | 2 | 0\nb.rs | 1 | 0\n"));
    }
}
