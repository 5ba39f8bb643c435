//! What a test binary's output says: how many tests passed, and what failed.

use std::ops::AddAssign;

/// What the lines `test result: ok. 3 passed; 0 failed; …` of an output add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
}

impl Count {
    pub(crate) fn of(output: &str) -> Self {
        let mut count = Self::default();
        for line in output.lines().filter(|line| line.starts_with("test result: ")) {
            let words: Vec<_> = line.split([' ', ';', '.']).filter(|word| !word.is_empty()).collect();
            let number = |what| {
                let at = words.iter().position(|word| *word == what).and_then(|at| at.checked_sub(1));
                at.and_then(|at| words[at].parse().ok()).unwrap_or(0)
            };
            count += Self { passed: number("passed"), failed: number("failed"), ignored: number("ignored") };
        }
        count
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, more: Self) {
        self.passed += more.passed;
        self.failed += more.failed;
        self.ignored += more.ignored;
    }
}

/// How many lines are shown of an output that does not say where its failures begin.
const LINES: usize = 60;

/// What an output says of its failures, with what the failed tests printed, among it their seeds. Of an output that ends
/// in the middle, its last lines.
pub(crate) fn failures(output: &str) -> String {
    let lines: Vec<_> = output.lines().collect();
    let from = lines.iter().position(|line| *line == "failures:").unwrap_or(lines.len().saturating_sub(LINES));
    lines[from..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILED: &str = "running 2 tests\ntest a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\n\
                          again: FENCELOCK_SEED=7\n\nfailures:\n    b\n\n\
                          test result: FAILED. 1 passed; 1 failed; 3 ignored; 0 measured; 9 filtered out; finished in 0.01s\n";

    #[test]
    fn results_add_up() {
        let ok = "test result: ok. 41 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s";
        let all = format!("{FAILED}{ok}\nsays test result: ok. 5 passed\n");
        assert_eq!(Count::of(&all), Count { passed: 42, failed: 1, ignored: 3 });
        assert_eq!(Count::of("nothing"), Count::default());
    }

    #[test]
    fn failures_are_shown_with_their_seeds() {
        let shown = failures(FAILED);
        assert!(
            shown.starts_with("failures:\n") && shown.contains("FENCELOCK_SEED=7") && !shown.contains("test a"),
            "{shown}"
        );
    }

    #[test]
    fn of_an_output_that_ends_in_the_middle_the_last_lines_are_shown() {
        let output: String = (0..100).map(|number| format!("line {number}\n")).collect();
        let shown = failures(&output);
        assert!(shown.starts_with("line 40\n") && shown.ends_with("line 99"), "{shown}");
        assert_eq!(failures("one\n"), "one");
    }
}
