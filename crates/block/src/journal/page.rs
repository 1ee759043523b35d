//! Page of the table as it lies on the device: the state of some units and of the slots that begin among them.

use super::bytes::{crc, put, u32_at, u64_at};

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
const HEADER_BYTES: usize = 32;
const MAGIC: u32 = u32::from_le_bytes(*b"TMBP");
const PIECE_BITS: u32 = 36;

/// Number of units and slots of a page; the same for all pages of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageShape {
    /// Units.
    pub units: u32,
    /// Slots.
    pub slots: u32,
}

impl PageShape {
    /// The shape for slots of `piece_units`: whole slots, as many as fit, or part of one.
    pub fn of(piece_units: u64) -> Self {
        let shape = |slots: u64| PageShape { units: (slots * piece_units) as u32, slots: slots as u32 };
        if piece_units > 512 {
            // The largest piece has 1024: two pages for each slot, with the entry in the first.
            return PageShape { units: 512, slots: 1 };
        }
        (1..=331).map(shape).take_while(|shape| shape.end() <= PAGE_BYTES).last().unwrap_or(shape(1))
    }

    /// Words of 64 bits that have a bit for each unit.
    pub fn words(self) -> usize {
        self.units.div_ceil(64) as usize
    }

    fn bits_bytes(self) -> usize {
        self.words() * 8
    }

    fn valid_at(self) -> usize {
        HEADER_BYTES + self.units as usize * 4
    }

    fn dirty_at(self) -> usize {
        self.valid_at() + self.bits_bytes()
    }

    fn slots_at(self) -> usize {
        self.dirty_at() + self.bits_bytes()
    }

    fn end(self) -> usize {
        self.slots_at() + self.slots as usize * 8
    }

    /// The checksum of a unit.
    #[inline]
    pub fn sum(self, page: &[u8], unit: u32) -> u32 {
        u32_at(page, HEADER_BYTES + unit as usize * 4)
    }

    /// Sets it.
    #[inline]
    pub fn set_sum(self, page: &mut [u8], unit: u32, sum: u32) {
        put(page, HEADER_BYTES + unit as usize * 4, &sum.to_le_bytes());
    }

    /// A word of the bits for valid units, and of the bits for dirty units.
    pub fn bits(self, page: &[u8], word: usize) -> (u64, u64) {
        (u64_at(page, self.valid_at() + word * 8), u64_at(page, self.dirty_at() + word * 8))
    }

    /// Sets them.
    pub fn set_bits(self, page: &mut [u8], word: usize, (valid, dirty): (u64, u64)) {
        put(page, self.valid_at() + word * 8, &valid.to_le_bytes());
        put(page, self.dirty_at() + word * 8, &dirty.to_le_bytes());
    }

    /// The block that begins at a slot.
    #[inline]
    pub fn slot(self, page: &[u8], slot: u32) -> Option<SlotEntry> {
        SlotEntry::decode(u64_at(page, self.slots_at() + slot as usize * 8))
    }

    /// Sets it.
    pub fn set_slot(self, page: &mut [u8], slot: u32, entry: Option<SlotEntry>) {
        let word = entry.map_or(0, SlotEntry::encode);
        put(page, self.slots_at() + slot as usize * 8, &word.to_le_bytes());
    }
}

/// The block that begins at a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotEntry {
    /// Index of its size.
    pub class: u8,
    /// Its volume's number.
    pub volume: u16,
    /// Its first piece in the volume.
    pub piece: u64,
    /// Whether it may be written in place.
    pub open: bool,
}

impl SlotEntry {
    fn encode(self) -> u64 {
        let state = (u64::from(self.class) + 1) | u64::from(self.open) << 8;
        state << 48 | u64::from(self.volume) << PIECE_BITS | self.piece
    }

    fn decode(word: u64) -> Option<Self> {
        let class = ((word >> 48) as u8).checked_sub(1)?;
        Some(SlotEntry {
            class,
            volume: (word >> PIECE_BITS) as u16 & 0xfff,
            piece: word & ((1 << PIECE_BITS) - 1),
            open: word >> 56 & 1 != 0,
        })
    }
}

/// The LSN up to which a page includes records.
#[inline]
pub fn lsn(page: &[u8]) -> u64 {
    u64_at(page, 16)
}

/// Sets it.
pub fn set_lsn(page: &mut [u8], lsn: u64) {
    put(page, 16, &lsn.to_le_bytes());
}

/// Number of times that the page was written.
pub fn version(page: &[u8]) -> u64 {
    u64_at(page, 8)
}

/// Makes a page the image of a version: what is written to the device.
pub fn seal(page: &mut [u8], uuid: &[u8; 16], number: u32, version: u64) {
    put(page, 4, &MAGIC.to_le_bytes());
    put(page, 8, &version.to_le_bytes());
    put(page, 24, &number.to_le_bytes());
    let sum = crc(uuid, &[&page[4..]]);
    put(page, 0, &sum.to_le_bytes());
}

/// Whether this is an image of that page, whole, in the place where its version belongs.
pub fn is_sound(page: &[u8], uuid: &[u8; 16], number: u32, place: u64) -> bool {
    u32_at(page, 4) == MAGIC
        && u32_at(page, 24) == number
        && version(page) % 2 == place
        // The next version must be a number as well, even in a page forged to fit the checksum.
        && version(page) < 1 << 62
        && u32_at(page, 0) == crc(uuid, &[&page[4..]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_fit_and_fields_do_not_touch_each_other() {
        for shift in 0..=10 {
            let shape = PageShape::of(1 << shift);
            assert!(shape.end() <= PAGE_BYTES, "{shape:?}");
            let mut page = vec![0; PAGE_BYTES];
            let entry = SlotEntry { class: 10, volume: 0xfff, piece: (1 << 36) - 1, open: true };
            let last = (shape.units - 1, shape.slots - 1);
            let word = shape.words() - 1;
            shape.set_sum(&mut page, last.0, u32::MAX);
            shape.set_bits(&mut page, word, (1, u64::MAX));
            shape.set_slot(&mut page, last.1, Some(entry));
            assert_eq!(shape.bits(&page, word), (1, u64::MAX));
            assert_eq!((shape.slot(&page, last.1), shape.sum(&page, last.0)), (Some(entry), u32::MAX));
            shape.set_bits(&mut page, word, (0, 0));
            shape.set_sum(&mut page, last.0, 0);
            shape.set_slot(&mut page, last.1, None);
            assert!(page.iter().all(|byte| *byte == 0));
        }
        // 0.17 % of the data for the usual sizes, and for the smallest 0.3 %.
        assert_eq!(PageShape::of(1), PageShape { units: 330, slots: 330 });
        assert_eq!(PageShape::of(8), PageShape { units: 768, slots: 96 });
        assert_eq!(PageShape::of(512), PageShape { units: 512, slots: 1 });
    }

    #[test]
    fn an_image_belongs_to_its_page_its_place_and_its_cache() {
        let mut page = vec![0; PAGE_BYTES];
        seal(&mut page, &[1; 16], 7, 3);
        assert!(is_sound(&page, &[1; 16], 7, 1));
        assert!(!is_sound(&page, &[2; 16], 7, 1));
        assert!(!is_sound(&page, &[1; 16], 8, 1));
        assert!(!is_sound(&page, &[1; 16], 7, 0));
        page[4000] ^= 1;
        assert!(!is_sound(&page, &[1; 16], 7, 1));
    }
}
