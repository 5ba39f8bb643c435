//! The UUID of a holder, in a column of text or of UUIDs.

use crate::store::RequestId;

/// The UUID of a request, of version 8, whose bits are free. The client's random number is part of it: no stranger can guess it.
pub(crate) fn holder(id: RequestId) -> String {
    let first = id.client >> 16;
    let second = 0x8000 | (id.client >> 4 & 0xfff);
    let last = 2 << 62 | (id.client & 0xf) << 58 | id.number & NUMBER;
    format!(
        "{:08x}-{:04x}-{second:04x}-{:04x}-{:012x}",
        first >> 16,
        first & 0xffff,
        last >> 48,
        last & 0xffff_ffff_ffff
    )
}

const NUMBER: u64 = (1 << 58) - 1;

pub(crate) fn request(text: &str) -> Option<RequestId> {
    let digits: String = text.split('-').collect();
    let bits =
        Some(digits).filter(|digits| digits.len() == 32).and_then(|digits| u128::from_str_radix(&digits, 16).ok())?;
    let (high, low) = ((bits >> 64) as u64, bits as u64);
    let client = (high >> 16) << 16 | (high & 0xfff) << 4 | low >> 58 & 0xf;
    let id = RequestId { client, number: low & NUMBER };
    (holder(id) == text.to_ascii_lowercase()).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_found_in_its_uuid_and_in_no_other() {
        for id in [
            RequestId { client: 0x0123_4567_89ab_cdef, number: 1 },
            RequestId { client: u64::MAX, number: NUMBER },
            RequestId { client: 1, number: 0 },
        ] {
            assert_eq!(request(&holder(id)), Some(id), "{}", holder(id));
            assert_eq!(request(&holder(id).to_uppercase()), Some(id));
        }
        assert_eq!(
            holder(RequestId { client: 0x0123_4567_89ab_cdef, number: 0x2a }),
            "01234567-89ab-8cde-bc00-00000000002a"
        );
        for other in ["", "me", "01234567-89ab-4cde-bc00-00000000002a", "0123456789ab8cdebc0000000000002a", "vm-1"] {
            assert_eq!(request(other), None, "{other}");
        }
    }
}
