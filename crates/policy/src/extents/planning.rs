//! Planning of a request: which blocks it has, and which it is to get.

use std::ops::Range;

use crate::evict::Evict;

use super::blocks::NoRoom;
use super::draft::{Draft, Extent};
use super::eviction::Eviction;
use super::plan::{Plan, Request, Verdict};
use super::sizing::{Around, divide};
use super::table::Block;
use super::{Extents, Fill, Mode, Service};

fn overlaps(block: &Block, pieces: &Range<u64>) -> bool {
    block.piece < pieces.end && block.end() > pieces.start
}

/// A plan speaks of a block from now on.
fn hold<O: Evict>(eviction: &mut Eviction<O>, slot: u32, plan: &mut Plan) {
    eviction.hold(slot);
    plan.pins.push(slot);
}

impl<O: Evict> Extents<O> {
    /// The bytes of its volume that a write in write-back mode may make dirty, at most.
    pub(super) fn written_range(&self, request: &Request) -> Range<u64> {
        let end = request.end();
        match self.fill {
            Fill::Units => request.offset..end,
            Fill::Whole => {
                let block = self.geometry().group_bytes();
                request.offset / block * block..end.next_multiple_of(block)
            }
        }
    }

    /// Whether the misses of a request get no place.
    fn turns_away(&mut self, request: &Request, pieces: &Range<u64>) -> bool {
        if self.admission.is_open() {
            return false;
        }
        self.map.cover(request.volume, pieces.clone(), &mut self.found);
        let mut at = pieces.start;
        let blocks =
            self.found.iter().map(|block| (block.piece, block.end())).chain([(pieces.end, pieces.end)]);
        let missing = blocks.map(|(piece, end)| std::mem::replace(&mut at, end)..piece);
        let unworthy = self.admission.bypass(request, missing);
        unworthy && !self.map.space().can_open(self.map.shares().of(request.volume))
    }

    /// Plans a request, and notes the plan as carried out; see [`Plan`] and [`Verdict`].
    pub fn plan(&mut self, request: &Request, plan: &mut Plan) -> Verdict {
        plan.clear();
        let first = !std::mem::take(&mut plan.again);
        let pieces = self.map.pieces_of(&(request.offset..request.end()));
        plan.bypassed =
            request.bypass || if first { self.turns_away(request, &pieces) } else { plan.bypassed };
        let bypass = plan.bypassed || self.service != Service::Whole;
        let request = &Request { bypass, ..*request };
        if first {
            plan.spares_dirty = false;
            if !request.bypass && request.write != Some(Mode::WriteAround) {
                self.sizer.note(request);
            }
            self.eviction.tick();
            plan.allocated_blocks = 0;
            plan.allocated_bytes = 0;
        }
        let rule = self.sizer.rule(request.volume);
        let around = match request.write {
            _ if request.bypass => pieces.clone(),
            Some(Mode::WriteAround) => pieces.clone(),
            write => rule.widen(self.geometry(), write.is_some(), pieces.clone()),
        };
        self.map.cover(request.volume, around.clone(), &mut self.found);
        if first {
            plan.hit = self.is_hit(request, &pieces);
        }
        let verdict = if request.write == Some(Mode::WriteAround) {
            let Extents { map, units, fill, service, .. } = self;
            let verdict =
                Draft { map, units, fill: *fill, service: *service, rule, request, plan }.around(&self.found);
            if verdict == Verdict::Ready {
                self.found.iter().for_each(|block| hold(&mut self.eviction, block.slot, plan));
            }
            verdict
        } else {
            self.plan_cached(request, &pieces, &around, rule, plan, first)
        };
        if verdict != Verdict::Ready {
            self.finish(plan);
        }
        verdict
    }

    /// Notes that a plan was carried out, or that what failed of it was said to [`super::Units::invalidate`]. Its blocks go that lie
    /// where nothing is to lie any more.
    pub fn finish(&mut self, plan: &mut Plan) {
        for slot in plan.pins.drain(..) {
            self.eviction.let_go(slot);
            self.leave_retired(slot);
        }
    }

