//! What one request needs: which bytes come from the cache, which from the backing store, and which go where.

use std::ops::Range;

use crate::evict::Evict;

use super::geometry::UNIT_BYTES;
use super::sizing::{Around, Sizing, divide};
use super::table::Block;
use super::{Extents, Fill, Mode, NoRoom, Share, Volume, blocks_of, groups_of, slot_of};

/// One request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Of which volume.
    pub volume: Volume,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// How much, in bytes; not 0.
    pub bytes: u64,
    /// `None` reads; otherwise it writes, and goes where this says.
    pub write: Option<Mode>,
    /// What is missing is not worth a place: it is read or written past the cache.
    pub bypass: bool,
}

impl Request {
    fn end(&self) -> u64 {
        self.offset + self.bytes
    }

    /// The units of the volume that it touches.
    pub fn units(&self) -> Range<u64> {
        self.offset / UNIT_BYTES..self.end().div_ceil(UNIT_BYTES)
    }
}

/// A range of a volume, and where in the cache it lies. Whole units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it begins in the volume, in bytes.
    pub offset: u64,
    /// Where it begins in the cache.
    pub at: u64,
    /// How much, in bytes.
    pub bytes: u64,
}

/// Whether a plan can be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It can; say [`Extents::finish`] afterwards.
    Ready,
    /// First [`Plan::clean`] must be written back and be [`super::Units::cleaned`]; then plan again with [`Plan::again`] set. Nothing
    /// is pinned meanwhile. Who will not wait says [`Plan::settle_for_less`] and plans again at once.
    Clean,
    /// Write-back, and no place could be had: all that could go is in use by plans in flight, others than this one. Plan again with
    /// [`Plan::again`] set when one of them is finished. Where none other is in flight the request is larger than what there is, and the
    /// rest of it goes past the cache.
    Busy,
}

/// What is to be done for a request, ranges in whole units and in the order of addresses, neighbours merged.
///
/// A read is answered from `cached` and `fetch`. A write stores its bytes over what it has of `fetch` and `cached`: the units at its
/// ends that it covers in part only.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Set by the driver when it asks again for the same request.
    pub again: bool,
    /// Everything was there: for a read all bytes, for a write the blocks that they go into.
    pub hit: bool,
    /// What was missing got no place, as the request wished or by [`super::admission`].
    pub bypassed: bool,
    /// Read from the cache.
    pub cached: Vec<Part>,
    /// Read from the backing store.
    pub fetch: Vec<Range<u64>>,
    /// Written to the cache, from what was fetched and what the request brings.
    pub fill: Vec<Part>,
    /// The bytes of the request (to the byte) that are written to the backing store at once.
    pub through: Vec<Range<u64>>,
    /// What a write past the cache made invalid there.
    pub dropped: Vec<Part>,
    /// Of what the plan made valid, what was not before: what [`super::Units::invalidate`] is told when the plan fails before
    /// anything was stored.
    pub fresh: Vec<Part>,
    /// What the plan made dirty or left so.
    pub dirtied: Vec<Range<u64>>,
    /// What must be written back before the plan can be made.
    pub clean: Vec<Part>,
    /// The volume that `clean` belongs to, part by part.
    pub clean_volumes: Vec<Volume>,
    /// Blocks that were allocated for this request.
    pub allocated_blocks: u64,
    /// Their bytes.
    pub allocated_bytes: u64,
    /// What is clean goes, though something dirty would go before it.
    spares_dirty: bool,
    /// The blocks that the plan speaks of.
    pins: Vec<u32>,
    /// What was missing when the request was first looked at, in pieces: what it and its neighbourhood are to get, however often it is asked.
    missing: Vec<Range<u64>>,
}

impl Plan {
    /// Has the request planned again without waiting for what is dirty: something clean goes in its place. Where that was tried and
    /// nothing is clean, what has got no place until now gets none.
    pub fn settle_for_less(&mut self, request: &mut Request) {
        self.again = true;
        request.bypass = self.spares_dirty;
        self.spares_dirty = true;
    }

