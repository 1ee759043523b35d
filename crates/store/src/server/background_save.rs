//! Snapshot writing in the background, when a client asks for it.

use std::rc::Rc;
use std::time::{Duration, Instant};

use super::shard_context::{Core, Shard};
use crate::snapshot::format::Taken;
use crate::snapshot::{Saving, Step};

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
        let Core { engine, host, .. } = &mut *shard.borrow_mut();
        host.end_saving(engine);
    }
}

impl Core {
    fn begin_saving(&mut self) {
        let Some(path) = self.host.persistence.path.clone() else { return };
        // A stop that came between the request and this, and failed, has ended it.
        self.host.persistence.running_since_s.get_or_insert(self.host.now_us / 1_000_000);
        match Saving::begin(&mut self.engine, &path, Taken::Running) {
            Ok(saving) => self.host.persistence.saving = Some(saving),
            Err(error) => self.host.note_saving(&self.engine, &Err(error)),
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
}
