//! Checkpoints: images of pages are written to their places, so that the log's old end can be used again.
//!
//! A round takes the pages that wait longest, as they are, announces their images in the log ([`Record::Page`]) and holds them back
//! until the log is sealed up to there: an image never says what power loss could take back. Then they are written, each over the
//! older of its two images; then synced; then the superblock says where the log begins now; and when that is synced, the space
//! before is free. The announcement tells recovery that a place may be torn; any other image that is not sound is damage.
//!
//! **Room.** Each page that is not clean costs one announcement and a share of the round's batches. That much is always set aside
//! ([`Journal::has_room`]), so a full log can be emptied without anything new being let in. Where the table is larger than the memory
//! for it, pages that are not clean are no more than half of what that holds: they cannot go.

use std::collections::VecDeque;

use tiermem_tier::block::{AlignedBuffer, Request};

use super::checkpoint_progress::Round;
use super::page::PAGE_BYTES;
use super::record::Record;
use super::superblock::{Superblock, Tail};
use super::{Journal, Lsn, PAGE_TOKEN, SUPERBLOCK_TOKEN};

/// Pages of a round.
const ROUND_PAGES: usize = 512;
/// Writes of images in flight.
const WRITES_MAX: usize = 64;
/// Bytes of log that emptying it needs for each page: the announcement, and a round's few batches shared by its pages.
const PAGE_COST_BYTES: u64 = 64;
/// Bytes of log that emptying it needs whatever there is.
const ROUND_COST_BYTES: u64 = 64 << 10;

impl Journal {
    /// Whether the engine may begin new work. Where it is false it finishes what it has begun, which may append records of up to 1/32
    /// of the log, and asks again after more completions.
    pub fn has_room(&self) -> bool {
        let pages = self.table.dirty_pages() + self.round_pages;
        self.needed_bytes() < self.layout.log_bytes / 16 * 13 && pages <= self.table.dirty_pages_max()
    }

    /// Bytes of the log that are used or set aside for emptying it.
    fn needed_bytes(&self) -> u64 {
        let pages = (self.table.dirty_pages() + self.round_pages) as u64;
        let volumes = 2 * self.volumes.record_bytes(None);
        self.ring.used_bytes() + pages * PAGE_COST_BYTES + ROUND_COST_BYTES + volumes
    }

    fn is_round_due(&self) -> bool {
        let used = self.ring.used_bytes() + self.table.dirty_pages() as u64 * PAGE_COST_BYTES;
        let is_due = self.checkpoint_wanted
            || used > self.layout.log_bytes / 4
            || self.table.dirty_pages() > self.table.dirty_pages_max() / 2;
        is_due && !self.table.waits_for_dirty()
    }

    /// Asks for a round, whether it is due or not.
    pub fn want_checkpoint(&mut self) {
        self.checkpoint_wanted = true;
    }

    /// Whether no checkpoint is asked for or under way.
    pub fn is_checkpointed(&self) -> bool {
        !self.checkpoint_wanted && matches!(self.round, Round::Idle)
    }

    /// The sync that a checkpoint waits for.
    pub(super) fn checkpoint_sync(&self) -> u64 {
        match self.round {
            Round::Synced { sync } | Round::Freed { sync, .. } => sync,
            _ => 0,
        }
    }

    /// Does what can be done now.
    pub(super) fn advance_checkpoint(&mut self, out: &mut Vec<Request>) {
        loop {
            match std::mem::take(&mut self.round) {
                Round::Idle if self.is_round_due() => self.begin_round(),
                Round::Sealed { images, upto } if self.sealed >= upto => {
                    self.round = Round::Written { images, in_flight: 0 };
                }
                Round::Written { mut images, mut in_flight } => {
                    while in_flight < WRITES_MAX
                        && let Some((page, version, image)) = images.pop_front()
                    {
                        let at = self.layout.page_at(page, version);
                        out.push(Request::write(PAGE_TOKEN | u64::from(page), at, image));
                        in_flight += 1;
                    }
                    let is_written = in_flight == 0;
                    self.round = match is_written {
                        true => Round::Synced { sync: self.syncs_begun + 1 },
                        false => Round::Written { images, in_flight },
                    };
                    if !is_written {
                        return;
                    }
                }
                Round::Synced { sync } if self.syncs_done >= sync || self.round_pages == 0 => {
                    self.round_pages = 0;
                    let tail = self.wanted_tail();
                    if tail == self.superblock.tail {
                        // Nothing is freed, and nobody calls again for pages that are left.
                        if self.table.dirty_pages() > 0 {
                            continue;
                        }
                        return;
                    }
                    self.superblock.epoch += 1;
                    self.superblock.tail = tail;
                    let mut block = AlignedBuffer::zeroed(PAGE_BYTES);
                    self.superblock.write(&mut block);
                    let at = Superblock::at(self.superblock.epoch);
                    out.push(Request::write(SUPERBLOCK_TOKEN, at, block));
                    self.round = Round::Superblock { tail };
                    return;
                }
                Round::Freed { tail, sync } if self.syncs_done >= sync => {
                    self.ring.free_before(&tail);
                    self.stats.checkpoints += 1;
                }
                waiting => {
                    self.round = waiting;
                    return;
                }
            }
        }
    }

    fn begin_round(&mut self) {
        self.checkpoint_wanted = false;
        let includes = self.appended;
        let mut images = VecDeque::new();
        while images.len() < ROUND_PAGES
            && !self.table.waits_for_dirty()
            && let Some((page, since)) = self.table.take_dirty()
        {
            let mut image = AlignedBuffer::zeroed(PAGE_BYTES);
            let version = self.table.capture(page, &self.superblock.uuid, includes, &mut image);
            images.push_back((page, version, image));
            self.append(Record::Page { page, version, since: since.0 });
        }
        // Volumes whose records would keep the log's end where it is.
        let end = self.table.oldest().unwrap_or(Lsn(includes.0 + 1));
        for volume in self.volumes.older(end) {
            self.append(Record::Volume(&volume));
        }
        self.round_pages = images.len();
        let upto = self.appended;
        self.want_sealed(upto);
        self.round = Round::Sealed { images, upto };
    }

    /// Where the log can begin when the pages of the round are on the device.
    fn wanted_tail(&self) -> Tail {
        let keep = [self.table.oldest(), self.volumes.oldest()].into_iter().flatten().min();
        self.ring.tail_for(keep.unwrap_or(Lsn(u64::MAX)), self.sequence_synced)
    }

    /// A page or the superblock is written.
    pub(super) fn checkpoint_written(&mut self, token: u64) {
        match &mut self.round {
            Round::Written { in_flight, .. } if token & PAGE_TOKEN == PAGE_TOKEN => {
                *in_flight -= 1;
                self.table.written((token & !PAGE_TOKEN) as u32);
                self.stats.pages_written += 1;
            }
            Round::Superblock { tail } if token == SUPERBLOCK_TOKEN => {
                self.round = Round::Freed { tail: *tail, sync: self.syncs_begun + 1 };
            }
            _ => (),
        }
    }
}
