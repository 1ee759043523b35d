//! Persistent part of a mapped region: how its pages are divided, and which slots hold an item.
//!
//! Memory that is mapped shared keeps what a process stored before it died, in the order in which the program stored
//! it. So the rules are rules about order, with a compiler fence wherever the next store must not come first:
//!
//! - a slot holds an item when its *seal* is set, one bit of the item's header ([`SEAL`]). The bit is set after
//!   everything else of the item and cleared before anything of it changes, so a sealed item is whole;
//! - no free slot is sealed, and none that is about to become one: a page's entry in the table becomes valid after the
//!   seals of all its slots were cleared, since older bytes there may look like anything;
//! - an entry is valid while it is of the region's *generation*, so that one store empties the region;
//! - a region whose bytes may not all have reached the disk (another boot of the machine, no orderly stop) begins
//!   empty.
//!
//! No system call is made here: the owner writes the region back, and decides when.

use std::sync::atomic::{Ordering, compiler_fence};

use tiermem_policy::ladder::PAGE_BYTES;

use super::region_format::{
    Division, Form, HEADER_BYTES, PAGE_ENTRY_BYTES, STATE_BYTES, STATE_OFFSET, State,
};

/// In an item's header, the byte that bears the seal.
pub const SEAL_AT: usize = 7;
/// In that byte: the item is whole, and its key's value.
pub const SEAL: u8 = 0x40;
/// Bytes behind an item's value: when it expires, in Unix milliseconds; 0: never.
pub const TAIL_BYTES: usize = 8;

/// Keeps stores before it ahead of stores behind it in the compiler's
/// order: enough for a reader after this process has died.
#[inline]
pub fn in_order() {
    compiler_fence(Ordering::SeqCst);
}

/// The part of a region that says what of it counts. All methods are handed the region's bytes, from its start.
#[derive(Debug)]
pub struct Kept {
    division: Division,
    /// As the region says it; entries of the table that count have the same.
    generation: u64,
    boot: [u8; 16],
    /// The run that has it.
    session: [u8; 16],
    /// The word of each page's form where its entry counts, else 0: a copy that no write has to fetch from the device.
    forms: Vec<u32>,
    /// State of the runs before this one, until it was restored or dropped.
    left: Option<State>,
}

impl Kept {
    /// Looks at a region that has a header. `boot` names this boot of the machine, where that is known; `has_disk` says
    /// whether what was closed in order outlives the machine's next stop.
    pub fn open(region: &mut [u8], division: Division, boot: Option<[u8; 16]>, has_disk: bool) -> Self {
        let state = State::read(region);
        let counts = boot == Some(state.boot) || has_disk && state.clean;
        let pages = (division.pages_bytes / PAGE_BYTES) as usize;
        let mut kept = Kept {
            division,
            generation: state.generation,
            boot: boot.unwrap_or_default(),
            session: [0; 16],
            forms: vec![0; pages],
            left: Some(state),
        };
        if state.generation == 0 || !counts {
            kept.begin_empty(region);
            kept.left = None;
        }
        // While it still counts as closed it is this boot's, so that a death between the two loses nothing.
        put(region, State::BOOT, &kept.boot);
        put(region, State::CLEAN, &0u64.to_le_bytes());
        kept
    }

    /// Bytes from the region's start that [`Self::open`] changes: to be written back before anything else is changed.
    pub const OPENED_BYTES: usize = STATE_OFFSET + STATE_BYTES;

    /// The runs that this region may have been left by: one that took it up, and one that perhaps did. `None`: it is empty.
    pub fn sessions(&self) -> Option<[[u8; 16]; 2]> {
        self.left.map(|left| [left.session, left.next_session])
    }

    /// Notes that a run of this name is about to take the region up.
    pub fn announce(&mut self, region: &mut [u8], session: [u8; 16]) {
        put(region, State::NEXT_SESSION, &session);
    }

    /// Begins the run of this name: the old contents count as restored.
    pub fn begin(&mut self, region: &mut [u8], session: [u8; 16]) {
        self.left = None;
        self.session = session;
        put(region, State::SESSION, &session);
    }

    /// Writes all of it again, where what the region had was lost: the state, and the table as far as pages are divided.
    pub fn write_again(&mut self, region: &mut [u8]) {
        put(region, State::GENERATION, &self.generation.to_le_bytes());
        put(region, State::BOOT, &self.boot);
        put(region, State::NEXT_SESSION, &self.session);
        put(region, State::SESSION, &self.session);
        put(region, State::CLEAN, &0u64.to_le_bytes());
        for page in 0..self.pages() {
            if let Some(form) = Form::of_word(self.forms[page as usize]) {
                put(region, entry_offset(page) + 8, &form.entry(page, self.generation));
                put(region, entry_offset(page), &self.generation.to_le_bytes());
            }
        }
    }

