//! File format of a snapshot, drawn in `docs/store-format.md`: a header, blocks
//! of items with a checksum each, an end. All numbers are little-endian.

use std::io::{self, Read};

/// The version of the format. Another one is refused.
pub const VERSION: u32 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 64;
/// Bytes before a block's items.
pub const BLOCK_HEADER_BYTES: usize = 16;
/// Bytes of an item before its key.
pub const ITEM_HEADER_BYTES: usize = 16;
/// Where a block is full: one that has more has one item.
pub const BLOCK_BYTES: usize = 256 << 10;
/// The longest block that there can be: the longest key and value.
pub const BLOCK_BYTES_MAX: usize = ITEM_HEADER_BYTES + (64 << 10) + (512 << 20);

const MAGIC: [u8; 8] = *b"TMSNAP\0\0";
/// In place of a block's number of items: the end, with the number of all items.
const END: u32 = u32::MAX;
/// In an item's type: the flash tier had it too.
const ON_FLASH: u8 = 0x80;

/// When a snapshot was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// While the store ran: what was changed since is not in it.
    Running = 0,
    /// When it was stopped: it is what the store knew last.
    Stopped = 1,
    /// A stopped run's snapshot that a later run has loaded or was told to ignore: it does not count any more.
    Superseded = 2,
}

/// Identity of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// When it was begun, in Unix milliseconds.
    pub unix_ms: u64,
    /// The run that took it.
    pub session: [u8; 16],
    /// When in that run.
    pub taken: Taken,
}

/// Why a file is no snapshot that can be read.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It begins with something else.
    #[error("it holds something else than a snapshot")]
    Strange,
    /// It is of another version.
    #[error("it is a snapshot of version {0}, and this program knows {VERSION}")]
    Version(u32),
    /// Its header is damaged.
    #[error("it is a snapshot whose header is damaged")]
    Damaged,
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    core::array::from_fn(|offset| bytes[at + offset])
}

impl Header {
    /// The header as the bytes at the file's start.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.unix_ms.to_le_bytes());
        bytes[24..40].copy_from_slice(&self.session);
        bytes[40] = self.taken as u8;
        let crc = crc32fast::hash(&bytes[16..]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// When there is none that this program knows.
    pub fn read(bytes: &[u8]) -> Result<Self, FormatError> {
        if bytes.len() < 12 || bytes[..8] != MAGIC {
            return Err(FormatError::Strange);
        }
        let version = u32::from_le_bytes(array(bytes, 8));
        if version != VERSION {
            return Err(FormatError::Version(version));
        }
        if bytes.len() < HEADER_BYTES {
            return Err(FormatError::Damaged);
        }
        let taken =
            [Taken::Running, Taken::Stopped, Taken::Superseded].into_iter().find(|&it| it as u8 == bytes[40]);
        let header = Header {
            unix_ms: u64::from_le_bytes(array(bytes, 16)),
            session: array(bytes, 24),
            taken: taken.ok_or(FormatError::Damaged)?,
        };
        if header.to_bytes() == bytes[..HEADER_BYTES] { Ok(header) } else { Err(FormatError::Damaged) }
    }
}

/// An item of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// Its database.
    pub db: u8,
    /// Its value's type: 0 string, 1 hash.
    pub kind: u8,
    /// Whether the flash tier had the same item.
    pub on_flash: bool,
    /// When it expires, in Unix milliseconds; 0: never.
    pub expires_at_ms: u64,
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

/// Appends an item's header, with the key; `value_len` bytes of its value are to follow.
pub fn write_item(out: &mut Vec<u8>, item: &Item<'_>, value_len: u32) {
    out.extend_from_slice(&[item.db, item.kind | if item.on_flash { ON_FLASH } else { 0 }]);
    out.extend_from_slice(&(item.key.len() as u16).to_le_bytes());
    out.extend_from_slice(&value_len.to_le_bytes());
    out.extend_from_slice(&item.expires_at_ms.to_le_bytes());
    out.extend_from_slice(item.key);
}

/// Takes the first item off a block's bytes. `None`: they hold none.
pub fn read_item<'a>(bytes: &mut &'a [u8]) -> Option<Item<'a>> {
    let (head, rest) = bytes.split_at_checked(ITEM_HEADER_BYTES)?;
    let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(array(head, 2))))?;
    let (value, rest) = rest.split_at_checked(u32::from_le_bytes(array(head, 4)) as usize)?;
    *bytes = rest;
    Some(Item {
        db: head[0],
        kind: head[1] & !ON_FLASH,
        on_flash: head[1] & ON_FLASH != 0,
        expires_at_ms: u64::from_le_bytes(array(head, 8)),
        key,
        value,
    })
}

/// A block's header: for its items' bytes, how many items they are, and the block's number in the file from 0 on.
pub fn block_header(bytes: &[u8], items: u32, number: u64) -> [u8; BLOCK_HEADER_BYTES] {
    let mut header = [0; BLOCK_HEADER_BYTES];
    header[..4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
    header[4..8].copy_from_slice(&items.to_le_bytes());
    header[8..12].copy_from_slice(&crc32fast::hash(bytes).to_le_bytes());
    let check = header_check(&header, number);
    header[12..].copy_from_slice(&check.to_le_bytes());
    header
}

/// The last block: the number of all items.
pub fn end(items: u64, number: u64) -> Vec<u8> {
    let bytes = items.to_le_bytes();
    [&block_header(&bytes, END, number)[..], &bytes].concat()
}

fn header_check(header: &[u8; BLOCK_HEADER_BYTES], number: u64) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&header[..12]);
    hasher.update(&number.to_le_bytes());
    hasher.finalize()
}

