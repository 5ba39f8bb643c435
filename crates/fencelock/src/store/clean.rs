//! Text of other clients, cleaned for display: once, where it is read, on every store.
//!
//! Hosts, purposes, reasons and the names of foreign nodes come from any client that may write to the store. A line break in one would
//! forge a line of a log; a control character drives a terminal; a mark of direction would show a line in the wrong order. Names of
//! locks are not touched: a reader that shows one must still be able to ask for it.

use std::sync::Arc;

use super::{Break, Contender, NoteRead, Outline, Owner, Queue};

/// The longest text that is shown, in bytes: as long as the longest that we write.
const LONGEST: usize = 512;

/// The replacement of a character that must not be shown.
const MARK: char = '\u{fffd}';

fn is_obeyed(c: char) -> bool {
    let is_break = matches!(c, '\u{2028}' | '\u{2029}');
    let is_direction =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || is_break || is_direction
}

/// `text` on one line, without anything that a terminal obeys, cut where it is too long; `None` if it is so already.
fn cleaned(text: &str) -> Option<String> {
    let kept = cut(text, LONGEST);
    if kept.len() == text.len() && !text.contains(is_obeyed) {
        return None;
    }
    let mut shown: String = kept.chars().map(|c| if is_obeyed(c) { MARK } else { c }).collect();
    if kept.len() < text.len() {
        shown.push('…');
    }
    Some(shown)
}

/// At most `bytes` of `text`, cut between characters.
pub(crate) fn cut(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

/// A reason that another client gave.
pub(crate) fn reason(reason: Arc<str>) -> Arc<str> {
    cleaned(&reason).map_or(reason, Arc::from)
}

fn owner(owner: &mut Owner) {
    if let Some(host) = cleaned(&owner.host) {
        owner.host = host;
    }
}

fn contender(contender: &mut Contender) {
    contender.owner.iter_mut().for_each(owner);
    if let Some(purpose) = contender.purpose.as_deref().and_then(cleaned) {
        contender.purpose = Some(purpose.into());
    }
}

pub(crate) fn note(mut read: NoteRead) -> NoteRead {
    read.note.iter_mut().for_each(|note| owner(&mut note.owner));
    read
}

pub(crate) fn queue(mut queue: Queue) -> Queue {
    queue.contenders.iter_mut().for_each(contender);
    for stranger in &mut queue.strangers {
        if let Some(shown) = cleaned(stranger) {
            *stranger = shown;
        }
    }
    queue
}

pub(crate) fn outline(mut outline: Outline) -> Outline {
    outline.holder.iter_mut().for_each(contender);
    outline
}

pub(crate) fn breaks(mut breaks: Vec<Break>) -> Vec<Break> {
    for record in &mut breaks {
        record.owner.iter_mut().for_each(owner);
        owner(&mut record.by);
        if let Some(shown) = cleaned(&record.reason) {
            record.reason = shown.into();
        }
    }
    breaks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_others_is_more_than_one_line_or_obeyed() {
        assert_eq!(cleaned("nightly \"import\", é日\u{200d}"), None);
        for (text, shown) in [
            ("a\nb", "a\u{fffd}b"),
            ("\u{1b}[2J", "\u{fffd}[2J"),
            ("a\u{2028}b\u{2029}c", "a\u{fffd}b\u{fffd}c"),
            ("abc\u{202e}txt\u{61c}", "abc\u{fffd}txt\u{fffd}"),
            ("\u{85}\u{7f}", "\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(cleaned(text).as_deref(), Some(shown), "{text:?}");
        }
        let long = "é".repeat(LONGEST);
        assert_eq!(cleaned(&long), Some("é".repeat(LONGEST / 2) + "…"));
    }
}
