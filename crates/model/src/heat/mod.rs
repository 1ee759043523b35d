//! What a heatmap says: at which distance it repeats, where its hotspot goes, and how much memory is used at once
//! (Fisher 2025, section 4.1).

pub mod hotspot;
pub mod period;
pub mod working_set;
