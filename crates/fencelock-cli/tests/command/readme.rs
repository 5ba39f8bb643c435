//! README's first console block: its first command is played here, as an ordinary user whose machine has no store yet.

use std::path::Path;

use crate::common::{code, output, stderr, stdout};
use crate::store::OrdinaryUser;

/// The commands of the block.
fn first_block() -> Vec<String> {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    let (_, block) = readme.split_once("```console\n").expect("a block of commands");
    let (block, _) = block.split_once("```").expect("the end of the block");
    block.lines().map(str::to_owned).collect()
}

#[test]
fn readme_opens_with_its_two_commands() {
    assert_eq!(
        first_block(),
        ["cargo run --no-default-features -- run deploy -- echo \"I hold the lock\"", "cargo xtask test"]
    );
}

#[test]
fn readmes_first_command_does_what_it_says_with_nothing_but_a_directory() {
    let command = first_block().swap_remove(0);
    let (_, words) = command.split_once(" -- ").expect("the command of this workspace");
    let user = OrdinaryUser::new();
    let mut shell = user.command_of(Path::new("sh"));
    let output = output(shell.args(["-c", &format!("\"$0\" {words}")]).arg(&user.program));
    assert_eq!((code(&output), stdout(&output).trim()), (0, "I hold the lock"), "{}", stderr(&output));
}
