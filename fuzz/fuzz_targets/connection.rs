//! Everything that comes on a connection; the first byte says in which pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some((piece, bytes)) = bytes.split_first() {
        let _ = fencelock_zookeeper::fuzz::connection(bytes, usize::from(*piece));
    }
});