    /// Empties the region, with any contents.
    pub fn begin_empty(&mut self, region: &mut [u8]) {
        self.left = None;
        self.generation += 1;
        put(region, State::GENERATION, &self.generation.to_le_bytes());
        self.forms.fill(0);
    }

    /// Notes that everything was written back.
    pub fn close(&mut self, region: &mut [u8]) {
        if self.left.is_none() {
            put(region, State::CLEAN, &1u64.to_le_bytes());
        }
    }

    /// Number of pages.
    pub fn pages(&self) -> u32 {
        self.forms.len() as u32
    }

    /// How a page is divided, as left by a run before this one. The division found is valid from here on.
    pub fn find(&mut self, region: &[u8], page: u32) -> Option<Form> {
        let entry = &region[entry_offset(page)..][..PAGE_ENTRY_BYTES as usize];
        let form = Form::read(entry, page, self.generation)
            .filter(|form| u64::from(page) + u64::from(form.pages()) <= u64::from(self.pages()))?;
        self.forms[page as usize] = form.word();
        Some(form)
    }

    /// Ensures that the table describes the pages at `offset`, counted from the first page, as divided
    /// for places of `place_bytes`. Must be called before anything is written to such a place.
    #[inline]
    pub fn prepare(&mut self, region: &mut [u8], offset: usize, place_bytes: u64) {
        let page = offset / PAGE_BYTES as usize;
        let form = Form::of_place(offset as u64, place_bytes);
        if self.forms[page] != form.word() || form.pages() > 1 && self.has_older_entry(page as u32, form) {
            self.cut(region, page as u32, form);
        }
    }

    /// Whether another page that a run lies on has an entry. The last one may: of a run that begins behind this one.
    fn has_older_entry(&self, page: u32, form: Form) -> bool {
        (page + 1..page + form.pages())
            .any(|at| self.forms[at as usize] != 0 && !self.begins_behind(at, page, form))
    }

    /// Whether a run begins on the last page of another one, behind it.
    fn begins_behind(&self, at: u32, page: u32, form: Form) -> bool {
        at + 1 == page + form.pages()
            && matches!(Form::of_word(self.forms[at as usize]),
                Some(Form::Run { first, .. }) if first >= form.end_on_last_page())
    }

    /// Gives pages a form. No item lies on them.
    #[cold]
    fn cut(&mut self, region: &mut [u8], page: u32, form: Form) {
        if self.left.is_some() {
            // The old contents were never requested, and cannot be distinguished
            // from new ones. Nor is this a run that other regions know.
            put(region, State::SESSION, &[0; 16]);
            put(region, State::NEXT_SESSION, &[0; 16]);
            self.begin_empty(region);
        }
        for at in (page..page + form.pages())
            .filter(|&at| at == page || !self.begins_behind(at, page, form))
            .collect::<Vec<_>>()
        {
            put(region, entry_offset(at), &0u64.to_le_bytes());
            self.forms[at as usize] = 0;
        }
        let start = self.division.pages_offset as usize + page as usize * PAGE_BYTES as usize;
        for place in form.places().0 {
            region[start + place + SEAL_AT] &= !SEAL;
        }
        in_order();
        put(region, entry_offset(page) + 8, &form.entry(page, self.generation));
        put(region, entry_offset(page), &self.generation.to_le_bytes());
        self.forms[page as usize] = form.word();
    }
}

fn entry_offset(page: u32) -> usize {
    HEADER_BYTES as usize + page as usize * PAGE_ENTRY_BYTES as usize
}

