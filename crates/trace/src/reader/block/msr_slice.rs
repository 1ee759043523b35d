//! Slices of MSR Cambridge volumes as storage simulators pass them around: `time in ms with a fraction, device, byte offset,
//! bytes, 1 read / 0 write`, blanks between. The device is the tenant.

use std::borrow::Cow;

use super::ONE_READS;
use crate::reader::core::clock::MILLISECOND_NS;
use crate::reader::core::info::{FormatInfo, Open};
use crate::reader::core::layout::{Column, Columns, Delimiter, Layout};

pub(crate) const INFO: FormatInfo = FormatInfo {
    name: "msr-slice",
    about: "slices of block traces for simulators: time ms, device, offset, bytes, 1 read / 0 write",
    file_names: &["msr-slice"],
    open: Open::Text(|_| Columns::boxed(LAYOUT)),
};

const LAYOUT: Layout = Layout {
    delimiter: Delimiter::Blanks,
    columns: Cow::Borrowed(&[
        Column::Time(MILLISECOND_NS),
        Column::Tenant,
        Column::Key(1),
        Column::Size(1),
        Column::Op(ONE_READS),
    ]),
    ..Layout::PLAIN
};
