//! MQSim's text traces: `time in ns, device, first sector, sectors, 1 read / 0 write`, blanks between.
//!
//! Tavakkol, Gomez-Luna, Sadrosadati, Ghose, Mutlu, "MQSim: A Framework for Enabling Realistic Studies of Modern
//! Multi-Queue SSD Devices", FAST 2018. The device is the tenant.

use std::borrow::Cow;

use super::{ONE_READS, SECTOR_BYTES};
use crate::reader::core::info::{FormatInfo, Open};
use crate::reader::core::layout::{Column, Columns, Delimiter, Layout};

pub(crate) const INFO: FormatInfo = FormatInfo {
    name: "mqsim",
    about: "MQSim text: time ns, device, sector, sectors, 1 read / 0 write",
    file_names: &["mqsim"],
    open: Open::Text(|_| Columns::boxed(LAYOUT)),
};

const LAYOUT: Layout = Layout {
    delimiter: Delimiter::Blanks,
    columns: Cow::Borrowed(&[
        Column::TimeNs,
        Column::Tenant,
        Column::Key(SECTOR_BYTES),
        Column::Size(SECTOR_BYTES),
        Column::Op(ONE_READS),
    ]),
    ..Layout::PLAIN
};