    fn is_hit(&self, request: &Request, pieces: &Range<u64>) -> bool {
        let mut at = pieces.start;
        for block in &self.found {
            if block.end() <= pieces.start {
                continue;
            }
            if block.piece > at {
                return false;
            }
            if block.piece >= pieces.end {
                break;
            }
            let extent = Extent::of(&self.map, request, block);
            if request.write.is_none() && !self.units.valid().all(extent.asked) {
                return false;
            }
            at = block.end();
        }
        at >= pieces.end
    }

    /// Plans a request through the cache: its misses get blocks, as far as room can be made for them.
    fn plan_cached(
        &mut self,
        request: &Request,
        pieces: &Range<u64>,
        around: &Range<u64>,
        rule: Around,
        plan: &mut Plan,
        first: bool,
    ) -> Verdict {
        if first {
            plan.missing.clear();
        }
        self.find_wanted(request, pieces, around, plan, first);
        // Units around the request do not concern it.
        self.found.retain(|block| {
            overlaps(block, pieces) || plan.missing.iter().any(|missing| overlaps(block, missing))
        });
        let write = request.write.is_some();
        for block in &self.found {
            hold(&mut self.eviction, block.slot, plan);
            if first {
                self.eviction.used(block.slot, self.map.share_at(block.slot), write);
            }
        }
        for at in 0..self.wanted.len() {
            let (piece, class) = self.wanted[at];
            match self.allocate(request.volume, piece, class, write, plan.spares_dirty) {
                Ok(block) => {
                    hold(&mut self.eviction, block.slot, plan);
                    plan.allocated_blocks += 1;
                    plan.allocated_bytes += self.geometry().class_bytes(class);
                    self.found.push(block);
                }
                Err(NoRoom::Dirty { group, slot }) => {
                    for begin in self.map.begins_in(group) {
                        if slot.is_none_or(|slot| slot == begin) {
                            self.name_dirty(begin, &mut plan.clean, &mut plan.clean_volumes);
                        }
                    }
                    return Verdict::Clean;
                }
                Err(NoRoom::Busy)
                    if request.write == Some(Mode::WriteBack)
                        && self.eviction.is_held_beyond(plan.pins.len()) =>
                {
                    return Verdict::Busy;
                }
                // It goes past the cache.
                Err(NoRoom::Busy) => break,
            }
        }
        self.found.sort_unstable_by_key(|block| block.piece);
        let Extents { map, units, fill, service, .. } = self;
        Draft { map, units, fill: *fill, service: *service, rule, request, plan }.through(&self.found);
        Verdict::Ready
    }

    /// Finds the blocks that a request is to get: those that it misses, and, where it was looked at before, the blocks of its
    /// neighbourhood that it has not got yet.
    fn find_wanted(
        &mut self,
        request: &Request,
        pieces: &Range<u64>,
        around: &Range<u64>,
        plan: &mut Plan,
        first: bool,
    ) {
        let (geometry, wanted) = (self.map.geometry(), &mut self.wanted);
        wanted.clear();
        let mut at = around.start;
        let ends = self.found.iter().map(|block| (block.piece, block.end()));
        for (piece, end) in ends.chain([(around.end, around.end)]) {
            let gap = at..piece.max(at);
            at = at.max(end);
            let mut want = |gap| divide(geometry, gap, |piece, class| wanted.push((piece, class)));
            if gap.is_empty() || request.bypass {
                continue;
            }
            if gap.start < pieces.end && gap.end > pieces.start {
                want(gap.clone());
                if first {
                    plan.missing.push(gap);
                }
            } else if !first {
                // The pieces that it was to get when it was first looked at, and has not got yet.
                for missing in &plan.missing {
                    want(gap.start.max(missing.start)..gap.end.min(missing.end));
                }
            }
        }
    }
}
