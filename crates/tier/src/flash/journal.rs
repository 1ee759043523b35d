//! The journal: what changed in the index of the log since the last checkpoint.
//!
//! Two halves are written in turn. When one is full the other begins, and with it a checkpoint; once that is complete, a
//! restart reads the checkpoint and then the records from the beginning of the second half. Records are gathered
//! and written through the page cache before the replies of the requests that caused them, so they outlive the process;
//! that they outlive the machine nobody promises.

use tiermem_policy::log::LogPlace;

use super::format::Layout;

/// Bytes of a record.
pub const RECORD_BYTES: usize = 16;

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// The key of this hash (its first 40 bits) lies at this place now, and nowhere else.
    Add {
        /// The hash, lower bits zero.
        hash: u64,
        /// The place.
        place: LogPlace,
        /// The key's database, below 16.
        db: u8,
    },
    /// The key of this hash lies nowhere.
    Remove {
        /// The hash, lower bits zero.
        hash: u64,
        /// The key's database, below 16.
        db: u8,
    },
    /// A segment is filled anew.
    Open {
        /// The segment.
        segment: u32,
        /// The number of the filling.
        sequence: u32,
    },
    /// All items of a database (or of all of them) in fillings before this one are gone.
    Flush {
        /// The database; none: all.
        db: Option<u8>,
        /// The first filling that is not meant.
        sequence: u32,
    },
}

/// Lower bits of a record's last word: the check; above them the database, the operation, and 40 bits of hash.
const CHECK_MASK: u64 = (1 << 16) - 1;
const DB_SHIFT: u32 = 16;
const OP_SHIFT: u32 = 20;
const HASH_MASK: u64 = !((1 << 24) - 1);
const ALL_DATABASES: u32 = u32::MAX;

/// Sixteen bits that tell a record from what stood there before, or from a part of one.
fn check(sequence: u32, low: u32, word: u64) -> u64 {
    let mixed = (word & !CHECK_MASK) ^ (u64::from(sequence) << 32 | u64::from(low)).rotate_left(17);
    (mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ mixed >> 29).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 48
}

impl Record {
    fn write(self, sequence: u32) -> [u8; RECORD_BYTES] {
        let (low, upper, op, db) = match self {
            Record::Add { hash, place, db } => (place.0, hash & HASH_MASK, 1, db),
            Record::Remove { hash, db } => (0, hash & HASH_MASK, 2, db),
            Record::Open { segment, sequence } => (segment, u64::from(sequence) << 24, 3, 0),
            Record::Flush { db, sequence } => {
                (db.map_or(ALL_DATABASES, u32::from), u64::from(sequence) << 24, 4, 0)
            }
        };
        let word = upper | op << OP_SHIFT | u64::from(db & 15) << DB_SHIFT;
        let word = word | check(sequence, low, word);
        let mut bytes = [0; RECORD_BYTES];
        bytes[..4].copy_from_slice(&sequence.to_le_bytes());
        bytes[4..8].copy_from_slice(&low.to_le_bytes());
        bytes[8..].copy_from_slice(&word.to_le_bytes());
        bytes
    }

    /// The record with this number, if `bytes` hold it.
    fn read(bytes: &[u8], sequence: u32) -> Option<Record> {
        let word = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
        let (found, low) = (word(0)?, word(4)?);
        let word = u64::from(word(8)?) | u64::from(word(12)?) << 32;
        if found != sequence || word & CHECK_MASK != check(sequence, low, word) {
            return None;
        }
        let (upper, hash, db) = ((word >> 24) as u32, word & HASH_MASK, (word >> DB_SHIFT) as u8 & 15);
        match word >> OP_SHIFT & 0xF {
            1 => Some(Record::Add { hash, place: LogPlace(low & (u32::MAX >> 1)), db }),
            2 => Some(Record::Remove { hash, db }),
            3 => Some(Record::Open { segment: low, sequence: upper }),
            4 if low == ALL_DATABASES => Some(Record::Flush { db: None, sequence: upper }),
            4 => Some(Record::Flush { db: u8::try_from(low).ok(), sequence: upper }),
            _ => None,
        }
    }
}

/// Where the journal stands.
#[derive(Debug)]
pub struct Journal {
    half: u32,
    /// Bytes of the half that are written or gathered.
    at: u64,
    next_sequence: u32,
    gathered: Vec<u8>,
    half_bytes: u64,
}

impl Journal {
    /// Goes on with record `sequence` at byte `at` of a half.
    pub fn new(layout: &Layout, half: u32, at: u64, sequence: u32) -> Self {
        let half_bytes = layout.journal_bytes / RECORD_BYTES as u64 * RECORD_BYTES as u64;
        Journal { half, at, next_sequence: sequence, gathered: Vec::new(), half_bytes }
    }

    /// Gathers a record. `false`: the half is full, and nothing was gathered.
    pub fn push(&mut self, record: Record) -> bool {
        if self.is_full() {
            return false;
        }
        self.gathered.extend_from_slice(&record.write(self.next_sequence));
        self.next_sequence = self.next_sequence.wrapping_add(1);
        self.at += RECORD_BYTES as u64;
        true
    }

