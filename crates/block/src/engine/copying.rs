//! Copies of what is dirty, to be written back.

use tiermem_policy::extents::cleaner::{Act, Outcome};
use tiermem_policy::extents::{Part, UNIT_BYTES};

use super::op::{Source, Stage};
use super::operations::{After, Ready};
use super::work::Work;
use tiermem_tier::backing::BackingError;

impl Work<'_> {
    /// Nobody changes the range now: read it, once nothing older of it can come back in the cache when the store has it.
    pub fn copy(mut self) -> After {
        let number = self.shared.volumes[self.op.volume].number;
        let wait = self.shared.write_order.before_store(number, &self.op.units());
        if self.shared.log.must_wait(self.id, wait) {
            self.op.stage = Stage::Opening;
            return After::Waits;
        }
        self.op.stage = Stage::Gathering;
        let mut parts = Vec::new();
        self.shared.extents.visit(number, self.op.aligned(), |part, is_dirty| {
            if is_dirty {
                parts.push(part);
            }
        });
        // What is lost was to be copied with what was written around it.
        for Part { offset, at, bytes } in self.shared.extents.units().without_lost(&parts) {
            self.submit_gather(offset..offset + bytes, Source::Cache(at), None);
        }
        if self.op.ios == 0 {
            self.shared.ready.push_back(Ready::Gathered(self.id));
        }
        After::Waits
    }

    /// The range cannot be written back, for the log is broken or what lies there cannot be proven: it stays dirty.
    pub fn keep_dirty(self, why: &str) -> After {
        if let Some(act) = self.op.copy.take() {
            self.shared.write_back_failed(self.op.volume, act, &BackingError::Failed(why.to_owned()));
        }
        self.end()
    }

    /// The range is in memory: send it.
    pub fn copied(self) -> After {
        if let Some((_, why)) = self.op.failure.take() {
            return self.keep_dirty(&why);
        }
        self.op.held.retain(|held| !held.range.is_empty());
        self.op.held.sort_unstable_by_key(|held| held.range.start);
        self.op.lost.sort_unstable_by_key(|lost| lost.start);
        for lost in &self.op.lost {
            self.shared.lose(self.op.volume, lost);
        }
        let runs = self.op.copied_runs();
        let Some(act) = self.op.copy.take() else { return self.end() };
        for act in self.shared.cleaning.tell(self.shared.now_ns, act, Outcome::Copied(&runs)) {
            if let Act::Send { token, units, .. } = act {
                let run = units.start * UNIT_BYTES..units.end * UNIT_BYTES;
                let buffer = match self.op.held.iter_mut().find(|part| part.range == run) {
                    Some(part) => std::mem::take(&mut part.buffer),
                    None => {
                        let mut buffer = self.shared.pool.lend((run.end - run.start) as usize);
                        self.op.copy_held(&run, &mut buffer);
                        buffer
                    }
                };
                self.shared.submit_write_back(self.op.volume, token, units, buffer);
            }
        }
        self.end()
    }
}
