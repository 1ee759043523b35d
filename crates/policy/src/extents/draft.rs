//! Draft of a request's plan: for the blocks that the request has, which bytes are read from where, and which are written where.

use std::ops::Range;

use super::geometry::UNIT_BYTES;
use super::map::Map;
use super::plan::{Part, Plan, Request, Verdict};
use super::sizing::Around;
use super::table::Block;
use super::units::{Units, units_at};
use super::{Fill, Mode, Service};

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

/// A block of the request at hand, in units of the cache.
pub(super) struct Extent {
    /// Where it begins in the volume, in bytes.
    offset: u64,
    /// Its units.
    units: Range<u64>,
    /// The units that the request touches.
    pub asked: Range<u64>,
    /// The units that a write covers as a whole.
    covered: Range<u64>,
}

impl Extent {
    pub fn of(map: &Map, request: &Request, block: &Block) -> Self {
        let offset = map.bytes_of(block).start;
        let units = map.units_of(block);
        // In units from the block's begin on.
        let bound = |at: u64| units.start + at.min(units.end - units.start);
        let asked = bound(request.offset.saturating_sub(offset) / UNIT_BYTES)
            ..bound(request.end().saturating_sub(offset).div_ceil(UNIT_BYTES));
        let start = bound(request.offset.saturating_sub(offset).div_ceil(UNIT_BYTES));
        let covered = start..bound(request.end().saturating_sub(offset) / UNIT_BYTES).max(start);
        Extent { offset, units, asked, covered }
    }

    fn part(&self, run: Range<u64>) -> Part {
        let offset = self.offset + (run.start - self.units.start) * UNIT_BYTES;
        Part { offset, at: run.start * UNIT_BYTES, bytes: (run.end - run.start) * UNIT_BYTES }
    }

    fn range(&self, run: Range<u64>) -> Range<u64> {
        let part = self.part(run);
        part.offset..part.offset + part.bytes
    }
}

/// The plan of one request, while it is made. Its blocks are known; their coming content is noted as it is planned.
pub(super) struct Draft<'a> {
    pub map: &'a Map,
    pub units: &'a mut Units,
    pub fill: Fill,
    pub service: Service,
    pub rule: Around,
    pub request: &'a Request,
    pub plan: &'a mut Plan,
}

