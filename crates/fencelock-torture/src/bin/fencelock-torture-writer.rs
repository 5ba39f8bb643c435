//! One process that writes under a lock; started by a drill only.

use std::process::ExitCode;

fn main() -> ExitCode {
    fencelock_torture::writers::writer_main()
}
