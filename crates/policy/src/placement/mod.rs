//! Which granules of a program's memory lie in fast memory now: a plan that was made once, followed while the program runs
//! (Fisher 2025, section 5.1), and corrected by what is seen of it (section 6.1).
//!
//! [`Placer`] is told what a program maps, where granules lie and what was accessed, and says where what is mapped is to come to
//! lie and what to move; whoever drives it moves, in a replay numbers and in the live engine pages. It moves no more than it is
//! allowed to in a slice, and makes room in fast memory before it fills it.

mod follower;
mod heat;
mod home;
mod placer;
mod position;
mod rate_limit;

pub use follower::{Act, Options, Outcome, Phase, Schedule, Seen, Tier};
pub use placer::{FirstTouch, Placer};
pub use position::Sweep;
pub use rate_limit::RateLimit;
