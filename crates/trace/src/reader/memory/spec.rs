//! Memory references of SPEC programs as cache simulators for teaching pass them around: `l` or `s`, the address in
//! hexadecimal, and the instructions since the reference before, blanks between.
//!
//! The width of a reference is not in the file. The time is the number of instructions, taken as nanoseconds.

use std::borrow::Cow;

use tiermem_base::Op;

use crate::reader::core::info::{FormatInfo, Open};
use crate::reader::core::layout::{Column, Columns, Delimiter, Layout};

pub(crate) const INFO: FormatInfo = FormatInfo {
    name: "spec",
    about: "SPEC address traces: l or s, hexadecimal address, instructions since the last",
    file_names: &["address_"],
    open: Open::Text(|_| Columns::boxed(LAYOUT)),
};

const LAYOUT: Layout = Layout {
    delimiter: Delimiter::Blanks,
    columns: Cow::Borrowed(&[Column::Op(&[("l", Op::Load), ("s", Op::Store)]), Column::HexKey, Column::Gap]),
    ..Layout::PLAIN
};
