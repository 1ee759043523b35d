//! Whole pages, as arguments of calls about memory that this process shares, or about another process's.

use std::marker::PhantomData;

/// Bytes of the smallest page.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// The process that the addresses belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    /// Of this process.
    Own,
    /// Of another process, whose memory no reference of ours can point to.
    Other,
}

/// A range of whole pages, not empty.
///
/// Pages of this process can only be had from a [`super::SharedMapping`], to whose bytes no reference exists: so calls that
/// change what pages hold (fill, move, poison) are safe for them. Those of another process are plain addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages<'a> {
    start: u64,
    bytes: u64,
    space: Space,
    mapping: PhantomData<&'a ()>,
}

/// A range that is not whole pages, is empty, or ends behind the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes at {start:#x} are not a range of whole pages of 4096 bytes")]
pub struct PagesError {
    /// The first address, or the offset in the mapping.
    pub start: u64,
    /// Its length.
    pub bytes: u64,
}

impl Pages<'_> {
    /// Pages of another process. A descriptor of this process's own memory refuses them.
    ///
    /// # Errors
    /// If they are not whole pages.
    pub fn of_other_process(start: u64, bytes: u64) -> Result<Pages<'static>, PagesError> {
        Pages::in_space(start, bytes, Space::Other)
    }

    /// Pages of this process. The caller answers for what the kernel is then asked to do with them: no reference to their
    /// contents may exist.
    pub(crate) fn of_this_process(start: u64, bytes: u64) -> Result<Pages<'static>, PagesError> {
        Pages::in_space(start, bytes, Space::Own)
    }

    fn in_space(start: u64, bytes: u64, space: Space) -> Result<Pages<'static>, PagesError> {
        let is_whole = start.is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES) && bytes > 0;
        if !is_whole || start.checked_add(bytes).is_none() {
            return Err(PagesError { start, bytes });
        }
        Ok(Pages { start, bytes, space, mapping: PhantomData })
    }

    /// The first address.
    pub fn start(self) -> u64 {
        self.start
    }

    /// The length in bytes.
    pub fn bytes(self) -> u64 {
        self.bytes
    }

    /// Behind the last address.
    pub fn end(self) -> u64 {
        self.start + self.bytes
    }

    pub(crate) fn space(self) -> Space {
        self.space
    }
}

impl<'a> Pages<'a> {
    /// The pages without the first `done_bytes` (whole pages, as the kernel counts them); none if that is all.
    pub fn after(self, done_bytes: u64) -> Option<Pages<'a>> {
        let left = self.bytes.checked_sub(done_bytes).filter(|left| *left > 0)?;
        debug_assert!(done_bytes.is_multiple_of(PAGE_BYTES), "whole pages are done: {done_bytes}");
        Some(Pages { start: self.start + done_bytes, bytes: left, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_pages_are_pages() {
        let pages = Pages::of_other_process(0x3000, 0x2000).unwrap();
        assert_eq!((pages.start(), pages.bytes(), pages.end()), (0x3000, 0x2000, 0x5000));
        assert_eq!(pages.after(0), Some(pages));
        assert_eq!(pages.after(0x1000).map(|left| (left.start(), left.bytes())), Some((0x4000, 0x1000)));
        assert_eq!((pages.after(0x2000), pages.after(0x3000)), (None, None));
        for (start, bytes) in [(1, 4096), (4096, 1), (4096, 0), (u64::MAX - 4095, 8192), (u64::MAX, u64::MAX)]
        {
            assert_eq!(Pages::of_other_process(start, bytes), Err(PagesError { start, bytes }));
        }
    }
}
