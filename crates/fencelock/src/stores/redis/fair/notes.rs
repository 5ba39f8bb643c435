//! Notes on locks: a key of its own for each note. The script that writes a note checks first that the grant is current.
//!
//! Its text: the time (seconds`:`microseconds), the ttl in ms (0 without an end), the number of the grant, the owner in JSON, a line feed,
//! and the value.

use std::time::Duration;

use redis::Value;

use super::scripts::moment;
use crate::kit::record::{self, Identity};
use crate::store::{Note, NoteRead};
use crate::token::FencingToken;

pub(crate) fn read_of(answer: &Value) -> Option<NoteRead> {
    let Value::Array(items) = answer else { return None };
    let now = match items.first()? {
        Value::BulkString(now) => moment(std::str::from_utf8(now).ok()?)?,
        _ => return None,
    };
    match items.get(1) {
        None | Some(Value::Nil) => Some(NoteRead { note: None, now }),
        Some(Value::BulkString(text)) => Some(NoteRead { note: Some(note_of(text)?), now }),
        Some(_) => None,
    }
}

fn note_of(text: &[u8]) -> Option<Note> {
    let end = text.iter().position(|byte| *byte == b'\n')?;
    let (head, value) = (std::str::from_utf8(&text[..end]).ok()?, &text[end + 1..]);
    let mut parts = head.splitn(4, ' ');
    let written = moment(parts.next()?)?;
    let kept = Duration::from_millis(parts.next()?.parse().ok()?);
    let token = FencingToken::new(parts.next()?.parse().ok()?)?;
    let owner = record::read::<Identity<'_>>(parts.next()?.as_bytes())?.owner()?;
    let expires = if kept.is_zero() { None } else { written.checked_add(kept) };
    Some(Note { value: value.into(), token: Some(token), owner, written, expires })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_of_any_bytes_is_read_and_other_data_is_refused() {
        let owner = record::text("note", &Identity::of(&crate::store::Owner::new(7, "host", 1))).unwrap();
        let text = [format!("12:34 1500 99 {owner}\n").as_bytes(), b"\n\xff\n"].concat();
        let note = note_of(&text).unwrap();
        assert_eq!((&*note.value, note.token.map(FencingToken::get)), (&b"\n\xff\n"[..], Some(99)));
        assert_eq!(note.expires.unwrap().duration_since(note.written).unwrap(), Duration::from_millis(1500));
        for bad in ["", "x", "12:34 0 99\nx", "12:34 0 0 {}\nx", "12 0 99 {}\n"] {
            assert_eq!(note_of(bad.as_bytes()), None, "{bad}");
        }
    }
}
