//! The messages of a server to its sessions.

use std::sync::Arc;

use crate::name::Name;
use crate::store::{PlaceId, RequestId};

/// An item of a message. A message is a hint: only a look shows the standing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum News {
    /// The server granted a waiting place, with this number.
    Granted(PlaceId, u64),
    /// A user broke the grant with this number.
    Broken(PlaceId, u64, Arc<str>),
    /// A waiter arrived behind a grant whose holder asked for this notification.
    WaitedFor(PlaceId),
}

/// The events in one message: lines, of which `n` names the lock of the next ones. Unknown lines are skipped: a message is a hint.
pub(crate) fn news(message: &[u8]) -> Vec<News> {
    let Ok(message) = std::str::from_utf8(message) else { return Vec::new() };
    let mut name = None;
    let mut news = Vec::new();
    for line in message.split('\n') {
        match line.split_once(' ') {
            Some(("n", found)) => name = Name::new(found).ok(),
            Some((kind, about)) => news.extend(name.as_ref().and_then(|name| one(name, kind, about))),
            None => {}
        }
    }
    news
}

fn one(name: &Name, kind: &str, about: &str) -> Option<News> {
    let mut fields = about.splitn(3, ' ');
    let place = PlaceId { name: name.clone(), request: request_id(fields.next()?)? };
    let seq = fields.next()?.parse().ok()?;
    match kind {
        "g" => Some(News::Granted(place, seq)),
        "w" => Some(News::WaitedFor(place)),
        "b" => Some(News::Broken(place, seq, fields.next()?.into())),
        _ => None,
    }
}

/// Reads a request id from a key or a message.
pub(crate) fn request_id(text: &str) -> Option<RequestId> {
    let (client, number) = text.split_once('-')?;
    let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
    Some(RequestId { client: hexadecimal(client)?, number: hexadecimal(number)? })
}

/// Reads a name and a request id from the field of a place.
pub(crate) fn place_id(field: &str) -> Option<PlaceId> {
    let (name, id) = field.split_once('\n')?;
    Some(PlaceId { name: Name::new(name).ok()?, request: request_id(id)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_tells_of_several_places_under_several_names() {
        let id = |number| RequestId { client: 0xab, number };
        let place = |name, number| PlaceId { name: Name::new(name).unwrap(), request: id(number) };
        let first = format!("n a b\ng {} 17\nb {} 18 no longer needed\nn c\ng {} 19", id(1), id(26), id(3));
        let expected = [
            News::Granted(place("a b", 1), 17),
            News::Broken(place("a b", 26), 18, "no longer needed".into()),
            News::Granted(place("c", 3), 19),
        ];
        assert_eq!(news(first.as_bytes()), expected);
    }

    #[test]
    fn an_unknown_message_is_skipped() {
        for message in ["", "g 1-1 5", "n a\ng 1-1", "n a\ng x 5", "n ..\ng 1-1 5", "n a\nz 1-1 5", "\u{0}"] {
            assert_eq!(news(message.as_bytes()), [], "{message:?}");
        }
        assert_eq!(news(&[0xff, 0xfe]), []);
    }
}
