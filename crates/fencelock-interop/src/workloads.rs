//! The orders that a benchmark gives. Every driver of another language must carry them out, and log them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::clients::{CURATOR_54, CURATOR_59, Client, GO, GO_LOCK, KAZOO_LOCK};
use crate::driver::{Driver, value};
use crate::ours::now;

/// The peers of a benchmark.
pub(crate) static PEERS: [&Client; 4] = [&CURATOR_59, &CURATOR_54, &KAZOO_LOCK, &GO_LOCK];

const CYCLES: u64 = 20;
const WAITERS: u64 = 4;
const HELD: u64 = 10;
/// Long: other drivers start meanwhile, and compile their programs.
const CONTENDING: Duration = Duration::from_secs(3);

/// A section under the lock: its owner, its beginning, its end.
type Section = (u64, u64, u64);

/// Gives all orders to a driver that logs to `log`, and checks the log.
pub(crate) fn drill(driver: &mut Driver, peer: &Client, number: usize, log: &Path) -> Result<()> {
    driver.ask(&format!("use {} /workloads peer-{number}", peer.recipe))?;
    driver.ask(&format!("cycle {CYCLES}"))?;
    let cycles = numbers(log)?;
    ensure!(cycles.len() as u64 == CYCLES && !cycles.contains(&0), "cycles of {cycles:?} ns");
    hand_over(driver, log)?;
    contend(driver, log)?;
    if peer.program != GO {
        share(driver, log)?;
    }
    for order in [format!("hold {HELD} 4"), format!("wait {WAITERS}")] {
        let memory = driver.ask(&order)?;
        ensure!(value(&memory, "before")? != "0" && value(&memory, "after")? != "0", "{order}: {memory}");
    }
    Ok(())
}

/// Every contender is served once, in the order of arrival.
fn hand_over(driver: &mut Driver, log: &Path) -> Result<()> {
    driver.ask("enter 0 1")?;
    for waiter in 1..=WAITERS {
        driver.ask(&format!("enter {waiter} 0"))?;
    }
    driver.ask("go")?;
    let sections = apart(sections(log)?)?;
    let order: Vec<u64> = sections.iter().map(|(who, ..)| *who).collect();
    ensure!(order == (0..=WAITERS).collect::<Vec<_>>(), "served in the order {order:?}");
    Ok(())
}

/// Contenders of one lock have it in turn; contenders with locks of their own all have theirs.
fn contend(driver: &mut Driver, log: &Path) -> Result<()> {
    for verb in ["contend", "spread"] {
        let start = now();
        let end = start + u64::try_from(CONTENDING.as_nanos())?;
        driver.ask(&format!("{verb} {WAITERS} 0 {start} {end}"))?;
        let sections = sections(log)?;
        ensure!((0..WAITERS).all(|who| sections.iter().any(|section| section.0 == who)), "{verb}: {sections:?}");
        ensure!(sections.iter().all(|&(_, from, until)| start <= from && from <= until && from < end), "{verb}: times");
        if verb == "contend" {
            apart(sections)?;
        }
    }
    Ok(())
}

/// Readers, a writer and contenders for permits all get their grants.
fn share(driver: &mut Driver, log: &Path) -> Result<()> {
    for (order, contenders) in [(format!("share {WAITERS}"), WAITERS + 1), (format!("permits 2 {WAITERS}"), WAITERS)] {
        let start = now();
        driver.ask(&format!("{order} {start} {}", start + u64::try_from(CONTENDING.as_nanos())?))?;
        let sections = sections(log)?;
        ensure!((0..contenders).all(|who| sections.iter().any(|section| section.0 == who)), "{order}: {sections:?}");
    }
    Ok(())
}

/// The sections by time, of which no two overlap.
fn apart(mut sections: Vec<Section>) -> Result<Vec<Section>> {
    sections.sort_unstable_by_key(|&(_, from, _)| from);
    ensure!(sections.windows(2).all(|pair| pair[0].2 <= pair[1].1), "two at once: {sections:?}");
    Ok(sections)
}

fn numbers(log: &Path) -> Result<Vec<u64>> {
    let bytes = std::fs::read(log).with_context(|| log.display().to_string())?;
    let (numbers, rest) = bytes.as_chunks::<8>();
    ensure!(rest.is_empty(), "a log ends in the middle of a number");
    Ok(numbers.iter().map(|number| u64::from_le_bytes(*number)).collect())
}

fn sections(log: &Path) -> Result<Vec<Section>> {
    let numbers = numbers(log)?;
    let (sections, rest) = numbers.as_chunks::<3>();
    ensure!(rest.is_empty(), "a log ends in the middle of a section");
    Ok(sections.iter().map(|&[who, from, until]| (who, from, until)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_concurrent_holders_are_found() {
        assert!(apart(vec![(1, 20, 30), (0, 10, 20)]).is_ok_and(|sections| sections[0].0 == 0));
        assert!(apart(vec![(0, 10, 21), (1, 20, 30)]).is_err());
    }
}
