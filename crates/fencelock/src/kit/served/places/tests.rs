//! Messages, and their limits.

use futures_util::FutureExt;

use super::*;
use crate::store::Standing;

const AHEAD: Option<Ahead> = Some(Ahead { holders: 1, waiters: 0 });

struct Bed {
    places: Places,
    events: mpsc::UnboundedReceiver<SessionEvent>,
}

impl Bed {
    /// A session whose first connection is the one of the moment.
    fn new() -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let places = Places::new(sender);
        places.connected(1);
        Self { places, events }
    }

    fn begin(&self, number: u64) -> Arc<PlaceSlot> {
        self.places.begin(&Name::new("job").unwrap(), RequestId { client: 1, number }, 5).0
    }

    fn waits(&self, number: u64, seq: u64) -> Arc<PlaceSlot> {
        let slot = self.begin(number);
        self.places.waits(&slot, seq, AHEAD, Moment::from_nanos(10));
        slot
    }

    /// The message that this place was granted this number.
    fn granted(&self, connection: u64, slot: &PlaceSlot, seq: u64) {
        self.places.receive(connection, format!("n job\ng {} {seq}", slot.place.request).as_bytes());
    }
}

fn token(standing: Standing) -> Option<u64> {
    match standing {
        Standing::Granted(grant) => Some(grant.token?.get()),
        _ => None,
    }
}

#[test]
fn a_message_with_the_number_of_the_place_is_the_grant() {
    let bed = Bed::new();
    let slot = bed.waits(1, 7);
    bed.granted(1, &slot, 7);
    assert_eq!(token(slot.standing()), Some(7));
    assert_eq!(bed.places.due(Moment::NEVER, true), Err(Moment::NEVER), "a holder is looked at like a waiter");
}

#[test]
fn a_message_with_another_number_or_of_an_older_connection_is_nothing() {
    let bed = Bed::new();
    let slot = bed.waits(1, 7);
    bed.granted(1, &slot, 6);
    bed.places.disconnected(1);
    bed.granted(1, &slot, 7);
    bed.places.connected(2);
    bed.granted(1, &slot, 7);
    assert_eq!(slot.standing(), Standing::Waiting(AHEAD));
    bed.granted(2, &slot, 7);
    assert_eq!(token(slot.standing()), Some(7));
}

#[test]
fn a_message_that_overtakes_the_answer_counts_once_that_tells_the_number() {
    let bed = Bed::new();
    let (right, wrong) = (bed.begin(1), bed.begin(2));
    bed.granted(1, &right, 7);
    bed.granted(1, &wrong, 7);
    assert_eq!(right.standing(), Standing::Waiting(None));
    bed.places.waits(&right, 7, AHEAD, Moment::NEVER);
    bed.places.waits(&wrong, 8, AHEAD, Moment::NEVER);
    assert_eq!(token(right.standing()), Some(7));
    assert_eq!(wrong.standing(), Standing::Waiting(AHEAD));
}

#[test]
fn a_look_never_takes_back_a_message_that_came_since() {
    let bed = Bed::new();
    let slot = bed.waits(1, 7);
    let asked = [(slot.place.name.clone(), vec![slot.place.request])];
    let look = |seen| Some(vec![Looked { look_in: None, places: vec![seen] }]);
    bed.granted(1, &slot, 7);
    for seen in [Seen::Waiting(7, None), Seen::Missing] {
        bed.places.looked(&asked, look(seen), Moment::from_nanos(20));
        assert_eq!(token(slot.standing()), Some(7), "{seen:?}");
    }
}

#[test]
fn a_due_place_is_looked_at_and_then_again_at_the_boundary_or_after_the_repair_period() {
    let bed = Bed::new();
    let slot = bed.waits(1, 7);
    let asked = [(slot.place.name.clone(), vec![slot.place.request])];
    assert_eq!(bed.places.due(Moment::from_nanos(9), false), Err(Moment::from_nanos(10)));
    assert_eq!(bed.places.due(Moment::from_nanos(10), false).unwrap().len(), 1);
    let now = Moment::from_nanos(20);
    let repair = Moment::from_nanos(2_000_000_000);
    for (look_in, next) in [(None, repair), (Some(REPAIR * 2), repair), (Some(REPAIR / 2), now.after(REPAIR / 2))] {
        let looked = Looked { look_in, places: vec![Seen::Waiting(7, None)] };
        bed.places.looked(&asked, Some(vec![looked]), now);
        assert_eq!(bed.places.due(now, false), Err(next));
        assert_eq!(bed.places.due(repair, false).unwrap().len(), 1);
    }
}

