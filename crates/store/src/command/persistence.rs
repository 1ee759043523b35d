//! Snapshot and shutdown commands: `SAVE`, `BGSAVE`, `LASTSAVE`, `SHUTDOWN`.

use super::context::Context;
use super::refusal::{Outcome, Refusal};
use crate::resp::Args;
use crate::shards::stop::StopRequest;
use crate::snapshot::Saving;
use crate::snapshot::format::Taken;

const NOT_CONFIGURED: Refusal =
    Refusal::Text("ERR no snapshot is configured: start the store with --snapshot (snapshot in its file)");
const IN_PROGRESS: Refusal = Refusal::Text("ERR Background save already in progress");

pub(super) fn lastsave(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let saves = context.host.all_figures(context.engine).saves.unwrap_or_default();
    let last_save_s = context.host.wall_clock.unix_s(saves.last_save_s);
    context.reply().integer(last_save_s as i64);
    Ok(())
}

pub(super) fn save(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let path = context.host.persistence.path.clone().ok_or(NOT_CONFIGURED)?;
    if context.host.persistence.running_since_s.is_some() {
        return Err(IN_PROGRESS);
    }
    context.host.timing.mark_long();
    let result = Saving::run(context.engine, &path, Taken::Running);
    context.host.note_saving(context.engine, &result);
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

/// `NOW` is taken: there are no replicas to wait for.
pub(super) fn shutdown(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let mut request = StopRequest::default();
    for word in args.iter_from(1) {
        match word.to_ascii_lowercase().as_slice() {
            b"save" if request.saves != Some(false) => request.saves = Some(true),
            b"nosave" if request.saves != Some(true) => request.saves = Some(false),
            b"now" => {}
            b"force" => request.forced = true,
            b"abort" => return Err(Refusal::Text("ERR No shutdown in progress.")),
            _ => return Err(Refusal::SYNTAX),
        }
    }
    if request.saves == Some(true) && context.host.persistence.path.is_none() {
        return Err(NOT_CONFIGURED);
    }
    context.host.timing.mark_long();
    context.host.stop(context.engine, request).map_err(|failure| {
        Refusal::from(format!(
            "ERR the store serves on, since not all would be kept: {failure}. SHUTDOWN NOSAVE stops without a snapshot, \
             SHUTDOWN FORCE whatever is lost"
        ))
    })?;
    // Redis's clients expect the connection's end and no reply.
    context.session.closing = true;
    Ok(())
}