/// Stores a field, between everything before and everything behind.
fn put<const N: usize>(region: &mut [u8], at: usize, field: &[u8; N]) {
    in_order();
    region[at..at + N].copy_from_slice(field);
    in_order();
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: Option<[u8; 16]> = Some([1; 16]);
    const SLOT: u64 = 80;

    fn region() -> (Vec<u8>, Division) {
        let capacity = 1 << 20;
        (vec![0; capacity], Division::of(capacity as u64))
    }

    fn forms(kept: &mut Kept, region: &[u8]) -> Vec<u32> {
        (0..kept.pages()).filter(|&page| kept.find(region, page).is_some()).collect()
    }

    #[test]
    fn what_was_cut_is_found_by_the_next_run_until_the_region_is_emptied() {
        let (mut bytes, division) = region();
        let mut kept = Kept::open(&mut bytes, division, BOOT, true);
        assert_eq!(kept.sessions(), None, "there is nothing to take up");
        kept.begin(&mut bytes, [7; 16]);
        kept.prepare(&mut bytes, 0, SLOT);
        kept.prepare(&mut bytes, 3 * PAGE_BYTES as usize, 2 * PAGE_BYTES);
        let mut again = Kept::open(&mut bytes, division, BOOT, true);
        assert_eq!(again.sessions(), Some([[7; 16], [0; 16]]));
        again.announce(&mut bytes, [8; 16]);
        let mut third = Kept::open(&mut bytes, division, BOOT, true);
        assert_eq!(third.sessions(), Some([[7; 16], [8; 16]]));
        assert_eq!(forms(&mut third, &bytes), [0, 3]);
        // A run's second page takes the entry of what was there.
        third.begin(&mut bytes, [8; 16]);
        third.prepare(&mut bytes, 2 * PAGE_BYTES as usize, 2 * PAGE_BYTES);
        let mut fourth = Kept::open(&mut bytes, division, BOOT, true);
        assert_eq!(forms(&mut fourth, &bytes), [0, 2]);
        fourth.begin_empty(&mut bytes);
        let mut fifth = Kept::open(&mut bytes, division, BOOT, true);
        assert!(forms(&mut fifth, &bytes).is_empty());
    }

    #[test]
    fn what_was_lost_of_the_table_is_written_again_and_items_stay() {
        let (mut bytes, division) = region();
        let mut kept = Kept::open(&mut bytes, division, BOOT, true);
        kept.begin(&mut bytes, [7; 16]);
        kept.prepare(&mut bytes, 0, SLOT);
        kept.prepare(&mut bytes, 3 * PAGE_BYTES as usize, 2 * PAGE_BYTES);
        bytes[..division.pages_offset as usize].fill(0);
        kept.write_again(&mut bytes);
        let mut again = Kept::open(&mut bytes, division, BOOT, true);
        assert_eq!(again.sessions(), Some([[7; 16]; 2]));
        assert_eq!(forms(&mut again, &bytes), [0, 3]);
    }

    #[test]
    fn bytes_that_look_like_a_seal_are_none() {
        let (mut bytes, division) = region();
        bytes[division.pages_offset as usize..].fill(0xFF);
        let mut kept = Kept::open(&mut bytes, division, BOOT, true);
        kept.prepare(&mut bytes, 0, SLOT);
        kept.prepare(&mut bytes, PAGE_BYTES as usize, 2 * PAGE_BYTES);
        let seal = |offset: u64| bytes[(division.pages_offset + offset) as usize + SEAL_AT] & SEAL;
        assert!((0..PAGE_BYTES / SLOT).all(|slot| seal(slot * SLOT) == 0));
        assert_eq!((seal(PAGE_BYTES), seal(2 * PAGE_BYTES)), (0, SEAL));
    }

    #[test]
    fn what_nobody_took_up_does_not_mix_with_what_is_written() {
        let (mut bytes, division) = region();
        let mut kept = Kept::open(&mut bytes, division, BOOT, true);
        kept.prepare(&mut bytes, 0, SLOT);
        let mut careless = Kept::open(&mut bytes, division, BOOT, true);
        careless.prepare(&mut bytes, 5 * PAGE_BYTES as usize, SLOT);
        let mut again = Kept::open(&mut bytes, division, BOOT, true);
        assert_eq!(forms(&mut again, &bytes), [5]);
    }

    #[test]
    fn another_boot_counts_only_after_an_orderly_stop_and_with_a_disk() {
        for (boot, clean, has_disk, counts) in [
            (BOOT, false, true, true),
            (BOOT, true, false, true),
            (Some([2; 16]), false, true, false),
            (Some([2; 16]), true, false, false),
            (Some([2; 16]), true, true, true),
            (None, false, true, false),
        ] {
            let (mut bytes, division) = region();
            let mut kept = Kept::open(&mut bytes, division, BOOT, has_disk);
            kept.prepare(&mut bytes, 0, SLOT);
            if clean {
                kept.begin(&mut bytes, [0; 16]);
                kept.close(&mut bytes);
            }
            let mut again = Kept::open(&mut bytes, division, boot, has_disk);
            assert_eq!(again.sessions().is_some(), counts, "{boot:?} {clean} {has_disk}");
            assert_eq!(!forms(&mut again, &bytes).is_empty(), counts);
            assert!(!State::read(&bytes).clean);
        }
    }
}
