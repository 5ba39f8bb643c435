//! Jobs side by side: what waits runs beside what computes, so that the cores are busy and nothing that measures time starves.
//!
//! What runs when is decided here, without starting anything; [`run()`] starts the jobs and shows what they print.

mod report;
mod run;

pub(crate) use report::{Count, failures};
pub(crate) use run::{Done, Job, run};

/// What a job does to the machine while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// It judges time that was measured tightly, or nobody has said yet what it does: nothing runs beside it.
    Alone,
    /// It keeps a core busy.
    Computes,
    /// It keeps a good part of a core busy, in bursts: workers that contend for locks, servers that start.
    Contends,
    /// It waits for time to pass or for servers.
    Waits,
    /// It runs cargo, which lets one build at a time into a target directory. It would keep every core busy, and so yields to
    /// everything else.
    Builds,
}

impl Class {
    /// How much of a core it needs, in percent. At most so many cores as there are are promised to jobs at once.
    fn needs(self) -> usize {
        match self {
            Self::Alone | Self::Computes => 100,
            Self::Contends => 65,
            Self::Waits => 33,
            // What is left.
            Self::Builds => 0,
        }
    }
}

/// What decides when a job may start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) class: Class,
    /// How long it takes about, in seconds. Longer jobs start earlier.
    pub(crate) seconds: u32,
}

/// Which jobs wait, and which run. A job is a number: its place in the list of costs.
struct Board {
    costs: Vec<Cost>,
    /// The longest first, those that want to be alone before all others.
    waiting: Vec<usize>,
    running: Vec<usize>,
    cores: usize,
}

impl Board {
    fn new(costs: Vec<Cost>, cores: usize) -> Self {
        let mut waiting: Vec<_> = (0..costs.len()).collect();
        waiting.sort_by_key(|job| (costs[*job].class != Class::Alone, std::cmp::Reverse(costs[*job].seconds)));
        Self { costs, waiting, running: Vec::new(), cores: cores.max(1) }
    }

    /// The next job that may start now. It counts as running from here on.
    fn start(&mut self) -> Option<usize> {
        let at = self.waiting.iter().position(|job| self.may_start(self.costs[*job]))?;
        let job = self.waiting.remove(at);
        self.running.push(job);
        Some(job)
    }

    fn end(&mut self, job: usize) {
        self.running.retain(|running| *running != job);
    }

    fn may_start(&self, cost: Cost) -> bool {
        let running = || self.running.iter().map(|job| self.costs[*job].class);
        let are_some_alone =
            running().chain(self.waiting.iter().map(|job| self.costs[*job].class)).any(|class| class == Class::Alone);
        match cost.class {
            Class::Alone => running().next().is_none(),
            _ if are_some_alone => false,
            Class::Builds => running().all(|class| class != Class::Builds),
            class => running().map(Class::needs).sum::<usize>() + class.needs() <= 100 * self.cores,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Class::{Alone, Builds, Computes, Contends, Waits};
    use super::*;

    fn board(costs: &[(Class, u32)]) -> Board {
        Board::new(costs.iter().map(|(class, seconds)| Cost { class: *class, seconds: *seconds }).collect(), 2)
    }

    fn all_that_start(board: &mut Board) -> Vec<usize> {
        std::iter::from_fn(|| board.start()).collect()
    }

    #[test]
    fn what_wants_to_be_alone_runs_first_and_nothing_runs_beside_it() {
        let mut board = board(&[(Waits, 9), (Alone, 1), (Computes, 9), (Alone, 2)]);
        assert_eq!(all_that_start(&mut board), [3]);
        board.end(3);
        assert_eq!(all_that_start(&mut board), [1]);
        board.end(1);
        assert_eq!(all_that_start(&mut board), [0, 2]);
    }

    #[test]
    fn the_longest_start_first_and_shorter_ones_take_what_is_left_of_the_cores() {
        let mut board = board(&[(Computes, 8), (Waits, 1), (Contends, 9), (Computes, 7), (Waits, 2), (Waits, 3)]);
        // 65, 100 and 33 percent: two cores have no 33 percent left.
        assert_eq!(all_that_start(&mut board), [2, 0, 5]);
        board.end(2);
        assert_eq!(all_that_start(&mut board), [4, 1]);
        board.end(0);
        assert_eq!(all_that_start(&mut board), [3]);
    }

    #[test]
    fn what_waits_fills_the_cores() {
        assert_eq!(all_that_start(&mut board(&[(Waits, 1); 19])).len(), 6);
        assert_eq!(all_that_start(&mut board(&[(Contends, 1); 19])).len(), 3);
    }

    #[test]
    fn one_job_at_a_time_builds_and_others_pass_it() {
        let mut board = board(&[(Builds, 9), (Builds, 8), (Computes, 1), (Waits, 1)]);
        assert_eq!(all_that_start(&mut board), [0, 2, 3]);
        board.end(0);
        assert_eq!(all_that_start(&mut board), [1]);
    }

    #[test]
    fn every_job_runs_once_on_any_number_of_cores() {
        let classes = [Waits, Computes, Alone, Builds, Contends];
        let cost = |job: usize| Cost { class: classes[job % 5], seconds: job as u32 % 7 };
        for cores in 0..9 {
            let mut board = Board::new((0..60).map(cost).collect(), cores);
            let mut ran = Vec::new();
            while let Some(first) = board.start() {
                let started = std::iter::once(first).chain(all_that_start(&mut board)).collect::<Vec<_>>();
                // Those that started last end first.
                while let Some(job) = board.running.pop() {
                    ran.push(job);
                }
                assert!(started.iter().all(|job| ran.contains(job)));
            }
            ran.sort_unstable();
            assert_eq!(ran, (0..60).collect::<Vec<_>>(), "on {cores} cores");
        }
    }
}
