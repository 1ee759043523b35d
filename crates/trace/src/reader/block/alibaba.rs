//! Alibaba's block traces: `device_id,opcode,offset,length,timestamp`, bytes and microseconds; the device is the tenant.
//!
//! Li, Wang, Lee, Shi, "An In-Depth Analysis of Cloud Block Storage Workloads in Large-Scale Production", IISWC 2020;
//! the fields are those of github.com/alibaba/block-traces.

use std::borrow::Cow;

use super::LETTERS;
use crate::reader::core::clock::MICROSECOND_NS;
use crate::reader::core::info::{FormatInfo, Open};
use crate::reader::core::layout::{Column, Columns, Header, Layout};

pub(crate) const INFO: FormatInfo = FormatInfo {
    name: "alibaba",
    about: "Alibaba block: device, R/W, offset, length, time us",
    file_names: &[],
    open: Open::Text(|_| Columns::boxed(LAYOUT)),
};

const LAYOUT: Layout = Layout {
    columns: Cow::Borrowed(&[
        Column::Tenant,
        Column::Op(LETTERS),
        Column::Key(1),
        Column::Size(1),
        Column::Time(MICROSECOND_NS),
    ]),
    header: Header::Word("device_id,"),
    ..Layout::PLAIN
};
