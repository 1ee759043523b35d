//! Write-out of an open segment: which of its bytes are written when.

use std::ops::Range;

use super::LOG_PAGE_BYTES;

/// Bytes that are written at once.
const CHUNK_BYTES: u32 = 128 << 10;

/// The next piece to write of a segment that has `used` bytes of which the first `submitted` were handed to the device.
/// Pages are written once, so a page that is not full waits, but where the segment is `sealed`; and a chunk that is not full
/// waits too, unless `all` is to be written that can be.
pub fn next_chunk(used: u32, submitted: u32, sealed: bool, all: bool) -> Option<Range<u32>> {
    let ready =
        if sealed { used.next_multiple_of(LOG_PAGE_BYTES) } else { used / LOG_PAGE_BYTES * LOG_PAGE_BYTES };
    let len = (ready - submitted).min(CHUNK_BYTES);
    (len > 0 && (len == CHUNK_BYTES || all || sealed)).then(|| submitted..submitted + len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_pages_and_whole_chunks_are_written_until_the_segment_is_sealed() {
        assert_eq!(next_chunk(100_000, 0, false, false), None);
        assert_eq!(next_chunk(100_000, 0, false, true), Some(0..98_304));
        assert_eq!(next_chunk(100_000, 98_304, false, true), None);
        assert_eq!(next_chunk(100_000, 98_304, true, false), Some(98_304..102_400));
        assert_eq!(next_chunk(300_000, 0, false, false), Some(0..131_072));
        assert_eq!(next_chunk(300_000, 262_144, false, false), None);
        assert_eq!(next_chunk(300_000, 303_104, true, true), None);
    }
}
