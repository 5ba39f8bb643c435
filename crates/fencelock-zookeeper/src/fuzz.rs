//! Every reader of bytes from a server, for tests and the fuzzer, which feed arbitrary bytes to them. Not for other use.

#[cfg(test)]
#[path = "../../../fuzz/changes.rs"]
mod changes;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::acl::Acl;
use crate::answer::Answer;
use crate::client::Client;
use crate::config::Config;
use crate::conversation::Conversation;
use crate::frames::FrameReader;
use crate::liveness::Contacts;
use crate::multi::Operation;
use crate::node::CreateMode;
use crate::proto::codec::Reader;
use crate::proto::handshake::Response;
use crate::proto::{multi, response};
use crate::shared::Shared;

/// Reads `bytes` as each of the records that a server sends.
pub fn records(bytes: &[u8]) {
    let reader = || Reader::new(bytes);
    let _ = Response::read(&mut reader());
    let _ = response::Header::read(&mut reader());
    let _ = response::created(&mut reader());
    let _ = response::data(&mut reader());
    let _ = response::children(&mut reader());
    let _ = response::acl(&mut reader());
    let _ = response::notification(&mut reader());
    let _ = multi::response(&mut reader());
}

/// Reads `bytes` as what a server sends on a connection that awaits answers of every kind, in pieces of at most `piece` bytes, and takes the
/// answers as their callers do. How many had one.
pub fn connection(bytes: &[u8], piece: usize) -> usize {
    const LIMIT: usize = 2048;
    let Ok(config) = Config::new("fuzz/app") else { return 0 };
    let shared = Arc::new(Shared::new(config.auth("digest", "a:b").max_frame(LIMIT).max_answer(LIMIT)));
    let contacts = Contacts::new(Duration::from_secs(1));
    let mut conversation = Conversation::new(Arc::clone(&shared), "fuzz".to_owned(), contacts, 0);
    let mut out = Vec::new();
    conversation.begin(&mut out);
    conversation.ping(Duration::ZERO, &mut out);
    let mut answers = questions(&Client::of(&shared));
    let (mut taken, mut context) = (VecDeque::new(), Context::from_waker(Waker::noop()));
    shared.outbox.take(&mut taken, &context);
    for request in taken {
        conversation.send(request, Duration::ZERO, &mut out, 0);
    }
    receive(&mut conversation, bytes, piece);
    answers.iter_mut().map(|answer| answer.as_mut().poll(&mut context)).filter(Poll::is_ready).count()
}

/// Reads until the connection ends.
fn receive(conversation: &mut Conversation, bytes: &[u8], piece: usize) {
    let mut frames = FrameReader::new(2048);
    for bytes in bytes.chunks(piece.max(1)) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = frames.room();
            let count = room.len().min(rest.len());
            room[..count].copy_from_slice(&rest[..count]);
            frames.filled(count);
            rest = &rest[count..];
            loop {
                match frames.next() {
                    Ok(Some(incoming)) if conversation.receive(&incoming, Duration::ZERO).is_ok() => {}
                    Ok(None) => break,
                    Ok(Some(_)) | Err(_) => return,
                }
            }
        }
    }
}

type AnyAnswer = Pin<Box<dyn Future<Output = ()>>>;

/// A request of each kind, numbered from 1.
fn questions(client: &Client) -> Vec<AnyAnswer> {
    fn any<T: 'static>(answer: Answer<T>) -> AnyAnswer {
        Box::pin(async move { drop(answer.await) })
    }
    let open = [Acl::open()];
    let several = [
        Operation::create("/a", b"", CreateMode::Persistent, &open),
        Operation::set_data("/a", b"", None),
        Operation::delete("/a", None),
        Operation::check("/a", None),
    ];
    vec![
        any(client.delete("/a", None)),
        any(client.exists("/a")),
        any(client.exists_watched("/a")),
        any(client.get_data_watched("/a")),
        any(client.get_children_watched("/a")),
        any(client.create("/a", b"", CreateMode::EphemeralSequential, &open)),
        any(client.set_data("/a", b"", None)),
        any(client.get_acl("/a")),
        any(client.multi(&several)),
        any(client.confirm()),
    ]
}

#[cfg(test)]
mod tests {
    use super::changes::{change_seeds, seeds};
    use proptest::prelude::*;

    /// Frames that look right up to a point: their length is, and their number often.
    fn plausible() -> impl Strategy<Value = Vec<u8>> {
        let xid = prop_oneof![-8_i32..12, 9..10, any::<i32>()];
        let code = prop_oneof![Just(0_i32), Just(-101), any::<i32>()];
        let record = proptest::collection::vec(prop_oneof![Just(0_u8), any::<u8>()], 0..120);
        let frame = (xid, any::<i64>(), code, record).prop_map(|(xid, zxid, code, record)| {
            let length = i32::try_from(16 + record.len()).unwrap();
            [&length.to_be_bytes()[..], &xid.to_be_bytes(), &zxid.to_be_bytes(), &code.to_be_bytes(), &record].concat()
        });
        proptest::collection::vec(frame, 0..8).prop_map(|frames| frames.concat())
    }

    #[test]
    fn the_seeds_of_the_fuzzer_and_many_changes_of_them_are_survived() {
        change_seeds("records", 3000, super::records);
        change_seeds("connection", 1000, |bytes| {
            let _ = bytes.split_first().map(|(piece, rest)| super::connection(rest, (*piece).into()));
        });
    }

    #[test]
    fn the_fuzzer_begins_with_answers_to_everything_that_is_asked() {
        let answered = |name: &str| {
            let (_, seed) = seeds("connection").into_iter().find(|(seed, _)| seed == name).unwrap();
            super::connection(&seed[1..], seed[0].into())
        };
        for name in ["answers", "answers-in-pieces", "errors"] {
            assert_eq!(answered(name), 10, "{name}");
        }
        assert_eq!(answered("multi-refused"), 9);
    }

    proptest! {
        #[test]
        fn every_decoder_survives_arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            super::records(&bytes);
        }

        #[test]
        fn a_connection_survives_arbitrary_bytes(bytes: Vec<u8>, piece in 1_usize..50) {
            super::connection(&bytes, piece);
        }

        #[test]
        fn a_connection_survives_frames_that_look_right(bytes in plausible(), piece in 1_usize..200) {
            super::connection(&bytes, piece);
        }
    }
}
