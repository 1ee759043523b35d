//! The agent: memory calls that only a program itself can make, made inside it on behalf of another process.
//!
//! `madvise` (but for a few kinds of advice), `mbind`, `mlock` and the registration with `userfaultfd` concern the caller's own address
//! space. A small library that is loaded with the program ([`start`]) makes them on request. None of them
//! changes what a byte of memory holds, so a wrong request can cost the program time and no more.

mod client;
mod locks;
mod protocol;
mod runs;
mod serve;

pub use client::{Agent, AgentError, Listener, LockError, Spent};
pub use protocol::{Advice, Policy};
pub use runs::{Draw, Run};
pub use serve::{serve, start};

/// The environment variable that names the socket to which the agent connects, in the abstract namespace.
pub const SOCKET_VARIABLE: &str = "TIERMEM_AGENT";