    /// What is gathered and where on the device it belongs.
    pub fn take(&mut self, layout: &Layout) -> Option<(u64, Vec<u8>)> {
        if self.gathered.is_empty() {
            return None;
        }
        let from = self.at - self.gathered.len() as u64;
        Some((layout.journal(self.half) + from, std::mem::take(&mut self.gathered)))
    }

    /// Gives the memory of [`Self::take`] back for reuse.
    pub fn give_back(&mut self, mut buffer: Vec<u8>) {
        if self.gathered.is_empty() {
            buffer.clear();
            self.gathered = buffer;
        }
    }

    /// Whether records wait to be written.
    #[inline]
    pub fn has_gathered(&self) -> bool {
        !self.gathered.is_empty()
    }

    /// The half in use and the number of the next record: where replaying begins if a checkpoint starts now.
    pub fn position(&self) -> (u32, u32) {
        (self.half, self.next_sequence)
    }

    /// Begins the other half. All that was gathered must have been taken.
    pub fn turn(&mut self) {
        debug_assert!(self.gathered.is_empty());
        (self.half, self.at) = (1 - self.half, 0);
    }

    /// Begins the half again: what it holds is worth nothing any more.
    pub fn rewind(&mut self) {
        self.at = self.gathered.len() as u64;
    }

    /// Whether no record fits the half.
    pub fn is_full(&self) -> bool {
        self.at + RECORD_BYTES as u64 > self.half_bytes
    }

    /// The share of the half that is used.
    pub fn fullness(&self) -> f64 {
        self.at as f64 / self.half_bytes as f64
    }
}

/// Reads the records from number `sequence` on, beginning with half `half` and going on in the other one. Returns where
/// they end: half, byte in it, next number.
pub fn replay(
    layout: &Layout,
    mut half: u32,
    mut sequence: u32,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), super::FlashError>,
    mut each: impl FnMut(Record),
) -> Result<(u32, u64, u32), super::FlashError> {
    const STRIDE: usize = 1 << 20;
    let half_bytes = layout.journal_bytes / RECORD_BYTES as u64 * RECORD_BYTES as u64;
    let mut buffer = vec![0; STRIDE];
    for turned in [false, true] {
        let mut at = 0;
        while at < half_bytes {
            let len = STRIDE.min((half_bytes - at) as usize);
            read(layout.journal(half) + at, &mut buffer[..len])?;
            for bytes in buffer[..len].chunks_exact(RECORD_BYTES) {
                let Some(record) = Record::read(bytes, sequence) else {
                    return Ok((half, at, sequence));
                };
                each(record);
                sequence = sequence.wrapping_add(1);
                at += RECORD_BYTES as u64;
            }
        }
        if turned {
            return Ok((half, at, sequence));
        }
        half = 1 - half;
    }
    Ok((half, 0, sequence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn records() -> impl Strategy<Value = Record> {
        let hash = any::<u64>().prop_map(|hash| hash & HASH_MASK);
        prop_oneof![
            (hash.clone(), 0u32..1 << 31, 0u8..16).prop_map(|(hash, at, db)| Record::Add {
                hash,
                place: LogPlace(at),
                db
            }),
            (hash, 0u8..16).prop_map(|(hash, db)| Record::Remove { hash, db }),
            any::<(u32, u32)>().prop_map(|(segment, sequence)| Record::Open { segment, sequence }),
            (prop::option::of(0u8..16), any::<u32>())
                .prop_map(|(db, sequence)| Record::Flush { db, sequence }),
        ]
    }

    proptest! {
        /// Over both halves, and ending where the last whole record ends, whatever stood there before.
        #[test]
        fn what_is_written_is_replayed(all in prop::collection::vec(records(), 0..600), garbage in any::<u8>(), first in any::<u32>()) {
            let mut layout = Layout::divide(0, 1 << 30, 2 << 20).unwrap();
            layout.journal_bytes = 4096;
            let mut device = vec![garbage; layout.segment(0) as usize];
            let mut journal = Journal::new(&layout, 1, 0, first);
            let mut written = Vec::new();
            let mut turns = 0;
            for &record in &all {
                if !journal.push(record) {
                    if turns == 1 { break; }
                    turns += 1;
                    if let Some((at, bytes)) = journal.take(&layout) {
                        device[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
                    }
                    journal.turn();
                    prop_assert!(journal.push(record));
                }
                written.push(record);
            }
            if let Some((at, bytes)) = journal.take(&layout) {
                device[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
            }
            let mut found = Vec::new();
            let read = |at: u64, bytes: &mut [u8]| {
                bytes.copy_from_slice(&device[at as usize..at as usize + bytes.len()]);
                Ok(())
            };
            let end = replay(&layout, 1, first, read, |record| found.push(record)).unwrap();
            prop_assert_eq!(&found, &written);
            prop_assert_eq!(end.2, first.wrapping_add(written.len() as u32));
        }
    }
}
