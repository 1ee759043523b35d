//! Big-endian fields, read from the front of a byte slice and written into a header of known size.

/// Reads fields one behind the other; `None` where the bytes end too early.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Fields(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// The next `len` bytes.
    pub(super) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (field, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(field)
    }

    /// A string with its length in front.
    pub(super) fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.bytes(usize::try_from(len).ok()?)
    }

    /// What was not read.
    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// Writes fields one behind the other into `N` bytes.
pub(super) struct Head<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Head<N> {
    pub(super) fn new() -> Self {
        Head { bytes: [0; N], at: 0 }
    }

    fn put(mut self, field: &[u8]) -> Self {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
        self
    }

    pub(super) fn u16(self, value: u16) -> Self {
        self.put(&value.to_be_bytes())
    }

    pub(super) fn u32(self, value: u32) -> Self {
        self.put(&value.to_be_bytes())
    }

    pub(super) fn u64(self, value: u64) -> Self {
        self.put(&value.to_be_bytes())
    }

    pub(super) fn done(self) -> [u8; N] {
        debug_assert_eq!(self.at, N, "a header is written whole");
        self.bytes
    }
}
