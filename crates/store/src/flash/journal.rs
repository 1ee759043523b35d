//! Journal: changes to the log's index since the last checkpoint.
//!
//! Two halves are written in turn. When one is full the other begins, and with it a checkpoint, as the shard decides.
//! Once that checkpoint is complete, a restart reads it and then the records from the beginning of the second half.
//! Records are gathered and written through the page cache before the replies of their requests, so they outlive the
//! process. Where they must outlive the machine, replies also wait for a sync, and a record says how far the last
//! sync went: a record missing behind that point was never promised, one missing before it is damage.

use tiermem_policy::log::LogPlace;

use super::format::Layout;

/// Bytes of a record.
pub const RECORD_BYTES: usize = tiermem_policy::log::RECORD_BYTES as usize;

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
        /// Whether the database has one item more by this; else the item has only moved.
        anew: bool,
    },
    /// The key of this hash lies nowhere.
    Remove {
        /// The hash, lower bits zero.
        hash: u64,
        /// The key's database, below 16.
        db: u8,
        /// Whether the database has one item less by this; else it was never added, or flushed before.
        counted: bool,
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
    /// All records before this one's number are durable against power loss.
    Durable {
        /// The number of the first record that may not be.
        sequence: u32,
    },
}

/// Lower bits of a record's last word: the check; above them the database, the operation, and 40 bits of hash.
const CHECK_MASK: u64 = (1 << 16) - 1;
const DB_SHIFT: u32 = 16;
const OP_SHIFT: u32 = 20;
pub(super) const HASH_MASK: u64 = !((1 << 24) - 1);
const ALL_DATABASES: u32 = u32::MAX;

/// Sixteen bits that tell a record from what stood there before, or from a part of one.
fn check(sequence: u32, low: u32, word: u64) -> u64 {
    let mixed = (word & !CHECK_MASK) ^ (u64::from(sequence) << 32 | u64::from(low)).rotate_left(17);
    (mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ mixed >> 29).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 48
}

impl Record {
    fn write(self, sequence: u32) -> [u8; RECORD_BYTES] {
        let (low, upper, op, db) = match self {
            Record::Add { hash, place, db, anew } => {
                (place.0, hash & HASH_MASK, if anew { 1 } else { 5 }, db)
            }
            Record::Remove { hash, db, counted } => (0, hash & HASH_MASK, if counted { 2 } else { 6 }, db),
            Record::Open { segment, sequence } => (segment, u64::from(sequence) << 24, 3, 0),
            Record::Flush { db, sequence } => {
                (db.map_or(ALL_DATABASES, u32::from), u64::from(sequence) << 24, 4, 0)
            }
            Record::Durable { sequence } => (0, u64::from(sequence) << 24, 7, 0),
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
            op @ (1 | 5) => {
                Some(Record::Add { hash, place: LogPlace(low & (u32::MAX >> 1)), db, anew: op == 1 })
            }
            op @ (2 | 6) => Some(Record::Remove { hash, db, counted: op == 2 }),
            3 => Some(Record::Open { segment: low, sequence: upper }),
            4 if low == ALL_DATABASES => Some(Record::Flush { db: None, sequence: upper }),
            4 => Some(Record::Flush { db: u8::try_from(low).ok(), sequence: upper }),
            7 => Some(Record::Durable { sequence: upper }),
            _ => None,
        }
    }
}

/// A place in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The half.
    pub half: u32,
    /// Number of records before it in the half.
    pub skipped: u32,
    /// The number of the record there.
    pub sequence: u32,
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
    /// Continues from a position.
    pub fn new(layout: &Layout, from: Position) -> Self {
        let half_bytes = half_bytes(layout);
        let at = u64::from(from.skipped) * RECORD_BYTES as u64;
        Journal { half: from.half, at, next_sequence: from.sequence, gathered: Vec::new(), half_bytes }
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

    /// Takes the gathered records and their place on the device.
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

    /// Where replaying begins if a checkpoint starts now.
    pub fn position(&self) -> Position {
        let skipped = (self.at / RECORD_BYTES as u64) as u32;
        Position { half: self.half, skipped, sequence: self.next_sequence }
    }

    /// The number of the next record.
    pub fn next_sequence(&self) -> u32 {
        self.next_sequence
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
    fn is_full(&self) -> bool {
        self.at + RECORD_BYTES as u64 > self.half_bytes
    }
}

fn half_bytes(layout: &Layout) -> u64 {
    layout.journal_bytes / RECORD_BYTES as u64 * RECORD_BYTES as u64
}

/// Where the records end that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The first place without one.
    pub at: Position,
    /// Behind the last record of this life of the journal that stands after a missing one, if there are such. They must be
    /// erased, or they would count once records were written up to them.
    pub stray: Option<Position>,
}

