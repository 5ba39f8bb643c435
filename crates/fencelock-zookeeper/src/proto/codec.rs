//! Reading and writing the elements that every record is made of: big-endian numbers, and texts and lists with their length in front.

/// The bytes read do not fit the expected record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Reads one record from the front of a slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn int(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn long(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_be_bytes)
    }

    pub(crate) fn bool(&mut self) -> Result<bool, Malformed> {
        Ok(self.array::<1>()? != [0])
    }

    /// Bytes with their length in front; none for the length -1.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        match self.int()? {
            -1 => Ok(&[]),
            length => self.take(usize::try_from(length).map_err(|_| Malformed("a length is negative"))?),
        }
    }

    /// A text. Bytes that are not UTF-8 are replaced, so that one such name does not hide the rest of a list.
    pub(crate) fn text(&mut self) -> Result<String, Malformed> {
        let bytes = self.bytes()?;
        Ok(std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes).into_owned(), str::to_owned))
    }

    /// A list of elements that take `smallest` bytes at least; a length that the rest cannot hold is refused before anything is allocated.
    pub(crate) fn list<T>(
        &mut self,
        smallest: usize,
        mut element: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let length = self.int()?;
        if length == -1 {
            return Ok(Vec::new());
        }
        let length = usize::try_from(length).map_err(|_| Malformed("a length is negative"))?;
        if length > self.0.len() / smallest.max(1) {
            return Err(Malformed("a list is longer than its record"));
        }
        let mut list = Vec::with_capacity(length);
        for _ in 0..length {
            list.push(element(self)?);
        }
        Ok(list)
    }
}

/// Appends elements to a buffer.
pub(crate) trait Write {
    fn int(&mut self, value: i32);
    fn long(&mut self, value: i64);
    fn bool(&mut self, value: bool);
    fn bytes(&mut self, value: &[u8]);
}

impl Write for Vec<u8> {
    fn int(&mut self, value: i32) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn long(&mut self, value: i64) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn bool(&mut self, value: bool) {
        self.push(u8::from(value));
    }

    fn bytes(&mut self, value: &[u8]) {
        self.int(length(value.len()));
        self.extend_from_slice(value);
    }
}

/// A length in the form of the protocol. A length that does not fit is far beyond every frame limit, and is refused there.
pub(crate) fn length(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_list_that_promises_more_than_it_has_is_refused() {
        let mut promise = Vec::new();
        promise.int(i32::MAX);
        assert!(Reader::new(&promise).list(4, Reader::int).is_err());
        assert!(Reader::new(&promise).bytes().is_err());
    }

    proptest! {
        #[test]
        fn a_written_value_is_read_back(int: i32, long: i64, flag: bool, bytes: Vec<u8>, text: String) {
            let mut buffer = Vec::new();
            buffer.int(int);
            buffer.long(long);
            buffer.bool(flag);
            buffer.bytes(&bytes);
            buffer.bytes(text.as_bytes());
            let mut reader = Reader::new(&buffer);
            prop_assert_eq!(reader.int().unwrap(), int);
            prop_assert_eq!(reader.long().unwrap(), long);
            prop_assert_eq!(reader.bool().unwrap(), flag);
            prop_assert_eq!(reader.bytes().unwrap(), &bytes[..]);
            prop_assert_eq!(reader.text().unwrap(), text);
            prop_assert!(reader.is_empty());
        }
    }
}
