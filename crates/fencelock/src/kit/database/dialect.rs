//! The differences between databases with our own layout.

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::batch::Request;
use super::call::{Calls as _, Param, Row};
use super::ear::Ear;
use super::link::Database;
use super::session::FairSession;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::served::PlacesByName;
use crate::name::Name;
use crate::store::{Capability, Outline, PlaceId, RequestId};

pub(crate) fn units<D: Dialect>(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos() / D::UNIT.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) trait Dialect: Database {
    const CAPABILITY: &'static Capability;
    const UNIT: Duration;
    const LONGEST_TTL: u64;
    /// The interval of looks at waiting places while nothing can wake the session.
    const POLL: Duration;
    /// The parameters of `show` behind the name. They have the call begin at the front.
    const SHOW: &'static [Param<'static>];
    /// The error message of a grant whose row a transaction keeps.
    const KEPT: &'static str;

    /// The capability, refined at connect.
    fn learned(_session: &FairSession<Self>) -> Option<Arc<Capability>> {
        None
    }

    fn batch(requests: &[Request]) -> Vec<Param<'_>>;

    fn batched(row: &Row) -> Option<Vec<Vec<i64>>>;

    /// Gives up a place by `leave`, or in a way that has the same answer.
    fn leave(connection: &Self::Connection, params: Vec<Param<'_>>) -> impl Future<Output = Result<Row>> + Send {
        connection.ask("leave", "leave", params)
    }

    /// Gives up a place once the transaction that keeps its row has ended. Returns whether the place was there.
    fn leave_in_time(
        session: &FairSession<Self>,
        place: &PlaceId,
        seq: Option<u64>,
    ) -> impl Future<Output = Result<bool>> + Send;

    fn kept(operation: &'static str, name: &Name) -> Error {
        Error::new(ErrorKind::Unreachable, operation, Self::KEPT).with("name", name).retryable()
    }

    fn in_vain(operation: &'static str, name: &Name, error: Error) -> Error {
        if error.kind() == ErrorKind::Busy { Self::kept(operation, name).with("cause", error) } else { error }
    }

    /// Takes the list of the session's places that the request granted, and their numbers, out of the answer.
    fn take_granted(row: &mut Row) -> Result<Vec<(RequestId, u64)>>;

    fn look<'a>(asked: &'a PlacesByName, seqs: &[Vec<u64>]) -> Vec<Param<'a>>;

    /// The answer to `look`: for each name the time until the next look, and the state of each place. `None` if the session has ended.
    fn looked(rows: &[Row]) -> Result<Option<Vec<i64>>>;

    fn count<'a>(name: &'a Name, mine: &[RequestId]) -> Vec<Param<'a>>;

    fn counted(rows: &[Row], mine: &[RequestId]) -> Result<Outline>;

    fn now(connection: &Self::Connection) -> impl Future<Output = Result<Row>> + Send;

    /// Whether the session needs an ear now.
    fn needs_ear(session: &FairSession<Self>) -> bool;

    /// Listens while the session needs an ear, on the session's connection or another one. Calls the ear's `rung` at the beginning, and for
    /// each ring without a message.
    fn listen(
        session: &Arc<FairSession<Self>>,
        connection: &Weak<Self::Connection>,
        ear: &Ear,
    ) -> impl Future<Output = Result<()>> + Send;
}
