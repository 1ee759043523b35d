//! Replies of a server: their headers. The owner of the socket sends the payload after them, without a copy.

use super::errno::Errno;
use super::extents::Extent;
use super::fields::Head;
use super::wire::{
    CHUNK_HEADER_BYTES, REPLY_FLAG_DONE, SIMPLE_REPLY_BYTES, SIMPLE_REPLY_MAGIC, STRING_BYTES_MAX,
    STRUCTURED_REPLY_MAGIC, chunk,
};

/// Writes replies in the form that a session agreed on (sections "Simple reply message" and "Structured reply chunk
/// message").
///
/// A structured reply is made of chunks, the last of which is marked `done`; those of several replies may alternate. In
/// a session without structured replies, a read's reply is its header with all its data behind it.
#[derive(Clone, Copy, Debug)]
pub struct Replies {
    structured: bool,
}

/// The part of a message that is sent: whole characters, as many as fit.
fn fitting(message: &str) -> &str {
    let mut end = message.len().min(STRING_BYTES_MAX);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}

fn head<const N: usize>(cookie: u64, kind: u16, done: bool, payload_bytes: u32) -> Head<N> {
    Head::new()
        .u32(STRUCTURED_REPLY_MAGIC)
        .u16(if done { REPLY_FLAG_DONE } else { 0 })
        .u16(kind)
        .u64(cookie)
        .u32(payload_bytes)
}

impl Replies {
    /// Replies of a session.
    pub fn new(structured: bool) -> Self {
        Replies { structured }
    }

    /// Whether reads are answered in chunks.
    pub fn are_structured(self) -> bool {
        self.structured
    }

    /// Appends what says that a request other than a read or a block status was done.
    pub fn done(self, cookie: u64, out: &mut Vec<u8>) {
        // Both forms are allowed where there is no payload, and this one is shorter.
        out.extend_from_slice(&Self::simple(cookie, None));
    }

    /// Appends the failure of a whole request; `reason` is sent where the form has room for it.
    pub fn failed(self, cookie: u64, error: Errno, reason: &str, out: &mut Vec<u8>) {
        if self.structured {
            let reason = fitting(reason);
            out.extend_from_slice(&Self::error_header(cookie, error, reason.len() as u16, true));
            out.extend_from_slice(reason.as_bytes());
        } else {
            out.extend_from_slice(&Self::simple(cookie, Some(error)));
        }
    }

    /// Appends the header behind which all of a read's `len_bytes` of data follow.
    pub fn read_whole(self, cookie: u64, offset: u64, len_bytes: u32, out: &mut Vec<u8>) {
        if self.structured {
            out.extend_from_slice(&Self::data(cookie, offset, len_bytes, true));
        } else {
            out.extend_from_slice(&Self::simple(cookie, None));
        }
    }

    /// A simple reply; behind one to a read that succeeded all its data follow.
    pub fn simple(cookie: u64, error: Option<Errno>) -> [u8; SIMPLE_REPLY_BYTES] {
        Head::new().u32(SIMPLE_REPLY_MAGIC).u32(error.map_or(0, Errno::to_wire)).u64(cookie).done()
    }

    /// A chunk that only ends its reply.
    pub fn none(cookie: u64) -> [u8; CHUNK_HEADER_BYTES] {
        head(cookie, chunk::NONE, true, 0).done()
    }

    /// A chunk of data; `len_bytes` of them, at least one and at most 8 below 4 GiB, follow. `offset` counts from the
    /// volume's start.
    pub fn data(cookie: u64, offset: u64, len_bytes: u32, done: bool) -> [u8; CHUNK_HEADER_BYTES + 8] {
        head(cookie, chunk::OFFSET_DATA, done, len_bytes.saturating_add(8)).u64(offset).done()
    }

    /// A chunk that represents `len_bytes` of zeroes, at least one.
    pub fn hole(cookie: u64, offset: u64, len_bytes: u32, done: bool) -> [u8; CHUNK_HEADER_BYTES + 12] {
        head(cookie, chunk::OFFSET_HOLE, done, 12).u64(offset).u32(len_bytes).done()
    }

    /// Appends a chunk with `extents` of one metadata context: at least one, at most
    /// [`super::wire::EXTENTS_MAX`].
    pub fn status(cookie: u64, context_id: u32, extents: &[Extent], done: bool, out: &mut Vec<u8>) {
        let payload_bytes = 4 + 8 * extents.len() as u32;
        let head = head::<24>(cookie, chunk::BLOCK_STATUS, done, payload_bytes).u32(context_id).done();
        out.extend_from_slice(&head);
        for extent in extents {
            out.extend_from_slice(&Head::<8>::new().u32(extent.len_bytes).u32(extent.flags).done());
        }
    }

