//! Stop of a shard: it halts, keeps what is to outlive the process, and serves on where that fails.

use std::sync::Arc;

use super::Host;
use crate::engine::Engine;
use crate::shards::mailboxes::Message;
use crate::shards::stop::{StopAttempt, StopRequest};
use crate::snapshot::{Saving, Unplaced};

impl Host {
    /// Stops all shards, if nothing is lost by it or the stop is forced. Afterwards no request may run
    /// ([`super::Persistence::is_stopped`]). Waits for the disk and for the other shards.
    ///
    /// # Errors
    /// Why it cannot be: all shards serve on as before.
    pub fn stop(&mut self, engine: &mut Engine, request: StopRequest) -> Result<(), String> {
        let last = self.persistence.stop_attempt;
        let Some(mailboxes) = &self.mailboxes else {
            return self.take_part_in_stop(engine, &StopAttempt::new(last + 1, request, 1));
        };
        let (attempt, is_new) = mailboxes.stops.join(last, request, mailboxes.placement.shards);
        if is_new {
            for shard in mailboxes.others() {
                if !mailboxes.reach(shard, Message::TakePartInStop(Arc::clone(&attempt))) {
                    attempt.excuse_one();
                }
            }
        }
        self.take_part_in_stop(engine, &attempt)
    }

    /// This shard's part of a stop that it or another has begun.
    ///
    /// # Errors
    /// Why the store serves on.
    pub fn take_part_in_stop(&mut self, engine: &mut Engine, attempt: &StopAttempt) -> Result<(), String> {
        if attempt.number <= self.persistence.stop_attempt {
            return Err("this shard has taken part already".to_owned());
        }
        self.persistence.stop_attempt = attempt.number;
        // No shard may answer a request that another one's snapshot has missed.
        let halted = attempt.agree(Ok(()));
        // One in the background is given up, so that it cannot take the place of what comes now.
        self.end_saving(engine);
        let kept = halted.and_then(|()| self.keep_for_restart(engine, attempt));
        if let Err(failure) = kept {
            if !attempt.request.forced {
                return Err(failure);
            }
            self.persistence.stop_failure = Some(failure);
        }
        self.persistence.is_stopped = true;
        self.persistence.stop.notify_one();
        Ok(())
    }

    /// Writes what the next start is to find. Where that fails at one shard, the files of all stay as they were.
    fn keep_for_restart(&mut self, engine: &mut Engine, attempt: &StopAttempt) -> Result<(), String> {
        let written = self.write_back(engine, attempt.request);
        let (own, written) = written.map_or_else(|failure| (Err(failure), None), |written| (Ok(()), written));
        attempt.agree(own)?;
        let Some(mut written) = written else { return attempt.agree(Ok(())) };
        let placed = written.put_in_place();
        let agreed = attempt.agree(placed.as_ref().map_err(ToString::to_string).map(drop));
        if agreed.is_err() {
            written.withdraw();
        }
        if agreed.is_ok() || placed.is_err() {
            self.note_saving(engine, &placed);
        }
        agreed
    }

    /// Writes back what outlives the process in its place, and a snapshot of everything else, which has no name yet.
    fn write_back(&mut self, engine: &mut Engine, request: StopRequest) -> Result<Option<Unplaced>, String> {
        // Flash notes what memory has, so first of all.
        engine.between_requests().lost_parts().look();
        engine.flash().write_back().map_err(|error| format!("the flash tier cannot be kept: {error}"))?;
        let dax = engine.warm_start().write_back();
        dax.map_err(|error| format!("a tier of kind dax was not written back: {error}"))?;
        let path = self.persistence.path.clone().filter(|_| request.saves != Some(false));
        let Some(path) = path else { return Ok(None) };
        let written = Saving::run_unplaced(engine, &path);
        written.map(Some).map_err(|error| {
            let text = error.to_string();
            self.note_saving(engine, &Err(error));
            text
        })
    }
}
