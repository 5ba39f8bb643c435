//! A process that holds a lock; started by a scene only.

use std::process::ExitCode;

fn main() -> ExitCode {
    fencelock_conformance::scenes::holder_main()
}
