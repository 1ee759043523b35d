//! Sweeps: what to do with pages that were passed ([`super::behind`]).

use super::behind::{PIECE_PAGES, Piece, first_of};
use super::machine::{Along, Paging};
use crate::evict::Evict;
use crate::frames::Frame;

/// Frames that are looked at for one that has been in DRAM for long: there may be several times as many that are not.
const DRAWS_MAX: u32 = 128;

impl<E: Evict> Paging<E> {
    /// The page is used for the first time since it came to DRAM; whether it was below before.
    pub(super) fn came(&mut self, frame: Frame, page: u64, was_below: bool, along: &mut Along<'_>) {
        if !self.config.drop_behind {
            return;
        }
        self.behind.came(frame);
        if self.planned.path_of(page).is_some_and(|path| path.is_followed()) {
            return self.pass_by_plan(page, along);
        }
        if !was_below {
            return;
        }
        self.behind.duels.used(page);
        let passed = self.behind.streams.used(page);
        passed.into_iter().for_each(|piece| self.behind.add(piece));
        while let Some((piece, has_duel)) = self.behind.next(self.room.dram_pages) {
            if has_duel {
                self.duel(piece, along);
            }
            if self.behind.duels.is_dropping() {
                self.drop_behind(piece, along);
                self.clear(along);
            }
        }
    }

    fn duel(&mut self, piece: Piece, along: &mut Along<'_>) {
        let Some(passed) = piece.used_pages().find(|page| self.may_leave(*page)) else { return };
        let Some(held) = self.draw(along) else { return };
        if self.send_away(passed, along) && self.send_away(held, along) {
            self.behind.duels.begin(passed, held);
            self.counts.probed += 2;
        }
    }

    /// A page drawn from those that have been in DRAM for long.
    fn draw(&mut self, along: &mut Along<'_>) -> Option<u64> {
        let frames = u64::from(self.map.frames());
        (0..DRAWS_MAX).find_map(|_| {
            let frame = Frame(along.rng.below(frames.max(1)) as u32);
            let page = self.map.page_of(frame);
            (self.behind.is_old(frame, self.room.dram_pages) && self.may_leave(page)).then_some(page)
        })
    }

    fn drop_behind(&mut self, piece: Piece, along: &mut Along<'_>) {
        for page in piece.used_pages() {
            // Room is used before anything is dropped.
            if !self.room.is_full(self.frames.space().used(0)) {
                return;
            }
            self.counts.dropped_behind += u64::from(self.may_leave(page) && self.send_away(page, along));
        }
    }

    /// Makes room once for what comes next: as much as is dropped comes again, so that it stays.
    fn clear(&mut self, along: &mut Along<'_>) {
        if !self.room.is_crowded(self.frames.space().used(0)) {
            return;
        }
        let Some(page) = self.draw(along) else { return };
        let first = first_of(page);
        for page in first..first.saturating_add(PIECE_PAGES) {
            self.counts.dropped_behind += u64::from(self.may_leave(page) && self.send_away(page, along));
        }
    }

    fn may_leave(&self, page: u64) -> bool {
        let view = self.map.find(page).map(|frame| self.frames.view(frame));
        view.is_some_and(|view| view.may_leave())
    }

    fn send_away(&mut self, page: u64, along: &mut Along<'_>) -> bool {
        let sent = self
            .map
            .find(page)
            .and_then(|frame| self.frames.send_down(frame, along.now, along.rng, &mut self.frame_acts));
        if sent.is_some() {
            self.room.has_left();
        }
        sent.is_some()
    }
}
