//! Requests to a content-delivery network as the AdaptSize simulator reads them: `time object size`, blanks between.
//!
//! The time is a number of the request or a second, which the format does not say; it is taken as seconds. Berger,
//! Sitaraman, Harchol-Balter, "AdaptSize: Orchestrating the Hot Object Memory Cache in a Content Delivery Network",
//! NSDI 2017; webcachesim reads the same.

use std::borrow::Cow;

use crate::reader::core::clock::SECOND_NS;
use crate::reader::core::info::{FormatInfo, Open};
use crate::reader::core::layout::{Column, Columns, Delimiter, Layout};

pub(crate) const INFO: FormatInfo = FormatInfo {
    name: "adaptsize",
    about: "AdaptSize and webcachesim: time, object, size",
    file_names: &["adaptsize"],
    open: Open::Text(|_| Columns::boxed(LAYOUT)),
};

const LAYOUT: Layout = Layout {
    delimiter: Delimiter::Blanks,
    columns: Cow::Borrowed(&[Column::Time(SECOND_NS), Column::AnyKey, Column::Size(1)]),
    ..Layout::PLAIN
};
