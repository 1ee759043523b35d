//! Redis serialization protocol (RESP): requests in, replies out, no I/O.
//!
//! Requests come as arrays of bulk strings or as inline lines; replies are written
//! as RESP2 or RESP3. Limits and protocol error messages are those of Redis 7.0.

mod inline;
mod lookahead;
mod number;
mod parser;
mod reply;
mod request;
mod writer;

pub use lookahead::KeysAhead;
pub use number::{parse_i64, parse_u64_digits};
pub use parser::{INLINE_BYTES_MAX, Limits, Parser, Progress, ProtocolError};
pub use reply::{Elements, ReplyEnd, whole_line};
pub use request::Request;
pub use writer::{Version, Writer};

#[cfg(test)]
mod tests;

use core::ops::Index;

/// Where one argument lies, counted from the request's first byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

/// A request's arguments, the command's name first.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    pub(crate) fn new(bytes: &'a [u8], spans: &'a [Span]) -> Self {
        Args { bytes, spans }
    }

    /// Number of arguments, including the name.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is none at all; a parsed request always has a name.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Argument `at`, or `None` behind the last.
    pub fn get(&self, at: usize) -> Option<&'a [u8]> {
        let span = self.spans.get(at)?;
        Some(&self.bytes[span.start as usize..span.start as usize + span.len as usize])
    }

    /// The arguments from number `first` on.
    pub fn iter_from(&self, first: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        self.spans
            .iter()
            .skip(first)
            .map(move |span| &bytes[span.start as usize..span.start as usize + span.len as usize])
    }
}

impl Index<usize> for Args<'_> {
    type Output = [u8];

    fn index(&self, at: usize) -> &[u8] {
        let span = self.spans[at];
        &self.bytes[span.start as usize..span.start as usize + span.len as usize]
    }
}
