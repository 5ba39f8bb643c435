//! One process that writes under a lock; started by a drill only.

use std::process::ExitCode;

fn main() -> ExitCode {
    fencelock_torture::postgres::writers::writer_main()
}
