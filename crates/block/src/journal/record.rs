//! Records of the log, and their encoding.

use std::ops::Range;

use tiermem_policy::extents::pairing::Marks;

use super::bytes::{u16_at, u32_at, u64_at};
use super::marks::{MARKS_BYTES, put_marks, read_marks};

/// Checksums that one record carries at most; more make several records.
pub(super) const SUMS_MAX: usize = 1024;
/// Bytes of each text of a volume at most.
pub const TEXT_BYTES_MAX: usize = 4096;
/// Volumes are numbered below this.
pub const VOLUMES_MAX: u16 = 1 << 12;
/// Pieces are numbered below this.
pub const PIECES_MAX: u64 = 1 << 36;
/// Bytes of a record at most: a volume with three long texts.
pub(super) const RECORD_BYTES_MAX: usize = 18 + MARKS_BYTES + 3 * TEXT_BYTES_MAX;
const NO_TEXT: u16 = u16::MAX;

/// State of a volume's backing store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeState {
    /// It is being written by this cache. Records without marks do not say which image it is.
    Writing {
        /// Which image, if the store can tell.
        which: Option<String>,
    },
    /// It was flushed and left alone; then it was this image in this version, if the store can tell.
    Settled {
        /// Which image.
        which: Option<String>,
        /// Which version of it.
        version: Option<String>,
    },
    /// It is not cached any more, and its number is free.
    Removed,
}

/// A volume that the cache has blocks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Its number, below 4096.
    pub number: u16,
    /// Its name, of 4096 bytes at most.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// State of its backing store.
    pub state: VolumeState,
    /// The labels that the store may have. Version 1 of the format has none.
    pub marks: Option<Marks>,
}

impl VolumeInfo {
    /// Bytes of its record.
    pub(super) fn record_bytes(&self) -> usize {
        let (which, version) = self.texts();
        18 + self.marks.map_or(0, |_| MARKS_BYTES)
            + self.name.len()
            + which.map_or(0, str::len)
            + version.map_or(0, str::len)
    }

    /// Whether a record can say it.
    pub(super) fn fits(&self) -> bool {
        let (which, version) = self.texts();
        let texts = [Some(self.name.as_str()), which, version];
        self.number < VOLUMES_MAX && texts.iter().flatten().all(|text| text.len() <= TEXT_BYTES_MAX)
    }

    fn texts(&self) -> (Option<&str>, Option<&str>) {
        match &self.state {
            VolumeState::Settled { which, version } => (which.as_deref(), version.as_deref()),
            VolumeState::Writing { which } => (which.as_deref().filter(|_| self.marks.is_some()), None),
            VolumeState::Removed => (None, None),
        }
    }
}

/// A change of the metadata. Units and slots are those of the data area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A block of a class lies at this slot for this piece of a volume; all its units are invalid. No other block of another class may be
    /// left in the group.
    Map {
        /// Its first slot.
        slot: u32,
        /// Index of its size.
        class: u8,
        /// The volume's number.
        volume: u16,
        /// Its first piece in the volume.
        piece: u64,
    },
    /// The block of this class at this slot is not cached any more.
    Unmap {
        /// Its first slot.
        slot: u32,
        /// Index of its size. A page that has no part in the block's slot must know which units it had.
        class: u8,
    },
    /// These units, one behind the other, were written: their data's completion was taken.
    Units {
        /// The first of them.
        first: u64,
        /// Whether the backing store does not have them.
        dirty: bool,
        /// The checksum of each: see [`super::checksum`].
        sums: &'a [u32],
    },
    /// The block is about to be written in place, or its volume past it.
    Open {
        /// Its first slot.
        slot: u32,
    },
    /// No such write is on its way any more, and each that was has a record.
    Close {
        /// Its first slot.
        slot: u32,
    },
    /// The backing store has these units, flushed; those of them that are valid are clean now.
    Clean(Range<u64>),
    /// These units are not cached any more.
    Drop(Range<u64>),
    /// These units are lost: reading them is an error until they are written anew.
    Poison(Range<u64>),
    /// What is known of a volume.
    Volume(&'a VolumeInfo),
    /// An image of a page with this version is about to be written: until its sync its place may be torn.
    Page {
        /// The page.
        page: u32,
        /// The version.
        version: u64,
        /// The LSN of the first record that the version before does not include.
        since: u64,
    },
    /// A recovery is about to write pages: all records before it are dealt with when the log is sealed up to here.
    Mend,
}

