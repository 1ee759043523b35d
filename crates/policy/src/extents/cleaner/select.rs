//! Selection of the dirty bytes that are copied next: those at the cold end, those whose block a request waits for, and those
//! that are due, the oldest volume first.

use std::ops::Range;

use crate::evict::Evict;
use crate::extents::geometry::UNIT_BYTES;
use crate::extents::{Extents, Part, Share, Volume};

use super::acts::{Act, Pending};
use super::volume::{ColdEnd, VolumeState};
use super::watermarks::WAITING_BYTES;
use super::{BATCH_BYTES, Cleaner, LEAVING_BYTES_MAX, units_of};

fn bytes_of(runs: &[Range<u64>]) -> u64 {
    runs.iter().map(|run| (run.end - run.start) * UNIT_BYTES).sum()
}

impl Cleaner {
    /// Has dirty parts of the next victims written back ahead of need, as far as the order of write-back allows; otherwise the
    /// older units that must be written before them.
    pub(super) fn look_at_cold<O: Evict>(&mut self, extents: &Extents<O>, acts: &mut Vec<Act>) {
        if self.cold_watch.next_ns().is_none_or(|next_ns| next_ns > self.now_ns) {
            return;
        }
        let (mut parts, mut volumes) = std::mem::take(&mut self.named);
        parts.clear();
        volumes.clear();
        for share in (0..extents.shares().count()).map(Share) {
            extents.name_cold(
                share,
                self.scale.reserve_bytes(extents.shares().limit_bytes(share)),
                &mut parts,
                &mut volumes,
            );
        }
        let something_stays = self.take_parts(&parts, &volumes, acts);
        self.note_cold(&parts, &volumes);
        self.named = (parts, volumes);
        self.cold_watch.looked(self.now_ns, something_stays);
    }

    /// Counts of what was named at the cold end how much lacks nothing but a flush.
    fn note_cold(&mut self, parts: &[Part], volumes: &[Volume]) {
        self.volumes.iter_mut().for_each(|volume| volume.cold = ColdEnd::default());
        for (part, volume) in parts.iter().zip(volumes) {
            let Some(state) = self.volumes.get_mut(usize::from(volume.0)) else { continue };
            let lacks_flush = state.epochs.is_unflushed(units_of(&(part.offset..part.offset + part.bytes)));
            state.cold.note(part.bytes, lacks_flush);
        }
    }

    /// Copies what writes wait to change: the group under way needs it as it is.
    pub(super) fn copy_overwritten(&mut self, acts: &mut Vec<Act>) {
        for at in 0..self.volumes.len() {
            let state = &mut self.volumes[at];
            for units in std::mem::take(&mut state.overwrites) {
                if state.epochs.conflict(units.clone()) {
                    state.copied_out_bytes += state.epochs.next_of(units, &mut self.runs);
                }
            }
            let begun = acts.len();
            self.copy(Volume(at as u16), acts);
            self.volumes[at].copies_out += (acts.len() - begun) as u64;
        }
    }

    /// Lets these parts leave, as far as they can. Returns whether some cannot now.
    pub(super) fn take_parts(&mut self, parts: &[Part], volumes: &[Volume], acts: &mut Vec<Act>) -> bool {
        debug_assert_eq!(parts.len(), volumes.len(), "a volume for each part");
        let mut something_stays = false;
        for (part, volume) in parts.iter().zip(volumes) {
            let (now_ns, runs) = (self.now_ns, &mut self.runs);
            let Some(state) = self.volumes.get_mut(usize::from(volume.0)) else { continue };
            let units = units_of(&(part.offset..part.offset + part.bytes));
            if state.is_left_alone(now_ns)
                || state.epochs.leaving_bytes() >= self.scale.part_of(LEAVING_BYTES_MAX)
            {
                something_stays |= state.epochs.is_dirty(units);
                continue;
            }
            state.epochs.next_of(units.clone(), runs);
            if state.epochs.is_dirty(units) {
                // The units are a later epoch's: older ones must be written first.
                something_stays = true;
                state.due_bytes = state.due_bytes.max(self.scale.part_of(BATCH_BYTES));
            }
            self.copy(*volume, acts);
        }
        something_stays
    }

    /// Finds the bytes that are due of each volume and of all. Returns whether there are any.
    pub(super) fn find_due(&mut self, capacity_bytes: u64) -> bool {
        let (now_ns, rules) = (self.now_ns, self.rules);
        let (mut dirty_bytes, mut coming_bytes, mut any) = (0, 0, false);
        for volume in &mut self.volumes {
            volume.find_due(now_ns, &rules);
            if self.is_closing {
                volume.due_bytes = volume.epochs.dirty_bytes();
            }
            any |= volume.due_bytes() > 0;
            dirty_bytes += volume.epochs.dirty_bytes();
            if !volume.is_stuck(now_ns) {
                coming_bytes += volume.epochs.lacking_bytes() - volume.epochs.dirty_bytes();
            }
        }
        self.budget_bytes = self.budget_bytes.max(self.rules.excess_bytes(dirty_bytes, capacity_bytes));
        if self.is_waited_for {
            self.budget_bytes =
                self.budget_bytes.max(self.scale.part_of(WAITING_BYTES).saturating_sub(coming_bytes));
        }
        self.budget_bytes = self.budget_bytes.min(dirty_bytes);
        any || self.budget_bytes > 0
    }

    /// Takes bytes that are due, from the volume that has been dirty for longest first. Returns whether any could leave.
    pub(super) fn take_due(&mut self, acts: &mut Vec<Act>) -> bool {
        let begun = acts.len();
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        let since_ns = |volume: &VolumeState| volume.epochs.first_dirty_ns();
        order.extend((0..self.volumes.len()).filter_map(|at| Some((since_ns(&self.volumes[at])?, at))));
        order.sort_unstable();
        for &(_, at) in &order {
            loop {
                let volume = &mut self.volumes[at];
                let due_bytes =
                    volume.due_bytes().max(self.budget_bytes).min(self.scale.part_of(BATCH_BYTES));
                let is_full = volume.epochs.leaving_bytes() >= self.scale.part_of(LEAVING_BYTES_MAX);
                if due_bytes == 0 || is_full || volume.is_left_alone(self.now_ns) {
                    break;
                }
                let taken_bytes = volume.epochs.next(due_bytes.max(UNIT_BYTES), &mut self.runs);
                if taken_bytes == 0 {
                    // The rest belongs to a later epoch, or its earlier content is leaving still.
                    break;
                }
                volume.due_bytes = volume.due_bytes.saturating_sub(taken_bytes);
                self.budget_bytes = self.budget_bytes.saturating_sub(taken_bytes);
                debug_assert_eq!(bytes_of(&self.runs), taken_bytes, "bytes add up");
                self.copy(Volume(at as u16), acts);
            }
        }
        self.order = order;
        acts.len() > begun
    }

    /// Has the runs that were taken copied.
    fn copy(&mut self, volume: Volume, acts: &mut Vec<Act>) {
        for run in self.runs.drain(..) {
            let mut start = run.start;
            while start < run.end {
                let units = start..run.end.min(start + BATCH_BYTES / UNIT_BYTES);
                start = units.end;
                debug_assert!(units.start < units.end, "a copy is of something");
                let token = self.under_way.begin(Pending::Copy { volume, units: units.clone() });
                acts.push(Act::Copy { token, volume, units });
            }
        }
    }
}
