//! Answers about a session's own places, the same for every store.

use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::store::{Loss, PlaceId, PlaceList, RequestId};

pub(crate) fn over(operation: &'static str) -> Error {
    Error::new(ErrorKind::Lost, operation, "the session has ended")
}

/// The error of a claim that cannot be made lighter: its place is gone.
pub(crate) fn not_there() -> Error {
    Error::new(ErrorKind::Lost, "downgrade", "the place is gone")
}

/// Returns the `places` that the session has lost, and why.
pub(crate) fn gone(places: &dyn PlaceList, why: impl Fn(&Name, RequestId) -> Option<Loss>) -> Vec<(PlaceId, Loss)> {
    let mut gone = Vec::new();
    places.each(&mut |name, request| {
        gone.extend(why(name, request).map(|loss| (PlaceId { name: name.clone(), request }, loss)));
    });
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_that_is_gone_is_reported_once_with_its_cause_and_no_other() {
        let (name, other) = (Name::new("job").unwrap(), Name::new("other").unwrap());
        let place = |name: &Name, number| PlaceId { name: name.clone(), request: RequestId { client: 1, number } };
        let places = [place(&name, 1), place(&other, 2), place(&name, 3)];
        let gone = gone(&places, |of, id| match id.number {
            1 => Some(Loss::Broken),
            _ => (*of == other).then_some(Loss::Removed),
        });
        let [first, second, _] = places;
        assert_eq!(gone, [(first, Loss::Broken), (second, Loss::Removed)]);
    }
}
