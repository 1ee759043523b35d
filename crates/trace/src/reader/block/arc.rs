//! The traces of the ARC paper, `.lis`: `first block, blocks, ignored, request number`, blanks between.
//!
//! Each line stands for as many records as it has blocks. The key is the block's number, because the bytes of a block differ from
//! trace to trace and are not in the file. Megiddo, Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST 2003.

use std::borrow::Cow;

use tiermem_base::Op;

use crate::reader::core::info::{FormatInfo, Open};
use crate::reader::core::layout::{Column, Columns, Delimiter, Layout};

pub(crate) const INFO: FormatInfo = FormatInfo {
    name: "arc",
    about: "ARC paper .lis: first block, blocks, ignored, request number; a record per block",
    file_names: &[".lis"],
    open: Open::Text(|_| Columns::boxed(LAYOUT)),
};

const LAYOUT: Layout = Layout {
    delimiter: Delimiter::Blanks,
    columns: Cow::Borrowed(&[Column::Key(1), Column::Count, Column::Ignored, Column::Checked("request")]),
    op: Op::Read,
    key_step: 1,
    ..Layout::PLAIN
};
