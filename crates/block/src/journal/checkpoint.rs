//! Checkpoints: images of pages are written to their places, so that the log's old end can be reused.
//!
//! A round takes the pages that have waited longest, announces their images in the log ([`super::Record::Page`])
//! and holds them back until the log is sealed up to there: an image never contains what power loss could take
//! back. Then the images are written, each over the older of its page's two images, and synced. Then the
//! superblock is written with the log's new begin, and when that is synced, the space before it is free. The
//! announcement tells recovery that a place may be torn; any other image that is not sound is damage.
//!
//! **Room.** Each page that is not clean costs one announcement and a share of the round's batches. That much is always
//! reserved ([`Checkpoint::has_room`]), so a full log can be emptied without taking new records. Where the table is
//! larger than the memory for it, at most half of that memory is for pages that are not clean: they cannot be dropped.

use std::collections::VecDeque;

use tiermem_tier::block::{AlignedBuffer, Request};

use super::log_writer::LogWriter;
use super::page::PAGE_BYTES;
use super::superblock::{Superblock, Tail};
use super::table::Table;
use super::volumes::Volumes;
use super::{Layout, Lsn, PAGE_TOKEN, SUPERBLOCK_TOKEN};

/// Pages of a round.
const ROUND_PAGES: usize = 512;
/// Writes of images in flight.
const WRITES_MAX: usize = 64;
/// Bytes of log that emptying it needs for each page: the announcement, and a round's few batches shared by its pages.
const PAGE_COST_BYTES: u64 = 64;
/// Bytes of log that a round needs in any case.
const ROUND_COST_BYTES: u64 = 64 << 10;

/// A page of a round.
#[derive(Debug)]
pub struct Image {
    /// The page.
    pub page: u32,
    /// The version that is about to be written.
    pub version: u64,
    /// The first record that the image before lacks.
    pub since: Lsn,
    bytes: AlignedBuffer,
}

/// Phase of a checkpoint.
#[derive(Debug, Default)]
enum Round {
    /// Nothing: there is none.
    #[default]
    Idle,
    /// That the log is sealed up to here.
    Sealed { images: VecDeque<Image>, upto: Lsn },
    /// Writes of images.
    Written { images: VecDeque<Image>, in_flight: usize },
    /// A sync of the images: at least that one.
    Synced { sync: u64 },
    /// The write of the superblock.
    Superblock { tail: Tail },
    /// A sync of it: at least that one.
    Freed { tail: Tail, sync: u64 },
}

/// The round under way, if there is one.
#[derive(Debug, Default)]
pub struct Checkpoint {
    round: Round,
    /// Pages with images being written.
    pages: usize,
    is_wanted: bool,
    done: u64,
    pages_written: u64,
}

impl Checkpoint {
    /// Whether there is room for new work beside what emptying the log needs.
    pub fn has_room(&self, layout: &Layout, table: &Table, volumes: &Volumes, log: &LogWriter) -> bool {
        let pages = table.dirty_pages() + self.pages;
        let volumes = 2 * volumes.record_bytes(None);
        // Used, or set aside for emptying it.
        let needed = log.ring().used_bytes() + pages as u64 * PAGE_COST_BYTES + ROUND_COST_BYTES + volumes;
        needed < layout.log_bytes / 16 * 13 && pages <= table.dirty_pages_max()
    }

    /// Asks for a round, whether it is due or not.
    pub fn want(&mut self) {
        self.is_wanted = true;
    }

    /// Whether no round is asked for or under way.
    pub fn is_idle(&self) -> bool {
        !self.is_wanted && matches!(self.round, Round::Idle)
    }

    /// Whether a round is to [begin](Self::take_pages).
    pub fn is_due(&self, layout: &Layout, table: &Table, log: &LogWriter) -> bool {
        if !matches!(self.round, Round::Idle) {
            return false;
        }
        let used = log.ring().used_bytes() + table.dirty_pages() as u64 * PAGE_COST_BYTES;
        let is_due = self.is_wanted
            || used > layout.log_bytes / 4
            || table.dirty_pages() > table.dirty_pages_max() / 2;
        is_due && !table.waits_for_dirty()
    }

    /// Takes the pages of a round, with all records up to `includes`. Each is to be announced in the log; then the round
    /// [begins](Self::begin).
    pub fn take_pages(&mut self, table: &mut Table, uuid: &[u8; 16], includes: Lsn) -> VecDeque<Image> {
        self.is_wanted = false;
        let mut images = VecDeque::new();
        while images.len() < ROUND_PAGES
            && !table.waits_for_dirty()
            && let Some((page, since)) = table.take_dirty()
        {
            let mut bytes = AlignedBuffer::zeroed(PAGE_BYTES);
            let version = table.capture(page, uuid, includes, &mut bytes);
            images.push_back(Image { page, version, since, bytes });
        }
        images
    }

