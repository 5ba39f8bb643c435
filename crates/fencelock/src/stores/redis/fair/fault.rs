//! The refusals of the layout's scripts.

use redis::RedisError;

use crate::error::{Error, ErrorKind};
use crate::kit::fault::{Meaning, refused};

/// A refusal that only scripts of this layout make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// A key under our prefix holds foreign content, or is of another type.
    Layout,
    /// The numbers of a bucket are used up.
    Limit,
}

/// Whether an error of the server is one that the scripts raise.
pub(super) fn refusal(error: &RedisError) -> Option<Refusal> {
    // Some servers put their own words before the script's error, and each version has other words.
    let text = error.to_string();
    let words = [("WRONGTYPE", Refusal::Layout), ("FLLAYOUT", Refusal::Layout), ("FLLIMIT", Refusal::Limit)];
    words.into_iter().find(|(word, _)| text.contains(word)).map(|(_, refusal)| refusal)
}

/// The meaning of a server's error, if a script raised it.
pub(super) fn meaning(error: &RedisError) -> Option<Meaning> {
    refusal(error).map(raised)
}

/// The meaning of a script's refusal. The script may have written before it found the fault.
fn raised(refusal: Refusal) -> Meaning {
    let (kind, message) = match refusal {
        Refusal::Layout => {
            (ErrorKind::Layout, "the keys in the server are not ours, or not whole: use another prefix, or delete them")
        }
        Refusal::Limit => (ErrorKind::Exhausted, "the numbers of a bucket of names are past the last fencing token"),
    };
    Meaning { unknown: true, ..refused(kind, message) }
}

/// The error of an answer that no known script gives.
pub(super) fn nonsense(operation: &'static str, answer: &redis::Value) -> Error {
    let shown: String = format!("{answer:?}").chars().take(200).collect();
    Error::new(ErrorKind::Layout, operation, "a script answered with what this release does not understand")
        .with("answer", shown)
        .outcome_unknown()
}

#[cfg(test)]
mod tests {
    use super::super::layout::KeySpace;
    use super::super::session::Reader;
    use crate::stores::redis::wire::is_of_a_replica;

    #[test]
    fn a_name_in_an_error_does_not_make_the_server_a_replica() {
        for (said, is_so) in [
            ("-ERR FLLAYOUT fencelock:1:{abc}:queue:job-READONLY holds another number of places\r\n", false),
            ("-ERR READONLY You can't write against a read only replica. script: 66b, on @user_script:1.\r\n", true),
            ("-READONLY You can't write against a read only replica.\r\n", true),
        ] {
            let error = redis::parse_redis_value(said.as_bytes()).and_then(redis::Value::extract_error).unwrap_err();
            assert_eq!(is_of_a_replica(&error, &Reader::new(KeySpace::default().into())), is_so, "{said}");
        }
    }
}
