//! A process that writes under a lock; started by a drill only.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((first, rest)) if first == "fenced" => fencelock_torture::fenced::writer_main(rest),
        _ => fencelock_torture::writers::writer_main(),
    }
}
