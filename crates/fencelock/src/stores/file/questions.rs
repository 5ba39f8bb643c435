//! The questions of other sessions: who wants to hear of the departure of which place.

use std::collections::BTreeMap;

use super::ticket::Key;

/// How many questions are kept, some 100 bytes each; the oldest are dropped, and who asked finds out by itself.
const KEPT: usize = 4096;

/// The newest [`KEPT`] questions. Each step costs O(log n): a user who may write in the directory can ask as much as it likes.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// By place and session that asked: the number of the question.
    by_place: BTreeMap<(Key, u64), u64>,
    by_number: BTreeMap<u64, (Key, u64)>,
    next: u64,
}

impl Questions {
    /// The session `from` wants to hear of the place `key`. A question that is asked again is no other question, and the newest.
    pub(super) fn ask(&mut self, key: Key, from: u64) {
        if let Some(before) = self.by_place.get(&(key, from)) {
            self.by_number.remove(before);
        } else if self.by_place.len() >= KEPT
            && let Some((_, oldest)) = self.by_number.pop_first()
        {
            self.by_place.remove(&oldest);
        }
        self.by_place.insert((key, from), self.next);
        self.by_number.insert(self.next, (key, from));
        self.next += 1;
    }

    /// Takes out who asked about one place, the newest first.
    pub(super) fn about(&mut self, key: Key) -> Vec<u64> {
        let of_it = self.by_place.range((key, 0)..=(key, u64::MAX));
        let mut asked: Vec<(u64, u64)> = of_it.map(|((_, from), number)| (*number, *from)).collect();
        for (number, from) in &asked {
            self.by_number.remove(number);
            self.by_place.remove(&(key, *from));
        }
        asked.sort_unstable_by(|one, other| other.cmp(one));
        asked.into_iter().map(|(_, from)| from).collect()
    }

    /// All of them, the oldest first.
    pub(super) fn into_all(self) -> impl Iterator<Item = (Key, u64)> {
        self.by_number.into_values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn key(seq: u64) -> Key {
        Key { seq, session: 1, number: seq }
    }

    #[test]
    fn who_asked_about_a_place_is_found_once_and_the_newest_first() {
        let mut questions = Questions::default();
        for (seq, from) in [(1, 5), (2, 5), (1, 3), (1, 9), (1, 5)] {
            questions.ask(key(seq), from);
        }
        assert_eq!(questions.about(key(1)), [5, 9, 3]);
        assert_eq!(questions.about(key(1)), [0; 0]);
        assert!(questions.into_all().eq([(key(2), 5)]));
    }

    #[test]
    fn the_oldest_questions_make_room_for_new_ones() {
        let mut questions = Questions::default();
        for seq in 0..KEPT as u64 + 10 {
            questions.ask(key(seq), 5);
        }
        assert_eq!(questions.about(key(9)), [0; 0]);
        assert_eq!(questions.about(key(10)), [5]);
        assert_eq!(questions.into_all().count(), KEPT - 1);
    }
}
