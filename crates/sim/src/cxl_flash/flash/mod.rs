//! Flash behind the device's cache: where data lie, the schedule of channels and dies, and garbage collection.

pub mod backend;
pub mod blocks;
pub mod ftl;
pub mod garbage_collection;
pub mod geometry;
pub mod scheduler;
pub mod timing;

pub use backend::{Backend, Parameters, Read};
pub use ftl::Places;
pub use geometry::{Geometry, PlaneAt};
pub use scheduler::{Command, Origin, Scheduler};
pub use timing::{Operation, Promise, Suspension, Technology, Timing};
