//! Requests over HTTP that carry a token, and a service that refuses late ones.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::future::BoxFuture;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use tokio::sync::Notify;
use tower_layer::Layer;
use tower_service::Service;

use super::token::required;
use crate::error::Result;
use crate::sync::Mutex;
use crate::token::FencingToken;

/// The header that carries a token, as a decimal number.
pub const TOKEN_HEADER: HeaderName = HeaderName::from_static("fencelock-token");

/// A `tower` layer that adds the token of a grant to each request of an HTTP client.
#[derive(Debug, Clone)]
pub struct StampLayer {
    value: HeaderValue,
}

impl StampLayer {
    /// Stamps requests with this token.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) without one.
    pub fn new(token: impl Into<Option<FencingToken>>) -> Result<Self> {
        Ok(Self { value: required(token.into())?.get().into() })
    }
}

impl<S> Layer<S> for StampLayer {
    type Service = Stamp<S>;

    fn layer(&self, inner: S) -> Stamp<S> {
        Stamp { inner, value: self.value.clone() }
    }
}

/// The client that [`StampLayer`] returns.
#[derive(Debug, Clone)]
pub struct Stamp<S> {
    inner: S,
    value: HeaderValue,
}

impl<S: Service<Request<B>>, B> Service<Request<B>> for Stamp<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        request.headers_mut().insert(TOKEN_HEADER, self.value.clone());
        self.inner.call(request)
    }
}

/// A `tower` layer that refuses requests of late holders of one lock, for the routes of the resource that the lock protects.
///
/// A request without a token gets 428, one whose header is no token 400, and one whose token is older than the newest that was seen 409;
/// the service does not see them. Every other one is handled with its [`FencingToken`] among its extensions. The first request with a newer
/// token closes the resource to older ones at once, and is handled when the requests under way have ended. So a new holder *claims* the
/// resource by any request, such as a `HEAD`, before it reads it.
///
/// A request is under way while the service's future runs. If a server drops that future because the client disconnected, work started
/// elsewhere continues: a blocking task, a statement at a database, a streaming body. Pass the token on there.
///
/// All clones, and all services of a layer, share the token of a single lock, for the life of the process; other processes do not see it.
/// If data outlives the process or is shared, pass the token on to its store: `fence` of PostgreSQL and MariaDB,
/// [`FencedFile`](crate::fencing::FencedFile), [`REDIS_FENCE`](crate::fencing::REDIS_FENCE).
///
/// # Examples
/// ```
/// use fencelock::fencing::{FenceLayer, StampLayer};
/// use http::{Request, Response, StatusCode};
/// use tower_layer::Layer;
/// use tower_service::Service;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # #[derive(Clone)] struct Stock;
/// # impl Service<Request<()>> for Stock {
/// #     type Response = Response<()>;
/// #     type Error = std::convert::Infallible;
/// #     type Future = std::future::Ready<Result<Response<()>, Self::Error>>;
/// #     fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> { Ok(()).into() }
/// #     fn call(&mut self, _: Request<()>) -> Self::Future { std::future::ready(Ok(Response::default())) }
/// # }
/// # let client = fencelock::Client::connect("memory:").await?;
/// let mut server = FenceLayer::new().layer(Stock);
/// let early = client.mutex("stock")?.acquire().await?;
/// let answer = StampLayer::new(early.token())?.layer(&mut server).call(Request::default()).await?;
/// assert_eq!(answer.status(), StatusCode::OK);
/// # let late = early.token();
/// # early.release().await?;
/// let next = client.mutex("stock")?.acquire().await?;
/// StampLayer::new(next.token())?.layer(&mut server).call(Request::head("/").body(())?).await?; // a claim
/// let answer = StampLayer::new(late)?.layer(&mut server).call(Request::default()).await?;
/// assert_eq!(answer.status(), StatusCode::CONFLICT);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
pub struct FenceLayer {
    register: Arc<Register>,
}

impl FenceLayer {
    /// A layer without a token: the first request sets it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl<S> Layer<S> for FenceLayer {
    type Service = Fence<S>;

    fn layer(&self, inner: S) -> Fence<S> {
        Fence { inner, register: Arc::clone(&self.register) }
    }
}

/// The service that [`FenceLayer`] returns.
#[derive(Debug, Clone)]
pub struct Fence<S> {
    inner: S,
    register: Arc<Register>,
}

impl<S, A, B> Service<Request<A>> for Fence<S>
where
    S: Service<Request<A>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    A: Send + 'static,
    B: Default,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<B>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        // The clone may not be ready: use the service that was polled.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let register = Arc::clone(&self.register);
        Box::pin(async move {
            let token = match token_of(&request) {
                Ok(token) => token,
                Err(status) => return Ok(refusal(status)),
            };
            let Some(_under_way) = register.enter(token).await else { return Ok(refusal(StatusCode::CONFLICT)) };
            request.extensions_mut().insert(token);
            inner.call(request).await
        })
    }
}

fn refusal<B: Default>(status: StatusCode) -> Response<B> {
    let mut response = Response::default();
    *response.status_mut() = status;
    response
}

/// The one token of a request.
fn token_of<A>(request: &Request<A>) -> Result<FencingToken, StatusCode> {
    let mut values = request.headers().get_all(TOKEN_HEADER).iter();
    let value = values.next().ok_or(StatusCode::PRECONDITION_REQUIRED)?;
    let is_number = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.to_str().ok().filter(is_number).and_then(|text| text.parse().ok());
    let token = number.and_then(FencingToken::new).filter(|_| values.next().is_none());
    token.ok_or(StatusCode::BAD_REQUEST)
}

/// The newest token, and the requests that are under way.
#[derive(Debug, Default)]
struct Register {
    state: Mutex<FenceState>,
    ended: Notify,
}

#[derive(Debug, Default)]
struct FenceState {
    newest: Option<FencingToken>,
    /// The token of the requests under way, and their number.
    under_way: (Option<FencingToken>, usize),
}

impl Register {
    /// Lets a request in, once requests with older tokens have ended. `None` for a request with an older token.
    async fn enter(self: &Arc<Self>, token: FencingToken) -> Option<UnderWay> {
        loop {
            let ended = self.ended.notified();
            {
                let mut state = self.state.lock();
                if state.newest > Some(token) {
                    return None;
                }
                state.newest = Some(token);
                let (of, count) = state.under_way;
                if count == 0 || of == Some(token) {
                    state.under_way = (Some(token), count + 1);
                    return Some(UnderWay(Arc::clone(self)));
                }
            }
            ended.await;
        }
    }
}

/// A request that is under way, until it is dropped.
struct UnderWay(Arc<Register>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.under_way.1 -= 1;
        if state.under_way.1 == 0 {
            self.0.ended.notify_waiters();
        }
    }
}
