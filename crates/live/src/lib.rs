//! What all servers share: their configuration file, TLS, and the HTTP port that each of them has: `/metrics` for Prometheus, `/ready` for whoever routes traffic, and a live page
//! at `/` with its data at `/api/snapshot` and `/api/history`.
//!
//! A server says what there is to see ([`View`]) and publishes views as it goes; [`HttpServer`] shows the newest. It has a thread
//! and an event loop of its own and sees the server only through a channel of finished views: nobody who asks for a page can
//! slow down a request.
//!
//! [`metrics`] writes Prometheus's text, and [`page`] has what pages share: plots, figures, colours, and how they follow a server.
//! [`config`] reads the configuration file that all commands share, and [`tls`] encrypts a server's sockets. Where a server takes commands, [`control_access`] says from whom, [`Lines`] answer what takes a while, and [`client`] gives them.
//! [`Pace`] says when clients that replay a trace send its requests.
#![forbid(unsafe_code)]

pub mod client;
pub mod config;
pub mod control_access;
mod history;
mod lines;
mod listener;
pub mod metrics;
mod pace;
pub mod page;
mod server;
pub mod tls;
mod view;

pub use history::Sample;
pub use lines::{Gone, Lines};
pub use pace::Pace;
pub use server::{HttpError, HttpPort, HttpServer, json};
pub use view::View;