#[test]
fn a_place_that_a_message_makes_due_while_a_look_is_under_way_is_looked_at_again() {
    let bed = Bed::new();
    let slot = bed.begin(1);
    let (now, name) = (Moment::from_nanos(10), Name::new("job").unwrap());
    bed.places.waits(&slot, 7, AHEAD, now);
    let asked: Vec<_> = bed.places.due(now, false).unwrap().into_iter().collect();
    bed.places.look_at(&name);
    let looked = Looked { look_in: None, places: vec![Seen::Waiting(7, None)] };
    bed.places.looked(&asked, Some(vec![looked]), now);
    assert_eq!(bed.places.due(now, false).unwrap(), asked.into_iter().collect());
}

#[test]
fn a_place_that_a_message_makes_due_before_its_answer_is_looked_at_once_it_waits() {
    let bed = Bed::new();
    let (slot, now) = (bed.begin(1), Moment::from_nanos(10));
    bed.places.look_at(&slot.place.name);
    bed.places.session.bell.notified().now_or_never();
    assert_eq!(bed.places.due(now, false), Err(Moment::NEVER));
    bed.places.waits(&slot, 7, AHEAD, due(now, None));
    assert!(bed.places.session.bell.notified().now_or_never().is_some());
    assert_eq!(bed.places.due(now, false).unwrap().len(), 1);
    // The look is made once.
    assert_eq!(bed.places.due(now, false), Err(now.after(REPAIR)));
}

#[test]
fn looks_that_only_repair_come_together_and_a_name_is_looked_at_at_once() {
    let bed = Bed::new();
    let start = Moment::from_nanos(5_000_000_001);
    for (number, milliseconds) in [(1, 0), (2, 400), (3, 998)] {
        let slot = bed.begin(number);
        let at = start.after(Duration::from_millis(milliseconds));
        bed.places.waits(&slot, number, AHEAD, due(at, None));
    }
    let full = Moment::from_nanos(7_000_000_000);
    assert_eq!(bed.places.due(start, false), Err(full));
    let name = Name::new("job").unwrap();
    assert_eq!(bed.places.due(full, false).unwrap()[&name].len(), 3);
    let sooner = bed.begin(4);
    bed.places.waits(&sooner, 4, AHEAD, due(start, Some(Duration::from_millis(100))));
    assert_eq!(bed.places.due(start, false), Err(start.after(Duration::from_millis(100))));
    bed.places.look_at(&name);
    assert_eq!(bed.places.due(start, false).unwrap()[&name].len(), 4);
}

#[test]
fn a_look_that_finds_a_sooner_time_wakes_the_task_that_sleeps_until_a_later_one() {
    let bed = Bed::new();
    let slot = bed.begin(1);
    let (now, asked) = (Moment::from_nanos(10), [(slot.place.name.clone(), vec![slot.place.request])]);
    bed.places.waits(&slot, 7, AHEAD, due(now, None));
    assert_eq!(bed.places.due(now, false), Err(due(now, None)));
    for (look_in, is_woken) in [(REPAIR * 2, false), (REPAIR / 2, true)] {
        let looked = Looked { look_in: Some(look_in), places: vec![Seen::Waiting(7, None)] };
        bed.places.looked(&asked, Some(vec![looked]), now);
        assert_eq!(bed.places.session.bell.notified().now_or_never().is_some(), is_woken, "{look_in:?}");
    }
    assert_eq!(bed.places.due(now, false), Err(now.after(REPAIR / 2)));
}

