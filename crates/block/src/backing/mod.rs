//! Backing stores of volumes: parsing the text that names one
//! ([`BackingSpec`]), and the store on another NBD server ([`NbdBacking`]).
//!
//! The seam itself and all other kinds (files, memory, objects) are in [`tiermem_tier::backing`].

mod nbd;
mod open;

pub use nbd::{NbdBacking, NbdOptions, NbdUnits};
pub use open::{BackingSpec, SpecError};
