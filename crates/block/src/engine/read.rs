//! Reads, and what is fetched for them.

use std::ops::Range;

use tiermem_policy::extents::{Part, Request, Verdict};

use super::op::{Kind, Source, Stage, common};
use super::operations::{After, Ready};
use super::shared::Shared;
use super::work::Work;
use super::write_order::units_at;
use crate::nbd::Errno;

impl Work<'_> {
    /// The operation has its range: what does it need?
    pub fn plan_read(self) -> After {
        if !self.shared.log.await_room() {
            return self.crowd();
        }
        let Shared { cleaning, extents, volumes, log, write_order, now_ns, .. } = &mut *self.shared;
        let mut request = Request {
            volume: volumes[self.op.volume].number,
            offset: self.op.offset,
            bytes: self.op.bytes,
            write: None,
            bypass: self.op.bypass,
        };
        let verdict = cleaning.plan(*now_ns, extents, &mut request, &mut self.op.plan);
        debug_assert_eq!(verdict, Verdict::Ready, "a read never waits");
        write_order.note_map(log, extents);
        self.planned()
    }

    /// Reads all that the operation's plan names.
    pub fn gather(mut self) -> After {
        self.op.stage = Stage::Gathering;
        for at in 0..self.op.plan.cached.len() {
            let part = self.op.plan.cached[at];
            let Part { offset, at, bytes } = part;
            if self.shared.extents.units().has_lost(units_at(&part)) {
                let words = format!(
                    "bytes {offset} to {} were lost by the cache's device; write them anew",
                    offset + bytes
                );
                self.op.failure.get_or_insert((Errno::Io, words));
                continue;
            }
            self.submit_gather(offset..offset + bytes, Source::Cache(at), None);
        }
        for at in 0..self.op.plan.fetch.len() {
            let range = self.op.plan.fetch[at].clone();
            self.submit_gather(range, Source::Backing, None);
        }
        if self.op.ios == 0 {
            self.shared.ready.push_back(Ready::Gathered(self.id));
        }
        After::Waits
    }

    /// Answers, and stores what was fetched.
    pub fn read_gathered(mut self) -> After {
        if self.op.held.iter().any(|held| !held.is_good && held.source == Source::Backing) {
            // Nothing of it was there before.
            self.shared.forget_parts(self.op.volume, &self.op.plan.fill);
            self.op.plan.fill.clear();
            let own = self.op.range();
            let units = self.shared.extents.units();
            let is_needed = |range: &Range<u64>| !common(range, &own).is_empty();
            let is_whole = self.op.held.iter().all(|held| held.is_good || !is_needed(&held.range))
                && !self.op.plan.cached.iter().any(|part| units.has_lost(units_at(part)));
            if is_whole {
                // What failed was read for later.
                self.op.failure = None;
            }
        }
        self.op.stage = Stage::Storing;
        for fill in 0..self.op.plan.fill.len() {
            let buffer = self.assemble(fill);
            self.submit_store(fill as u32, buffer);
        }
        let pieces = if self.op.kind == Kind::Read && self.op.failure.is_none() {
            self.op.take_pieces()
        } else {
            Vec::new()
        };
        self.shared.reply(self.op, pieces);
        if self.op.ios == 0 { self.end() } else { After::Waits }
    }

    /// What was fetched is stored.
    pub fn filled(self) -> After {
        if self.op.failure.take().is_some() {
            // The client has its bytes; the cache just does not.
            self.shared.forget_parts(self.op.volume, &self.op.plan.fill);
            self.shared.volumes[self.op.volume].counts.cache_failures += 1;
        } else {
            self.shared.note_stored(self.op);
        }
        self.end()
    }
}
