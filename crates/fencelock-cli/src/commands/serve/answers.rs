//! The answers: routes, JSON, events, breaks.

use std::convert::Infallible;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::header::{CONTENT_TYPE, HeaderName, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router, middleware};
use fencelock::{Client, ErrorKind, Name};
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, watch};

use super::admission::{Admission, HEADERS};
use super::connections::ALIVE;
use super::metrics;
use crate::arguments;
use crate::commands::r#break::holders;
use crate::commands::watch::classes::Classes;
use crate::commands::watch::grants;
use crate::commands::watch::look::{Looked, Row, Seen};
use crate::output::{Failure, code};
use crate::times;

const LONGEST: usize = 16 * 1024;

/// The files of the page, which load no other file.
const PAGE: [(&str, &str, &str); 3] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("page/page.js")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
];

/// The most locks whose records of breaks are read.
const WATCHED: usize = 100;

/// How many locks are listed at once, at most.
const ROWS: usize = 1000;

#[derive(Clone)]
pub(super) struct App {
    pub(super) classes: Classes,
    pub(super) allow_break: bool,
    pub(super) admission: Admission,
    pub(super) seen: watch::Receiver<Vec<Seen>>,
    /// Each open stream of events holds a permit.
    pub(super) viewers: Arc<Semaphore>,
}

impl App {
    fn seen(&self) -> Vec<Seen> {
        self.seen.borrow().clone()
    }
}

pub(super) fn router(app: App) -> Router {
    let page = PAGE.into_iter().fold(Router::new(), |page, (path, kind, text)| {
        page.route(path, get(move || std::future::ready(([(CONTENT_TYPE, kind)], text))))
    });
    page.route("/metrics", get(figures))
        .route("/healthz", get(health))
        .route("/api/events", get(events))
        .route("/api/locks", get(list))
        .route("/api/locks/{*name}", get(show).post(end))
        .layer(DefaultBodyLimit::max(LONGEST))
        .layer(from_fn_with_state(app.clone(), admitted))
        .layer(middleware::map_response(with_headers))
        .with_state(app)
}

async fn admitted(State(app): State<App>, request: Request, next: Next) -> Response {
    match app.admission.check(&request) {
        Ok(()) => next.run(request).await,
        Err((status @ StatusCode::UNAUTHORIZED, why)) => {
            ([(WWW_AUTHENTICATE, "Bearer")], refused(status, why)).into_response()
        }
        Err((status, why)) => refused(status, why),
    }
}

