//! Starts jobs as the board says, and shows what each printed, whole, when it has ended.

use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::{Board, Class, Cost};
use crate::shell::{self, Ended, Output, Priority, Result};

/// A command, and what it costs.
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) cost: Cost,
    pub(crate) command: Command,
}

/// A job that has ended.
pub(crate) struct Done {
    pub(crate) name: String,
    /// From the start of the schedule.
    pub(crate) began: Duration,
    pub(crate) took: Duration,
    pub(crate) cpu: Duration,
    pub(crate) output: String,
    pub(crate) result: Result,
}

/// Runs all of them, whatever becomes of any, and returns them in the order in which they ended.
pub(crate) fn run(jobs: Vec<Job>) -> Vec<Done> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut board = Board::new(jobs.iter().map(|job| job.cost).collect(), cores);
    let mut jobs: Vec<_> = jobs.into_iter().map(Some).collect();
    let (start, mut all) = (Instant::now(), Vec::new());
    let (told, hears) = mpsc::channel();
    loop {
        while let Some(number) = board.start() {
            // The board names each once.
            let Some(job) = jobs[number].take() else { continue };
            println!("[{:>4.0} s] {} starts", start.elapsed().as_secs_f64(), job.name);
            let told = told.clone();
            std::thread::spawn(move || {
                // We hear as long as any job runs.
                let _ = told.send((number, perform(job, start)));
            });
        }
        if board.running.is_empty() {
            return all;
        }
        // The sender that we keep ourselves keeps this from failing.
        let Ok((number, done)) = hears.recv() else { return all };
        board.end(number);
        show(&done, start);
        all.push(done);
    }
}

fn perform(job: Job, start: Instant) -> Done {
    let Job { name, cost, mut command } = job;
    let began = start.elapsed();
    let ended = captured(&mut command, cost.class);
    let took = start.elapsed().saturating_sub(began);
    let (output, result, cpu) = match ended {
        Ok((output, Ended { status, cpu })) if status.success() => (output, Ok(()), cpu),
        Ok((output, Ended { status, cpu })) => (output, Err(format!("{name} failed: {status}")), cpu),
        Err(error) => (String::new(), Err(format!("{name} cannot be run: {error}")), Duration::ZERO),
    };
    Done { name, began, took, cpu, output, result }
}

/// No job takes so long that has not come to a standstill.
const STANDSTILL: Duration = Duration::from_secs(30 * 60);

fn captured(command: &mut Command, class: Class) -> std::io::Result<(String, Ended)> {
    let output = Output::new()?;
    command.stdin(Stdio::null()).stdout(output.writer()?).stderr(output.writer()?);
    let priority = if class == Class::Builds { Priority::YieldsToOthers } else { Priority::Same };
    let ended = shell::finish(command, priority, STANDSTILL)?;
    Ok((output.read()?, ended))
}

fn show(done: &Done, start: Instant) {
    let Done { name, took, cpu, output, result, .. } = done;
    let took = format!("took {:.1} s, {:.1} s of them on a processor", took.as_secs_f64(), cpu.as_secs_f64());
    let result = result.as_ref().err().map_or("ok", String::as_str);
    println!(
        "\n[{:>4.0} s] === {name}\n{}\n=== {name} {took}: {result}",
        start.elapsed().as_secs_f64(),
        output.trim_end()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str, class: Class, script: &str) -> Job {
        let mut command = shell::command("sh");
        command.args(["-c", script]);
        Job { name: name.to_owned(), cost: Cost { class, seconds: 1 }, command }
    }

    #[test]
    fn a_job_that_fails_keeps_no_other_from_running_and_is_named() {
        let jobs = vec![
            job("bad", Class::Alone, "echo half; exit 3"),
            job("killed", Class::Waits, "kill -9 $$"),
            job("good", Class::Computes, "echo whole"),
            Job { command: Command::new("/no/such/program"), ..job("absent", Class::Waits, "") },
        ];
        let mut done = run(jobs);
        done.sort_by(|one, other| one.name.cmp(&other.name));
        let results: Vec<_> = done.iter().map(|done| (done.output.as_str(), done.result.is_ok())).collect();
        assert_eq!(results, [("", false), ("half\n", false), ("whole\n", true), ("", false)]);
        assert!(done[0].result.clone().unwrap_err().starts_with("absent cannot be run"));
        assert!(done[3].result.clone().unwrap_err().contains("signal: 9"));
    }

    #[test]
    fn jobs_that_wait_run_side_by_side() {
        // Each waits for the other, and neither would end alone.
        let place = std::env::temp_dir().join(format!("fencelock-jobs-{}", std::process::id()));
        std::fs::create_dir(&place).unwrap();
        let meets = |own: &str, other: &str| {
            let script = format!("cd '{}'; touch {own}; until [ -e {other} ]; do sleep 0.01; done", place.display());
            job(own, Class::Waits, &script)
        };
        let done = run(vec![meets("one", "other"), meets("other", "one")]);
        std::fs::remove_dir_all(&place).unwrap();
        assert!(done.iter().all(|done| done.result.is_ok()));
    }
}
