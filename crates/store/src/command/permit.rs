//! Permission checks: the user's commands, keys and channels, before a request has any effect.
//!
//! Ordinary requests never come here. A session that is logged in as a user of its own has [`Mode::RESTRICTED`];
//! while `default` is restricted, all requests are checked ([`crate::clients::Clients::GUARDED`]). With several
//! shards the client's home shard checks; a guest only leaves out keys that the user may not see.

use std::sync::Arc;

use crate::clients::Clients;
use crate::host::{Host, Session};
use crate::resp::Args;
use crate::users::{Access, User};

use super::access;
use super::context::Context;
use super::refusal::{Outcome, Refusal};
use super::session_flags::Mode;
use super::spec::{Flags, Spec, keys};
use super::table::COMMANDS;

/// Why a request is refused.
enum Denied {
    Command,
    Key,
    Channel,
    /// The user is gone; its connections are about to be.
    Deleted,
}

#[inline]
fn is_guarded(session: &Session, host: &Host) -> bool {
    session.mode.has(Mode::RESTRICTED) || host.clients.attention() & Clients::GUARDED != 0
}

fn find_denied(user: &User, spec: &'static Spec, args: Args<'_>) -> Option<Denied> {
    // Every user may log in and disconnect.
    if !spec.flags.contains(Flags::NO_AUTH) && !user.may_run(spec.number(COMMANDS)) {
        return Some(Denied::Command);
    }
    let touches = |(place, key): (usize, &[u8])| user.may_touch(key, access::of_key(spec, args, place));
    if !keys(spec, args).enumerate().all(touches) {
        return Some(Denied::Key);
    }
    let allowed = match spec.name {
        "publish" => user.may_use_channel(&args[1]),
        "subscribe" => args.iter_from(1).all(|channel| user.may_use_channel(channel)),
        "psubscribe" => args.iter_from(1).all(|pattern| user.may_use_pattern(pattern)),
        _ => true,
    };
    (!allowed).then_some(Denied::Channel)
}

/// The reason why a request is not permitted now; for `EXEC` also the reason for any queued request.
fn ask(
    session: &Session,
    host: &Host,
    spec: &'static Spec,
    args: Args<'_>,
) -> Option<(Denied, &'static str)> {
    let Some(user) = host.settings.users.now(&session.login) else { return Some((Denied::Deleted, "")) };
    if user.may_everything() {
        return None;
    }
    if let Some(denied) = find_denied(user, spec, args) {
        return Some((denied, ""));
    }
    let queue = session.transaction.as_ref().filter(|_| spec.name == "exec")?;
    let denied = queue.iter().find_map(|(spec, args)| find_denied(user, spec, args))?;
    let reason = match denied {
        Denied::Key => "no permission to touch the specified keys",
        Denied::Channel => "no permission to access one of the channels used as arguments to the command",
        _ => "no permission to execute the command or subcommand",
    };
    Some((denied, reason))
}

/// Whether the user lacks permission. The client's home shard decides this before the request has any effect.
#[inline]
pub(super) fn is_forbidden(
    session: &Session,
    host: &Host,
    spec: Option<&'static Spec>,
    args: Args<'_>,
) -> bool {
    is_guarded(session, host)
        && !session.mode.has(Mode::GUEST)
        && spec.is_some_and(|spec| ask(session, host, spec, args).is_some())
}

/// Refuses what the user may not do.
pub(super) fn check(context: &mut Context<'_>, spec: &'static Spec, args: Args<'_>) -> Outcome {
    if !is_guarded(context.session, context.host) || context.session.mode.has(Mode::GUEST) {
        return Ok(());
    }
    context.host.settings.users.refresh(&mut context.session.login);
    let Some((denied, queued)) = ask(context.session, context.host, spec, args) else { return Ok(()) };
    let stats = &mut context.host.stats;
    match denied {
        Denied::Command | Denied::Deleted => stats.access_denied_cmd += 1,
        Denied::Key => stats.access_denied_key += 1,
        Denied::Channel => stats.access_denied_channel += 1,
    }
    context.host.command_statistics.reject(spec.number(COMMANDS));
    if !queued.is_empty() {
        super::transaction::forget_watched(context);
        return Err(format!(
            "EXECABORT Transaction discarded because ACLs rules changed between the moment the transaction was \
             accumulated and the EXEC call: {queued}"
        )
        .into());
    }
    Err(match denied {
        Denied::Command | Denied::Deleted => {
            let name = context.session.login.name().map_or(crate::users::DEFAULT, |name| &**name);
            format!("NOPERM User {name} has no permissions to run the '{}' command", spec.full_name()).into()
        }
        Denied::Key => Refusal::Text("NOPERM No permissions to access a key"),
        Denied::Channel => Refusal::Text("NOPERM No permissions to access a channel"),
    })
}

/// Keys that the requesting user may see.
#[derive(Debug)]
pub(super) enum Sight {
    All,
    Of(Arc<User>),
    None,
}

impl Sight {
    pub fn of(context: &Context<'_>) -> Sight {
        if !is_guarded(context.session, context.host) {
            return Sight::All;
        }
        match context.host.settings.users.now(&context.session.login) {
            Some(user) if user.may_everything() => Sight::All,
            Some(user) => Sight::Of(Arc::clone(user)),
            None => Sight::None,
        }
    }

    /// Whether it may see this key.
    #[inline]
    pub fn has(&self, key: &[u8]) -> bool {
        match self {
            Sight::All => true,
            Sight::Of(user) => user.may_touch(key, Access::READ),
            Sight::None => false,
        }
    }

    /// Whether it may see all keys that begin so.
    pub fn has_all(&self, prefix: &[u8]) -> bool {
        match self {
            Sight::All => true,
            Sight::Of(user) => user.may_read_all(prefix),
            Sight::None => false,
        }
    }
}
