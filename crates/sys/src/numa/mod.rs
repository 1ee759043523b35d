//! The memory nodes of this machine: which there are, from which of them memory comes, where pages lie, and moving them.

pub mod nodes;
pub mod pages;
pub mod policy;
pub mod weights;

pub use nodes::{Node, Topology, cores_beside, nodes};
pub use policy::bind;
