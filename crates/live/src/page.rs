//! Live pages: files embedded in the program, so that they work without a network.
//!
//! A page brings its HTML and the scripts that are its own. All share, under `/page/`: `live.css`, `dom.js` (elements), `figures.js`
//! (numbers as people read them), `charts.js` (plots, drawn by `uplot.js` with `uplot.css`), `window.js` (how far back all of it looks), and
//! `feed.js`, which follows a server.

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// A file of a page.
#[derive(Clone, Copy, Debug)]
pub struct File {
    path: &'static str,
    kind: &'static str,
    content: &'static str,
}

impl File {
    /// The page at `/`.
    pub const fn html(content: &'static str) -> Self {
        File { path: "/", kind: "text/html; charset=utf-8", content }
    }

    /// A style sheet.
    pub const fn css(path: &'static str, content: &'static str) -> Self {
        File { path, kind: "text/css; charset=utf-8", content }
    }

    /// A script or module.
    pub const fn js(path: &'static str, content: &'static str) -> Self {
        File { path, kind: "text/javascript; charset=utf-8", content }
    }

    fn answer(self) -> Response {
        // Names come from configurations: nothing but embedded files may run or load.
        let policy = HeaderValue::from_static(
            "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:",
        );
        let headers = [
            (CONTENT_TYPE, HeaderValue::from_static(self.kind)),
            // A newer program has a newer page.
            (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
            (CONTENT_SECURITY_POLICY, policy),
        ];
        (headers, self.content).into_response()
    }
}

const SHARED: [File; 8] = [
    File::css("/page/live.css", include_str!("page/live.css")),
    File::js("/page/dom.js", include_str!("page/dom.js")),
    File::js("/page/figures.js", include_str!("page/figures.js")),
    File::js("/page/charts.js", include_str!("page/charts.js")),
    File::js("/page/feed.js", include_str!("page/feed.js")),
    File::js("/page/window.js", include_str!("page/window.js")),
    File::js("/page/uplot.js", include_str!("page/vendor/uPlot.iife.min.js")),
    File::css("/page/uplot.css", include_str!("page/vendor/uPlot.min.css")),
];

/// Routes to a page's own files and to the shared ones, for any state.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>(own: &'static [File]) -> Router<S> {
    own.iter().chain(&SHARED).fold(Router::new(), |router, file| {
        router.route(file.path, get(move || async move { file.answer() }))
    })
}
