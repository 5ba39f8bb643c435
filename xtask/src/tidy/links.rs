//! Links from one file of the repository to another lead somewhere.

use super::Violation;
use super::tree::{Tree, prose};

pub(super) fn resolve(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.ending(".md") {
        for (line, target) in links(text) {
            if let Some(fault) = fault(tree, path, target) {
                let fix = "link to a file or heading that is there";
                violations.push(Violation::at(path, line, fault, fix));
            }
        }
    }
    violations
}

/// The targets of `[text](target)`, outside code, that are not addresses on the web.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text)
        .flat_map(|(line, words)| words.split("](").skip(1).map(move |rest| (line, rest)))
        .filter_map(|(line, rest)| Some((line, rest.split_once(')')?.0)))
        .filter(|(_, target)| !target.contains("://") && !target.starts_with("mailto:"))
}

fn fault(tree: &Tree, from: &str, target: &str) -> Option<String> {
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let path = if file.is_empty() { from.to_owned() } else { join(from, file) };
    if !tree.has(&path) {
        return Some(format!("links to {target}, which is not there"));
    }
    let anchor = anchor?;
    let headings = tree.text(&path).unwrap_or_default().lines().filter(|line| line.starts_with('#'));
    let found = headings.map(slug).any(|slug| slug == anchor);
    (!found).then(|| format!("links to {target}, where no such heading is"))
}

fn join(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_nowhere_is_found() {
        let text =
            "# One `two`\n[a](b.md) [c](../d.md#e-f) [g](https://h.example)\n[i](#one-two) [j](gone.md)\n[k](#gone)\n";
        let tree = Tree::of(&[("docs/a.md", text), ("docs/b.md", ""), ("d.md", "## E f\n")]);
        let lines: Vec<_> = resolve(&tree).iter().map(|violation| violation.line).collect();
        assert_eq!(lines, [3, 4]);
    }

    #[test]
    fn the_content_of_a_code_block_is_no_link() {
        assert!(resolve(&Tree::of(&[("a.md", "```\nx[0](y)\n```\n")])).is_empty());
    }
}
