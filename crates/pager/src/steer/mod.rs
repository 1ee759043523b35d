//! Steering: the live body of the pager's core ([`tiermem_policy::paging`]). It brings the core what happens in a program's memory and
//! carries out what the core asks for, by advice to the kernel and moves between nodes. It decides nothing.

mod advice;
mod body;
mod fetcher;
mod logged;
mod looks;
mod nodes;
mod plan;
mod replay;
mod spaces;
mod uses;

pub use body::{SteerError, Steered, Steering, SteeringOptions, can_steer};
pub use logged::CoreOptions;
pub use nodes::Nodes;
pub use plan::PlanFound;
pub use replay::{ReplayError, Replayed, replay};
pub use uses::Uses;
