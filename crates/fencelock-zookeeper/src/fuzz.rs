//! Everything that takes in what a server sends, for arbitrary bytes to be thrown at: by the tests, and by the fuzzer. Not for other use.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::config::Config;
use crate::conversation::Conversation;
use crate::frames::FrameReader;
use crate::liveness::Contacts;
use crate::outbox::Request;
use crate::proto::codec::Reader;
use crate::proto::frame::Frame;
use crate::proto::handshake::Response;
use crate::proto::op::Op;
use crate::proto::{request, response};
use crate::shared::Shared;
use crate::watches::WatchKind;

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
}

/// Reads `bytes` as what a server sends on a connection that awaits answers of every kind, in pieces of at most `piece` bytes.
pub fn connection(bytes: &[u8], piece: usize) {
    const LIMIT: usize = 2048;
    let Ok(config) = Config::new("fuzz/app") else { return };
    let shared = Arc::new(Shared::new(config.auth("digest", "a:b").max_frame(LIMIT).max_answer(LIMIT)));
    let contacts = Contacts::new(Duration::from_secs(1));
    let mut conversation = Conversation::new(Arc::clone(&shared), "fuzz".to_owned(), contacts, 0);
    let mut out = Vec::new();
    conversation.begin(&mut out);
    conversation.ping(Duration::ZERO, &mut out);
    let mut receivers = Vec::new();
    for (number, (frame, watch)) in (1..).zip(questions()) {
        let (answer, receiver) = oneshot::channel();
        receivers.push(receiver);
        let request =
            Request { frame, answer: Some(answer), deadline: Instant::now(), watch, confirms: watch.is_none() };
        conversation.send(numbered(request, number), Duration::ZERO, &mut out, 0);
    }
    let mut frames = FrameReader::new(LIMIT);
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
                    // Here a connection ends.
                    Ok(Some(_)) | Err(_) => return,
                }
            }
        }
    }
}

fn numbered(mut request: Request, number: i32) -> Request {
    request.frame.set_xid(number);
    request
}

fn questions() -> [(Frame, Option<WatchKind>); 5] {
    let read = |op| request::read(op, "/app", "/a", true);
    [
        (request::delete("/app", "/a", None), None),
        (read(Op::Exists), Some(WatchKind::Data)),
        (read(Op::GetData), Some(WatchKind::Data)),
        (read(Op::GetChildren), Some(WatchKind::Children)),
        (request::path_only(Op::Sync, "", "/"), None),
    ]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    /// Frames that look right up to a point: their length is, and their number often.
    fn plausible() -> impl Strategy<Value = Vec<u8>> {
        let xid = prop_oneof![-8_i32..6, any::<i32>()];
        let code = prop_oneof![Just(0_i32), Just(-101), any::<i32>()];
        let record = proptest::collection::vec(prop_oneof![Just(0_u8), any::<u8>()], 0..120);
        let frame = (xid, any::<i64>(), code, record).prop_map(|(xid, zxid, code, record)| {
            let length = i32::try_from(16 + record.len()).unwrap();
            [&length.to_be_bytes()[..], &xid.to_be_bytes(), &zxid.to_be_bytes(), &code.to_be_bytes(), &record].concat()
        });
        proptest::collection::vec(frame, 0..8).prop_map(|frames| frames.concat())
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
