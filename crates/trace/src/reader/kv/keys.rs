//! One key per line, a number or a name: what libCacheSim calls a txt trace.

use std::borrow::Cow;

use crate::reader::core::info::{FormatInfo, Open};
use crate::reader::core::layout::{Column, Columns, Delimiter, Layout};

pub(crate) const INFO: FormatInfo = FormatInfo {
    name: "txt",
    about: "one key per line, a number or a name (libCacheSim txt)",
    file_names: &[],
    open: Open::TextIf(|_| Columns::boxed(LAYOUT), |_| false),
};

const LAYOUT: Layout =
    Layout { delimiter: Delimiter::Blanks, columns: Cow::Borrowed(&[Column::AnyKey]), ..Layout::PLAIN };
