//! The page: three files that stand beside this one, and need nothing else.

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

pub(super) async fn html() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/html; charset=utf-8")], include_str!("page/index.html"))
}

pub(super) async fn script() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/javascript; charset=utf-8")], include_str!("page/page.js"))
}

pub(super) async fn style() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("page/page.css"))
}