/// Reads the records from `from` on, continuing in the other half where that one is full. Returns where they end.
///
/// Records behind a missing one mean damage: `None`, since the removals in between cannot be known. The death of the
/// process leaves none, since it leaves a front part of the write it interrupts.
/// After power loss (`torn`) they may instead belong to a last write that was never acknowledged.
pub fn replay(
    layout: &Layout,
    from: Position,
    torn: bool,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), super::FlashError>,
    mut each: impl FnMut(Record),
) -> Result<Option<End>, super::FlashError> {
    const STRIDE: usize = 1 << 20;
    let half_bytes = half_bytes(layout);
    let mut buffer = vec![0; STRIDE];
    let mut now = Position { half: from.half & 1, ..from };
    // Where a record was missing: what comes behind it must be of another time.
    let mut end: Option<Position> = None;
    let mut stray = None;
    for turned in [false, true] {
        while u64::from(now.skipped) * (RECORD_BYTES as u64) < half_bytes {
            let at = u64::from(now.skipped) * RECORD_BYTES as u64;
            let len = STRIDE.min((half_bytes - at) as usize);
            read(layout.journal(now.half) + at, &mut buffer[..len])?;
            for bytes in buffer[..len].chunks_exact(RECORD_BYTES) {
                let found = Record::read(bytes, now.sequence);
                let (missing, is_found) = (end, found.is_some());
                match (found, missing) {
                    (Some(record), None) => each(record),
                    (Some(_), Some(_)) if !torn => return Ok(None),
                    // It was durable, and is not there.
                    (Some(Record::Durable { sequence }), Some(at)) if is_before(at.sequence, sequence) => {
                        return Ok(None);
                    }
                    (Some(_), Some(_)) => {}
                    (None, _) => end = end.or(Some(now)),
                }
                (now.sequence, now.skipped) = (now.sequence.wrapping_add(1), now.skipped + 1);
                if is_found && missing.is_some() {
                    stray = Some(now);
                }
            }
        }
        if !turned {
            (now.half, now.skipped) = (1 - now.half, 0);
        }
    }
    Ok(Some(End { at: end.unwrap_or(now), stray }))
}

/// Whether one number of a record comes before another; they are far less than 2^31 apart.
fn is_before(sequence: u32, other: u32) -> bool {
    (other.wrapping_sub(sequence) as i32) > 0
}

