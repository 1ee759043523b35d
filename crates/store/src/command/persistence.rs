//! Snapshots and the end: `SAVE`, `BGSAVE`, `LASTSAVE`, `SHUTDOWN`.

use std::path::PathBuf;
use std::rc::Rc;

use tokio::sync::Notify;

use super::context::{Context, Outcome, Refusal};
use crate::resp::Args;
use crate::shards::board::SaveFigures;
use crate::snapshot::format::Taken;
use crate::snapshot::{SaveError, Saved, Saving};

const NOT_CONFIGURED: Refusal =
    Refusal::Text("ERR no snapshot is configured: start the store with --snapshot (snapshot in its file)");
const IN_PROGRESS: Refusal = Refusal::Text("ERR Background save already in progress");

/// What is known of snapshots, and what was asked of whoever runs the store.
#[derive(Debug, Default)]
pub struct Persistence {
    /// Where snapshots are written, if anywhere.
    pub path: Option<PathBuf>,
    /// When the last one was written, in Unix seconds; that of the start before the first.
    pub last_save_s: u64,
    /// Whether the last one failed.
    pub last_failed: bool,
    /// What the last one in the background took, in seconds.
    pub last_background_s: Option<u64>,
    /// Since when one is being written in the background, in Unix seconds.
    pub running_since_s: Option<u64>,
    /// It, from its beginning to its end.
    pub saving: Option<Saving>,
    /// How many were written.
    pub saves: u64,
    /// Values that had been written when the last one was.
    pub sets_then: u64,
    /// One in the background was asked for.
    pub wanted: Rc<Notify>,
    /// The store is to stop.
    pub stop: Rc<Notify>,
    /// Whether it writes a snapshot then; `None`: where one is configured.
    pub save_at_stop: Option<bool>,
}

impl Persistence {
    /// What others may see of it, after so many values were written.
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

    /// Notes what came of a snapshot, at `now_s` and after so many values were written.
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

    /// Where a snapshot is to be written when the store stops.
    pub fn path_at_stop(&self) -> Option<&PathBuf> {
        self.path.as_ref().filter(|_| self.save_at_stop != Some(false))
    }
}

pub(super) fn lastsave(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let saves = context.host.all_figures(context.engine).saves.unwrap_or_default();
    context.reply().integer(saves.last_save_s as i64);
    Ok(())
}

pub(super) fn save(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let path = context.host.persistence.path.clone().ok_or(NOT_CONFIGURED)?;
    if context.host.persistence.running_since_s.is_some() {
        return Err(IN_PROGRESS);
    }
    context.host.timing.mark_long();
    let result = Saving::run(context.engine, &path, Taken::Running);
    let (now_s, sets) = (context.host.now_us / 1_000_000, context.engine.sets());
    context.host.persistence.note(&result, now_s, sets);
    result.map_err(|error| Refusal::from(format!("ERR {error}")))?;
    context.reply().ok();
    Ok(())
}

/// `SCHEDULE` is taken: there is nothing that it would have to wait for.
pub(super) fn bgsave(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 2 || args.get(1).is_some_and(|word| !word.eq_ignore_ascii_case(b"schedule")) {
        return Err(Refusal::SYNTAX);
    }
    let now_s = context.host.now_us / 1_000_000;
    let persistence = &mut context.host.persistence;
    if persistence.path.is_none() {
        return Err(NOT_CONFIGURED);
    }
    if persistence.running_since_s.is_some() {
        return Err(IN_PROGRESS);
    }
    persistence.running_since_s = Some(now_s);
    persistence.wanted.notify_one();
    context.reply().simple("Background saving started");
    Ok(())
}

/// `NOW` and `FORCE` are taken: there are no replicas to wait for.
pub(super) fn shutdown(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let mut saves = None;
    for word in args.iter_from(1) {
        match word.to_ascii_lowercase().as_slice() {
            b"save" if saves != Some(false) => saves = Some(true),
            b"nosave" if saves != Some(true) => saves = Some(false),
            b"now" | b"force" => {}
            b"abort" => return Err(Refusal::Text("ERR No shutdown in progress.")),
            _ => return Err(Refusal::SYNTAX),
        }
    }
    let persistence = &mut context.host.persistence;
    if saves == Some(true) && persistence.path.is_none() {
        return Err(NOT_CONFIGURED);
    }
    persistence.save_at_stop = saves;
    persistence.stop.notify_one();
    // Redis's clients expect the connection's end and no reply.
    context.session.closing = true;
    Ok(())
}