/// The next part of a snapshot.
#[derive(Debug, PartialEq, Eq)]
pub enum Block {
    /// This number of items; their bytes are in the buffer.
    Items(u32),
    /// A block of this number of items with damaged bytes; later blocks can be read.
    Damaged(u32),
    /// The end, and the number of all items.
    End(u64),
    /// What stands here is no block: the file was cut off, or is damaged from here on.
    Cut,
}

/// Reads a snapshot's blocks one after another, behind its header.
#[derive(Debug)]
pub struct Blocks<R> {
    from: R,
    number: u64,
}

impl<R: Read> Blocks<R> {
    /// Behind the header of `from`.
    pub fn new(from: R) -> Self {
        Blocks { from, number: 0 }
    }

    /// Reads the next block's items into `buffer`, which takes no more memory than the file has bytes.
    pub fn next(&mut self, buffer: &mut Vec<u8>) -> Block {
        let mut header = [0; BLOCK_HEADER_BYTES];
        if self.from.read_exact(&mut header).is_err() {
            return Block::Cut;
        }
        let sound = u32::from_le_bytes(array(&header, 12)) == header_check(&header, self.number);
        let len = u32::from_le_bytes(array(&header, 0)) as usize;
        let items = u32::from_le_bytes(array(&header, 4));
        if !sound || len > BLOCK_BYTES_MAX {
            return Block::Cut;
        }
        self.number += 1;
        buffer.clear();
        match self.from.by_ref().take(len as u64).read_to_end(buffer) {
            Ok(read) if read == len => {}
            _ => return Block::Cut,
        }
        let whole = crc32fast::hash(buffer) == u32::from_le_bytes(array(&header, 8));
        match (whole, items) {
            (true, END) if len == 8 => Block::End(u64::from_le_bytes(array(buffer, 0))),
            (_, END) => Block::Cut,
            (true, items) => Block::Items(items),
            (false, items) => Block::Damaged(items),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADER: Header = Header { unix_ms: 7, session: [9; 16], taken: Taken::Stopped };

    /// The format on disk must not change by accident.
    #[test]
    fn the_format_is_golden() {
        let bytes = HEADER.to_bytes();
        assert_eq!(&bytes[..12], b"TMSNAP\0\0\x01\0\0\0");
        assert_eq!((bytes[16], bytes[24], bytes[40], bytes[63]), (7, 9, 1, 0));
        let mut out = Vec::new();
        let item = Item { db: 3, kind: 1, on_flash: true, expires_at_ms: 5, key: b"ab", value: b"xyz" };
        write_item(&mut out, &item, 3);
        out.extend_from_slice(item.value);
        assert_eq!(out, b"\x03\x81\x02\0\x03\0\0\0\x05\0\0\0\0\0\0\0abxyz");
        assert_eq!(read_item(&mut &out[..]), Some(item));
        assert_eq!(&block_header(&out, 1, 0)[..8], &[21, 0, 0, 0, 1, 0, 0, 0]);
    }

    #[test]
    fn a_header_is_known_and_anything_else_is_not() {
        let bytes = HEADER.to_bytes();
        assert_eq!(Header::read(&bytes).unwrap(), HEADER);
        for at in 0..HEADER_BYTES {
            let mut broken = bytes;
            broken[at] ^= 1;
            assert!(Header::read(&broken).is_err(), "{at}");
        }
        assert!(matches!(Header::read(b""), Err(FormatError::Strange)));
        assert!(matches!(Header::read(&bytes[..40]), Err(FormatError::Damaged)));
    }

    fn file(values: &[Vec<u8>]) -> Vec<u8> {
        let mut file = Vec::new();
        for (number, value) in values.iter().enumerate() {
            let mut block = Vec::new();
            let item = Item { db: 0, kind: 0, on_flash: false, expires_at_ms: 0, key: b"k", value };
            write_item(&mut block, &item, value.len() as u32);
            block.extend_from_slice(value);
            file.extend_from_slice(&block_header(&block, 1, number as u64));
            file.extend_from_slice(&block);
        }
        file.extend_from_slice(&end(values.len() as u64, values.len() as u64));
        file
    }

    proptest! {
        /// With any byte changed and the file cut anywhere: the items read were written, and their order is kept.
        #[test]
        fn damage_costs_items_and_makes_none(
            values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..8),
            at in any::<prop::sample::Index>(),
            flip in 0u8..=255,
            cut in any::<bool>(),
        ) {
            let mut file = file(&values);
            let at = at.index(file.len());
            if cut { file.truncate(at) } else { file[at] ^= flip }
            let mut blocks = Blocks::new(&file[..]);
            let (mut buffer, mut found, mut missed) = (Vec::new(), Vec::new(), 0);
            let whole = loop {
                match blocks.next(&mut buffer) {
                    Block::Items(_) => found.push(read_item(&mut &buffer[..]).unwrap().value.to_vec()),
                    Block::Damaged(items) => missed += items,
                    Block::End(_) => break true,
                    Block::Cut => break false,
                }
            };
            let mut all = values.iter();
            prop_assert!(found.iter().all(|value| all.any(|known| known == value)));
            prop_assert!(!whole || found.len() + missed as usize == values.len());
            prop_assert!(flip != 0 || cut || (whole && missed == 0));
        }
    }
}
