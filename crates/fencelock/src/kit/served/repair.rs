//! Looks at the waiting places of a session from time to time: messages may be lost, and no message reports a holder's death.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::answers::Look;
use super::places::{Places, REPAIR};
use crate::error::{ErrorKind, Result};
use crate::name::Name;
use crate::store::RequestId;
use crate::time::{Clock, outcome_before};

/// The most names in one request.
const NAMES: usize = 64;
/// How many places one request asks for, so that no server takes long over it.
pub(crate) const PLACES_PER_CALL: usize = 256;

/// Places of one session, by name.
pub(crate) type PlacesByName = Vec<(Name, Vec<RequestId>)>;

/// Looks with `look` at all waiting places once, because messages may be lost, and then at each due place, until the connection ends.
pub(crate) async fn repair<C: Send + Sync>(
    connection: Weak<C>,
    places: Arc<Places>,
    clock: Arc<dyn Clock>,
    look: impl AsyncFn(&C, &PlacesByName) -> Result<Look>,
) {
    let mut all = true;
    loop {
        match places.due(clock.now(), all) {
            Err(next) => {
                all = false;
                outcome_before(&*clock, next, places.session.bell.notified()).await;
            }
            Ok(names) => {
                let Some(connection) = connection.upgrade() else { return };
                if look_at(&*connection, &places, &*clock, names, &look).await {
                    all = false;
                } else {
                    // The connection ends, or the server refuses for a while.
                    drop(connection);
                    clock.sleep_until(clock.now().after(REPAIR)).await;
                }
            }
        }
    }
}

/// Returns whether the server answered. An error of one name does not affect the other names.
async fn look_at<C>(
    connection: &C,
    places: &Places,
    clock: &dyn Clock,
    names: HashMap<Name, Vec<RequestId>>,
    look: &impl AsyncFn(&C, &PlacesByName) -> Result<Look>,
) -> bool {
    let mut requests = portions(names);
    while let Some(request) = requests.pop() {
        match look(connection, &request).await {
            Ok(look) => places.looked(&request, look, clock.now()),
            Err(error) if error.kind() == ErrorKind::Unreachable => {
                tracing::debug!(%error, "waiting places could not be looked at");
                return false;
            }
            Err(_) if request.len() > 1 => requests.extend(request.into_iter().map(|name| vec![name])),
            Err(error) => {
                tracing::warn!(%error, name = ?request.first().map(|(name, _)| name), "places could not be looked at");
            }
        }
    }
    true
}

/// Requests of a bounded size for these places.
pub(crate) fn portions(names: HashMap<Name, Vec<RequestId>>) -> Vec<PlacesByName> {
    let mut portions: Vec<PlacesByName> = Vec::new();
    let mut room = 0;
    for (name, ids) in names {
        for ids in ids.chunks(PLACES_PER_CALL) {
            match portions.last_mut().filter(|last| last.len() < NAMES && ids.len() <= room) {
                Some(last) => last.push((name.clone(), ids.to_vec())),
                None => {
                    room = PLACES_PER_CALL;
                    portions.push(vec![(name.clone(), ids.to_vec())]);
                }
            }
            room -= ids.len();
        }
    }
    portions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_of_a_bounded_size_and_leave_nothing_out() {
        let id = |number| RequestId { client: 1, number };
        let names: HashMap<_, _> = (0..100_u64)
            .map(|name| (Name::new(format!("n{name}")).unwrap(), (0..=name * 7).map(id).collect::<Vec<_>>()))
            .collect();
        let wanted: usize = names.values().map(Vec::len).sum();
        let portions = portions(names);
        let count = |portion: &Vec<(Name, Vec<RequestId>)>| portion.iter().map(|(_, ids)| ids.len()).sum::<usize>();
        assert!(portions.iter().all(|portion| portion.len() <= NAMES && count(portion) <= PLACES_PER_CALL));
        assert_eq!(portions.iter().map(count).sum::<usize>(), wanted);
    }
}
