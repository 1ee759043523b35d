//! `userfaultfd`: page faults of a range of memory are served by a program instead of the kernel.
//!
//! A [`Userfault`] is a descriptor of one address space. Ranges are registered with it ([`Modes`]); a thread that then touches a
//! page that is missing, protected or not yet mapped waits, and a [`Message`] tells of it. The holder of the descriptor, in any
//! process, reads messages ([`Userfault::read`]) and gives the page its content ([`Userfault::copy`] and its siblings), which
//! wakes the thread. The result of a call is a [`Progress`]: part of a range may be done, and "again", "exists" and "gone" are
//! answers, not errors.
//!
//! Rules that the kernel's documentation does not state clearly:
//! - While a fork, remap, remove or unmap message is unread, the thread that caused it waits, and every call that fills pages
//!   answers [`Outcome::Again`]. So messages are read by a thread that waits for nothing else, and calls are repeated once it
//!   has.
//! - When the last descriptor is closed, missing pages read as zero. A server that must not let that happen keeps a process that
//!   shares the table of descriptors ([`crate::shared_files`]).
//! - [`Userfault::shift`] works from within the address space alone.
//! - Protection and poison are of one mapping, not of the page that several mappings share.

mod abi;
mod error;
mod events;
mod features;
mod fill;
mod open;
mod progress;
mod register;
#[cfg(test)]
mod tests;

pub use error::UserfaultError;
pub use events::{Fault, FaultKind, Message, Messages};
pub use features::Features;
pub use fill::{Protection, Wake};
pub use open::{OpenError, Options, Userfault, Way, offered};
pub use progress::{Outcome, Progress};
pub use register::Modes;
