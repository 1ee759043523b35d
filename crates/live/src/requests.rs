//! Checks of every request to the HTTP port, before it is answered: that it is whole, and that it names this server.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{ConnectInfo, Request};
use axum::http::header::HOST;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::control_access::{is_plain, without_port};
use crate::listener::{Answer, Wait};

/// Bodies are commands, which are short.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Of a body that is too long so much is read away before its refusal. A connection that closes with bytes unread is reset, and its client,
/// which sends still, sees that instead of the refusal.
const REFUSED_BYTES_MAX: usize = 16 << 20;
/// Paths for other programs, which may know the server by any name. They tell figures and no names of keys.
const ANY_HOST: [&str; 2] = ["/metrics", "/ready"];

/// Brings only whole requests to `router`, and tells each connection when it waits.
pub(crate) fn bounded(router: Router) -> Router {
    router.layer(middleware::from_fn(whole))
}

async fn whole(ConnectInfo(wait): ConnectInfo<Wait>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let body = match received(body).await {
        Ok(body) => body,
        Err(refusal) => return refusal.into_response(),
    };
    let answer = wait.end();
    let response = next.run(Request::from_parts(parts, Body::from(body))).await;
    response.map(|inner| Body::new(Answering { inner, _answer: answer }))
}

/// A whole body, or what its client is told instead.
async fn received(mut body: Body) -> Result<Vec<u8>, (StatusCode, &'static str)> {
    let (mut kept, mut count) = (Vec::new(), 0);
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|_| (StatusCode::BAD_REQUEST, "the request's body has no end\n"))?;
        // Other frames are trailers, which no command has.
        let Ok(data) = frame.into_data() else { continue };
        count += data.len();
        if count <= BODY_BYTES_MAX {
            kept.extend_from_slice(&data);
        } else if count > REFUSED_BYTES_MAX {
            break;
        }
    }
    if count > BODY_BYTES_MAX {
        return Err((StatusCode::PAYLOAD_TOO_LARGE, "commands have at most 64 KiB\n"));
    }
    Ok(kept)
}

/// The body of an answer. When it is dropped, its connection waits for the next request.
struct Answering {
    inner: Body,
    _answer: Answer,
}

impl HttpBody for Answering {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.inner.size_hint()
    }
}

/// Refuses requests that name a server on this machine, at `address`, by another name than an address, localhost, or one of `names`, if its
/// configuration can have some: a page of such a name, which resolves to this machine's address, could make its reader's browser read what is served here.
pub(crate) fn named(router: Router, address: SocketAddr, names: Option<Vec<String>>) -> Router {
    if !address.ip().is_loopback() {
        return router;
    }
    let has_configuration = names.is_some();
    let names: Arc<[String]> = names.unwrap_or_default().into();
    router.layer(middleware::from_fn(move |request: Request, next: Next| {
        let names = Arc::clone(&names);
        async move {
            match stranger(request.uri(), request.headers(), &names) {
                Some(name) => refusal(&name, has_configuration),
                None => next.run(request).await,
            }
        }
    }))
}

/// The name of another server that a request gives, if it does.
fn stranger(uri: &Uri, headers: &HeaderMap, names: &[String]) -> Option<String> {
    if ANY_HOST.contains(&uri.path()) {
        return None;
    }
    let is_known =
        |host: &str| is_plain(host) || names.iter().any(|name| name.eq_ignore_ascii_case(without_port(host)));
    let hosts =
        headers.get_all(HOST).iter().map(|host| String::from_utf8_lossy(host.as_bytes()).into_owned());
    uri.authority().map(ToString::to_string).into_iter().chain(hosts).find(|host| !is_known(host))
}

fn refusal(name: &str, has_configuration: bool) -> Response {
    let name: String = name.chars().filter(|char| !char.is_control()).take(100).collect();
    let or = match has_configuration {
        true => format!(", or let its configuration have http_hosts = [\"{}\"]", without_port(&name)),
        false => String::new(),
    };
    let text = format!("this server is not {name}: name it by its address or as localhost{or}\n");
    (StatusCode::MISDIRECTED_REQUEST, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_are_found() {
        let names = ["store.example".to_owned()];
        let found = |uri: &str, host: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.extend(host.map(|host| (HOST, host.parse().unwrap())));
            stranger(&uri.parse().unwrap(), &headers, &names)
        };
        let known =
            ["127.0.0.1:7380", "[::1]:7380", "localhost", "LOCALHOST:1", "10.0.0.1", "Store.Example:7380"];
        for host in known {
            assert_eq!(found("/", Some(host)), None, "{host}");
        }
        assert_eq!(found("/", None), None);
        for host in ["evil.example", "evil.example:7380", "localhost.evil.example", "store.example.evil", ""]
        {
            assert_eq!(found("/", Some(host)).as_deref(), Some(host));
            assert_eq!(found("/api/snapshot", Some(host)).as_deref(), Some(host));
            for path in ANY_HOST {
                assert_eq!(found(path, Some(host)), None);
            }
        }
        assert_eq!(found("http://evil.example/", Some("localhost")).as_deref(), Some("evil.example"));
    }
}
