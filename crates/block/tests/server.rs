//! Server over real sockets, with the project's own client machine.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

#[path = "server/client.rs"]
mod client;
#[path = "server/house.rs"]
mod house;

#[path = "server/announcing.rs"]
mod announcing;
#[path = "server/faults.rs"]
mod faults;
#[path = "server/model.rs"]
mod model;
#[path = "server/resize.rs"]
mod resize;
#[path = "server/tls.rs"]
mod tls;
#[path = "server/unread.rs"]
mod unread;
