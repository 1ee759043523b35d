//! State of snapshots, and requests to stop the server.

use std::path::PathBuf;
use std::rc::Rc;

use tokio::sync::Notify;

use super::Host;
use crate::engine::Engine;
use crate::shards::shard_stats::SaveFigures;
use crate::snapshot::{SaveError, Saved, Saving};

/// The state of snapshots, and requests to the owner of the store.
#[derive(Debug, Default)]
pub struct Persistence {
    /// Where snapshots are written, if anywhere.
    pub path: Option<PathBuf>,
    /// When the last one was written, in seconds of the store's time; the start before the first.
    pub last_save_s: u64,
    /// Whether the last one failed.
    pub last_failed: bool,
    /// Duration of the last one in the background, in seconds.
    pub last_background_s: Option<u64>,
    /// Since when one is being written in the background, likewise.
    pub running_since_s: Option<u64>,
    /// It, from its beginning to its end.
    pub saving: Option<Saving>,
    /// Number of snapshots written.
    pub saves: u64,
    /// Values that had been written when the last one was.
    pub sets_then: u64,
    /// One in the background was asked for.
    pub wanted: Rc<Notify>,
    /// The shard has stopped: its event loop is to end.
    pub stop: Rc<Notify>,
    /// The same, from the moment on from which no request may run.
    pub is_stopped: bool,
    /// What a forced stop could not keep.
    pub stop_failure: Option<String>,
    /// The number of the attempt to stop in which this shard took part last.
    pub stop_attempt: u64,
}

impl Persistence {
    /// Figures for others, after `sets` values were written.
    pub fn figures(&self, sets: u64) -> SaveFigures {
        SaveFigures {
            changes: sets.saturating_sub(self.sets_then),
            running_since_s: self.running_since_s,
            last_save_s: self.last_save_s,
            last_failed: self.last_failed,
            last_background_s: self.last_background_s,
            saves: self.saves,
        }
    }

    /// Records the result of a snapshot, at `now_s` and after `sets` values were written.
    pub fn note(&mut self, result: &Result<Saved, SaveError>, now_s: u64, sets: u64) {
        self.last_failed = result.is_err();
        match result {
            Ok(saved) => {
                (self.last_save_s, self.sets_then) = (now_s, sets);
                self.saves += 1;
                tracing::info!(
                    items = saved.items,
                    bytes = saved.bytes,
                    ms = saved.took_ms,
                    "snapshot written"
                );
            }
            Err(error) => tracing::error!(%error),
        }
    }
}

impl Host {
    /// Ends the snapshot in the background, complete or not, and its time.
    pub fn end_saving(&mut self, engine: &mut Engine) {
        if let Some(saving) = self.persistence.saving.take() {
            let result = saving.finish(engine);
            self.note_saving(engine, &result);
        }
        if let Some(since_s) = self.persistence.running_since_s.take() {
            self.persistence.last_background_s = Some((self.now_us / 1_000_000).saturating_sub(since_s));
        }
    }

    /// Records the result of a snapshot.
    pub fn note_saving(&mut self, engine: &Engine, result: &Result<Saved, SaveError>) {
        self.persistence.note(result, self.now_us / 1_000_000, engine.counters().sets);
    }
}
