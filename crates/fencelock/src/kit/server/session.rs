//! The engine's side of a session over a server.

use std::sync::Arc;

use futures_core::future::BoxFuture;

use super::{Core, ServerSession};
use crate::error::Result;
use crate::name::Name;
use crate::store::{Entered, Entry, Loss, PlaceId, PlaceList, Renewal, RequestId, Session};

pub(super) struct SessionHandle<S: ServerSession>(pub(super) Arc<Core<S>>);

impl<S: ServerSession> Session for SessionHandle<S> {
    fn over(&self) -> Option<Loss> {
        self.0.session.state().cause()
    }

    fn enter(&self, entry: Arc<Entry>) -> BoxFuture<'_, Result<Entered>> {
        Box::pin(S::enter(&self.0, entry))
    }

    fn answers_inline(&self) -> bool {
        self.0.session.answers_inline()
    }

    fn withdraw<'a>(&'a self, name: &'a Name, id: RequestId) -> BoxFuture<'a, Result<()>> {
        Box::pin(S::withdraw(&self.0, PlaceId { name: name.clone(), request: id }))
    }

    fn renew<'a>(&'a self, places: &'a dyn PlaceList) -> BoxFuture<'a, Result<Renewal>> {
        Box::pin(S::renew(&self.0, places))
    }

    fn waited_for<'a>(&'a self, place: &'a PlaceId) -> Option<BoxFuture<'a, Result<()>>> {
        S::waited_for(&self.0, place)
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(S::close(&self.0))
    }
}
