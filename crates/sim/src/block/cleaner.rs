//! Writing back in the background, by the time that the trace states: what the live engine does with the same
//! [`Epochs`] and [`Cleaning`].
//!
//! One batch is on its way at a time, and takes as long as the costs say, with a flush of the backing store at its end; only then is it
//! clean. Traces tell nothing of flushes, so all writes of a volume are one epoch. What goes next is written back ahead of need where
//! the order of eviction can tell it. What a read would drive out that is dirty is written back next, and something clean goes in
//! its place, or the read past the cache; a write waits.

use std::ops::Range;

use tiermem_policy::evict::Evict;
use tiermem_policy::extents::cleaning::{Cleaning, ColdWatch, Dirty, Due, reserve_bytes};
use tiermem_policy::extents::epochs::Epochs;
use tiermem_policy::extents::{Extents, Fill, Part, Plan, Request, Share, UNIT_BYTES, Volume};

use super::{Costs, Counts};

/// A batch at most.
const BATCH_BYTES: u64 = 4 << 20;

/// What is on its way to the backing store.
struct Batch {
    volume: Volume,
    /// Units of the volume.
    runs: Vec<Range<u64>>,
    /// When it is there for good.
    done_ns: u64,
}

/// The cleaner of a simulated cache.
pub struct Cleaner {
    rules: Cleaning,
    costs: Costs,
    /// Those of each volume, by its number.
    volumes: Vec<Epochs>,
    batch: Option<Batch>,
    /// What is left of what was found due.
    budget_bytes: u64,
    /// Up to when it has done its work, in the trace's time.
    clock_ns: u64,
    /// When to look at the cold end.
    cold_watch: ColdWatch,
    /// Parts that should go next, and whose they are; kept for its memory.
    named: (Vec<Part>, Vec<Volume>),
}

fn bytes_of(units: &Range<u64>) -> Range<u64> {
    units.start * UNIT_BYTES..units.end * UNIT_BYTES
}

impl Cleaner {
    pub fn new(rules: Cleaning, capacity_bytes: u64, costs: Costs) -> Self {
        Cleaner {
            rules,
            costs,
            volumes: Vec::new(),
            batch: None,
            budget_bytes: 0,
            clock_ns: 0,
            cold_watch: ColdWatch::new(capacity_bytes),
            named: Default::default(),
        }
    }

    fn epochs(&mut self, volume: Volume) -> &mut Epochs {
        while self.volumes.len() <= usize::from(volume.0) {
            // Every batch is flushed, and there is never more than one epoch.
            self.volumes.push(Epochs::new(1, 0));
        }
        &mut self.volumes[usize::from(volume.0)]
    }

    /// Notes that a plan gave so many bytes of the cache to new blocks.
    pub fn allocated(&mut self, bytes: u64) {
        self.cold_watch.allocated(bytes);
    }

    /// Notes what a write in write-back mode has made dirty.
    pub fn wrote<O: Evict>(
        &mut self,
        request: &Request,
        plan: &Plan,
        extents: &Extents<O>,
        fill: Fill,
        now_ns: u64,
    ) {
        let piece_units = extents.geometry().piece_units();
        let end = (request.offset + request.bytes).div_ceil(UNIT_BYTES);
        let asked = request.offset / UNIT_BYTES..end;
        for part in &plan.fill {
            // Parts that lie side by side in the cache are one, and may be several blocks'.
            let mut at = part.at / UNIT_BYTES;
            while at < (part.at + part.bytes) / UNIT_BYTES {
                let Some((volume, block)) = extents.block_of_unit(at) else { break };
                at = (u64::from(block.slot) + block.pieces) * piece_units;
                let whole = block.piece * piece_units..block.end() * piece_units;
                let dirty = match fill {
                    Fill::Whole => whole,
                    Fill::Units => whole.start.max(asked.start)..whole.end.min(asked.end),
                };
                let epochs = self.epochs(volume);
                epochs.dirtied(dirty, epochs.current(), now_ns);
            }
        }
    }

    /// Does all that there is time for until the next request.
    pub fn run_until<O: Evict>(
        &mut self,
        now_ns: u64,
        extents: &mut Extents<O>,
        counts: &mut [(u32, Counts)],
    ) {
        loop {
            match &self.batch {
                Some(batch) if batch.done_ns > now_ns => return,
                Some(_) => self.complete(extents),
                None => (),
            }
            if self.cold_watch.is_due() {
                if self.send_cold(&[], &[], extents, counts) {
                    continue;
                }
                self.cold_watch.looked();
            }
            let dirty = Dirty {
                bytes: self.volumes.iter().map(Epochs::dirty_bytes).sum(),
                first_ns: self.volumes.iter().filter_map(Epochs::first_dirty_ns).min(),
                room_bytes: extents.geometry().capacity_bytes(),
                is_waited_for: false,
            };
            if self.budget_bytes == 0
                && let Due::WriteBack { bytes, .. } = self.rules.due(self.clock_ns, &dirty)
            {
                self.budget_bytes = bytes;
            }
            if self.budget_bytes > 0 {
                self.start_next(extents, counts);
                continue;
            }
            // Between two requests something may become old.
            let old_ns = dirty.first_ns.map(|first_ns| first_ns.saturating_add(self.rules.age_ns));
            match old_ns {
                Some(old_ns) if old_ns > self.clock_ns && old_ns <= now_ns => self.clock_ns = old_ns,
                _ => break,
            }
        }
        self.clock_ns = self.clock_ns.max(now_ns);
    }

