//! Checks of the engine before a request; no store repeats them.

use crate::error::{Error, ErrorKind, Result};
use crate::queue::Claim;

/// Refuses to replace `held` by a claim that is not lighter: waiters behind counted on the weight of `held`.
///
/// # Errors
/// [`ErrorKind::Config`] for a heavier claim, or one of another capacity.
pub(crate) fn lighter(held: Claim, asked: Claim) -> Result<()> {
    if asked.capacity() == held.capacity() && asked.weight() <= held.weight() {
        return Ok(());
    }
    let message = "a lighter claim has the same capacity and less weight";
    Err(Error::new(ErrorKind::Config, "downgrade", message).with("held", held).with("asked", asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_claim_of_the_same_capacity_and_no_more_weight_is_lighter() {
        let permits = |weight, capacity| Claim::new(weight, capacity).unwrap();
        for (held, asked) in
            [(Claim::WRITER, Claim::READER), (Claim::READER, Claim::READER), (permits(3, 3), permits(1, 3))]
        {
            lighter(held, asked).unwrap();
        }
        for (held, asked) in
            [(Claim::READER, Claim::WRITER), (Claim::WRITER, Claim::MUTEX), (permits(2, 3), permits(1, 2))]
        {
            assert_eq!(lighter(held, asked).unwrap_err().kind(), ErrorKind::Config, "{held} to {asked}");
        }
    }
}