#[test]
fn a_break_is_reported_once_and_acknowledged_until_the_server_got_that() {
    let mut bed = Bed::new();
    let slot = bed.begin(1);
    bed.places.granted(&slot, 7);
    let broken = || Broken { place: slot.place.clone(), grant: 7, reason: "stuck".into() };
    bed.places.receive(1, format!("n job\nb {} 7 stuck", slot.place.request).as_bytes());
    bed.places.receive_break(broken());
    let grant = GrantId { place: slot.place.clone(), token: FencingToken::new(7) };
    assert_eq!(bed.events.try_recv(), Ok(SessionEvent::Broken(grant, "stuck".into())));
    assert!(bed.events.try_recv().is_err(), "a break is reported twice");
    let places = [slot.place.clone()];
    assert_eq!(bed.places.gone(&places), [(slot.place.clone(), Loss::Broken)]);
    let known = bed.places.broken();
    assert_eq!(known, [(slot.place.clone(), 7)]);
    bed.places.acknowledged(&known);
    assert!(bed.places.broken().is_empty());
}

#[test]
fn a_break_that_overtakes_the_answer_is_not_undone_by_it() {
    let bed = Bed::new();
    let (granted, waits) = (bed.begin(1), bed.begin(2));
    for slot in [&granted, &waits] {
        bed.places.receive(1, format!("n job\nb {} 7 stuck", slot.place.request).as_bytes());
    }
    bed.places.granted(&granted, 7);
    bed.places.waits(&waits, 7, AHEAD, Moment::NEVER);
    for slot in [&granted, &waits] {
        assert_eq!(slot.standing(), Standing::Lost(Loss::Broken));
        let place = slot.place.clone();
        let places = [place.clone()];
        assert_eq!(bed.places.gone(&places), [(place, Loss::Broken)]);
    }
    assert_eq!(bed.places.due(Moment::NEVER, true), Err(Moment::NEVER), "a lost place is due");
}

#[test]
fn the_break_of_an_earlier_grant_of_a_request_without_an_answer_is_not_that_of_a_later_one() {
    let bed = Bed::new();
    let (granted, waits) = (bed.begin(1), bed.begin(2));
    for slot in [&granted, &waits] {
        bed.places.receive(1, format!("n job\nb {} 7 stuck", slot.place.request).as_bytes());
    }
    bed.places.granted(&granted, 8);
    bed.places.waits(&waits, 9, AHEAD, Moment::NEVER);
    assert_eq!(granted.seq(), Some(8));
    assert_eq!(waits.standing(), Standing::Waiting(AHEAD));
    // The server repeats both grants, and the client acknowledges each by itself.
    bed.places.receive(1, format!("n job\nb {} 8 again", granted.place.request).as_bytes());
    assert_eq!(granted.standing(), Standing::Lost(Loss::Broken));
    bed.places.acknowledged(&[(granted.place.clone(), 7)]);
    assert!(bed.places.broken().contains(&(granted.place.clone(), 8)));
}

#[test]
fn a_place_that_is_gone_is_forgotten_with_its_waiters_and_another_is_not() {
    let bed = Bed::new();
    let (gone, there) = (bed.waits(1, 7), bed.waits(2, 8));
    bed.places.receive(1, format!("n job\nb {} 7 stuck", gone.place.request).as_bytes());
    bed.places.dropped(&gone);
    bed.places.dropped(&there);
    let kept: Vec<_> = bed.places.by_name().into_values().flatten().collect();
    assert_eq!(kept, [there.place.request]);
}

#[test]
fn an_older_grant_that_was_broken_does_not_end_a_later_one() {
    let mut bed = Bed::new();
    let slot = bed.begin(1);
    bed.places.granted(&slot, 8);
    bed.places.receive_break(Broken { place: slot.place.clone(), grant: 7, reason: "stuck".into() });
    assert_eq!(token(slot.standing()), Some(8));
    assert!(bed.events.try_recv().is_err());
}

#[test]
fn the_end_of_a_connection_is_a_doubt_and_the_end_of_the_session_is_reported_once() {
    let mut bed = Bed::new();
    bed.places.disconnected(1);
    bed.places.disconnected(1);
    bed.places.end(Loss::Restarted);
    bed.places.end(Loss::Expired);
    let sent: Vec<_> = std::iter::from_fn(|| bed.events.try_recv().ok()).collect();
    assert_eq!(sent, [SessionEvent::Doubtful, SessionEvent::Over]);
    assert_eq!(bed.places.session.cause(), Some(Loss::Restarted));
}
