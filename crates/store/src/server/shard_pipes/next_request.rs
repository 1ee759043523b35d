//! What a client has said of its next request alone.

use crate::command::{Context, Mode};
use crate::host::Session;

/// Whether the client wants no reply to this request.
pub(super) fn take_silence(session: &mut Session) -> bool {
    let silent = session.mode.has(Mode::SILENT) || session.mode.has(Mode::SKIP_NEXT);
    session.mode.set(Mode::SKIP_NEXT, false);
    silent
}

/// The setting of `CLIENT CACHING` for this request, which may
/// run elsewhere: whether to remember the keys that it reads.
pub(super) fn caching(context: &Context<'_>) -> Option<bool> {
    if !context.session.mode.has(Mode::TRACKS) {
        return None;
    }
    let mode = context.host.clients.tracking().mode(context.session.slot)?;
    mode.caching.then_some(mode.opt_in)
}

/// The same, once.
pub(super) fn take_caching(context: &mut Context<'_>) -> Option<bool> {
    let caching = caching(context);
    if caching.is_some() {
        context.host.clients.set_caching(context.session.slot, false);
    }
    caching
}
