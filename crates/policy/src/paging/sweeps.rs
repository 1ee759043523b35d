//! Sweeps: what to do with pages that were passed ([`super::behind`]).

use super::behind::{Behind, PIECE_PAGES, Piece, first_of};
use super::pages::{Along, Pages};
use crate::evict::Evict;
use crate::frames::Frame;

/// Frames that are looked at for one that has been in DRAM for long: there may be several times as many that are not.
const DRAWS_MAX: u32 = 128;

impl Behind {
    /// A page that was below is used for the first time since it came to DRAM.
    pub fn used<E: Evict>(&mut self, page: u64, pages: &mut Pages<E>, along: &mut Along<'_>) {
        self.duels.used(page);
        let passed = self.streams.used(page);
        passed.into_iter().for_each(|piece| self.add(piece));
        while let Some((piece, has_duel)) = self.next(pages.room.dram_pages) {
            if has_duel {
                self.duel(piece, pages, along);
            }
            if self.duels.is_dropping() {
                drop_behind(piece, pages, along);
                self.clear(pages, along);
            }
        }
    }

    fn duel<E: Evict>(&mut self, piece: Piece, pages: &mut Pages<E>, along: &mut Along<'_>) {
        let Some(passed) = piece.used_pages().find(|page| pages.may_leave(*page)) else { return };
        let Some(held) = self.draw(pages, along) else { return };
        // Without the other page the passed one would leave for nothing.
        if pages.send_away(held, along) && pages.send_away(passed, along) {
            self.duels.begin(passed, held);
            pages.counts.probed += 2;
        }
    }

    /// A page drawn from those that have been in DRAM for long.
    fn draw<E: Evict>(&self, pages: &Pages<E>, along: &mut Along<'_>) -> Option<u64> {
        let frames = u64::from(pages.map.frames());
        (0..DRAWS_MAX).find_map(|_| {
            let frame = Frame(along.rng.below(frames.max(1)) as u32);
            let page = pages.map.page_of(frame);
            (self.is_old(frame, pages.room.dram_pages) && pages.may_leave(page)).then_some(page)
        })
    }

    /// Makes room once for what comes next: as much as is dropped comes again, so that it stays.
    fn clear<E: Evict>(&self, pages: &mut Pages<E>, along: &mut Along<'_>) {
        if !pages.room.is_crowded(pages.used_pages()) {
            return;
        }
        let Some(page) = self.draw(pages, along) else { return };
        let first = first_of(page);
        for page in first..first.saturating_add(PIECE_PAGES) {
            pages.counts.dropped_behind += u64::from(pages.send_away(page, along));
        }
    }
}

fn drop_behind<E: Evict>(piece: Piece, pages: &mut Pages<E>, along: &mut Along<'_>) {
    for page in piece.used_pages() {
        // Room is used before anything is dropped.
        if !pages.is_full() {
            return;
        }
        pages.counts.dropped_behind += u64::from(pages.send_away(page, along));
    }
}
