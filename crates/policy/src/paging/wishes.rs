//! Wishes of the prefetcher: sent for where there is room, or waiting for it.

use super::machine::Paging;
use super::pages::Along;
use crate::evict::Evict;
use crate::frames::Wish;
use crate::moves::{Outcome, Ticket};
use crate::prefetch::Prefetch;

/// Wishes that can wait: two windows of the prefetcher that wishes for most at a time. More wait only where the driver settles nothing.
const WISHES_MAX: usize = 2048;

impl<E: Evict> Paging<E> {
    /// Sends for what the prefetcher has just wished for, after the wishes that wait; or once the move has ended that makes room
    /// for the page that faulted, as the page that leaves may be wished for.
    pub(super) fn wish(&mut self, room: Option<Ticket>, along: &mut Along<'_>) {
        let ahead = &mut self.ahead;
        ahead.wishes.extend(ahead.wanted.drain(..));
        // The oldest are the least likely to be in time.
        ahead.wishes.drain(..ahead.wishes.len().saturating_sub(WISHES_MAX));
        ahead.waits_for = room;
        if room.is_none() {
            self.send_for_wishes(along);
        }
    }

    /// A move has ended, so that there may be room for wishes that wait. One that waited for it is given up where nothing has
    /// moved, so that a driver whose every move is refused is not asked for ever.
    pub(super) fn go_on_wishing(&mut self, ended: Ticket, outcome: Outcome, along: &mut Along<'_>) {
        if self.ahead.waits_for == Some(ended) {
            self.ahead.waits_for = None;
            if outcome != Outcome::Done {
                self.ahead.wishes.pop_front();
            }
        }
        if self.ahead.waits_for.is_none() {
            self.send_for_wishes(along);
        }
    }

    fn send_for_wishes(&mut self, along: &mut Along<'_>) {
        // Where room is made for each wish, the next one must see where the one before entered the order.
        let one_by_one = self.pages.frames.watermarks(self.pages.turnover_tier).0 == 0;
        while let Some(page) = self.ahead.wishes.pop_front() {
            let frame = match self.pages.map.get(page) {
                None if self.pages.stored.holds(page) => self.give(page, along.now),
                known => known,
            };
            let Some(frame) = frame else { continue };
            let insertion = self.ahead.prefetcher.insertion();
            match self.pages.frames.prefetch(frame, insertion, along.now, along.rng, &mut self.pages.acts) {
                Wish::Sent(ticket) => {
                    self.pages.counts.prefetched += 1;
                    self.pages.has_come();
                    self.ahead.prefetcher.issued(page);
                    if one_by_one {
                        self.ahead.waits_for = Some(ticket);
                        break;
                    }
                }
                Wish::Room(ticket) => {
                    self.ahead.wishes.push_front(page);
                    self.ahead.waits_for = Some(ticket);
                    break;
                }
                Wish::AfterStep => {
                    self.ahead.wishes.push_front(page);
                    break;
                }
                Wish::No => {}
            }
        }
    }
}
