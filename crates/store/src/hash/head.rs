//! Head of a blob: its fixed part, read once per operation and written back.

use super::Broken;

/// Bytes before a sequence's entries.
pub(super) const SEQUENCE_HEAD: usize = 16;
/// Bytes before a table's directory.
pub(super) const TABLE_HEAD: usize = 40;
/// Bytes of a slot of the directory.
pub(super) const SLOT_BYTES: usize = 5;

const FORM_SEQUENCE: u8 = 1;
const FORM_TABLE: u8 = 2;

/// What only tables have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) dead: usize,
    pub(super) sweep: usize,
    pub(super) slots: usize,
    pub(super) seed: u32,
    pub(super) next_earliest: u64,
}

/// The fixed part; holds `entries() <= used <= bytes.len()` once read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) earliest_ms: u64,
    pub(super) count: usize,
    pub(super) used: usize,
    pub(super) table: Option<Table>,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
}

/// Six bytes as a number.
pub(super) fn u48_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 6)?;
    let mut wide = [0; 8];
    wide[..6].copy_from_slice(bytes);
    Some(u64::from_le_bytes(wide))
}

fn put(bytes: &mut [u8], at: usize, part: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + part.len()) {
        place.copy_from_slice(part);
    }
}

fn put_u32(bytes: &mut [u8], at: usize, value: usize) {
    put(bytes, at, &(value as u32).to_le_bytes());
}

pub(super) fn put_u48(bytes: &mut [u8], at: usize, value: u64) {
    put(bytes, at, &value.to_le_bytes()[..6]);
}

impl Head {
    /// Reads and checks the fixed part.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Broken> {
        let head = Self::parse(bytes).ok_or(Broken)?;
        let sound = head.entries() <= head.used
            && head.used <= bytes.len()
            && u32::try_from(bytes.len()).is_ok()
            // An entry has a byte at least, so this also bounds what a broken count could do.
            && head.count <= head.used - head.entries();
        sound.then_some(head).ok_or(Broken)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let table = match *bytes.first()? {
            FORM_SEQUENCE => None,
            FORM_TABLE => Some(Table {
                dead: u32_at(bytes, 16)?,
                sweep: u32_at(bytes, 20)?,
                slots: u32_at(bytes, 24)?,
                seed: u32_at(bytes, 28)? as u32,
                next_earliest: u48_at(bytes, 32)?,
            }),
            _ => return None,
        };
        Some(Head {
            earliest_ms: u48_at(bytes, 2)?,
            count: u32_at(bytes, 8)?,
            used: u32_at(bytes, 12)?,
            table,
        })
    }

    /// Writes the fixed part; `bytes` has room for it.
    pub(super) fn write(&self, bytes: &mut [u8]) {
        let form = if self.table.is_some() { FORM_TABLE } else { FORM_SEQUENCE };
        put(bytes, 0, &[form, 0]);
        put_u48(bytes, 2, self.earliest_ms);
        put_u32(bytes, 8, self.count);
        put_u32(bytes, 12, self.used);
        if let Some(table) = &self.table {
            put_u32(bytes, 16, table.dead);
            put_u32(bytes, 20, table.sweep);
            put_u32(bytes, 24, table.slots);
            put_u32(bytes, 28, table.seed as usize);
            put_u48(bytes, 32, table.next_earliest);
            put(bytes, 38, &[0, 0]);
        }
    }

    /// Where the entries begin.
    pub(super) fn entries(&self) -> usize {
        match &self.table {
            // Both factors are below 2^32.
            Some(table) => TABLE_HEAD + SLOT_BYTES * table.slots,
            None => SEQUENCE_HEAD,
        }
    }

    /// Bytes of holes.
    pub(super) fn dead(&self) -> usize {
        self.table.map_or(0, |table| table.dead)
    }

    /// Bytes of entries that are no holes.
    pub(super) fn live_bytes(&self) -> usize {
        (self.used - self.entries()).saturating_sub(self.dead())
    }

    /// Whether a field may be past its time.
    #[inline]
    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        self.earliest_ms != 0 && self.earliest_ms <= now_ms
    }

    /// Notes that a field expires at this time; 0 is never.
    pub(super) fn note_expiry(&mut self, at_ms: u64) {
        earlier(&mut self.earliest_ms, at_ms);
        if let Some(table) = &mut self.table
            && table.sweep != 0
        {
            earlier(&mut table.next_earliest, at_ms);
        }
    }
}

/// Keeps the earlier of two times, of which 0 is never.
pub(super) fn earlier(earliest_ms: &mut u64, at_ms: u64) {
    if at_ms != 0 && (*earliest_ms == 0 || at_ms < *earliest_ms) {
        *earliest_ms = at_ms;
    }
}
