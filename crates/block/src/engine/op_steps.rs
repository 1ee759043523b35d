//! Steps of one operation: it claims its range, is planned, gathers
//! what it needs, stores its data, and releases its claims.
//!
//! The operation stays in the table of operations, and is borrowed apart from the parts that it shares with
//! others ([`Shared`]). Each step returns what comes next and which other operations to call ([`After`]).

use tiermem_policy::extents::{Mode, Request, Service, UNIT_BYTES, Verdict};

use super::early_answers::answer_before_opening;
use super::op::{Kind, Op, Stage};
use super::op_table::{After, Ready};
use super::shared::Shared;
use crate::nbd::Errno;

/// An operation, its number, and what it works on.
pub(super) struct Work<'a> {
    pub id: u32,
    pub op: &'a mut Op,
    pub shared: &'a mut Shared,
}

impl Work<'_> {
    /// Claims the operation's range.
    pub fn claim(self) -> After {
        let exclusive = self.op.kind.is_write() || matches!(self.op.kind, Kind::Trim | Kind::TrimStore);
        let claims = &mut self.shared.volumes[self.op.volume].claims;
        self.op.claims.push(claims.claim(self.id, self.op.units(), exclusive));
        self.op.stage = Stage::Claiming;
        self.shared.ready.push_back(Ready::Claim(self.id));
        After::Waits
    }

    /// The operation may get what it claims now.
    pub fn try_claims(mut self) -> After {
        // It may have been woken twice, and may be gone, or another's.
        if self.op.stage != Stage::Claiming {
            return After::Waits;
        }
        if self.op.kind == Kind::TrimStore {
            return self.trim_store();
        }
        if !self.are_granted() {
            return After::Waits;
        }
        let is_planned = self.op.claims.len() > 1;
        match self.op.kind {
            Kind::Copy => self.copy(),
            _ if is_planned => self.proceed(),
            _ if !self.shared.log.await_room() => self.try_later(After::Crowds),
            Kind::Trim => self.trim(),
            _ => self.plan(),
        }
    }

    /// The operation has its range: what does it need, and where does what it brings go?
    fn plan(self) -> After {
        let mut write = None;
        if self.op.kind.is_write() {
            if let Some(why) = self.shared.log.failure() {
                self.op.failure = Some((Errno::Io, why.to_owned()));
                return self.end();
            }
            write = Some(self.shared.mode_for(self.op));
        } else if self.shared.log.failure().is_some() {
            self.shared.extents.stop_storing();
        }
        if self.op.kind == Kind::Prefetch && self.shared.extents.service() != Service::Whole {
            return self.end();
        }
        let Shared { write_back, extents, volumes, log, write_order, now_ns, .. } = &mut *self.shared;
        let mut request = Request {
            volume: volumes[self.op.volume].number,
            offset: self.op.offset,
            bytes: self.op.bytes,
            write,
            bypass: false,
        };
        if write.is_some() {
            match write_back.cleaner_mut().may_write(*now_ns, extents, &request) {
                Verdict::Ready => {}
                Verdict::Clean => return self.try_later(After::Parks),
                Verdict::Busy => return self.try_later(After::Crowds),
                Verdict::Full => {
                    self.shared.refuse_for_room(self.op);
                    return self.end();
                }
            }
        }
        let verdict = write_back.plan(*now_ns, extents, &mut request, &mut self.op.plan);
        write_order.note_map(log, extents);
        debug_assert!(write.is_some() || verdict == Verdict::Ready, "a read never waits");
        match verdict {
            Verdict::Clean => return self.try_later(After::Parks),
            Verdict::Busy => return self.try_later(After::Crowds),
            Verdict::Full => {
                self.shared.refuse_for_room(self.op);
                return self.end();
            }
            Verdict::Ready => {}
        }
        self.op.unstored_forgotten = self.shared.unstored.forgotten();
        let extents = &self.shared.extents;
        // An operation is small beside the cache: only plans in flight and dirty blocks can block all of them.
        debug_assert!(
            write != Some(Mode::WriteBack)
                || self.op.plan.through.is_empty()
                || extents.units().has_lost(0..u64::MAX)
                || extents.map().retired_bytes() > 0,
            "a write in write-back mode finds a place, unless lost units or places that failed hold all there are"
        );
        self.planned()
    }

    /// Whether the operation has all its claims.
    pub fn are_granted(&mut self) -> bool {
        let claims = &mut self.shared.volumes[self.op.volume].claims;
        self.op.claims.iter().all(|claim| claims.grant(*claim))
    }

    /// The operation is planned: claims the range that its plan
    /// fills beside its own, and continues when all is granted.
    fn planned(mut self) -> After {
        self.shared.volumes[self.op.volume].counts.note_plan(self.op.kind, &self.op.plan);
        if let Some(job) = self.op.job.filter(|_| !self.op.plan.hit) {
            self.shared.answers.missed(job);
        }
        let own = self.op.units();
        let owned_exclusively = self.op.kind.is_write();
        for part in &self.op.plan.fill {
            let units = part.offset / UNIT_BYTES..(part.offset + part.bytes) / UNIT_BYTES;
            if owned_exclusively && own.start <= units.start && units.end <= own.end {
                continue;
            }
            let claims = &mut self.shared.volumes[self.op.volume].claims;
            self.op.claims.push(claims.extend(self.op.claims[0], units));
        }
        if self.are_granted() { self.proceed() } else { After::Waits }
    }

    /// The operation has all its claims: it reads, as soon as the log allows what comes afterwards.
    fn proceed(self) -> After {
        let Shared { log, write_order, extents, volumes, .. } = &mut *self.shared;
        let volume = &volumes[self.op.volume];
        let wait = write_order.open_blocks(log, self.op, volume.number, volume.mode, extents.map());
        if log.must_wait(self.id, wait) {
            self.op.stage = Stage::Opening;
            answer_before_opening(self.shared, self.op);
            return After::Waits;
        }
        self.gather()
    }

    /// The log has what the operation waited for.
    pub fn resume(self) -> After {
        match self.op.kind {
            Kind::TrimStore => self.trim_store(),
            Kind::Copy => self.copy(),
            _ => self.gather(),
        }
    }

    /// The log is broken, and the operation waits for it.
    pub fn log_failed(self, why: &str) -> After {
        match self.op.kind {
            Kind::Copy => return self.keep_dirty(why),
            Kind::TrimStore => {
                self.shared.trimmed(self.op, Err((Errno::Io, why.to_owned())));
                return self.end();
            }
            _ if !self.op.brought.is_empty() => return self.store_nothing(),
            _ => {}
        }
        if matches!(self.op.kind, Kind::Read | Kind::Prefetch) {
            // It begins anew, and stores nothing.
            unplan(self.op, self.shared);
            return self.try_later(After::Crowds);
        }
        // Nothing was stored yet.
        self.shared.forget_parts(self.op.volume, &self.op.plan.fresh);
        self.op.failure = Some((Errno::Io, why.to_owned()));
        self.end()
    }

    /// All that the operation needs is here, or failed.
    pub fn gathered(self) -> After {
        if let Some(fetch) = self.op.take_fetch() {
            let number = self.shared.volumes[self.op.volume].number;
            self.shared.extents.sizer_mut().measured(number, fetch);
        }
        match self.op.kind {
            Kind::Read | Kind::Prefetch => self.read_gathered(),
            Kind::Write | Kind::Zero => self.write_gathered(),
            Kind::Copy => self.copied(),
            Kind::Trim | Kind::TrimStore => self.end(),
        }
    }

    /// All is stored, or some of it failed.
    pub fn stored(self) -> After {
        match self.op.kind {
            Kind::Write | Kind::Zero => self.written(),
            Kind::Trim | Kind::TrimStore => self.end(),
            Kind::Read | Kind::Prefetch | Kind::Copy => self.filled(),
        }
    }

    /// The operation cannot continue now: it releases everything and starts
    /// again when the event has happened that this answer waits for.
    fn try_later(mut self, after: After) -> After {
        self.release_claims();
        self.shared.volumes[self.op.volume].counts.parked += u64::from(after == After::Parks);
        after
    }

    /// Gives the operation's claims back.
    pub fn release_claims(&mut self) {
        let Shared { volumes, ready, .. } = &mut *self.shared;
        let claims = &mut volumes[self.op.volume].claims;
        for claim in self.op.claims.drain(..) {
            claims.release(claim, |owner| ready.push_back(Ready::Claim(owner)));
        }
    }

    /// The operation is over: it replies, unless it has, and releases everything.
    pub fn end(mut self) -> After {
        self.shared.reply(self.op, Vec::new());
        self.shared.finish_plan(self.op);
        self.release_claims();
        let Shared { log, write_order, volumes, .. } = &mut *self.shared;
        let promises = volumes.iter_mut().flat_map(|volume| volume.flushing.promises());
        write_order.leave_blocks(log, self.op, promises);
        for held in self.op.held.drain(..) {
            self.shared.pool.give_back(held.buffer);
        }
        After::Ends
    }
}

/// The plan of a read is given up, of which nothing was stored yet.
pub(super) fn unplan(op: &mut Op, shared: &mut Shared) {
    shared.forget_parts(op.volume, &op.plan.fresh);
    shared.finish_plan(op);
    op.plan.clear();
}

#[cfg(test)]
#[path = "op_steps/tests.rs"]
mod tests;
