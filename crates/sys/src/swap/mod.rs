//! Swap: the areas that the machine has, files made for it, turning it on and off.
//!
//! Swap belongs to the machine: pages of other programs go there too, and turning it off reads all of them back.

mod areas;
mod error;
mod file;
mod switch;
mod traffic;

pub use areas::{SwapArea, areas};
pub use error::SwapError;
pub use file::{
    LABEL_BYTES_MAX, SWAP_FILE_BYTES_MIN, SWAP_HEADER_BYTES, check_file, check_place, label_of, make_file,
};
#[cfg(test)]
pub(crate) use switch::tests::TestSwap;
pub use switch::{Discard, SwapOptions, turn_off, turn_on};
pub use traffic::{SwapTraffic, traffic};
