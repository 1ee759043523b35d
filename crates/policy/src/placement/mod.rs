//! Which granules of a program's memory lie in fast memory now: a plan that was made once, followed while the program runs
//! (Fisher 2025, section 5.1), and corrected by what is seen of it (section 6.1).
//!
//! [`Follower`] is told where granules lie and what was accessed, and says what to move; whoever drives it moves, in the
//! simulator numbers and in the live engine pages. It never has more granules in fast memory than it was given, moves no
//! more than it is allowed to at a time, and makes room before it fills it.

mod follower;
mod heat;
mod position;

pub use follower::{Act, Follower, Options, Phase, Schedule, Seen, Tier};
pub use position::Sweep;
