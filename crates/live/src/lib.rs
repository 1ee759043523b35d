//! Shared parts of all servers: the configuration file, TLS, and the HTTP port with `/metrics` for Prometheus,
//! `/ready` for load balancers, and a live page at `/` with its data at `/api/snapshot` and `/api/history`.
//!
//! A server defines its [`View`] and publishes views as it runs; [`HttpServer`] shows the
//! newest. It has a thread and an event loop of its own and sees the server only through a
//! channel of finished views, so requests for a page cannot slow down the server's own requests.
//!
//! [`metrics`] writes Prometheus's text, and [`page`] has what pages share: plots, figures, colours, and how they
//! follow a server. [`config`] reads the configuration file that all commands share, and [`tls`] encrypts a
//! server's sockets. Where a server takes commands, [`control_access`] decides from whom, [`Lines`] answer
//! commands that take a while, and [`client`] sends them. [`Pace`] is the schedule of clients that replay a trace.
#![forbid(unsafe_code)]

pub mod address;
pub mod client;
pub mod config;
pub mod control_access;
mod history;
mod lines;
mod listener;
pub mod metrics;
mod pace;
pub mod page;
mod requests;
mod server;
pub mod tls;
mod view;

pub use history::Sample;
pub use lines::{Gone, Lines};
pub use pace::Pace;
pub use server::{HttpError, HttpPort, HttpServer, json};
pub use view::View;
