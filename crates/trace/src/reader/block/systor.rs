//! The Systor '17 traces of virtual desktops: `Timestamp,Response,IOType,LUN,Offset,Size`, with that header.
//!
//! The time is seconds with nanoseconds, the response time is seconds, offset and size are bytes, the LUN is the tenant. Lee,
//! Kumano, Matsuki, Endo, Fukumoto, Sugawara, "Understanding Storage Traffic Characteristics on Enterprise Virtual Desktop
//! Infrastructure", SYSTOR 2017.

use std::borrow::Cow;

use super::LETTERS;
use crate::reader::core::clock::SECOND_NS;
use crate::reader::core::info::{FormatInfo, Open};
use crate::reader::core::layout::{Column, Columns, Header, Layout};

pub(crate) const INFO: FormatInfo = FormatInfo {
    name: "systor",
    about: "Systor 17: time s, response s, R/W, LUN, offset, size, with a header",
    file_names: &[],
    open: Open::Text(|_| Columns::boxed(LAYOUT)),
};

const LAYOUT: Layout = Layout {
    columns: Cow::Borrowed(&[
        Column::Time(SECOND_NS),
        Column::Ignored,
        Column::Op(LETTERS),
        Column::Tenant,
        Column::Key(1),
        Column::Size(1),
    ]),
    header: Header::Word("timestamp,"),
    ..Layout::PLAIN
};