    /// The images are announced up to this record.
    pub fn begin(&mut self, images: VecDeque<Image>, upto: Lsn) {
        debug_assert!(matches!(self.round, Round::Idle), "one round at a time");
        self.pages = images.len();
        self.round = Round::Sealed { images, upto };
    }

    /// The sync that it waits for.
    pub fn wanted_sync(&self) -> u64 {
        match self.round {
            Round::Synced { sync } | Round::Freed { sync, .. } => sync,
            _ => 0,
        }
    }

    /// Whether nothing under way makes room in a log that is full: no round has begun and none waits for a page to be read, or the round
    /// needs a batch itself.
    pub fn is_stuck(&self, table: &Table, seal_built: Lsn) -> bool {
        match self.round {
            Round::Idle => !table.waits_for_dirty(),
            Round::Sealed { upto, .. } => seal_built < upto,
            _ => false,
        }
    }

    /// Does what can be done now; whether the round is over, so that the next one may be due.
    pub fn advance(
        &mut self,
        layout: &Layout,
        (table, volumes): (&Table, &Volumes),
        log: &mut LogWriter,
        superblock: &mut Superblock,
        out: &mut Vec<Request>,
    ) -> bool {
        loop {
            match std::mem::take(&mut self.round) {
                Round::Sealed { images, upto } if log.sealed() >= upto => {
                    self.round = Round::Written { images, in_flight: 0 };
                }
                Round::Written { mut images, mut in_flight } => {
                    while in_flight < WRITES_MAX
                        && let Some(Image { page, version, bytes, .. }) = images.pop_front()
                    {
                        out.push(Request::write(
                            PAGE_TOKEN | u64::from(page),
                            layout.page_at(page, version),
                            bytes,
                        ));
                        in_flight += 1;
                    }
                    if in_flight > 0 {
                        self.round = Round::Written { images, in_flight };
                        return false;
                    }
                    self.round = Round::Synced { sync: log.syncs().begun + 1 };
                }
                Round::Synced { sync } if log.syncs().done >= sync || self.pages == 0 => {
                    self.pages = 0;
                    let tail = wanted_tail(table, volumes, log);
                    if tail == superblock.tail {
                        // Nothing was freed, and no call comes for the pages that are left.
                        return table.dirty_pages() > 0;
                    }
                    superblock.epoch += 1;
                    superblock.tail = tail;
                    let mut block = AlignedBuffer::zeroed(PAGE_BYTES);
                    superblock.write(&mut block);
                    out.push(Request::write(SUPERBLOCK_TOKEN, Superblock::at(superblock.epoch), block));
                    self.round = Round::Superblock { tail };
                    return false;
                }
                Round::Freed { tail, sync } if log.syncs().done >= sync => {
                    log.ring_mut().free_before(&tail);
                    self.done += 1;
                    return true;
                }
                waiting => {
                    self.round = waiting;
                    return false;
                }
            }
        }
    }

    /// A page or the superblock is written; the page, if it is one.
    pub fn written(&mut self, token: u64, log: &LogWriter) -> Option<u32> {
        match &mut self.round {
            Round::Written { in_flight, .. } if token & PAGE_TOKEN == PAGE_TOKEN => {
                *in_flight -= 1;
                self.pages_written += 1;
                Some((token & !PAGE_TOKEN) as u32)
            }
            Round::Superblock { tail } if token == SUPERBLOCK_TOKEN => {
                self.round = Round::Freed { tail: *tail, sync: log.syncs().begun + 1 };
                None
            }
            _ => None,
        }
    }

    /// Pages written by others: by recovery, which does without a round.
    pub fn count_pages(&mut self, pages: u64) {
        self.pages_written += pages;
    }

    /// Rounds that freed space of the log, and images written.
    pub fn counts(&self) -> (u64, u64) {
        (self.done, self.pages_written)
    }
}

/// Where the log can begin when the pages of the round are on the device.
fn wanted_tail(table: &Table, volumes: &Volumes, log: &LogWriter) -> Tail {
    let keep = [table.oldest(), volumes.oldest()].into_iter().flatten().min();
    log.ring().tail_for(keep.unwrap_or(Lsn(u64::MAX)), log.syncs().sequence)
}