fn put_range(out: &mut Vec<u8>, kind: u8, units: &Range<u64>) {
    out.push(kind);
    out.extend_from_slice(&units.start.to_le_bytes());
    out.extend_from_slice(&(units.end.saturating_sub(units.start) as u32).to_le_bytes());
}

impl Record<'_> {
    /// Appends its bytes. Sums are at most [`SUMS_MAX`], ranges at most `u32::MAX` units, and a volume [`VolumeInfo::fits`].
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Record::Map { slot, class, volume, piece } => {
                out.extend_from_slice(&[1, *class]);
                out.extend_from_slice(&slot.to_le_bytes());
                out.extend_from_slice(&volume.to_le_bytes());
                out.extend_from_slice(&piece.to_le_bytes());
            }
            Record::Unmap { slot, class } => {
                out.extend_from_slice(&[2, *class]);
                out.extend_from_slice(&slot.to_le_bytes());
            }
            Record::Units { first, dirty, sums } => {
                out.push(3 + u8::from(*dirty));
                out.extend_from_slice(&first.to_le_bytes());
                out.extend_from_slice(&(sums.len() as u16).to_le_bytes());
                for sum in *sums {
                    out.extend_from_slice(&sum.to_le_bytes());
                }
            }
            Record::Open { slot } => {
                out.push(5);
                out.extend_from_slice(&slot.to_le_bytes());
            }
            Record::Close { slot } => {
                out.push(6);
                out.extend_from_slice(&slot.to_le_bytes());
            }
            Record::Clean(units) => put_range(out, 7, units),
            Record::Drop(units) => put_range(out, 8, units),
            Record::Poison(units) => put_range(out, 9, units),
            Record::Volume(volume) => {
                let (which, version) = volume.texts();
                let state = match volume.state {
                    VolumeState::Writing { .. } => 0,
                    VolumeState::Settled { .. } => 1,
                    VolumeState::Removed => 2,
                };
                out.extend_from_slice(&[if volume.marks.is_some() { 13 } else { 10 }, state]);
                out.extend_from_slice(&volume.number.to_le_bytes());
                out.extend_from_slice(&volume.size_bytes.to_le_bytes());
                volume.marks.iter().for_each(|marks| put_marks(out, marks));
                for text in [Some(volume.name.as_str()), which, version] {
                    let len = text.map_or(NO_TEXT, |text| text.len() as u16);
                    out.extend_from_slice(&len.to_le_bytes());
                    out.extend_from_slice(text.unwrap_or("").as_bytes());
                }
            }
            Record::Page { page, version, since } => {
                out.push(11);
                out.extend_from_slice(&page.to_le_bytes());
                out.extend_from_slice(&version.to_le_bytes());
                out.extend_from_slice(&since.to_le_bytes());
            }
            Record::Mend => out.push(12),
        }
    }
}

/// Reads records one after another.
pub struct Reader<'a> {
    bytes: &'a [u8],
    sums: Vec<u32>,
    volume: VolumeInfo,
}

