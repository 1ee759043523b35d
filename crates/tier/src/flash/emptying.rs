//! Emptying a victim: it is read whole, and item by item survives in another segment or goes.

use tiermem_base::Rng;
use tiermem_policy::index::{Found, Index};
use tiermem_policy::log::{SEGMENT_HEADER_BYTES, Stream};
use tiermem_sys::aligned::AlignedBuffer;

use super::filling::Filling;
use super::format::{BLOCK_BYTES, ITEM_HEADER_BYTES, ItemHeader, find_item};
use super::{Flash, Gone, Offered, Purpose};
use crate::block::Request;

/// Items looked at in one piece of work, and in one while writers wait.
const ITEMS: usize = 64;
const ITEMS_CHOKED: usize = 512;
/// Index entries looked at in one piece of work, where a segment could not be read.
const SWEEP: usize = 512;

#[derive(Debug)]
enum Stage {
    /// Its own bytes are not all on the device yet.
    Waiting,
    Reading,
    /// Items before this byte are dealt with.
    Walking {
        bytes: AlignedBuffer,
        at: usize,
    },
    /// What the walk did not find leaves the index, from this position of it on.
    Sweeping {
        from: u64,
    },
}

/// The victim at hand.
#[derive(Debug)]
pub struct Emptying {
    segment: u32,
    sequence: u32,
    kept_bytes: u32,
    stage: Stage,
}

impl Emptying {
    /// Takes the segment's bytes; `None`: they could not be read.
    pub fn arrived(&mut self, bytes: Option<AlignedBuffer>) {
        self.stage = match bytes {
            Some(bytes) => Stage::Walking { bytes, at: SEGMENT_HEADER_BYTES as usize },
            None => Stage::Sweeping { from: 0 },
        };
    }
}

impl Flash {
    /// A piece of the work of emptying segments, if there is any.
    pub(super) fn empty(&mut self, index: &mut Index, now_ms: u64, rng: &mut Rng, gone: &mut Vec<Gone>) {
        let mut victim = match self.emptying.take() {
            Some(victim) => victim,
            None => {
                let Some(segment) = self.log.victim(rng) else { return };
                if self.log.live_in(segment) == 0 && !self.is_filling(segment) {
                    return self.log.emptied(segment);
                }
                let sequence = self.log.sequence(segment);
                Emptying { segment, sequence, kept_bytes: 0, stage: Stage::Waiting }
            }
        };
        let mut budget = if self.is_choked() { ITEMS_CHOKED } else { ITEMS };
        let done = match &mut victim.stage {
            Stage::Waiting if self.is_filling(victim.segment) => false,
            Stage::Waiting => {
                victim.stage = Stage::Reading;
                let buffer = AlignedBuffer::zeroed(self.layout.segment_bytes as usize);
                let offset = self.layout.segment(victim.segment);
                self.requests.push(Request::read(Purpose::Victim.token(), offset, buffer));
                false
            }
            Stage::Reading => false,
            Stage::Walking { bytes, at } => {
                let bytes = std::mem::take(bytes);
                let mut at = *at;
                let end = (self.log.used_in(victim.segment) as usize).min(bytes.len());
                let mut walked = false;
                while budget > 0 && !walked {
                    budget -= 1;
                    match self.walk(index, &mut victim, &bytes[..end], at, now_ms, gone) {
                        Walk::On(next) => at = next,
                        Walk::Stuck => break,
                        Walk::End => walked = true,
                    }
                }
                let left = self.log.live_in(victim.segment) > 0;
                victim.stage = match walked {
                    true if left => Stage::Sweeping { from: 0 },
                    _ => Stage::Walking { bytes, at },
                };
                walked && !left
            }
            Stage::Sweeping { from } => match self.sweep(index, victim.segment, *from, gone) {
                Some(next) => {
                    *from = next;
                    false
                }
                None => true,
            },
        };
        if !done {
            self.emptying = Some(victim);
            return;
        }
        // Survivors must be safe before what they came from is overwritten.
        self.flush_stream(Stream::Kept);
        self.emptied.push((victim.segment, self.appended));
    }

    fn is_filling(&self, segment: u32) -> bool {
        self.fillings.iter().any(|filling: &Filling| filling.segment == segment)
    }

    /// Deals with the item at byte `at`.
    fn walk(
        &mut self,
        index: &mut Index,
        victim: &mut Emptying,
        bytes: &[u8],
        at: usize,
        now_ms: u64,
        gone: &mut Vec<Gone>,
    ) -> Walk {
        if at + ITEM_HEADER_BYTES > bytes.len() {
            return Walk::End;
        }
        let next_block = Walk::On((at + 1).next_multiple_of(BLOCK_BYTES));
        let Some(header) = ItemHeader::read(&bytes[at..]).filter(|it| it.sequence == victim.sequence) else {
            // Filled up to the block's end, or damaged: items that begin in the next block are found there.
            return next_block;
        };
        let len = header.item_len();
        let next = Walk::On((at + len).next_multiple_of(8));
        let block = at / BLOCK_BYTES * BLOCK_BYTES;
        let page =
            self.layout.segment_bytes / BLOCK_BYTES as u32 * victim.segment + (block / BLOCK_BYTES) as u32;
        let Some(place) = index.find_log(header.hash).filter(|place| place.page() == page) else {
            return next;
        };
        // A later version of the key may begin in the same block; then this one is dead.
        let first = if block == 0 { SEGMENT_HEADER_BYTES as usize } else { 0 };
        let latest = find_item(&bytes[block..], first, header.hash, header.sequence);
        if latest.is_none_or(|(latest, _)| block + latest != at) {
            return next;
        }
        let flushed = self.is_flushed(&header);
        let expired = header.expires_at_ms != 0 && header.expires_at_ms <= now_ms;
        let heat = match flushed || expired {
            true => None,
            false => self.log.keeps(place, len as u32, victim.kept_bytes),
        };
        let Some(heat) = heat else {
            self.forget(index, header.hash, header.db);
            if !flushed {
                gone.push(Gone { db: Some(header.db), expired });
            }
            return next;
        };
        let key_and_value = &bytes[at + ITEM_HEADER_BYTES..at + len];
        match self.append(index, Stream::Kept, header, key_and_value, heat) {
            Some(old) => {
                old.into_iter().for_each(|old| self.log.forget(old));
                victim.kept_bytes += len as u32;
                next
            }
            None => Walk::Stuck,
        }
    }

    /// Takes entries that name a place in `segment` out of the index: their items could not be read. Returns where to go on.
    fn sweep(&mut self, index: &mut Index, segment: u32, from: u64, gone: &mut Vec<Gone>) -> Option<u64> {
        let mut lost = Vec::new();
        let next = index.scan(from, SWEEP, |hash, found| {
            if let Found::Log(place) = found
                && self.log.segment_of(place.page()) == segment
            {
                lost.push(hash);
            }
        });
        for hash in lost {
            // Whose database it was nobody can read any more.
            let db = (0..self.items.len()).max_by_key(|&db| self.items[db]).unwrap_or(0) as u8;
            self.forget(index, hash, db);
            self.stats.lost_items += 1;
            gone.push(Gone { db: None, expired: false });
        }
        next
    }
}

enum Walk {
    /// Go on at this byte.
    On(usize),
    /// There is no space for a survivor now.
    Stuck,
    End,
}

/// For callers that only ask whether an offer was taken.
impl Offered {
    /// Whether the item lies on flash now.
    pub fn is_taken(self) -> bool {
        self == Offered::Taken
    }
}
