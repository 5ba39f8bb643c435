//! A type name of the library means one thing. A name that two files declare has a row in the table, with the role that it has there.

use std::collections::BTreeMap;

use super::Violation;
use super::tree::Tree;

const TABLE: &str = "xtask/reviewed/type-names.txt";
const LIBRARY: &str = "crates/fencelock/src/";

pub(super) fn mean_one_thing(tree: &Tree) -> Vec<Violation> {
    let mut declared: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (path, text) in tree.ending(".rs").filter(|(path, _)| path.starts_with(LIBRARY) && !path.contains("tests")) {
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        code.lines().filter_map(declares).for_each(|name| declared.entry(name).or_default().push(path));
    }
    let table: BTreeMap<&str, &str> =
        tree.text(TABLE).unwrap_or_default().lines().filter_map(|row| row.split_once(" | ")).collect();
    let shared = declared.iter().filter(|(_, paths)| paths.len() > 1);
    let unknown = shared.clone().filter(|(name, _)| !table.contains_key(**name)).map(|(name, paths)| {
        let fix = "name the thing; a role that several rooms have is in the table";
        Violation::at(paths[0], 0, format!("declares `{name}`, as does {}", paths[1]), fix)
    });
    let idle = table
        .keys()
        .filter(|name| declared.get(**name).is_none_or(|paths| paths.len() < 2))
        .map(|name| Violation::at(TABLE, 0, format!("`{name}` is declared once: its row goes"), "delete the row"));
    unknown.chain(idle).collect()
}

/// The name of the type or trait that a line at the margin declares.
fn declares(line: &str) -> Option<&str> {
    let line = line
        .strip_prefix("pub(crate) ")
        .or(line.strip_prefix("pub(super) "))
        .or(line.strip_prefix("pub "))
        .unwrap_or(line);
    let (word, rest) = line.split_once(' ')?;
    let name = rest.split(|c: char| !c.is_alphanumeric()).next()?;
    matches!(word, "struct" | "enum" | "trait").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_two_types_is_found_unless_the_table_says_which_role_it_has() {
        let one = ("crates/fencelock/src/a.rs", "pub(super) struct State<T> {\n");
        let other = ("crates/fencelock/src/b/c.rs", "enum State {\n    struct Inner;\n");
        let found = |files: &[(&str, &str)]| mean_one_thing(&Tree::of(files)).len();
        assert_eq!((found(&[one, other]), found(&[one])), (1, 0));
        let table = (TABLE, "# a comment\nState | what a thing is in\n");
        assert_eq!((found(&[one, other, table]), found(&[one, table])), (0, 1));
    }
}
