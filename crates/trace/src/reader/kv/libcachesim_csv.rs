//! Comma-separated values as the examples of libCacheSim describe them: `time-col=2, obj-size-col=4, obj-id-col=5`, times in
//! seconds.
//!
//! libCacheSim itself is always told the columns, so this form is never guessed for other layouts: `--columns` is
//! the way to those.

use std::borrow::Cow;

use crate::reader::core::clock::SECOND_NS;
use crate::reader::core::info::{FormatInfo, Open};
use crate::reader::core::layout::{Column, Columns, Header, Layout};

pub(crate) const INFO: FormatInfo = FormatInfo {
    name: "libcachesim-csv",
    about: "csv in the column order of the libCacheSim examples: -, time s, -, size, object",
    file_names: &[],
    open: Open::TextIf(|_| Columns::boxed(LAYOUT), |_| false),
};

const LAYOUT: Layout = Layout {
    columns: Cow::Borrowed(&[
        Column::Ignored,
        Column::Time(SECOND_NS),
        Column::Ignored,
        Column::Size(1),
        Column::AnyKey,
    ]),
    header: Header::Hash,
    ..Layout::PLAIN
};
