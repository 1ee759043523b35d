//! Cluster 52 of Twitter's cache traces in the text form in which it is passed around with libCacheSim.
//!
//! A header line that starts with `#`, then one request per line: `time, object, size, next_access_vtime`, that
//! is the second of the request, the key as a 64-bit number, the bytes of the value, and the request number of the
//! next access to the same key (`2^63 - 1` or `-1` for none). The next access is checked but not used: what
//! needs the future works it out itself. The traces: Yang, Yue, Rashmi, "A large scale analysis of hundreds of
//! in-memory cache clusters at Twitter", OSDI 2020.

use std::borrow::Cow;

use crate::reader::core::clock::SECOND_NS;
use crate::reader::core::info::{FormatInfo, Open};
use crate::reader::core::layout::{Column, Columns, Header, Layout};

pub(crate) const INFO: FormatInfo = FormatInfo {
    name: "twitter-text",
    about: "Twitter cluster 52 as passed around: time s, object, size, next access",
    file_names: &[],
    open: Open::Text(|_| Columns::boxed(LAYOUT)),
};

const LAYOUT: Layout = Layout {
    columns: Cow::Borrowed(&[
        Column::Time(SECOND_NS),
        Column::Key(1),
        Column::Size(1),
        Column::CheckedOrNone("next_access"),
    ]),
    header: Header::Hash,
    ..Layout::PLAIN
};
