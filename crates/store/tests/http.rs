//! HTTP port as a client sees it.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use tiermem_store::engine::TierStats;
use tiermem_store::http::view::View;
use tiermem_store::http::{HttpError, HttpServer};
use tokio::sync::watch;

const ANY_PORT: &str = "127.0.0.1:0";

fn start(view: View) -> (HttpServer, watch::Sender<Arc<View>>) {
    let (publish, views) = watch::channel(Arc::new(view));
    (HttpServer::start(ANY_PORT.parse().unwrap(), views).unwrap(), publish)
}

/// Asks for `path`; the status, the headers in small letters, and the body.
fn get(address: SocketAddr, path: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_ascii_lowercase(), body.to_owned())
}

fn view() -> View {
    let mut view = View { version: "1.2.3", uptime_s: 5.0, commands_total: 77, ..Default::default() };
    view.engine.tiers = vec![TierStats { name: "dram".into(), hits: 42, ..Default::default() }];
    view
}

#[test]
fn ready_follows_what_the_store_says() {
    let (server, _publish) = start(view());
    assert_eq!(get(server.address(), "/ready").0, 503);
    server.set_ready(true);
    assert_eq!(get(server.address(), "/ready").0, 200);
    server.set_ready(false);
    assert_eq!(get(server.address(), "/ready").0, 503);
}

#[test]
fn metrics_and_snapshot_tell_the_newest_view() {
    let (server, publish) = start(View::default());
    server.set_ready(true);
    publish.send_replace(Arc::new(view()));

    let (status, head, body) = get(server.address(), "/metrics");
    assert!(status == 200 && head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    assert!(body.contains("\ntiermem_tier_hits_total{tier=\"dram\",kind=\"\"} 42\n"), "{body}");

    let (status, head, body) = get(server.address(), "/api/snapshot");
    assert!(status == 200 && head.contains("content-type: application/json"), "{head}");
    let snapshot: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(snapshot["ready"], true);
    assert_eq!(snapshot["commands_total"], 77);
    assert_eq!(snapshot["engine"]["tiers"][0]["hits"], 42);

    let (status, _, body) = get(server.address(), "/api/history");
    let history: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert!(status == 200 && history["samples"].is_array() && history["views"].is_array());
}

#[test]
fn everything_that_the_page_loads_is_served_from_here() {
    let (server, _publish) = start(view());
    let (status, head, page) = get(server.address(), "/");
    assert!(status == 200 && head.contains("content-type: text/html"));
    let script = get(server.address(), "/page/live.js").2 + &get(server.address(), "/page/charts.js").2;
    let mut loaded = 0;
    for text in [&page, &script] {
        for path in text.split('"').filter(|part| part.starts_with("/page/") || part.starts_with("/api/")) {
            assert_eq!(get(server.address(), path).0, 200, "{path}");
            loaded += 1;
        }
    }
    assert!(loaded >= 7, "the page names {loaded} paths");
    assert!(!page.contains("https://") && !script.contains("https://"), "the page works offline");
    assert_eq!(get(server.address(), "/nothing").0, 404);
}

#[test]
fn an_address_in_use_is_told() {
    let (server, _publish) = start(view());
    let (_other, views) = watch::channel(Arc::new(view()));
    let error = HttpServer::start(server.address(), views).unwrap_err();
    assert!(matches!(error, HttpError::AddressInUse(address) if address == server.address()), "{error}");
    let (_other, views) = watch::channel(Arc::new(view()));
    let elsewhere = "192.0.2.1:1".parse().unwrap();
    assert!(matches!(HttpServer::start(elsewhere, views), Err(HttpError::Listen { .. })));
}

#[test]
fn dropping_it_frees_the_port_though_a_client_stays() {
    let (server, publish) = start(view());
    let address = server.address();
    let idle = TcpStream::connect(address).unwrap();
    let mut broken = TcpStream::connect(address).unwrap();
    broken.write_all(b"\xff\xfe nonsense\r\n\r\n").unwrap();
    assert_eq!(get(address, "/ready").0, 503);
    drop(server);
    let again = HttpServer::start(address, publish.subscribe());
    drop(idle);
    assert!(again.is_ok(), "{again:?}");
}
