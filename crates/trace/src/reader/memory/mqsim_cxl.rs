//! The text traces of MQSim_CXL: `time in ns, device, byte address, bytes, 1 read / 0 write`, blanks between.
//!
//! It has the columns of MQSim, with bytes where that has sectors.

use std::borrow::Cow;

use tiermem_base::Op;

use crate::reader::core::fields::number;
use crate::reader::core::info::{FormatInfo, Open};
use crate::reader::core::layout::{Column, Columns, Delimiter, Layout};

pub(crate) const INFO: FormatInfo = FormatInfo {
    name: "mqsim-cxl",
    about: "MQSim_CXL text: time ns, device, byte address, bytes, 1 load / 0 store",
    file_names: &["mqsim_cxl", "mqsim-cxl"],
    open: Open::TextIf(|_| Columns::boxed(LAYOUT), |lines| lines.iter().all(|line| is_narrow(line))),
};

const LAYOUT: Layout = Layout {
    delimiter: Delimiter::Blanks,
    columns: Cow::Borrowed(&[
        Column::TimeNs,
        Column::Tenant,
        Column::Key(1),
        Column::Size(1),
        Column::Op(&[("1", Op::Load), ("0", Op::Store)]),
    ]),
    ..Layout::PLAIN
};

/// Whether a line asks for one word at the start of a cache line, as those of MQSim_CXL do. Requests to a device
/// that are all 8 sectors long could also do so, but not many in a row.
fn is_narrow(line: &[u8]) -> bool {
    let mut fields = line.split(|byte| *byte == b' ').skip(2);
    let mut next = || fields.next().and_then(|text| number("", text).ok());
    matches!((next(), next()), (Some(address), Some(8)) if address % 64 == 0)
}