impl<'a> Reader<'a> {
    /// Of these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        let volume = VolumeInfo {
            number: 0,
            name: String::new(),
            size_bytes: 0,
            state: VolumeState::Removed,
            marks: None,
        };
        Reader { bytes, sums: Vec::new(), volume }
    }

    /// Bytes that were not read yet.
    pub fn left(&self) -> usize {
        self.bytes.len()
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4).map(|bytes| u32_at(bytes, 0))
    }

    fn range(&mut self) -> Option<Range<u64>> {
        let bytes = self.take(12)?;
        let (first, count) = (u64_at(bytes, 0), u64::from(u32_at(bytes, 8)));
        Some(first..first.checked_add(count)?)
    }

    /// `None` within: there is none. `None` outside: these bytes are no text.
    fn text(&mut self) -> Option<Option<String>> {
        let len = u16_at(self.take(2)?, 0);
        if len == NO_TEXT {
            return Some(None);
        }
        let text = std::str::from_utf8(self.take(usize::from(len))?).ok()?;
        (text.len() <= TEXT_BYTES_MAX).then(|| Some(text.to_owned()))
    }

    fn volume(&mut self, has_marks: bool) -> Option<()> {
        let bytes = self.take(11)?;
        let (state, number, size_bytes) = (bytes[0], u16_at(bytes, 1), u64_at(bytes, 3));
        let marks = if has_marks { Some(read_marks(self.take(MARKS_BYTES)?)?) } else { None };
        let (name, which, version) = (self.text()??, self.text()?, self.text()?);
        let state = match state {
            0 => VolumeState::Writing { which },
            1 => VolumeState::Settled { which, version },
            2 => VolumeState::Removed,
            _ => return None,
        };
        self.volume = VolumeInfo { number, name, size_bytes, state, marks };
        (number < VOLUMES_MAX).then_some(())
    }

    /// The next record; `None` at the end, and where the bytes are none.
    pub fn read(&mut self) -> Option<Record<'_>> {
        let [kind] = *self.take(1)? else { return None };
        Some(match kind {
            1 => {
                let bytes = self.take(15)?;
                let (volume, piece) = (u16_at(bytes, 5), u64_at(bytes, 7));
                Record::Map { class: bytes[0], slot: u32_at(bytes, 1), volume, piece }
            }
            2 => {
                let bytes = self.take(5)?;
                Record::Unmap { class: bytes[0], slot: u32_at(bytes, 1) }
            }
            3 | 4 => {
                let bytes = self.take(10)?;
                let (first, count) = (u64_at(bytes, 0), usize::from(u16_at(bytes, 8)));
                let sums = self.take(4 * count)?;
                self.sums.clear();
                self.sums.extend((0..count).map(|at| u32_at(sums, 4 * at)));
                Record::Units { first, dirty: kind == 4, sums: &self.sums }
            }
            5 => Record::Open { slot: self.u32()? },
            6 => Record::Close { slot: self.u32()? },
            7 => Record::Clean(self.range()?),
            8 => Record::Drop(self.range()?),
            9 => Record::Poison(self.range()?),
            10 | 13 => {
                self.volume(kind == 13)?;
                Record::Volume(&self.volume)
            }
            11 => {
                let bytes = self.take(20)?;
                Record::Page { page: u32_at(bytes, 0), version: u64_at(bytes, 4), since: u64_at(bytes, 12) }
            }
            12 => Record::Mend,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tiermem_policy::extents::pairing::Mark;

    fn texts() -> impl Strategy<Value = (String, Option<String>, Option<String>)> {
        ("\\PC{0,40}", proptest::option::of("\\PC{0,40}"), proptest::option::of("\\PC{0,40}"))
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            numbers in (any::<u32>(), any::<u8>(), 0u16..VOLUMES_MAX, any::<u64>()),
            sums in proptest::collection::vec(any::<u32>(), 0..SUMS_MAX),
            (name, which, version) in texts(),
            first in 0u64..1 << 50,
            count in any::<u32>(),
        ) {
            let (slot, class, number, word) = numbers;
            let units = first..first + u64::from(count);
            let settled = VolumeState::Settled { which: which.clone(), version };
            let mark = Mark { cache: u128::from(word) << 7, generation: first };
            let all_marks = [None, Some(Marks::confirmed(mark)), Some(Marks { own: Some(mark), before: Some(None) }),
                Some(Marks { own: None, before: Some(Some(mark)) })];
            let volumes = all_marks.into_iter().flat_map(|marks| {
                let writing = VolumeState::Writing { which: which.clone().filter(|_| marks.is_some()) };
                [writing, settled.clone(), VolumeState::Removed]
                    .map(|state| VolumeInfo { number, name: name.clone(), size_bytes: word, state, marks })
            });
            let volumes: Vec<VolumeInfo> = volumes.collect();
            let mut records = vec![
                Record::Map { slot, class, volume: number, piece: word },
                Record::Unmap { slot, class },
                Record::Units { first, dirty: true, sums: &sums },
                Record::Units { first, dirty: false, sums: &[] },
                Record::Open { slot },
                Record::Close { slot },
                Record::Clean(units.clone()),
                Record::Drop(units.clone()),
                Record::Poison(units),
                Record::Page { page: slot, version: word, since: first },
                Record::Mend,
            ];
            records.extend(volumes.iter().map(Record::Volume));
            let mut bytes = Vec::new();
            for record in &records {
                let before = bytes.len();
                record.encode(&mut bytes);
                prop_assert!(bytes.len() - before <= RECORD_BYTES_MAX);
                if let Record::Volume(volume) = record {
                    prop_assert_eq!(bytes.len() - before, volume.record_bytes());
                }
            }
            let mut reader = Reader::new(&bytes);
            for record in &records {
                prop_assert!(reader.read().as_ref() == Some(record));
            }
            prop_assert_eq!(reader.left(), 0);
            prop_assert_eq!(reader.read(), None);
            // Cut anywhere, it ends without a panic and before the record that is cut.
            for cut in 0..bytes.len().min(300) {
                let mut reader = Reader::new(&bytes[..cut]);
                while reader.read().is_some() {}
            }
        }

        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let mut reader = Reader::new(&bytes);
            while reader.read().is_some() {}
        }
    }
}
