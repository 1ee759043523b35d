//! Emptying a victim: it is read whole, and item by item survives in another segment or goes.

use tiermem_base::Rng;
use tiermem_policy::index::{Found, Index};
use tiermem_policy::log::{SEGMENT_HEADER_BYTES, Stream, Walk};
use tiermem_sys::aligned::AlignedBuffer;

use super::announce::Emptied;
use super::checkpoint::Checkpoint;
use super::filling::Filling;
use super::format::{BLOCK_BYTES, ITEM_HEADER_BYTES, ItemHeader, find_item};
use super::{Flash, Gone, Offered, Purpose};
use crate::block::Request;

/// Index entries looked at in one piece of work, where a segment could not be read.
const SWEEP: usize = 512;

#[derive(Debug)]
enum Stage {
    /// Its own bytes are not all on the device yet.
    Waiting,
    Reading,
    Walking(AlignedBuffer),
    /// What the walk did not find leaves the index, from this position of it on.
    Sweeping {
        from: u64,
    },
}

/// The victim at hand.
#[derive(Debug)]
pub struct Emptying {
    walk: Walk,
    stage: Stage,
}

impl Emptying {
    /// Takes the segment's bytes; `None`: they could not be read.
    pub fn arrived(&mut self, bytes: Option<AlignedBuffer>) {
        self.stage = match bytes {
            Some(bytes) => Stage::Walking(bytes),
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
                Emptying { walk: Walk::new(segment, sequence), stage: Stage::Waiting }
            }
        };
        let done = match &mut victim.stage {
            Stage::Waiting if self.is_filling(victim.walk.segment) => false,
            Stage::Waiting => {
                victim.stage = Stage::Reading;
                let buffer = AlignedBuffer::zeroed(self.layout.segment_bytes as usize);
                let offset = self.layout.segment(victim.walk.segment);
                self.requests.push(Request::read(Purpose::Victim.token(), offset, buffer));
                false
            }
            Stage::Reading => false,
            Stage::Walking(bytes) => {
                let bytes = std::mem::take(bytes);
                let walk = &mut victim.walk;
                let end = self.log.used_in(walk.segment).min(bytes.len() as u32);
                walk.begin(self.is_choked());
                while let Some(at) = walk.next_place(end) {
                    if !self.deal_with(index, walk, &bytes[..end as usize], at as usize, now_ms, gone) {
                        break;
                    }
                }
                let walked = walk.is_over(end);
                let left = self.log.live_in(walk.segment) > 0;
                victim.stage = match walked {
                    true if left => Stage::Sweeping { from: 0 },
                    _ => Stage::Walking(bytes),
                };
                walked && !left
            }
            Stage::Sweeping { from } => match self.sweep(index, victim.walk.segment, *from, gone) {
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
        self.emptied.push(Emptied { segment: victim.walk.segment, appended: self.appended, announced: None });
    }

    pub(super) fn is_filling(&self, segment: u32) -> bool {
        self.fillings.iter().any(|filling: &Filling| filling.segment == segment)
    }

    /// Deals with what stands at byte `at`; `false`: it is to survive, and there is no space for it now.
    fn deal_with(
        &mut self,
        index: &mut Index,
        walk: &mut Walk,
        bytes: &[u8],
        at: usize,
        now_ms: u64,
        gone: &mut Vec<Gone>,
    ) -> bool {
        let Some(header) = ItemHeader::read(&bytes[at..], walk.sequence) else {
            walk.skip();
            return true;
        };
        let len = header.item_len();
        let block = at / BLOCK_BYTES * BLOCK_BYTES;
        let page =
            self.layout.segment_bytes / BLOCK_BYTES as u32 * walk.segment + (block / BLOCK_BYTES) as u32;
        let place = index.find_log(header.hash).filter(|place| place.page() == page);
        // A later version of the key may begin in the same block; then this one is buried.
        let first = if block == 0 { SEGMENT_HEADER_BYTES as usize } else { 0 };
        let latest = place.and_then(|_| find_item(&bytes[block..], first, header.hash, header.sequence));
        let (Some(place), Some((latest, _))) = (place, latest) else {
            walk.pass(len as u32);
            return true;
        };
        if block + latest != at {
            walk.pass(len as u32);
            return true;
        }
        let flushed = self.is_flushed(&header);
        let expired = header.expires_at_ms != 0 && header.expires_at_ms <= now_ms;
        let heat = match flushed || expired {
            true => None,
            false => self.log.keeps(place, len as u32, walk.kept_bytes, self.is_stuck()),
        };
        let Some(heat) = heat else {
            self.forget(index, header.hash, header.db);
            if !flushed {
                gone.push(Gone { hash: header.hash, db: Some(header.db), expired });
            }
            walk.pass(len as u32);
            return true;
        };
        let key_and_value = &bytes[at + ITEM_HEADER_BYTES..at + len];
        let Some(old) = self.append(index, Stream::Kept, header, key_and_value, heat) else { return false };
        old.into_iter().for_each(|old| self.log.forget(old));
        walk.kept_bytes += len as u32;
        walk.pass(len as u32);
        true
    }

    /// Whether no segment becomes free before this victim does: survivors that find no space would wait for ever. A restart
    /// can begin like this.
    fn is_stuck(&self) -> bool {
        self.emptied.is_empty() && self.checkpoint.as_ref().is_none_or(Checkpoint::is_starved)
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
            gone.push(Gone { hash, db: None, expired: false });
        }
        next
    }
}

/// For callers that only ask whether an offer was taken.
impl Offered {
    /// Whether the item lies on flash now.
    pub fn is_taken(self) -> bool {
        self == Offered::Taken
    }
}