impl Draft<'_> {
    fn extent(&self, block: &Block) -> Extent {
        Extent::of(self.map, self.request, block)
    }

    /// A write past the cache: its cached units become invalid, and dirty ones are written back before that.
    pub fn around(mut self, found: &[Block]) -> Verdict {
        for block in found {
            let extent = self.extent(block);
            for run in self.units.dirty().runs(extent.asked.clone(), true) {
                self.plan.clean.push(extent.part(run));
                self.plan.clean_volumes.push(self.request.volume);
            }
        }
        if !self.plan.clean.is_empty() {
            return Verdict::Clean;
        }
        for block in found {
            let extent = self.extent(block);
            for run in self.units.valid().runs(extent.asked.clone(), true) {
                push_part(&mut self.plan.dropped, extent.part(run));
            }
            self.units.drop_clean(extent.asked);
        }
        self.past(self.request.offset..self.request.end());
        Verdict::Ready
    }

    /// Goes through the request from its begin to its end, with the blocks that hold or are to hold parts of it, in the order of addresses.
    pub fn through(mut self, found: &[Block]) {
        let request = self.request;
        let mut at = request.offset;
        for block in found {
            let extent = self.extent(block);
            if extent.offset > at {
                self.past(at..extent.offset.min(request.end()));
            }
            at = at.max(self.map.bytes_of(block).end);
            match request.write {
                None => self.read(&extent),
                Some(mode) => self.write(&extent, mode),
            }
        }
        if at < request.end() {
            self.past(at..request.end());
        }
        if request.write == Some(Mode::WriteThrough) {
            self.plan.through.clear();
            self.plan.through.push(request.offset..request.end());
        }
    }

    /// A part of the request that has no place in the cache.
    fn past(&mut self, range: Range<u64>) {
        if self.request.write.is_some() {
            push_range(&mut self.plan.through, range);
        } else {
            let units = range.start / UNIT_BYTES * UNIT_BYTES..range.end.next_multiple_of(UNIT_BYTES);
            push_range(&mut self.plan.fetch, units);
        }
    }

    fn read(&mut self, extent: &Extent) {
        let wanted = match (self.fill, self.rule.read) {
            (Fill::Units, None) => extent.asked.clone(),
            _ => extent.units.clone(),
        };
        if self.service != Service::Whole {
            return self.read_only(extent);
        }
        for run in self.units.valid().runs(extent.asked.clone(), true) {
            push_part(&mut self.plan.cached, extent.part(run));
        }
        for run in self.units.valid().runs(wanted.clone(), false) {
            push_range(&mut self.plan.fetch, extent.range(run.clone()));
            // Where the device has failed nothing is stored: it is fetched each time.
            for run in self.units.without_failed(run) {
                push_part(&mut self.plan.fill, extent.part(run.clone()));
                push_part(&mut self.plan.fresh, extent.part(run));
            }
        }
        if self.units.has_failed(wanted.clone()) {
            self.plan.fresh.iter().for_each(|part| self.units.fill(units_at(part)));
        } else {
            self.units.fill(wanted);
        }
    }

    /// A read that stores nothing. Of a cache that is out of use it takes only what the store lacks.
    fn read_only(&mut self, extent: &Extent) {
        let kept = if self.service == Service::OutOfUse { self.units.dirty() } else { self.units.valid() };
        for run in kept.runs(extent.asked.clone(), true) {
            push_part(&mut self.plan.cached, extent.part(run));
        }
        for run in kept.runs(extent.asked.clone(), false) {
            push_range(&mut self.plan.fetch, extent.range(run));
        }
    }

    fn write(&mut self, extent: &Extent, mode: Mode) {
        let Extent { units, asked, covered, .. } = extent;
        if asked.is_empty() {
            // Allocated in addition to the request, for later ones.
            return;
        }
        let edges = [asked.start..covered.start, covered.end.max(asked.start)..asked.end];
        let edges = if covered.is_empty() { [asked.clone(), asked.end..asked.end] } else { edges };
        for edge in &edges {
            for run in self.units.valid().runs(edge.clone(), true) {
                push_part(&mut self.plan.cached, extent.part(run));
            }
            for run in self.units.dirty().runs(edge.clone(), true) {
                push_part(&mut self.plan.unclean, extent.part(run));
            }
        }
        let outside = [units.start..covered.start, covered.end..units.end];
        let lacks = |range: &Range<u64>| !self.units.valid().all(range.clone());
        let fills_whole = match self.fill {
            Fill::Whole => outside.iter().any(lacks),
            // The store must be asked for an edge: then it gives the neighbours for little more.
            Fill::Units => self.rule.read.is_some() && edges.iter().any(lacks),
        };
        if fills_whole {
            // Read together with the bytes that are about to be overwritten: one request to the backing store.
            let mut stored = asked.clone();
            for run in self.units.valid().runs(units.clone(), false) {
                push_range(&mut self.plan.fetch, extent.range(run.clone()));
                if run.end < stored.start {
                    push_part(&mut self.plan.fill, extent.part(run));
                } else if run.start <= stored.end {
                    stored = stored.start.min(run.start)..stored.end.max(run.end);
                } else {
                    push_part(&mut self.plan.fill, extent.part(std::mem::replace(&mut stored, run)));
                }
            }
            push_part(&mut self.plan.fill, extent.part(stored));
        } else {
            for edge in &edges {
                for run in self.units.valid().runs(edge.clone(), false) {
                    push_range(&mut self.plan.fetch, extent.range(run));
                }
            }
            push_part(&mut self.plan.fill, extent.part(asked.clone()));
        }
        let stored = if fills_whole { units.clone() } else { asked.clone() };
        for run in self.units.valid().runs(stored.clone(), false) {
            push_part(&mut self.plan.fresh, extent.part(run));
        }
        self.units.fill(stored);
        let written = if self.fill == Fill::Whole { units.clone() } else { asked.clone() };
        if mode == Mode::WriteBack {
            push_range(&mut self.plan.dirtied, extent.range(written.clone()));
            self.units.make_dirty(written);
        }
    }
}