    /// A chunk that says that the request failed; `message_bytes` of words for people follow.
    pub fn error_header(
        cookie: u64,
        error: Errno,
        message_bytes: u16,
        done: bool,
    ) -> [u8; CHUNK_HEADER_BYTES + 6] {
        let payload_bytes = 6 + u32::from(message_bytes);
        head(cookie, chunk::ERROR, done, payload_bytes).u32(error.to_wire()).u16(message_bytes).done()
    }

    /// A chunk that says that the request failed at byte `offset` of the volume.
    pub fn error_at(cookie: u64, error: Errno, offset: u64, done: bool) -> [u8; CHUNK_HEADER_BYTES + 14] {
        head(cookie, chunk::ERROR_OFFSET, done, 14).u32(error.to_wire()).u16(0).u64(offset).done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COOKIE: u64 = 0x0102_0304_0506_0708;

    #[test]
    fn simple_replies_are_these_bytes() {
        assert_eq!(
            Replies::simple(COOKIE, None),
            *b"\x67\x44\x66\x98\x00\x00\x00\x00\x01\x02\x03\x04\x05\x06\x07\x08"
        );
        let mut out = Vec::new();
        Replies::new(false).failed(COOKIE, Errno::NoSpc, "full", &mut out);
        assert_eq!(out, b"\x67\x44\x66\x98\x00\x00\x00\x1c\x01\x02\x03\x04\x05\x06\x07\x08");
        out.clear();
        Replies::new(false).read_whole(COOKIE, 512, 4, &mut out);
        assert_eq!(out, Replies::simple(COOKIE, None));
        out.clear();
        Replies::new(true).done(COOKIE, &mut out);
        assert_eq!(out, Replies::simple(COOKIE, None));
    }

    #[test]
    fn chunks_are_these_bytes() {
        let head = |flags: u8, kind: [u8; 2], len: u8| {
            let mut bytes = b"\x66\x8e\x33\xef\x00".to_vec();
            bytes.push(flags);
            bytes.extend(kind);
            bytes.extend(b"\x01\x02\x03\x04\x05\x06\x07\x08\x00\x00\x00");
            bytes.push(len);
            bytes
        };
        let with = |mut head: Vec<u8>, payload: &[u8]| {
            head.extend(payload);
            head
        };
        let at = b"\x00\x00\x00\x00\x00\x00\x02\x00";
        assert_eq!(Replies::none(COOKIE).to_vec(), head(1, [0, 0], 0));
        assert_eq!(Replies::data(COOKIE, 512, 4, false).to_vec(), with(head(0, [0, 1], 12), at));
        let hole = [&at[..], b"\x00\x00\x10\x00"].concat();
        assert_eq!(Replies::hole(COOKIE, 512, 4096, true).to_vec(), with(head(1, [0, 2], 12), &hole));
        let mut out = Vec::new();
        let extents = [Extent { len_bytes: 512, flags: 0 }, Extent { len_bytes: 1024, flags: 3 }];
        Replies::status(COOKIE, 7, &extents, false, &mut out);
        let payload = b"\0\0\0\x07\0\0\x02\0\0\0\0\0\0\0\x04\0\0\0\0\x03";
        assert_eq!(out, with(head(0, [0, 5], 20), payload));
        out.clear();
        Replies::new(true).failed(COOKIE, Errno::Inval, "no", &mut out);
        assert_eq!(out, with(head(1, [0x80, 1], 8), b"\0\0\0\x16\0\x02no"));
        let error_at = Replies::error_at(COOKIE, Errno::Io, 512, true).to_vec();
        assert_eq!(error_at, with(head(1, [0x80, 2], 14), &[b"\0\0\0\x05\0\0", &at[..]].concat()));
    }

    #[test]
    fn long_words_are_cut_at_a_character() {
        let mut out = Vec::new();
        Replies::new(true).failed(1, Errno::Io, &"ä".repeat(3000), &mut out);
        assert_eq!(out.len(), CHUNK_HEADER_BYTES + 6 + 4096);
        out.clear();
        Replies::new(true).failed(1, Errno::Io, &format!("a{}", "ä".repeat(3000)), &mut out);
        assert_eq!(out.len(), CHUNK_HEADER_BYTES + 6 + 4095);
    }
}
