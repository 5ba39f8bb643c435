//! `cargo xtask test`: everything except the foreign clients, side by side.
//!
//! Cargo builds all test binaries, and we run them: cargo would run one after the other, and most of them wait most of the
//! time. A binary may run several times, with the tests of one module each. What they ask of the machine stands in [`costs`].

mod binaries;
mod changed;
mod costs;

use std::process::Command;

use crate::schedule::{self, Class, Cost, Count, Done, Job};
use crate::servers::Server;
use crate::shell::{self, Result, cargo};
use crate::{packages, servers};
use binaries::{Binary, WHAT};
use costs::Share;

pub(crate) fn run(args: &[String]) -> Result {
    match args.split_first() {
        None => run_all(prepare(None)?),
        Some((first, base)) if first == "--changed" => match changed::since(base)? {
            Some(changes) => run_all(prepare(Some(&changes))?),
            None => Ok(()),
        },
        // `cargo xtask test -p fencelock-cli --test command -- outage::`
        Some(_) => by_cargo(args),
    }
}

/// The arguments go to cargo as they are.
fn by_cargo(args: &[String]) -> Result {
    packages::ensure(packages::TESTS, packages::SERVERS)?;
    // Dropped, and so stopped, after the tests.
    let servers = servers::start()?;
    let mut test = cargo(&["test", "--no-fail-fast"]);
    shell::run(with(&servers, test.args(WHAT)).args(args))
}

/// Jobs that run tests, and the servers that they share for as long as this lives.
pub(crate) struct Tests {
    pub(crate) jobs: Vec<Job>,
    _servers: Vec<Server>,
}

/// Builds the tests, all or those that the changes concern, and starts what they need.
pub(crate) fn prepare(changes: Option<&changed::Changes>) -> Result<Tests> {
    packages::ensure(packages::TESTS, packages::SERVERS)?;
    let binaries = binaries::build()?;
    costs::check(&binaries)?;
    let servers = servers::start()?;
    let mut jobs = Vec::new();
    if changes.is_none_or(changed::Changes::concern_docs) {
        jobs.push(examples_in_docs());
    }
    for binary in &binaries {
        for share in costs::shares(binary, binary.tests()?)? {
            if changes.is_none_or(|changes| changes.concern(&binary.package, &share.name)) {
                jobs.extend(of(binary, share));
            }
        }
    }
    for job in &mut jobs {
        with(&servers, &mut job.command);
    }
    Ok(Tests { jobs, _servers: servers })
}

fn with<'a>(servers: &[Server], command: &'a mut Command) -> &'a mut Command {
    command.envs(servers.iter().map(|server| &server.variable).map(|(name, value)| (name, value)))
}

/// The examples in the comments of code, which cargo alone can run.
fn examples_in_docs() -> Job {
    let mut command = cargo(&["test", "--doc", "--no-fail-fast"]);
    command.args(WHAT);
    Job { name: "doc tests".to_owned(), cost: Cost { class: Class::Builds, seconds: 60 }, command }
}

/// The jobs that run these tests of a binary: one, or several with a part of them each.
fn of(binary: &Binary, share: Share) -> Vec<Job> {
    let Share { name, row, tests } = share;
    let name = format!("{} {name}", binary.package);
    let parts = deal(tests, row.parts as usize);
    let count = parts.len();
    let job = |(at, tests): (usize, Vec<String>)| {
        let mut command = binary.command();
        command.args(row.threads.map(|threads| format!("--test-threads={threads}")));
        command.arg("--exact").args(tests);
        let name = if count == 1 { name.clone() } else { format!("{name} {}/{count}", at + 1) };
        Job { name, cost: Cost { class: row.class, seconds: row.seconds / row.parts }, command }
    };
    parts.into_iter().enumerate().map(job).collect()
}

/// Deals tests out to at most so many parts, none of them empty: neighbours, which tend to be alike, to different parts.
fn deal(tests: Vec<String>, parts: usize) -> Vec<Vec<String>> {
    let mut dealt = vec![Vec::new(); parts.min(tests.len())];
    let parts = dealt.len();
    for (at, test) in tests.into_iter().enumerate() {
        dealt[at % parts].push(test);
    }
    dealt
}

fn run_all(tests: Tests) -> Result {
    let Tests { jobs, _servers } = tests;
    report(&schedule::run(jobs))
}

/// Says at the end what failed, with all that it printed of it, and how many tests passed.
pub(crate) fn report(done: &[Done]) -> Result {
    let mut all = Count::default();
    let mut failed = Vec::new();
    for Done { name, output, result, .. } in done {
        all += Count::of(output);
        if let Err(fault) = result {
            println!("\n=== {fault}\n{}", schedule::failures(output));
            failed.push(name.as_str());
        }
    }
    println!("\n{}", slowest(done));
    let Count { passed, failed: broken, ignored } = all;
    println!("all tests: {passed} passed; {broken} failed; {ignored} ignored; in {} runs", done.len());
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

/// How many runs are listed with their times.
const LISTED: usize = 20;

/// The runs that took longest, to compare with the table in `costs.rs`.
fn slowest(done: &[Done]) -> String {
    let mut done: Vec<_> = done.iter().collect();
    done.sort_by_key(|done| std::cmp::Reverse(done.took));
    let mut table = format!("{:<50}{:>8}{:>8}{:>8}\n", "the longest runs", "began s", "took s", "cpu s");
    for Done { name, began, took, cpu, .. } in done.into_iter().take(LISTED) {
        let [began, took, cpu] = [began, took, cpu].map(|time| time.as_secs_f64());
        table.push_str(&format!("{name:<50}{began:>8.0}{took:>8.1}{cpu:>8.1}\n"));
    }
    table
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_test_is_in_one_part_and_no_part_is_empty() {
        let tests: Vec<_> = (0..7).map(|number| number.to_string()).collect();
        assert_eq!(deal(tests.clone(), 3), [vec!["0", "3", "6"], vec!["1", "4"], vec!["2", "5"]]);
        assert_eq!(deal(tests[..2].to_vec(), 3), [["0"], ["1"]]);
        assert!(deal(Vec::new(), 3).is_empty());
    }

    #[test]
    fn a_failure_is_the_result_of_all() {
        let done = |name: &str, result: Result| Done {
            name: name.to_owned(),
            began: Duration::ZERO,
            took: Duration::from_secs(2),
            cpu: Duration::from_secs(1),
            output: "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured".to_owned(),
            result,
        };
        let good = done("good", Ok(()));
        assert_eq!(
            report(&[done("good", Ok(())), done("bad", Err("killed".to_owned()))]),
            Err("failed: bad".to_owned())
        );
        assert!(slowest(&[good]).contains("     2.0     1.0\n"));
    }
}
