//! Tencent's cloud block storage: `Timestamp,Offset,Size,IOType,VolumeID`, seconds and sectors of 512 bytes, 0 reads, 1
//! writes; the volume is the tenant.
//!
//! Zhang, Huang, Zhou, Wang, Hu, Ji, Zhou, Cheng, "OSCA: An Online-Model Based Cache Allocation Scheme in Cloud Block Storage
//! Systems", ATC 2020; the fields are those of the README that SNIA distributes with them. The requests of one second
//! come in no order, and seconds overlap, so steps back in time are common.

use std::borrow::Cow;

use super::{ONE_WRITES, SECTOR_BYTES};
use crate::reader::core::clock::SECOND_NS;
use crate::reader::core::info::{FormatInfo, Open};
use crate::reader::core::layout::{Column, Columns, Layout};

pub(crate) const INFO: FormatInfo = FormatInfo {
    name: "tencent",
    about: "Tencent block: time s, offset and size in sectors, 0 read / 1 write, volume",
    file_names: &[],
    open: Open::Text(|_| Columns::boxed(LAYOUT)),
};

const LAYOUT: Layout = Layout {
    columns: Cow::Borrowed(&[
        Column::Time(SECOND_NS),
        Column::Key(SECTOR_BYTES),
        Column::Size(SECTOR_BYTES),
        Column::Op(ONE_WRITES),
        Column::Tenant,
    ]),
    ..Layout::PLAIN
};
