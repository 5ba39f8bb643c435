//! Sentences of comments and documents, and names of functions: words that open no sentence, and words that neither holds. The table of
//! both is `xtask/reviewed/english.txt`.

use super::Violation;
use super::tree::Tree;

const TABLE: &str = "xtask/reviewed/english.txt";

pub(super) fn plain(tree: &Tree) -> Vec<Violation> {
    let rows = tree.text(TABLE).unwrap_or_default().lines().filter(|row| !row.starts_with('#'));
    let rows: Vec<_> = rows.filter_map(|row| row.split_once(" | ")).map(|(rule, word)| (rule, words(word))).collect();
    let mut found = Vec::new();
    for (path, text) in tree.files() {
        let sentences = sentences(path, text).into_iter().map(|sentence| (words(&sentence), true));
        for (plain, is_sentence) in sentences.chain(names(path, text).map(|name| (words(name), false))) {
            let breaks = |(rule, word): &&(&str, String)| match *rule {
                "opening" => is_sentence && plain.starts_with(word),
                _ => plain.contains(word),
            };
            let faults = rows.iter().filter(breaks).map(|(rule, word)| format!("{rule}{word}in:{plain}"));
            let fix = "begin with a named thing, and use the trade's verb";
            found.extend(faults.map(|fault| Violation::at(path, 0, fault, fix)));
        }
    }
    found
}

/// The names of the functions that a file of Rust declares.
fn names<'t>(path: &str, text: &'t str) -> impl Iterator<Item = &'t str> {
    let functions = text.split("fn ").skip(1).take(if path.ends_with(".rs") { usize::MAX } else { 0 });
    functions.filter_map(|function| function.split(|c: char| !c.is_alphanumeric() && c != '_').next())
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
    fn openings_and_banned_words_are_found_in_sentences_and_banned_ones_in_names_of_functions() {
        let found = |path: &'static str, text: &str| plain(&Tree::of(&[(TABLE, WORDS), (path, text)])).len();
        assert_eq!(found("a.rs", "// Who waits\n// goes on.\nlet who = 1;\n"), 2);
        assert_eq!(found("a.rs", "// It ends. A client that asks who waits.\n"), 1);
        let wait = ["fn", "a_wait_goes_on() {}\nfn it() {}\n"].join(" ");
        assert_eq!((found("a.rs", &wait), found("a.rs", "fn goes() { on() }\n")), (1, 0));
        assert_eq!(found("b.md", "| The wait | who goes on |\n"), 2);
        assert_eq!(found("b.md", "The wait\n```\nwho goes on\n```\n") + found("b.rs", "// Whoever\n"), 0);
    }
}
