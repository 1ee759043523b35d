//! Control groups of the memory controller, of both versions: made, limited, reclaimed from, watched, ended.
//!
//! The version is that of the mount under which the machine has the memory controller; a machine may have both kinds of mounts.
//! What one version lacks is refused with what it would need ([`GroupError::Unsupported`]).
//!
//! A limit holds what is charged from then on: pages of a process that is moved into a group stay with the group that they were
//! charged to.

mod by_node;
mod error;
mod events;
mod files;
mod group;
mod hierarchy;
mod kill;
mod limits;
mod oom_daemon;
mod reclaim;
mod swappiness;
#[cfg(test)]
mod tests;
mod tree;
mod version;
mod watch;

pub use by_node::bytes_by_node;
pub use error::GroupError;
pub use events::Events;
pub use group::Group;
pub use hierarchy::Hierarchy;
pub use limits::Limit;
pub use oom_daemon::avoid_oom_daemon;
pub use swappiness::{set_swappiness, swappiness};
pub use tree::{all_processes, number_of};
pub use version::Version;
pub use watch::{PressureLevel, Watch};