/// Erases the journal from one place to another behind it.
pub fn erase(
    layout: &Layout,
    from: Position,
    to: Position,
    mut write: impl FnMut(u64, &[u8]) -> Result<(), super::FlashError>,
) -> Result<(), super::FlashError> {
    const STRIDE: u64 = 1 << 20;
    let byte = |position: Position| u64::from(position.skipped) * RECORD_BYTES as u64;
    let zeros = vec![0; STRIDE as usize];
    let mut zero = |half: u32, mut at: u64, end: u64| {
        while at < end {
            let len = STRIDE.min(end - at);
            write(layout.journal(half) + at, &zeros[..len as usize])?;
            at += len;
        }
        Ok::<(), super::FlashError>(())
    };
    if from.half == to.half {
        return zero(from.half, byte(from), byte(to));
    }
    zero(from.half, byte(from), half_bytes(layout))?;
    zero(to.half, 0, byte(to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn records() -> impl Strategy<Value = Record> {
        let hash = any::<u64>().prop_map(|hash| hash & HASH_MASK);
        prop_oneof![
            (hash.clone(), 0u32..1 << 31, 0u8..16, any::<bool>())
                .prop_map(|(hash, at, db, anew)| { Record::Add { hash, place: LogPlace(at), db, anew } }),
            (hash, 0u8..16, any::<bool>()).prop_map(|(hash, db, counted)| Record::Remove {
                hash,
                db,
                counted
            }),
            any::<(u32, u32)>().prop_map(|(segment, sequence)| Record::Open { segment, sequence }),
            (prop::option::of(0u8..16), any::<u32>())
                .prop_map(|(db, sequence)| Record::Flush { db, sequence }),
            any::<u32>().prop_map(|sequence| Record::Durable { sequence }),
        ]
    }

    proptest! {
        /// Replays over both halves, and ends where the last whole record ends, on top of older contents.
        #[test]
        fn what_is_written_is_replayed(all in prop::collection::vec(records(), 0..600), garbage in any::<u8>(), first in any::<u32>(), skipped in 0u32..256) {
            let mut layout = Layout::divide(0, 1 << 30, 2 << 20).unwrap();
            layout.journal_bytes = 4096;
            let mut device = vec![garbage; layout.segment(0) as usize];
            let from = Position { half: 1, skipped, sequence: first };
            let mut journal = Journal::new(&layout, from);
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
            let end = replay(&layout, from, false, read, |record| found.push(record)).unwrap().unwrap();
            prop_assert_eq!(&found, &written);
            prop_assert_eq!(end.stray, None);
            prop_assert_eq!(end.at.sequence, first.wrapping_add(written.len() as u32));
        }

        /// A tail torn by power loss: replay ends at the first missing record. Records behind it never count, not
        /// even when the same number of records has been written anew. Unless a record says that it was durable.
        #[test]
        fn a_torn_tail_ends_at_its_first_gap(before in 0u32..200, gap in 1u32..9, behind in 1u32..200, durable in any::<bool>()) {
            let mut layout = Layout::divide(0, 1 << 30, 2 << 20).unwrap();
            layout.journal_bytes = 4096;
            let mut device = vec![0; layout.segment(0) as usize];
            let from = Position { half: 0, skipped: 100, sequence: u32::MAX - 150 };
            let record = |segment| Record::Open { segment, sequence: 1 };
            let write = |device: &mut Vec<u8>, journal: &mut Journal, record| {
                if !journal.push(record) {
                    journal.turn();
                    assert!(journal.push(record));
                }
                if let Some((at, bytes)) = journal.take(&layout) {
                    device[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
                }
            };
            let read = |device: &[u8], at: u64, bytes: &mut [u8]| {
                bytes.copy_from_slice(&device[at as usize..at as usize + bytes.len()]);
            };
            let mut journal = Journal::new(&layout, from);
            (0..before).for_each(|number| write(&mut device, &mut journal, record(number)));
            let hole = journal.position();
            let intact = device.clone();
            (0..gap).for_each(|_| write(&mut device, &mut journal, record(1)));
            // The gap was never written.
            device = intact;
            let said = hole.sequence.wrapping_add(u32::from(durable));
            write(&mut device, &mut journal, Record::Durable { sequence: said });
            (0..behind).for_each(|_| write(&mut device, &mut journal, record(2)));

            let mut found = 0;
            let replayed = replay(&layout, from, true, |at, bytes| { read(&device, at, bytes); Ok(()) }, |_| found += 1);
            let end = replayed.unwrap();
            prop_assert_eq!(end.is_none(), durable);
            let Some(end) = end else { return Ok(()) };
            prop_assert_eq!((found, end.at.sequence), (before, hole.sequence));
            let copy = |device: &mut Vec<u8>, at: u64, bytes: &[u8]| {
                device[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
            };
            erase(&layout, end.at, end.stray.unwrap(), |at, bytes| { copy(&mut device, at, bytes); Ok(()) }).unwrap();
            let mut journal = Journal::new(&layout, end.at);
            (0..gap).for_each(|_| write(&mut device, &mut journal, record(3)));
            let mut again = Vec::new();
            let read_on = |at, bytes: &mut [u8]| { read(&device, at, bytes); Ok(()) };
            let end = replay(&layout, from, false, read_on, |it| again.push(it)).unwrap().unwrap();
            prop_assert_eq!((again.len() as u32, end.stray), (before + gap, None));
        }
    }
}
