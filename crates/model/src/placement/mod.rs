//! Placement plans: where a program's pages should lie, decided once from a recording and carried out by `place` or a replay.

mod analyse;
mod fit;
mod phases;
mod plan;
mod program;
pub mod replay;

pub use analyse::{analyse, memory};
pub use fit::{Misfit, begins_behind};
pub use plan::{Assumed, MadeFrom, Phase, Plan, PlannedRegion, Predicted, Span, Sweep};
pub use program::{Mapped, Program};
