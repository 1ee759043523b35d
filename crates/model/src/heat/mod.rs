//! Analysis of a heatmap: the distance at which it repeats, the path of its hotspot, and how much memory is used at once (Fisher
//! 2025, section 4.1).

pub mod hotspot;
pub mod period;
mod quartiles;
pub mod working_set;

pub use quartiles::Quartiles;