async fn with_headers(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

fn refused(status: StatusCode, why: impl Into<String>) -> Response {
    (status, Json(serde_json::json!({ "error": why.into() }))).into_response()
}

async fn figures(State(app): State<App>) -> impl IntoResponse {
    let text = metrics::text(&app.seen(), &app.classes, Semaphore::MAX_PERMITS - app.viewers.available_permits());
    ([(CONTENT_TYPE, metrics::FORMAT)], text)
}

/// Nothing about the store but whether it answers: no token is needed for this.
async fn health(State(app): State<App>) -> (StatusCode, &'static str) {
    let seen = app.seen();
    match (seen.iter().all(|seen| seen.at.is_some()), seen.iter().all(Seen::is_up)) {
        (false, _) => (StatusCode::SERVICE_UNAVAILABLE, "the store has not been looked at yet\n"),
        (_, true) => (StatusCode::OK, "ok\n"),
        (_, false) => (StatusCode::SERVICE_UNAVAILABLE, "the store cannot be read\n"),
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Wanted {
    prefix: String,
    contains: String,
    class: Option<String>,
    urgent: bool,
    skip: usize,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct List<'a> {
    up: bool,
    /// How many locks match the request, on all pages.
    matching: usize,
    /// The number of the store's locks beyond the ones that were read.
    left_out: usize,
    locks: Vec<&'a Row>,
}

async fn list(State(app): State<App>, wanted: Result<Query<Wanted>, QueryRejection>) -> Response {
    let Query(wanted) = match wanted {
        Ok(wanted) => wanted,
        Err(fault) => return refused(StatusCode::BAD_REQUEST, fault.body_text()),
    };
    let class = match wanted.class.as_deref().map(|class| app.classes.find(class)) {
        Some(None) => return refused(StatusCode::BAD_REQUEST, "there is no such class"),
        class => class.flatten(),
    };
    let seen = app.seen();
    let is_wanted = |lock: &&Looked| {
        let name = &lock.row.name;
        class.is_none_or(|class| class == lock.class)
            && name.starts_with(&wanted.prefix)
            && name.contains(&wanted.contains)
    };
    let mut matching: Vec<_> = seen.iter().flat_map(|seen| seen.locks.iter()).filter(is_wanted).collect();
    match wanted.urgent {
        false => matching.sort_by(|a, b| a.row.name.cmp(&b.row.name)),
        true => matching.sort_by_cached_key(|lock| lock.urgency()),
    }
    Json(List {
        up: seen.iter().all(Seen::is_up),
        matching: matching.len(),
        left_out: seen.iter().map(|seen| seen.left_out).sum(),
        locks: matching
            .into_iter()
            .map(|lock| &lock.row)
            .skip(wanted.skip)
            .take(wanted.limit.unwrap_or(100).min(ROWS))
            .collect(),
    })
    .into_response()
}

#[derive(Deserialize)]
struct Of {
    store: Option<String>,
}

async fn show(State(app): State<App>, Path(name): Path<String>, Query(of): Query<Of>) -> Response {
    let asked = match Name::new(&name) {
        Ok(asked) => asked,
        Err(error) => return refused(StatusCode::BAD_REQUEST, error.to_string()),
    };
    let seen = app.seen();
    let in_store = |seen: &&Seen| of.store.as_deref().is_none_or(|store| store == &*seen.store);
    let find = |seen: &Seen| {
        let at = seen.locks.binary_search_by(|lock| lock.row.name.as_str().cmp(&name)).ok()?;
        Some((Arc::clone(&seen.locks), at))
    };
    for seen in seen.iter().filter(in_store) {
        let mut watched = seen.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.len() < WATCHED {
            watched.insert(asked.clone(), Instant::now());
        }
    }
    let Some((locks, at)) = seen.iter().filter(in_store).find_map(find) else {
        if let Some(empty) = seen.iter().filter(in_store).find_map(|seen| seen.broken.get(&name)) {
            return Json(empty).into_response();
        }
        return refused(StatusCode::NOT_FOUND, format!("no client holds or waits for {name}"));
    };
    match (&locks[at].whole, &locks[at].row.error) {
        (Some(whole), _) => Json(whole).into_response(),
        (None, why) => refused(StatusCode::BAD_GATEWAY, why.clone().unwrap_or_default()),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Meant {
    /// The holder's request, as the queue shows it.
    request: String,
    reason: String,
    store: Option<String>,
}

async fn end(State(app): State<App>, Path(path): Path<String>, headers: HeaderMap, body: Bytes) -> Response {
    let Some(name) = path.strip_suffix("/break") else {
        return refused(StatusCode::METHOD_NOT_ALLOWED, "only …/break is posted to");
    };
    if !app.allow_break {
        return refused(StatusCode::FORBIDDEN, "this server only shows: start it with --allow-break");
    }
    // A form of another site cannot send JSON without a preflight request.
    if headers.get(CONTENT_TYPE).is_none_or(|given| given != "application/json") {
        return refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json");
    }
    let order = match serde_json::from_slice::<Meant>(&body) {
        Ok(order) => order,
        Err(error) => return refused(StatusCode::BAD_REQUEST, format!("this is no order to break a grant: {error}")),
    };
    let emptiness = order.reason.trim().is_empty().then(|| "it is empty".to_owned());
    if let Some(fault) = emptiness.or_else(|| arguments::purpose_fault(&order.reason)) {
        return refused(StatusCode::BAD_REQUEST, format!("the reason: {fault}"));
    }
    let seen = app.seen();
    let seen_alone = seen.len() == 1;
    let meant = seen.iter().find(|seen| order.store.as_deref().map_or(seen_alone, |store| store == &*seen.store));
    let Some(client) = meant.and_then(|seen| seen.client.as_ref()) else {
        return refused(StatusCode::BAD_REQUEST, "which store is meant must be said, and it must have been reached");
    };
    match broken(client, name, &order).await {
        Ok(()) => Json(serde_json::json!({ "broken": true })).into_response(),
        Err((status, why)) => refused(status, why),
    }
}

async fn broken(client: &Client, name: &str, order: &Meant) -> Result<(), (StatusCode, String)> {
    const GONE: &str = "the grant is gone already: nothing was broken";
    let failed = |failure: Failure| {
        let status = match failure.code {
            code::UNAVAILABLE => StatusCode::SERVICE_UNAVAILABLE,
            code::DENIED => StatusCode::FORBIDDEN,
            code::USAGE => StatusCode::BAD_REQUEST,
            _ => StatusCode::BAD_GATEWAY,
        };
        (status, failure.message.unwrap_or_default())
    };
    let name = Name::new(name).map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
    let holding = holders(client, &name).await.map_err(|error| failed(error.into()))?;
    let meant = holding.iter().find(|holder| holder.id.to_string() == order.request);
    let holder = meant.ok_or((StatusCode::NOT_FOUND, GONE.to_owned()))?;
    if let Some(foreign) = holder.foreign {
        let why = format!("{} is not notified and continues: use `fencelock break --untold`", foreign.what);
        return Err((StatusCode::CONFLICT, why));
    }
    match client.break_grant(&name, holder, &order.reason).await {
        Ok(true) => Ok(()),
        Ok(false) => Err((StatusCode::NOT_FOUND, GONE.to_owned())),
        Err(error) if error.kind() == ErrorKind::Unsupported => Err((StatusCode::NOT_IMPLEMENTED, error.to_string())),
        Err(error) => Err(failed(error.into())),
    }
}

/// The top of the page, and the events since the last one.
#[derive(Serialize)]
struct News<'a> {
    stores: Vec<Store<'a>>,
    allow_break: bool,
    left_out: usize,
    classes: Vec<Class<'a>>,
    timeline: Vec<&'a grants::Event>,
}

#[derive(Serialize)]
struct Store<'a> {
    store: &'a str,
    layout: &'a str,
    now: Option<String>,
    up: bool,
    since: Option<String>,
    error: Option<&'a str>,
    took_ms: u128,
}

#[derive(Serialize)]
struct Class<'a> {
    class: &'a str,
    locks: usize,
    holders: usize,
    waiting: usize,
}

impl<'a> News<'a> {
    /// With the events of the timeline that come after the one with the number `sent`.
    fn new(app: &'a App, seen: &'a [Seen], sent: u64) -> Self {
        let time = times::to_millisecond;
        let class = |class| Class { class, locks: 0, holders: 0, waiting: 0 };
        let mut classes: Vec<_> = app.classes.names().map(class).collect();
        for lock in seen.iter().flat_map(|seen| seen.locks.iter()) {
            let class = &mut classes[lock.class];
            class.locks += 1;
            class.holders += lock.row.holders;
            class.waiting += lock.row.waiting;
        }
        let store = |seen: &'a Seen| Store {
            store: &seen.store,
            layout: seen.client.as_ref().map_or("not reached yet", |client| client.capability().layout),
            now: seen.clock.map(time),
            up: seen.is_up(),
            since: seen.since.map(time),
            error: seen.error.as_deref(),
            took_ms: seen.took.as_millis(),
        };
        let mut timeline: Vec<_> = seen.iter().flat_map(|seen| &seen.grants.events).map(Arc::as_ref).collect();
        timeline.retain(|event| event.number > sent);
        timeline.sort_by_key(|event| event.number);
        Self {
            stores: seen.iter().map(store).collect(),
            allow_break: app.allow_break,
            left_out: seen.iter().map(|seen| seen.left_out).sum(),
            classes,
            timeline,
        }
    }
}

/// An event after each look. A slow reader misses some, and nothing is kept for it.
async fn events(State(app): State<App>) -> impl IntoResponse {
    let mut seen = app.seen.clone();
    seen.mark_changed();
    let viewer = Arc::clone(&app.viewers).try_acquire_owned().ok();
    let stream = futures_util::stream::unfold((app, seen, viewer, 0), async |(app, mut seen, viewer, sent)| {
        // The looks end with the server.
        seen.changed().await.ok()?;
        let now = seen.borrow_and_update().clone();
        let event = serde_json::to_string(&News::new(&app, &now, sent)).ok()?;
        let last = now.iter().filter_map(|seen| Some(seen.grants.events.back()?.number)).max();
        let sent = last.unwrap_or(sent);
        Some((Ok::<_, Infallible>(Event::default().data(event)), (app, seen, viewer, sent)))
    });
    // nginx buffers a stream until its end, unless this header forbids that.
    ([("x-accel-buffering", "no")], Sse::new(stream).keep_alive(KeepAlive::new().interval(ALIVE)))
}