    /// Starts a batch of the volume that has been dirty for longest.
    fn start_next<O: Evict>(&mut self, extents: &mut Extents<O>, counts: &mut [(u32, Counts)]) {
        let oldest = (0..self.volumes.len())
            .filter_map(|at| self.volumes[at].first_dirty_ns().map(|first_ns| (first_ns, at)))
            .min();
        let mut runs = Vec::new();
        let Some((_, at)) = oldest else {
            // It was cleaned for somebody who waited.
            self.budget_bytes = 0;
            return;
        };
        let bytes = self.volumes[at].next(self.budget_bytes.min(BATCH_BYTES), &mut runs);
        self.budget_bytes -= bytes.min(self.budget_bytes);
        self.send(Volume(at as u16), runs, extents, counts);
    }

    /// Lets runs leave that were taken.
    fn send<O: Evict>(
        &mut self,
        volume: Volume,
        runs: Vec<Range<u64>>,
        extents: &mut Extents<O>,
        counts: &mut [(u32, Counts)],
    ) {
        let (mut bytes, mut parts) = (0, Vec::new());
        for run in &runs {
            extents.visit(volume, bytes_of(run), |part, is_dirty| {
                debug_assert!(is_dirty, "what is leaving is dirty");
                parts.push(part);
            });
            bytes += (run.end - run.start) * UNIT_BYTES;
            self.epochs(volume).copied(run.clone());
        }
        counts[usize::from(volume.0)].1.write_back(&parts);
        let flush_ns = self.costs.core_latency_ns;
        let done_ns = self.clock_ns.saturating_add(self.costs.write_back_ns(bytes)).saturating_add(flush_ns);
        self.batch = Some(Batch { volume, runs, done_ns });
    }

    /// The batch is there, and flushed.
    fn complete<O: Evict>(&mut self, extents: &mut Extents<O>) {
        let Some(Batch { volume, runs, done_ns }) = self.batch.take() else { return };
        self.clock_ns = self.clock_ns.max(done_ns);
        let epochs = self.epochs(volume);
        runs.into_iter().for_each(|run| epochs.written(run));
        let mut clean = Vec::new();
        if epochs.must_flush() {
            epochs.flush_begins();
            epochs.flushed(&mut clean);
        }
        let mut parts: Vec<Part> = Vec::new();
        for run in &clean {
            extents.visit(volume, bytes_of(run), |part, _| parts.push(part));
        }
        extents.cleaned(&parts);
    }

    /// Starts a batch of parts that are named first and of those at the cold end, as far as one volume has them; false where none of
    /// them can leave now.
    fn send_cold<O: Evict>(
        &mut self,
        first: &[Part],
        first_volumes: &[Volume],
        extents: &mut Extents<O>,
        counts: &mut [(u32, Counts)],
    ) -> bool {
        let (mut parts, mut volumes) = std::mem::take(&mut self.named);
        parts.clear();
        volumes.clear();
        parts.extend_from_slice(first);
        volumes.extend_from_slice(first_volumes);
        let reserve_bytes = reserve_bytes(extents.geometry().capacity_bytes());
        extents.name_cold(Share(0), reserve_bytes, &mut parts, &mut volumes);
        let (mut runs, mut bytes) = (Vec::new(), 0);
        let volume = volumes.first().copied();
        for (part, _) in parts.iter().zip(&volumes).filter(|(_, of)| Some(**of) == volume) {
            if bytes < BATCH_BYTES {
                let units = part.offset / UNIT_BYTES..(part.offset + part.bytes) / UNIT_BYTES;
                bytes += self.epochs(volumes[0]).next_of(units, &mut runs);
            }
        }
        self.named = (parts, volumes);
        match volume {
            Some(volume) if bytes > 0 => {
                self.send(volume, runs, extents, counts);
                true
            }
            _ => false,
        }
    }

    /// Has what a plan names written back next, without anybody waiting for it. If something else is on its way it is named again
    /// soon enough.
    pub fn prefer<O: Evict>(&mut self, plan: &Plan, extents: &mut Extents<O>, counts: &mut [(u32, Counts)]) {
        if self.batch.is_none() {
            self.send_cold(&plan.clean, &plan.clean_volumes, extents, counts);
        }
    }

    /// Lets a request wait that came at a time, until what is on its way has arrived or, if nothing is, what its plan names and
    /// more of what goes next: others may find clean places then. How long it has waited since it came.
    pub fn wait<O: Evict>(
        &mut self,
        now_ns: u64,
        plan: &Plan,
        extents: &mut Extents<O>,
        counts: &mut [(u32, Counts)],
    ) -> u64 {
        if self.batch.is_none() {
            self.send_cold(&plan.clean, &plan.clean_volumes, extents, counts);
        }
        self.complete(extents);
        self.clock_ns.saturating_sub(now_ns)
    }

    /// The trace is over: what is on its way arrives.
    pub fn finish<O: Evict>(&mut self, extents: &mut Extents<O>) {
        self.complete(extents);
        let dirty_bytes: u64 = self.volumes.iter().map(Epochs::dirty_bytes).sum();
        debug_assert_eq!(dirty_bytes, extents.dirty_bytes(), "both know of the same");
    }
}
