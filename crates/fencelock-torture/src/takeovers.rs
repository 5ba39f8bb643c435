//! How long a lock stays with a dead holder.

use std::fmt;
use std::time::Duration;

use fencelock_conformance::scenes::{Stage, Takeover, takeover};

/// How locks went on whose holders were killed, on servers that nothing else befell.
#[derive(Debug, Clone)]
pub struct Takeovers(Vec<Takeover>);

impl Takeovers {
    /// Kills a holder on `stage`, so often, one after the other.
    ///
    /// # Panics
    /// When the next one is not granted the lock, or the store cannot be used.
    #[must_use]
    pub fn measure(stage: &Stage, times: usize) -> Self {
        Self((0..times).map(|_| takeover(stage)).collect())
    }

    /// Whether none took longer than the store promises.
    #[must_use]
    pub fn are_in_time(&self) -> bool {
        self.0.iter().all(|takeover| takeover.took <= takeover.bound)
    }
}

impl fmt::Display for Takeovers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut took: Vec<Duration> = self.0.iter().map(|takeover| takeover.took).collect();
        took.sort();
        let (Some(first), Some(most)) = (self.0.first(), took.last()) else {
            return f.write_str("no holder was killed");
        };
        let (median, ttl, bound) = (took[took.len() / 2], first.ttl, first.bound);
        write!(f, "{} holders killed: followed after {median:.2?} (median), {most:.2?} (most); ", took.len())?;
        write!(f, "sessions of {ttl:?}, so {:.2?} more at most; {bound:?} is promised", most.saturating_sub(ttl))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_the_median_and_the_most_and_what_that_is_beyond_the_session() {
        let after = |took| Takeover {
            took: Duration::from_millis(took),
            ttl: Duration::from_secs(3),
            bound: Duration::from_secs(4),
        };
        let takeovers = Takeovers([3500, 3700, 3400].map(after).to_vec());
        assert!(takeovers.are_in_time() && !Takeovers(vec![after(4001)]).are_in_time());
        let told = takeovers.to_string();
        assert!(told.contains("3.50s (median), 3.70s (most)") && told.contains("700.00ms more at most"), "{told}");
    }
}
