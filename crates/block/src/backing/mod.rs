//! Stores of volumes: which one a text names ([`BackingSpec`]), other NBD servers among them ([`NbdBacking`]).
//!
//! The seam itself and all other kinds (files, memory, objects) are [`tiermem_tier::backing`].

mod nbd;
mod open;

pub use nbd::{NbdBacking, NbdOptions, NbdUnits};
pub use open::{BackingSpec, SpecError};
