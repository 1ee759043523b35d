//! The live page and what it loads: files embedded in the program, so that it works without a network.

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";

const FILES: [(&str, &str, &str); 8] = [
    ("/", HTML, include_str!("page/index.html")),
    ("/page/live.css", CSS, include_str!("page/live.css")),
    ("/page/live.js", JS, include_str!("page/live.js")),
    ("/page/charts.js", JS, include_str!("page/charts.js")),
    ("/page/tenants.js", JS, include_str!("page/tenants.js")),
    ("/page/figures.js", JS, include_str!("page/figures.js")),
    ("/page/uplot.js", JS, include_str!("page/vendor/uPlot.iife.min.js")),
    ("/page/uplot.css", CSS, include_str!("page/vendor/uPlot.min.css")),
];

/// Routes to the page's files, for any state.
pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.into_iter().fold(Router::new(), |router, (path, kind, content)| {
        router.route(path, get(move || async move { file(kind, content) }))
    })
}

fn file(kind: &'static str, content: &'static str) -> Response {
    // Names of tiers come from the configuration: nothing but the files above may run or load.
    let policy = HeaderValue::from_static(
        "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:",
    );
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(kind)),
        // A newer program has a newer page.
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (CONTENT_SECURITY_POLICY, policy),
    ];
    (headers, content).into_response()
}
