//! Outcomes of acts: what the cleaner does when its driver has ended one.

use std::ops::Range;

use super::acts::Pending;
use super::{Act, Cleaner, Outcome, Token};
use crate::extents::store_speed::Measured;
use crate::extents::{UNIT_BYTES, Volume};

impl Cleaner {
    /// An act has ended, one way or the other: what follows from that at once is appended. Step afterwards.
    ///
    /// # Panics
    /// Where no such act is under way, or the outcome is another act's: the driver is broken, and would lose bytes.
    pub fn done(&mut self, now_ns: u64, token: Token, outcome: Outcome<'_>, acts: &mut Vec<Act>) {
        self.tick(now_ns);
        let now_ns = self.now_ns;
        match (self.under_way.end(token), outcome) {
            (Some(Pending::Copy { volume, units }), Outcome::Copied(runs)) => {
                self.copied(volume, &units, runs, acts);
            }
            (Some(Pending::Copy { volume, units }), Outcome::Failed) => {
                let state = self.volume_mut(volume);
                state.epochs.failed(units);
                state.pause.failed(now_ns);
            }
            (Some(Pending::Send { volume, units, asked_ns }), Outcome::Sent { session }) => {
                let bytes = (units.end - units.start) * UNIT_BYTES;
                self.note_measured(volume, Measured::Write { bytes, asked_ns, done_ns: now_ns });
                let state = self.volume_mut(volume);
                state.answered(now_ns);
                if session != state.session {
                    // Bytes that it took before may be gone.
                    state.session = session;
                    state.epochs.lost_session();
                }
                state.epochs.written(units);
            }
            (Some(Pending::Send { volume, units, .. }), outcome @ (Outcome::Failed | Outcome::Full)) => {
                let state = self.volume_mut(volume);
                state.answered(now_ns);
                if outcome == Outcome::Full {
                    state.no_room.refused(now_ns, units.clone());
                }
                state.epochs.failed(units);
                state.pause.failed(now_ns);
            }
            (
                Some(Pending::Trim { volume }),
                outcome @ (Outcome::Trimmed | Outcome::Failed | Outcome::Full),
            ) => self.volume_mut(volume).trimmed(now_ns, outcome == Outcome::Trimmed),
            (
                Some(Pending::Flush { volume, asked_ns }),
                outcome @ (Outcome::Flushed { .. } | Outcome::Failed | Outcome::Full),
            ) => {
                if matches!(outcome, Outcome::Flushed { .. }) {
                    self.note_measured(volume, Measured::Flush { took_ns: now_ns - asked_ns });
                }
                self.flushed(volume, token, outcome, acts);
            }
            (pending, outcome) => panic!("{token:?} is {pending:?}, and its outcome {outcome:?}"),
        }
        self.cold_watch.changed();
    }

    /// Runs of units are in a buffer: neighbours go as one, and the rest of them is not there to go.
    fn copied(&mut self, volume: Volume, units: &Range<u64>, runs: &[Range<u64>], acts: &mut Vec<Act>) {
        let now_ns = self.now_ns;
        let (mut reached, mut run_units) = (units.start, 0);
        for run in runs.iter().cloned() {
            assert!(reached <= run.start && run.end <= units.end, "{run:?} of a copy of {units:?}");
            let state = self.volume_mut(volume);
            if reached < run.start {
                state.lost(now_ns, reached..run.start);
            }
            reached = run.end;
            run_units += run.end - run.start;
            self.runs.push(run);
        }
        let state = self.volume_mut(volume);
        if reached < units.end {
            state.lost(now_ns, reached..units.end);
        }
        let mut runs = std::mem::take(&mut self.runs);
        runs.dedup_by(|next, run| {
            let is_neighbour = run.end == next.start;
            if is_neighbour {
                run.end = next.end;
            }
            is_neighbour
        });
        for units in runs.drain(..) {
            run_units -= units.end - units.start;
            let state = self.volume_mut(volume);
            state.epochs.copied(units.clone());
            state.ask(now_ns);
            let token =
                self.under_way.begin(Pending::Send { volume, units: units.clone(), asked_ns: now_ns });
            acts.push(Act::Send { token, volume, units });
        }
        debug_assert_eq!(run_units, 0, "all that was copied is sent, once");
        self.runs = runs;
    }

    /// A flush has ended.
    fn flushed(&mut self, volume: Volume, token: Token, outcome: Outcome<'_>, acts: &mut Vec<Act>) {
        let now_ns = self.now_ns;
        let state = self.volume_mut(volume);
        assert_eq!(state.flush.take(), Some(token), "one flush of a store at a time");
        state.answered(now_ns);
        match outcome {
            Outcome::Flushed { session } if session == state.session => {
                state.pause.reset();
                let mut runs = Vec::new();
                state.flushed(now_ns, &mut runs);
                acts.push(Act::Clean { volume, runs });
            }
            Outcome::Flushed { session } => {
                state.session = session;
                state.epochs.lost_session();
            }
            _ => {
                if outcome == Outcome::Full {
                    state.flushed_without_room(now_ns);
                }
                state.epochs.lost_session();
                state.pause.failed(now_ns);
            }
        }
    }
}
