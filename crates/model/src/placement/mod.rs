//! Where a program's pages should lie, decided once from a recording and carried out by whoever can move them.

mod plan;

pub use plan::{Assumed, MadeFrom, Phase, Plan, PlannedRegion, Predicted, Span, Sweep};
