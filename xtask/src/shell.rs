//! Child processes: run in the root of the repository, their output shown as it comes.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

/// Fine, or the sentence that says what was not.
pub(crate) type Result<T = ()> = std::result::Result<T, String>;

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// A command to be run in the root of the repository.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// The cargo that runs us, with `args`.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args);
    command
}

/// Says what is run, runs it, and fails unless it succeeded.
pub(crate) fn run(command: &mut Command) -> Result {
    let shown = show(command);
    println!("$ {shown}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{shown}` failed: {status}")),
        Err(error) => Err(format!("`{shown}` cannot be run: {error}")),
    }
}

/// Whether the command can be run and succeeds; shows nothing.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Refuses arguments that a verb without any was given.
pub(crate) fn no_arguments(args: &[String]) -> Result {
    match args.first() {
        None => Ok(()),
        Some(first) => Err(format!("takes no arguments, and was given {first:?}")),
    }
}

fn show(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .map(|word| if word.contains([' ', '"']) { format!("'{word}'") } else { word })
        .collect::<Vec<_>>()
        .join(" ")
}
