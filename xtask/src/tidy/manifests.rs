//! Every crate takes the lints of the workspace, which forbid unsafe code, and has a description.

use super::Violation;
use super::tree::Tree;

pub(super) fn complete(tree: &Tree) -> Vec<Violation> {
    tree.ending("Cargo.toml").filter_map(|(path, text)| fault(path, text)).collect()
}

fn fault(path: &str, text: &str) -> Option<Violation> {
    let fault = |fault, fix| Some(Violation::at(path, 0, fault, fix));
    if text.contains("[workspace.package]") && !text.contains("\nunsafe_code = \"forbid\"\n") {
        return fault("does not forbid unsafe code", "say unsafe_code = \"forbid\" in [workspace.lints.rust]");
    }
    if text.contains("[package]\n") && !text.contains("[lints]\nworkspace = true\n") {
        return fault("does not take the lints of the workspace", "add [lints] workspace = true");
    }
    if text.contains("[package]\n")
        && !(text.contains("\ndescription = \"") && text.contains("\nlicense.workspace = true\n"))
    {
        return fault("lacks its description or its licence", "say what the crate is; add license.workspace = true");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_that_allows_unsafe_code_or_says_too_little_is_found() {
        let found = |text: &str| complete(&Tree::of(&[("a/Cargo.toml", text)])).len();
        assert_eq!(found("[package]\nname = \"a\"\n"), 1);
        let lints = "[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n";
        assert_eq!(found(lints), 1);
        assert_eq!(found(&lints.replace("\n\n", "\ndescription = \"b\"\nlicense.workspace = true\n\n")), 0);
        assert_eq!(found("[workspace.package]\n[workspace.lints.rust]\nunsafe_code = \"warn\"\n"), 1);
    }
}
