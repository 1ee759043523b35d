//! Twitter's cache traces as published: no header, and per line `timestamp in seconds, key, key size, value size,
//! client, operation, TTL in seconds`.
//!
//! The key is a name, with its namespaces kept, and becomes its hash; the client is the tenant. Yang, Yue, Rashmi,
//! "A large scale analysis of hundreds of in-memory cache clusters at Twitter", OSDI 2020; the field list is in the
//! README of github.com/twitter/cache-trace.

use std::borrow::Cow;

use tiermem_base::Op;

use crate::reader::core::clock::SECOND_NS;
use crate::reader::core::info::{FormatInfo, Open};
use crate::reader::core::layout::{Column, Columns, Layout};

pub(crate) const INFO: FormatInfo = FormatInfo {
    name: "twitter",
    about: "Twitter cache traces: time s, key, key size, value size, client, operation, TTL",
    file_names: &[],
    open: Open::Text(|_| Columns::boxed(LAYOUT)),
};

const LAYOUT: Layout = Layout {
    columns: Cow::Borrowed(&[
        Column::Time(SECOND_NS),
        Column::Name,
        Column::KeySize,
        Column::Size(1),
        Column::Tenant,
        Column::Op(OPERATIONS),
        Column::Ttl,
    ]),
    ..Layout::PLAIN
};

/// All operations that the README names. `incr` and its like read and write; what they leave is a new value.
const OPERATIONS: &[(&str, Op)] = &[
    ("get", Op::Get),
    ("gets", Op::Get),
    ("set", Op::Set),
    ("add", Op::Set),
    ("replace", Op::Set),
    ("cas", Op::Set),
    ("append", Op::Set),
    ("prepend", Op::Set),
    ("incr", Op::Set),
    ("decr", Op::Set),
    ("delete", Op::Del),
];
