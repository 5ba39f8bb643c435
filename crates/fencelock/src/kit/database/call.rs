//! Calls of the functions that a database keeps for fencelock: their parameters, and the rows of their answers.

use std::borrow::Cow;
use std::future::Future;
use std::sync::{Arc, OnceLock};

use super::batch::Batches;
use super::ear::Ear;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::store::{PlaceId, RequestId};

#[derive(Debug, Clone)]
pub(crate) enum Param<'a> {
    Null,
    Flag(bool),
    /// A database without unsigned numbers has a number above 2^63 below zero. No statement depends on the order of such numbers.
    Number(u64),
    Signed(i64),
    Text(Cow<'a, str>),
    Bytes(&'a [u8]),
    /// An array. A database without arrays gets the numbers as text, separated by commas.
    List(Vec<Param<'a>>),
}

macro_rules! params {
    ($($from:ty => $value:ident $param:expr),* $(,)?) => {
        $(impl<'a> From<$from> for Param<'a> {
            fn from($value: $from) -> Self {
                $param
            }
        })*
    };
}

params! {
    bool => flag Self::Flag(flag),
    u64 => number Self::Number(number),
    u32 => number Self::Number(number.into()),
    i64 => number Self::Signed(number),
    &'a str => text Self::Text(Cow::Borrowed(text)),
    String => text Self::Text(Cow::Owned(text)),
    &'a [u8] => bytes Self::Bytes(bytes),
}

impl<'a, T: Into<Param<'a>>> From<Option<T>> for Param<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<'a, T: Into<Param<'a>>> FromIterator<T> for Param<'a> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self::List(values.into_iter().map(Into::into).collect())
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Cell {
    Null,
    Number(i64),
    Text(Vec<u8>),
    Numbers(Vec<i64>),
}

#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) operation: &'static str,
    pub(crate) cells: Vec<Cell>,
}

impl Row {
    /// A number, `None` for NULL. Some servers send numbers as text.
    pub(crate) fn optional(&self, at: usize) -> Result<Option<i64>> {
        Ok(Some(match self.cells.get(at) {
            Some(Cell::Null) => return Ok(None),
            Some(Cell::Number(number)) => *number,
            Some(Cell::Text(text)) => {
                let text = str::from_utf8(text).map_err(|_| self.strange())?;
                let unsigned = || text.parse().map(u64::cast_signed);
                text.parse().or_else(|_| unsigned()).map_err(|_| self.strange())?
            }
            _ => return Err(self.strange()),
        }))
    }

    pub(crate) fn signed(&self, at: usize) -> Result<i64> {
        self.optional(at)?.ok_or_else(|| self.strange())
    }

    pub(crate) fn number(&self, at: usize) -> Result<u64> {
        self.signed(at).map(i64::cast_unsigned)
    }

    pub(crate) fn bytes(&self, at: usize) -> Result<Option<&[u8]>> {
        match self.cells.get(at) {
            Some(Cell::Null) => Ok(None),
            Some(Cell::Text(text)) => Ok(Some(text)),
            _ => Err(self.strange()),
        }
    }

    pub(crate) fn text(&self, at: usize) -> Result<&str> {
        self.bytes(at)?.and_then(|text| str::from_utf8(text).ok()).ok_or_else(|| self.strange())
    }

    pub(crate) fn place(&self, from: usize) -> Result<PlaceId> {
        let name = Name::new(self.text(from)?).map_err(|_: Error| self.strange())?;
        Ok(PlaceId { name, request: RequestId { client: self.number(from + 1)?, number: self.number(from + 2)? } })
    }

    /// All numbers of the row, in order; NULL and text are left out.
    pub(crate) fn numbers(&self) -> Vec<i64> {
        let numbers = self.cells.iter().flat_map(|cell| match cell {
            Cell::Number(number) => std::slice::from_ref(number),
            Cell::Numbers(numbers) => numbers,
            Cell::Null | Cell::Text(_) => &[],
        });
        numbers.copied().collect()
    }

    pub(crate) fn strange(&self) -> Error {
        strange(self.operation)
    }
}

pub(crate) fn strange(operation: &'static str) -> Error {
    let message =
        "the server answered what none of fencelock's functions answers: they are of another release, or damaged";
    Error::new(ErrorKind::Layout, operation, message).outcome_unknown()
}

#[derive(Default)]
pub(crate) struct ConnectionState {
    /// The number of the connection within its link, from 1; 0 for a connection outside of a link.
    pub(crate) number: u64,
    /// Set once the connection has found the schema.
    pub(crate) schema: OnceLock<()>,
    pub(crate) batches: Batches,
    pub(crate) ear: Arc<Ear>,
}

pub(crate) trait Calls: Send + Sync + 'static {
    fn state(&self) -> &ConnectionState;

    fn is_alive(&self) -> bool;

    /// The most batches in flight, for a connection that runs calls in the order of their sending.
    fn calls_at_once(&self) -> usize {
        1
    }

    fn call(
        &self,
        operation: &'static str,
        function: &'static str,
        params: Vec<Param<'_>>,
    ) -> impl Future<Output = Result<Vec<Row>>> + Send;

    fn ask(
        &self,
        operation: &'static str,
        function: &'static str,
        params: Vec<Param<'_>>,
    ) -> impl Future<Output = Result<Row>> + Send {
        async move { self.call(operation, function, params).await?.into_iter().next().ok_or_else(|| strange(operation)) }
    }
}
