//! The MSR Cambridge traces: `Timestamp, Hostname, DiskNumber, Type, Offset, Size, ResponseTime`.
//!
//! The time is a Windows file time (100 ns ticks since 1601), the offset and size are bytes, the disk is the tenant.
//! Narayanan, Donnelly, Rowstron, "Write Off-Loading: Practical Power Management for Enterprise Storage", FAST 2008;
//! the fields are those of the README that SNIA distributes with them.

use std::borrow::Cow;

use tiermem_base::Op;

use crate::reader::core::clock::FILETIME_NS;
use crate::reader::core::info::{FormatInfo, Open};
use crate::reader::core::layout::{Column, Columns, Header, Layout};

pub(crate) const INFO: FormatInfo = FormatInfo {
    name: "msr",
    about: "MSR Cambridge: Windows time, host, disk, Read/Write, offset, size, response time",
    file_names: &[],
    open: Open::Text(|_| Columns::boxed(LAYOUT)),
};

const LAYOUT: Layout = Layout {
    columns: Cow::Borrowed(&[
        Column::Time(FILETIME_NS),
        Column::Ignored,
        Column::Tenant,
        Column::Op(&[("Read", Op::Read), ("Write", Op::Write)]),
        Column::Key(1),
        Column::Size(1),
        Column::Checked("response_time"),
    ]),
    header: Header::Word("timestamp,"),
    ..Layout::PLAIN
};
