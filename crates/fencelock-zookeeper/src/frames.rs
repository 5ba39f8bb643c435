//! Cuts a server's bytes into frames.

use crate::proto::codec::Malformed;
use crate::proto::response::Header;

/// How much is read at once, in bytes.
const CHUNK: usize = 8 * 1024;
/// An empty buffer larger than this is freed.
const KEEP: usize = 64 * 1024;

/// A frame, without the length in front.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Incoming<'a> {
    Whole(&'a [u8]),
    /// Longer than the limit: only its header is looked at, the rest is thrown away as it comes.
    TooLarge {
        header: &'a [u8],
        length: usize,
    },
}

/// The received bytes that are not parsed yet.
#[derive(Debug)]
pub(crate) struct FrameReader {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    limit: usize,
    /// How many bytes of a frame that is too large are still to come.
    skip: usize,
}

impl FrameReader {
    /// Takes frames of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { buffer: vec![0; CHUNK], start: 0, end: 0, limit, skip: 0 }
    }

    /// The buffer for the next read.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.buffer.len() > KEEP {
                self.buffer = vec![0; CHUNK];
            }
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            // Grows with the received bytes, never with the announced length.
            if self.end > self.buffer.len() / 2 {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
        }
        &mut self.buffer[self.end..]
    }

    /// `count` bytes were read.
    pub(crate) fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.buffer.len());
        let skipped = self.skip.min(self.end - self.start);
        self.skip -= skipped;
        self.start += skipped;
    }

    /// The next complete frame.
    pub(crate) fn next(&mut self) -> Result<Option<Incoming<'_>>, Malformed> {
        let Some((announced, rest)) = self.buffer[self.start..self.end].split_first_chunk() else { return Ok(None) };
        let length =
            usize::try_from(i32::from_be_bytes(*announced)).map_err(|_| Malformed("a frame's length is negative"))?;
        if length < Header::LEN {
            return Err(Malformed("a frame is shorter than its header"));
        }
        let have = rest.len();
        let begin = self.start + announced.len();
        if length > self.limit {
            if have < Header::LEN {
                return Ok(None);
            }
            self.skip = length - length.min(have);
            self.start = begin + length.min(have);
            return Ok(Some(Incoming::TooLarge { header: &self.buffer[begin..begin + Header::LEN], length }));
        }
        if have < length {
            return Ok(None);
        }
        self.start = begin + length;
        Ok(Some(Incoming::Whole(&self.buffer[begin..begin + length])))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn feed(reader: &mut FrameReader, mut bytes: &[u8]) -> Result<Vec<(usize, bool)>, Malformed> {
        let mut frames = Vec::new();
        while !bytes.is_empty() {
            let room = reader.room();
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            reader.filled(count);
            bytes = &bytes[count..];
            while let Some(incoming) = reader.next()? {
                frames.push(match incoming {
                    Incoming::Whole(frame) => (frame.len(), true),
                    Incoming::TooLarge { length, .. } => (length, false),
                });
            }
        }
        Ok(frames)
    }

    fn frame(length: usize) -> Vec<u8> {
        let mut frame = i32::try_from(length).unwrap().to_be_bytes().to_vec();
        frame.resize(4 + length, 7);
        frame
    }

    #[test]
    fn a_frame_that_is_too_large_is_passed_over_without_room_for_it() {
        let mut reader = FrameReader::new(1000);
        let bytes = [frame(20), frame(5_000_000), frame(1000)].concat();
        assert_eq!(feed(&mut reader, &bytes).unwrap(), [(20, true), (5_000_000, false), (1000, true)]);
        assert!(reader.buffer.len() <= 2 * CHUNK);
    }

    #[test]
    fn a_length_that_no_frame_has_is_refused() {
        for length in [-1_i32, i32::MIN, 0, 15] {
            let mut reader = FrameReader::new(1000);
            assert!(feed(&mut reader, &length.to_be_bytes()).is_err(), "{length}");
        }
    }

    proptest! {
        #[test]
        fn frames_are_found_however_they_are_cut(
            lengths in proptest::collection::vec(16_usize..40_000, 1..20),
            cuts in proptest::collection::vec(1_usize..9000, 1..50),
        ) {
            let bytes: Vec<u8> = lengths.iter().flat_map(|length| frame(*length)).collect();
            let mut reader = FrameReader::new(30_000);
            let (mut found, mut rest, mut cuts) = (Vec::new(), &bytes[..], cuts.iter().cycle());
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
                found.extend(feed(&mut reader, now).unwrap());
                rest = later;
            }
            let expected: Vec<_> = lengths.iter().map(|length| (*length, *length <= 30_000)).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn arbitrary_bytes_are_survived(bytes: Vec<u8>) {
            let _ = feed(&mut FrameReader::new(64), &bytes);
        }
    }
}
