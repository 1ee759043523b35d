//! Snapshot writing: in the background when a client asks for it, and when the store stops.

use std::rc::Rc;
use std::time::{Duration, Instant};

use super::shard_context::{Core, Shard};
use crate::snapshot::format::Taken;
use crate::snapshot::{SaveError, Saved, Saving, Step};

/// Time that requests have the shard for themselves between two pieces of a snapshot ...
const REST: Duration = Duration::from_millis(1);
/// ... and how long they wait for a piece.
const PIECE: Duration = Duration::from_micros(250);

/// Writes a snapshot in the background whenever one is asked for.
pub(super) async fn save_when_asked(shard: Rc<Shard>) {
    let wanted = Rc::clone(&shard.borrow().host.persistence.wanted);
    loop {
        wanted.notified().await;
        shard.borrow_mut().begin_saving();
        while shard.borrow_mut().go_on_saving() {
            tokio::time::sleep(REST).await;
        }
        shard.borrow_mut().end_saving();
    }
}

/// Writes what memory holds at the end, when nothing can change any more.
pub(super) fn save_at_stop(shard: &Shard) {
    let core = &mut *shard.borrow_mut();
    // One that is under way is given up, so that it cannot take the place of what comes now.
    core.end_saving();
    let Some(path) = core.host.persistence.path_at_stop().cloned() else { return };
    let result = Saving::run(&mut core.engine, &path, Taken::Stopped);
    core.note_saving(&result);
}

impl Core {
    fn begin_saving(&mut self) {
        let Some(path) = self.host.persistence.path.clone() else { return };
        match Saving::begin(&mut self.engine, &path, Taken::Running) {
            Ok(saving) => self.host.persistence.saving = Some(saving),
            Err(error) => self.note_saving(&Err(error)),
        }
    }

    /// A piece of the snapshot under way; `false`: all is written.
    fn go_on_saving(&mut self) -> bool {
        let Some(saving) = self.host.persistence.saving.as_mut() else { return false };
        let begun = Instant::now();
        loop {
            match saving.step(&mut self.engine) {
                Step::Go if begun.elapsed() < PIECE => {}
                Step::Go | Step::Wait => return true,
                Step::Finish => return false,
            }
        }
    }

    fn end_saving(&mut self) {
        if let Some(saving) = self.host.persistence.saving.take() {
            let result = saving.finish(&mut self.engine);
            self.note_saving(&result);
        }
        let now_s = self.clock.store_us() / 1_000_000;
        let persistence = &mut self.host.persistence;
        if let Some(since_s) = persistence.running_since_s.take() {
            persistence.last_background_s = Some(now_s.saturating_sub(since_s));
        }
    }

    fn note_saving(&mut self, result: &Result<Saved, SaveError>) {
        let (now_s, sets) = (self.clock.store_us() / 1_000_000, self.engine.counters().sets);
        self.host.persistence.note(result, now_s, sets);
    }
}
