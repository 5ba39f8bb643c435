//! The first command of README, run as it stands there.

use std::process::{Command, Stdio};

use crate::shell::{self, Result};

/// Runs README's first command on the default store, and looks at what it prints.
pub(crate) fn first_command() -> Result {
    let readme = std::fs::read_to_string(shell::root().join("README.md")).map_err(|error| error.to_string())?;
    let line = command_in(&readme).ok_or("README has no line that starts with `cargo run --`")?;
    let state = std::env::temp_dir().join(format!("fencelock-readme-{}", std::process::id()));
    println!("$ {line}");
    let output = Command::new("sh")
        .args(["-c", line])
        .current_dir(shell::root())
        // Neither the locks nor the settings of the user that runs this play a part (root's default store is the host's).
        .env("XDG_STATE_HOME", &state)
        .env("XDG_CONFIG_HOME", &state)
        .env_remove("FENCELOCK_STORE")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output();
    let _ = std::fs::remove_dir_all(&state);
    let output = output.map_err(|error| error.to_string())?;
    match String::from_utf8_lossy(&output.stdout).trim() {
        "I hold the lock" if output.status.success() => Ok(()),
        printed => Err(format!("README's first command printed {printed:?} and ended with {}", output.status)),
    }
}

fn command_in(readme: &str) -> Option<&str> {
    readme.lines().map(str::trim).find(|line| line.starts_with("cargo run --"))
}

#[cfg(test)]
mod tests {
    use crate::shell;

    #[test]
    fn readme_opens_with_the_two_commands() {
        let readme = std::fs::read_to_string(shell::root().join("README.md")).unwrap();
        let block = readme.split("```").nth(1).unwrap();
        let commands: Vec<_> = block.lines().skip(1).collect();
        assert_eq!(commands, ["cargo run -- run deploy -- echo \"I hold the lock\"", "cargo xtask test"]);
    }

    #[test]
    fn the_first_command_is_found_in_readme() {
        let readme = "# x\n\n```console\ncargo run -- run deploy -- echo hello\n```\n";
        assert_eq!(super::command_in(readme), Some("cargo run -- run deploy -- echo hello"));
    }
}
