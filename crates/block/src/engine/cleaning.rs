//! The body that the cleaner drives ([`tiermem_policy::extents::cleaner`]): dirty units are copied, sent, flushed, and then clean.

use std::ops::Range;

use tiermem_policy::extents::cleaner::{Act, Outcome, Token};
use tiermem_policy::extents::{Part, UNIT_BYTES, Volume};
use tiermem_tier::block::AlignedBuffer;

use super::Engine;
use super::op::{Held, Kind, Op, Source, Stage, common, units_of};
use crate::backing::BackingError;
use crate::journal::Wait;

impl Engine {
    /// Has the cleaner decide, and begins what it wants done.
    pub(super) fn clean(&mut self) {
        if self.parked.is_empty() {
            self.cleaner.nobody_waits();
        }
        // What is clean must be said in the log.
        self.cleaner.set_log_room(self.has_log_room());
        self.wake_ns = None;
        self.cleaner_was_told = false;
        self.cleaner.step(self.now_ns, &self.extents, &mut self.acts);
        let mut acts = std::mem::take(&mut self.acts);
        for act in acts.drain(..) {
            self.carry_out(act);
        }
        self.acts = acts;
        self.run_ready();
    }

    /// Tells the cleaner how an act ended: what is to be done at once.
    pub(super) fn tell_cleaner(&mut self, act: Token, outcome: Outcome<'_>) -> Vec<Act> {
        let first = self.acts.len();
        self.cleaner_was_told = true;
        self.cleaner.done(self.now_ns, act, outcome, &mut self.acts);
        self.acts.split_off(first)
    }

    /// Where the volume of this number is.
    fn place_of(&self, volume: Volume) -> usize {
        self.places[usize::from(volume.0)]
    }

    /// Begins an act.
    pub(super) fn carry_out(&mut self, act: Act) {
        match act {
            Act::Copy { token, volume, units } => {
                let mut op = self.spare_op();
                (op.volume, op.kind, op.copy) = (self.place_of(volume), Kind::Copy, Some(token));
                (op.offset, op.bytes) = (units.start * UNIT_BYTES, (units.end - units.start) * UNIT_BYTES);
                self.start(op);
            }
            Act::Flush { token, volume } => self.begin_store_flush(self.place_of(volume), token),
            Act::Clean { volume, runs } => self.note_clean(self.place_of(volume), runs),
            Act::Wait { until_ns } => self.wake_ns = Some(until_ns),
            Act::Send { .. } => debug_assert!(false, "what was copied is sent where it is: see `copied`"),
        }
    }

    /// Nobody changes the range now: read it, once nothing older of it can come back in the cache when the store has it.
    pub(super) fn copy(&mut self, id: u32, mut op: Box<Op>) {
        if let Some(ledger) = &mut self.ledger {
            let number = self.volumes[op.volume].number.0;
            op.wait = Wait { synced: ledger.unmapped.last_of(number, &op.units()), ..Wait::default() };
            if !ledger.has(op.wait) {
                ledger.journal.want_synced(op.wait.synced);
                op.stage = Stage::Opening;
                ledger.waiting.push(id);
                self.ops[id as usize] = Some(op);
                return;
            }
        }
        op.stage = Stage::Gathering;
        let mut parts = Vec::new();
        self.extents.visit(self.volumes[op.volume].number, op.aligned(), |part, is_dirty| {
            if is_dirty {
                parts.push(part);
            }
        });
        // What is lost was to be copied with what was written around it.
        for Part { offset, at, bytes } in self.extents.units().without_lost(&parts) {
            self.submit_gather(id, &mut op, offset..offset + bytes, Source::Cache(at));
        }
        if op.ios == 0 {
            self.ready.push_back(super::Ready::Gathered(id));
        }
        self.ops[id as usize] = Some(op);
    }

    /// The range cannot be written back, for the log is broken or what lies there cannot be proven: it stays dirty.
    pub(super) fn keep_dirty(&mut self, id: u32, mut op: Box<Op>, why: &str) {
        if let Some(act) = op.copy.take() {
            self.write_back_failed(op.volume, act, &BackingError::Failed(why.to_owned()));
        }
        self.end(id, op);
    }

