//! Placement of a program's granules in fast memory: a plan that was made once is followed while the program runs (Fisher 2025,
//! section 5.1), and corrected by the accesses seen (section 6.1).
//!
//! [`Placer`] is told what a program maps, where granules lie and what was accessed. It says where mapped memory is to be placed
//! and what to move; its driver moves: numbers in a replay, pages in the live engine. It moves no more than it is allowed to in a
//! slice, and makes room in fast memory before it fills it. Where it would be worse than first come, first served, it rests
//! (`payoff.rs`).

mod follower;
mod heat;
mod home;
mod payoff;
mod placer;
mod position;
mod rate_limit;
mod undisturbed;

pub use follower::{Act, Options, Outcome, Phase, Schedule, Seen, Tier};
pub use payoff::{Course, Shares};
pub use placer::{FirstTouch, Placer};
pub use position::Sweep;
pub use rate_limit::RateLimit;