    /// Names nothing any more: it is used again for another request, or for something that has no plan.
    pub fn clear(&mut self) {
        self.cached.clear();
        self.fetch.clear();
        self.fill.clear();
        self.through.clear();
        self.dropped.clear();
        self.fresh.clear();
        self.dirtied.clear();
        self.clean.clear();
        self.clean_volumes.clear();
    }
}

fn push_range(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    match ranges.last_mut() {
        _ if range.is_empty() => (),
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

fn push_part(parts: &mut Vec<Part>, part: Part) {
    match parts.last_mut() {
        Some(last) if last.offset + last.bytes == part.offset && last.at + last.bytes == part.at => {
            last.bytes += part.bytes;
        }
        _ => parts.push(part),
    }
}

fn overlaps(block: &Block, pieces: &Range<u64>) -> bool {
    block.piece < pieces.end && block.end() > pieces.start
}

/// A block of the request at hand, in units of the cache.
struct Extent {
    /// Where it begins in the volume, in bytes.
    offset: u64,
    /// Its units.
    units: Range<u64>,
    /// Those that the request touches.
    asked: Range<u64>,
    /// Those that a write covers as a whole.
    covered: Range<u64>,
}

impl Extent {
    fn part(&self, run: Range<u64>) -> Part {
        let offset = self.offset + (run.start - self.units.start) * UNIT_BYTES;
        Part { offset, at: run.start * UNIT_BYTES, bytes: (run.end - run.start) * UNIT_BYTES }
    }

    fn range(&self, run: Range<u64>) -> Range<u64> {
        let part = self.part(run);
        part.offset..part.offset + part.bytes
    }
}

impl<O: Evict> Extents<O> {
    /// Lets the blocks of these parts, which a verdict named, pass for used just now: they cannot go in the foreseeable future, and what comes
    /// behind them may.
    pub fn pass_over(&mut self, parts: &[Part]) {
        for part in parts {
            if let Some((_, block)) = self.block_of_unit(part.at / UNIT_BYTES) {
                self.touch(block.slot, false);
            }
        }
    }

    /// The bytes of its volume that a write in write-back mode may make dirty, at most.
    pub(super) fn written_range(&self, request: &Request) -> Range<u64> {
        let end = request.end();
        match self.config.fill {
            Fill::Units => request.offset..end,
            Fill::Whole => {
                let block = self.geometry.group_bytes();
                request.offset / block * block..end.next_multiple_of(block)
            }
        }
    }

    /// Decides what a request needs, and notes it as done; see [`Plan`] and [`Verdict`].
    pub fn plan(&mut self, request: &Request, plan: &mut Plan) -> Verdict {
        plan.clear();
        let first = !std::mem::take(&mut plan.again);
        let pieces =
            self.geometry.piece_of(request.offset)..request.end().div_ceil(self.geometry.piece_bytes());
        plan.bypassed =
            request.bypass || if first { self.turns_away(request, &pieces) } else { plan.bypassed };
        let request = &Request { bypass: plan.bypassed, ..*request };
        if first {
            plan.spares_dirty = false;
            if let Some(observer) = &mut self.observer
                && !request.bypass
                && request.write != Some(Mode::WriteAround)
            {
                observer.note(request);
            }
            self.requests += 1;
            plan.allocated_blocks = 0;
            plan.allocated_bytes = 0;
        }
        self.rule = match (self.config.sizing, &self.observer) {
            (Sizing::Around(around), _) => around,
            (_, Some(observer)) => observer.rule(request.volume),
            _ => Around::default(),
        };
        self.spares_dirty = plan.spares_dirty;
        let rule = self.rule;
        let mut found = std::mem::take(&mut self.found);
        let around = match request.write {
            _ if request.bypass => pieces.clone(),
            Some(Mode::WriteAround) => pieces.clone(),
            write => rule.widen(&self.geometry, write.is_some(), pieces.clone()),
        };
        self.table.cover(&self.geometry, &self.space, request.volume, around.clone(), &mut found);
        if first {
            plan.hit = self.is_hit(request, &pieces, &found);
        }
        let verdict = if request.write == Some(Mode::WriteAround) {
            self.plan_around(request, &found, plan)
        } else {
            self.plan_cached(request, &pieces, &around, &mut found, plan, first)
        };
        if verdict != Verdict::Ready {
            self.release(plan);
        }
        self.found = found;
        verdict
    }

    /// Notes that a plan was carried out, or that what failed of it was said to [`super::Units::invalidate`].
    pub fn finish(&mut self, plan: &mut Plan) {
        self.release(plan);
    }

    fn release(&mut self, plan: &mut Plan) {
        for slot in plan.pins.drain(..) {
            self.unpin(slot);
        }
    }

    fn hold(&mut self, block: &Block, plan: &mut Plan) {
        self.pin(block.slot);
        plan.pins.push(block.slot);
    }

    /// Whether plans in flight other than this one hold on to blocks.
    fn are_others_pinned(&self, plan: &Plan) -> bool {
        // A block is pinned under its own number and under its group's.
        self.pinned.values().map(|count| *count as usize).sum::<usize>() > 2 * plan.pins.len()
    }

    fn is_hit(&self, request: &Request, pieces: &Range<u64>, found: &[Block]) -> bool {
        let mut at = pieces.start;
        for block in found {
            if block.end() <= pieces.start {
                continue;
            }
            if block.piece > at {
                return false;
            }
            if block.piece >= pieces.end {
                break;
            }
            let extent = self.extent(request, block);
            if request.write.is_none() && !self.units.valid().all(extent.asked) {
                return false;
            }
            at = block.end();
        }
        at >= pieces.end
    }

    fn extent(&self, request: &Request, block: &Block) -> Extent {
        let offset = block.piece * self.geometry.piece_bytes();
        let units = self.units_of(block);
        // In units from the block's begin on.
        let bound = |at: u64| units.start + at.min(units.end - units.start);
        let asked = bound(request.offset.saturating_sub(offset) / UNIT_BYTES)
            ..bound(request.end().saturating_sub(offset).div_ceil(UNIT_BYTES));
        let start = bound(request.offset.saturating_sub(offset).div_ceil(UNIT_BYTES));
        let covered = start..bound(request.end().saturating_sub(offset) / UNIT_BYTES).max(start);
        Extent { offset, units, asked, covered }
    }

    /// A write past the cache: what is there of it becomes invalid, and is written back before that where it is dirty.
    fn plan_around(&mut self, request: &Request, found: &[Block], plan: &mut Plan) -> Verdict {
        for block in found {
            let extent = self.extent(request, block);
            for run in self.units.dirty().runs(extent.asked.clone(), true) {
                plan.clean.push(extent.part(run));
                plan.clean_volumes.push(request.volume);
            }
        }
        if !plan.clean.is_empty() {
            return Verdict::Clean;
        }
        for block in found {
            let extent = self.extent(request, block);
            for run in self.units.valid().runs(extent.asked.clone(), true) {
                push_part(&mut plan.dropped, extent.part(run));
            }
            self.units.drop_clean(extent.asked);
            self.hold(block, plan);
        }
        push_range(&mut plan.through, request.offset..request.end());
        Verdict::Ready
    }

    fn plan_cached(
        &mut self,
        request: &Request,
        pieces: &Range<u64>,
        around: &Range<u64>,
        found: &mut Vec<Block>,
        plan: &mut Plan,
        first: bool,
    ) -> Verdict {
        if first {
            plan.missing.clear();
        }
        let mut wanted = std::mem::take(&mut self.wanted);
        wanted.clear();
        let mut at = around.start;
        let ends = found.iter().map(|block| (block.piece, block.end())).chain([(around.end, around.end)]);
        for (piece, end) in ends {
            let gap = at..piece.max(at);
            at = at.max(end);
            let mut want = |gap| divide(&self.geometry, gap, |piece, class| wanted.push((piece, class)));
            if gap.is_empty() || request.bypass {
                continue;
            }
            if gap.start < pieces.end && gap.end > pieces.start {
                want(gap.clone());
                if first {
                    plan.missing.push(gap);
                }
            } else if !first {
                // Of what it was to get when it was first looked at, what it has not got yet.
                for missing in &plan.missing {
                    want(gap.start.max(missing.start)..gap.end.min(missing.end));
                }
            }
        }
        // What was there beside the request is none of its business.
        let is_own = |block: &Block| {
            overlaps(block, pieces) || plan.missing.iter().any(|missing| overlaps(block, missing))
        };
        found.retain(is_own);
        for block in found.iter() {
            self.hold(block, plan);
            if first {
                self.touch(block.slot, request.write.is_some());
            }
        }
        let mut verdict = Verdict::Ready;
        for &(piece, class) in &wanted {
            match self.allocate(request.volume, piece, class, request.write.is_some()) {
                Ok(block) => {
                    self.hold(&block, plan);
                    plan.allocated_blocks += 1;
                    plan.allocated_bytes += self.geometry.class_bytes(class);
                    found.push(block);
                }
                Err(NoRoom::Dirty { group, slot }) => {
                    self.name_dirty(group, slot, plan);
                    verdict = Verdict::Clean;
                    break;
                }
                Err(NoRoom::Busy)
                    if request.write == Some(Mode::WriteBack) && self.are_others_pinned(plan) =>
                {
                    verdict = Verdict::Busy;
                    break;
                }
                // It goes past the cache.
                Err(NoRoom::Busy) => break,
            }
        }
        self.wanted = wanted;
        if verdict != Verdict::Ready {
            return verdict;
        }
        found.sort_unstable_by_key(|block| block.piece);
        self.plan_steps(request, found, plan);
        Verdict::Ready
    }

    /// Names the dirty parts of a group, or of one of its blocks.
    fn name_dirty(&self, group: u32, slot: Option<u32>, plan: &mut Plan) {
        for begin in self.space.blocks_of(&self.geometry, group) {
            if slot.is_none_or(|slot| slot == begin) {
                self.name_dirty_block(begin, &mut plan.clean, &mut plan.clean_volumes);
            }
        }
    }

    fn name_dirty_block(&self, slot: u32, parts: &mut Vec<Part>, volumes: &mut Vec<Volume>) {
        let block = self.block_at(slot);
        let (volume, _) = self.table.address(slot);
        self.parts_of(&block, &self.bytes_of(&block), self.units.dirty(), |part| {
            parts.push(part);
            volumes.push(volume);
        });
    }

    /// Names the dirty parts, and the volume of each, of the groups and blocks of a share that go next, coldest first: of as many as make
    /// so many bytes of the cache with what is free. What a cleaner writes back of them keeps places clean ahead of need. Parts
    /// may be named twice; none are where the order of eviction cannot tell ([`Evict::coldest`]).
    pub fn name_cold(
        &self,
        share: Share,
        reserve_bytes: u64,
        parts: &mut Vec<Part>,
        volumes: &mut Vec<Volume>,
    ) {
        let geometry = &self.geometry;
        let groups = reserve_bytes.div_ceil(geometry.group_bytes()).min(geometry.groups().into());
        let groups = groups.saturating_sub(self.space.openable(share).into()) as usize;
        let per_group = geometry.group_slots() + 1;
        self.order.coldest(groups_of(share), groups, |id| {
            for slot in self.space.blocks_of(geometry, id.0 / per_group) {
                self.name_dirty_block(slot, parts, volumes);
            }
        });
        if self.two_levels {
            let slots = groups * geometry.group_slots() as usize;
            let mut left = slots as u64;
            self.order.coldest(blocks_of(share), slots, |id| {
                let slot = slot_of(geometry, id);
                // As many blocks as fill the same bytes.
                if left > 0 {
                    self.name_dirty_block(slot, parts, volumes);
                    left = left.saturating_sub(self.block_at(slot).pieces);
                }
            });
        }
    }

    fn plan_steps(&mut self, request: &Request, found: &[Block], plan: &mut Plan) {
        let mut at = request.offset;
        for block in found {
            let extent = self.extent(request, block);
            if extent.offset > at {
                self.plan_past(request, at..extent.offset.min(request.end()), plan);
            }
            at = at.max(block.end() * self.geometry.piece_bytes());
            match request.write {
                None => self.plan_read(&extent, plan),
                Some(mode) => self.plan_write(&extent, mode, plan),
            }
        }
        if at < request.end() {
            self.plan_past(request, at..request.end(), plan);
        }
        if request.write == Some(Mode::WriteThrough) {
            plan.through.clear();
            plan.through.push(request.offset..request.end());
        }
    }

    /// A part of the request that has no place in the cache.
    fn plan_past(&self, request: &Request, range: Range<u64>, plan: &mut Plan) {
        if request.write.is_some() {
            push_range(&mut plan.through, range);
        } else {
            let units = range.start / UNIT_BYTES * UNIT_BYTES..range.end.next_multiple_of(UNIT_BYTES);
            push_range(&mut plan.fetch, units);
        }
    }

    fn plan_read(&mut self, extent: &Extent, plan: &mut Plan) {
        let wanted = match (self.config.fill, self.rule.read) {
            (Fill::Units, None) => extent.asked.clone(),
            _ => extent.units.clone(),
        };
        for run in self.units.valid().runs(extent.asked.clone(), true) {
            push_part(&mut plan.cached, extent.part(run));
        }
        for run in self.units.valid().runs(wanted.clone(), false) {
            push_range(&mut plan.fetch, extent.range(run.clone()));
            push_part(&mut plan.fill, extent.part(run.clone()));
            push_part(&mut plan.fresh, extent.part(run));
        }
        self.units.fill(wanted);
    }

    fn plan_write(&mut self, extent: &Extent, mode: Mode, plan: &mut Plan) {
        let Extent { units, asked, covered, .. } = extent;
        if asked.is_empty() {
            // Allocated beside the request, for what comes next.
            return;
        }
        let edges = [asked.start..covered.start, covered.end.max(asked.start)..asked.end];
        let edges = if covered.is_empty() { [asked.clone(), asked.end..asked.end] } else { edges };
        for edge in &edges {
            for run in self.units.valid().runs(edge.clone(), true) {
                push_part(&mut plan.cached, extent.part(run));
            }
        }
        let outside = [units.start..covered.start, covered.end..units.end];
        let lacks = |range: &Range<u64>| !self.units.valid().all(range.clone());
        let fills_whole = match self.config.fill {
            Fill::Whole => outside.iter().any(lacks),
            // The store must be asked for an edge: then it gives the neighbours for little more.
            Fill::Units => self.rule.read.is_some() && edges.iter().any(lacks),
        };
        if fills_whole {
            // Read as one, with what is about to be overwritten: one request to the backing store.
            let mut stored = asked.clone();
            for run in self.units.valid().runs(units.clone(), false) {
                push_range(&mut plan.fetch, extent.range(run.clone()));
                if run.end < stored.start {
                    push_part(&mut plan.fill, extent.part(run));
                } else if run.start <= stored.end {
                    stored = stored.start.min(run.start)..stored.end.max(run.end);
                } else {
                    push_part(&mut plan.fill, extent.part(std::mem::replace(&mut stored, run)));
                }
            }
            push_part(&mut plan.fill, extent.part(stored));
        } else {
            for edge in &edges {
                for run in self.units.valid().runs(edge.clone(), false) {
                    push_range(&mut plan.fetch, extent.range(run));
                }
            }
            push_part(&mut plan.fill, extent.part(asked.clone()));
        }
        let stored = if fills_whole { units.clone() } else { asked.clone() };
        for run in self.units.valid().runs(stored.clone(), false) {
            push_part(&mut plan.fresh, extent.part(run));
        }
        self.units.fill(stored);
        let written = if self.config.fill == Fill::Whole { units.clone() } else { asked.clone() };
        if mode == Mode::WriteBack {
            push_range(&mut plan.dirtied, extent.range(written.clone()));
            self.units.make_dirty(written);
        }
    }
}
