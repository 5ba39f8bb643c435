//! A process of a drill; started by the harness only.

use std::process::ExitCode;

fn main() -> ExitCode {
    fencelock_lab::worker_main()
}
