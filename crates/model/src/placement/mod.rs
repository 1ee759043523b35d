//! Placement plans: where a program's pages should lie, decided once from a recording and carried out by `place` or a replay.

mod analyse;
mod fit;
mod for_pager;
mod phases;
mod plan;
mod program;
pub mod replay;

pub use analyse::{analyse, memory};
pub use fit::{Misfit, begins_behind};
pub use for_pager::drafts_for_pager;
pub use plan::{Assumed, MadeFrom, PagedPrediction, Phase, Plan, PlannedRegion, Predicted, Span, Sweep};
pub use program::{Mapped, Program};
