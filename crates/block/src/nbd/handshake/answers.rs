//! Replies to options, as they go over the wire (section "Fixed newstyle negotiation").

use super::asked::InfoAsked;
use crate::nbd::export::Export;
use crate::nbd::fields::Head;
use crate::nbd::rules::Rules;
use crate::nbd::wire::{EXPORT_NAME_ZEROES, OPTION_REPLY_HEADER_BYTES, OPTION_REPLY_MAGIC, info, reply};

/// Appends replies to one option.
pub(super) struct Answers<'a> {
    option: u32,
    out: &'a mut Vec<u8>,
}

impl<'a> Answers<'a> {
    pub(super) fn new(option: u32, out: &'a mut Vec<u8>) -> Self {
        Answers { option, out }
    }

    /// A reply of type `kind` with the concatenated `parts` as its data.
    pub(super) fn put(&mut self, kind: u32, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let head = Head::<OPTION_REPLY_HEADER_BYTES>::new()
            .u64(OPTION_REPLY_MAGIC)
            .u32(self.option)
            .u32(kind)
            .u32(len as u32);
        self.out.extend_from_slice(&head.done());
        parts.iter().for_each(|part| self.out.extend_from_slice(part));
    }

    /// One export of a list.
    pub(super) fn server(&mut self, export: &Export) {
        let len = (export.name.len() as u32).to_be_bytes();
        self.put(reply::SERVER, &[&len, export.name.as_bytes(), export.description.as_bytes()]);
    }

    /// One metadata context.
    pub(super) fn meta_context(&mut self, id: u32, name: &str) {
        self.put(reply::META_CONTEXT, &[&id.to_be_bytes(), name.as_bytes()]);
    }

    /// What was asked about an export, and its size, which comes unasked.
    pub(super) fn info(&mut self, export: &Export, rules: &Rules, asked: &InfoAsked<'_>) {
        let kind = |kind: u16| kind.to_be_bytes();
        let size = Head::<12>::new().u16(info::EXPORT).u64(rules.size_bytes).u16(rules.flags.bits());
        self.put(reply::INFO, &[&size.done()]);
        if asked.canonical_name {
            self.put(reply::INFO, &[&kind(info::NAME), export.name.as_bytes()]);
        }
        if asked.description && !export.description.is_empty() {
            self.put(reply::INFO, &[&kind(info::DESCRIPTION), export.description.as_bytes()]);
        }
        if asked.block_size {
            let sizes = Head::<14>::new()
                .u16(info::BLOCK_SIZE)
                .u32(rules.block.minimum)
                .u32(rules.block.preferred)
                .u32(rules.block.payload_max);
            self.put(reply::INFO, &[&sizes.done()]);
        }
    }
}

/// The answer to `EXPORT_NAME`, which has no header.
pub(super) fn export_name(rules: &Rules, no_zeroes: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(&Head::<10>::new().u64(rules.size_bytes).u16(rules.flags.bits()).done());
    if !no_zeroes {
        out.extend_from_slice(&[0; EXPORT_NAME_ZEROES]);
    }
}