    /// The range is in memory: send it.
    pub(super) fn copied(&mut self, id: u32, mut op: Box<Op>) {
        if let Some((_, why)) = op.failure.take() {
            return self.keep_dirty(id, op, &why);
        }
        let mut held = std::mem::take(&mut op.held);
        held.retain(|held| !held.range.is_empty());
        held.sort_unstable_by_key(|held| held.range.start);
        op.lost.sort_unstable_by_key(|lost| lost.start);
        for lost in &op.lost {
            self.lose(op.volume, lost);
        }
        // What is lost need not go.
        let mut runs: Vec<Range<u64>> = Vec::new();
        for part in &held {
            let mut start = part.range.start;
            let lost = op.lost.iter().filter(|lost| part.range.contains(&lost.start)).cloned();
            for lost in lost.chain(std::iter::once(part.range.end..part.range.end)) {
                if start < lost.start {
                    runs.push(units_of(&(start..lost.start)));
                }
                start = lost.end;
            }
        }
        let acts = op.copy.take().map(|act| self.tell_cleaner(act, Outcome::Copied(&runs)));
        for act in acts.into_iter().flatten() {
            let Act::Send { token, units, .. } = act else { continue };
            let run = units.start * UNIT_BYTES..units.end * UNIT_BYTES;
            let whole = held.iter_mut().find(|part| part.range == run);
            let buffer = match whole {
                Some(part) => std::mem::take(&mut part.buffer),
                None => self.gather_run(&held, &run),
            };
            self.submit_write_back(op.volume, token, units, buffer);
        }
        for part in held.drain(..) {
            self.pool.give_back(part.buffer);
        }
        op.held = held;
        self.end(id, op);
    }

    /// A run of bytes out of several parts.
    fn gather_run(&mut self, held: &[Held], run: &Range<u64>) -> AlignedBuffer {
        let mut buffer = self.pool.lend((run.end - run.start) as usize);
        for part in held {
            let shared = common(&part.range, run);
            if !shared.is_empty() {
                let (from, to) =
                    ((shared.start - part.range.start) as usize, (shared.start - run.start) as usize);
                let len = (shared.end - shared.start) as usize;
                buffer[to..to + len].copy_from_slice(&part.buffer[from..from + len]);
            }
        }
        buffer
    }

    /// The cache's device has lost dirty bytes.
    fn lose(&mut self, at: usize, range: &Range<u64>) {
        let mut parts = Vec::new();
        self.extents.visit(self.volumes[at].number, range.clone(), |part, is_dirty| {
            if is_dirty {
                parts.push(part);
            }
        });
        tracing::error!(
            volume = self.exports[at].name,
            offset = range.start,
            bytes = range.end - range.start,
            "the cache's device has lost bytes that the store does not have: reads fail until they are written anew"
        );
        self.poison_parts(at, &parts);
        self.cleaner.lost(self.volumes[at].number, units_of(range));
    }

    /// The store has taken a part of what is written back, or not.
    pub(super) fn written_back(
        &mut self,
        at: usize,
        act: Token,
        result: Result<(), BackingError>,
        session: u64,
    ) {
        match result {
            Ok(()) => {
                let acts = self.tell_cleaner(act, Outcome::Sent { session });
                debug_assert!(acts.is_empty(), "nothing follows before the next step");
            }
            Err(error) => self.write_back_failed(at, act, &error),
        }
    }

    /// An act has failed: the store is left alone for a while.
    pub(super) fn write_back_failed(&mut self, at: usize, act: Token, error: &BackingError) {
        let number = self.volumes[at].number;
        let before_ns = self.cleaner.standing(number).retry_at_ns;
        let acts = self.tell_cleaner(act, Outcome::Failed);
        debug_assert!(acts.is_empty(), "nothing follows from a failure");
        self.volumes[at].counts.write_back_failures += 1;
        let retry_at_ns = self.cleaner.standing(number).retry_at_ns;
        if retry_at_ns > before_ns {
            let retry_after_ms = retry_at_ns.saturating_sub(self.now_ns) / 1_000_000;
            tracing::warn!(volume = self.exports[at].name, %error, retry_after_ms,
                "the store took nothing of what is written back");
        }
    }

    /// Asks to be called again where time alone changes something.
    pub(super) fn arm(&self) {
        let log = self.ledger.as_ref().is_some_and(|ledger| ledger.journal.deadline_ns().is_some());
        if log || self.volumes.iter().any(|volume| !self.cleaner.is_settled(volume.number)) {
            self.ticker.arm();
        }
    }
}
