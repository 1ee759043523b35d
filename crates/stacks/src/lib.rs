//! Call stacks of other programs: unwound from a copy of the stack, named by the symbols and the debug information of the program's files,
//! and the one frame of each that is told as the site of what happened.
//!
//! Programs' files are outside input. Whatever stands in them, a stack is cut short or a frame has no name, and the bounds on memory hold:
//! sections beyond them are passed over.

#![forbid(unsafe_code)]

mod image;
mod process_code;
mod runtime_library;
mod symbols;

pub use image::{Image, LoadSegment};
pub use process_code::{Code, ProcessCode, UnwindCache, Unwound};
pub use runtime_library::site_of;
pub use symbols::{Frame, name};
