//! Connection commands: `HELLO`, `AUTH`, `SELECT` and others that change the session.

use crate::engine::DATABASES;
use crate::resp::{Args, Version, parse_i64};
use crate::users::{DEFAULT, Login};

use super::client::check_name;
use super::context::Context;
use super::refusal::{Outcome, Refusal, printable, wrong_arity};
use super::session_flags::Mode;
use crate::host::Session;

pub(super) fn ping(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match args.len() {
        1 | 2 if context.session.mode.has(Mode::SUBSCRIBED) && context.session.version == Version::Resp2 => {
            // A subscriber that speaks RESP2 takes everything for a message.
            let mut reply = context.reply();
            reply.array(2);
            reply.bulk(b"pong");
            reply.bulk(args.get(1).unwrap_or_default());
        }
        1 => context.reply().simple("PONG"),
        2 => context.reply().bulk(&args[1]),
        _ => return Err(wrong_arity("ping")),
    }
    Ok(())
}

pub(super) fn echo(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    context.reply().bulk(&args[1]);
    Ok(())
}

pub(super) fn quit(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    context.session.closing = true;
    context.reply().ok();
    Ok(())
}

pub(super) fn reset(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let (id, slot) = (context.session.id, context.session.slot);
    context.host.clients.forget_state(slot);
    let named = context.host.clients.set_name(slot, &[]);
    debug_assert!(named.is_ok(), "no name takes no memory");
    context.host.clients.registry_mut().set_version(slot, Version::default());
    context.host.clients.registry_mut().client_info_mut(slot).user = None;
    let (command, is_skipped) = (context.session.command, context.session.is_skipped);
    *context.session = Session { slot, command, is_skipped, ..context.host.new_session(id) };
    context.refresh();
    context.reply().simple("RESET");
    Ok(())
}

pub(super) fn select(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let number = parse_i64(&args[1]).ok_or(Refusal::NOT_AN_INTEGER)?;
    if i32::try_from(number).is_err() {
        return Err(Refusal::Text(
            "ERR value is out of range, value must between -2147483648 and 2147483647",
        ));
    }
    let db = u8::try_from(number).ok().filter(|db| *db < DATABASES);
    context.session.db = db.ok_or(Refusal::Text("ERR DB index is out of range"))?;
    context.reply().ok();
    Ok(())
}

const WRONG_PASSWORD: Refusal =
    Refusal::Text("WRONGPASS invalid username-password pair or user is disabled.");

/// Logs the client in if user and password are right. Without a configured password any password is right.
fn authenticate(context: &mut Context<'_>, user: &[u8], password: &[u8]) -> Outcome {
    let Context { session, host, .. } = context;
    let login = if session.mode.has(Mode::GUEST) {
        // Its client has shown the password at home.
        std::str::from_utf8(user).ok().map(Login::of)
    } else {
        host.settings.users.authenticate(user, password)
    };
    let Some(login) = login else {
        host.stats.access_denied_auth += 1;
        return Err(WRONG_PASSWORD);
    };
    host.clients.registry_mut().client_info_mut(session.slot).user = login.name().cloned();
    session.mode.set(Mode::RESTRICTED, login.name().is_some());
    session.login = login;
    session.authenticated = true;
    Ok(())
}

pub(super) fn auth(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match args.len() {
        2 if context.host.settings.users.default_needs_no_password() => {
            return Err(Refusal::Text(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure \
                 your configuration is correct?",
            ));
        }
        2 => authenticate(context, DEFAULT.as_bytes(), &args[1])?,
        3 => authenticate(context, &args[1], &args[2])?,
        _ => return Err(Refusal::SYNTAX),
    }
    context.reply().ok();
    Ok(())
}

pub(super) fn hello(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let version = match args.get(1).map(parse_i64) {
        None => context.session.version,
        Some(None) => {
            return Err(Refusal::Text("ERR Protocol version is not an integer or out of range"));
        }
        Some(Some(2)) => Version::Resp2,
        Some(Some(3)) => Version::Resp3,
        Some(Some(_)) => return Err(Refusal::Text("NOPROTO unsupported protocol version")),
    };
    let mut name = None;
    let mut at = 2;
    while let Some(option) = args.get(at) {
        match (args.get(at + 1), args.get(at + 2)) {
            (Some(user), Some(password)) if option.eq_ignore_ascii_case(b"auth") => {
                authenticate(context, user, password)?;
                at += 3;
            }
            (Some(wanted), _) if option.eq_ignore_ascii_case(b"setname") => {
                check_name(wanted)?;
                name = Some(wanted);
                at += 2;
            }
            _ => {
                let mut text = b"ERR Syntax error in HELLO option '".to_vec();
                text.extend_from_slice(printable(option, option.len()));
                text.push(b'\'');
                return Err(Refusal::Built(text));
            }
        }
    }
    if !context.session.authenticated {
        return Err(Refusal::Text(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH \
             <user> <pass> option can be used to authenticate the client and select the RESP protocol version at \
             the same time",
        ));
    }
    if let Some(name) = name {
        context.host.clients.set_name(context.session.slot, name)?;
    }
    context.session.version = version;
    context.host.clients.registry_mut().set_version(context.session.slot, version);
    let id = context.session.id;
    let mut reply = context.reply();
    reply.map(7);
    for (field, value) in [("server", "redis"), ("version", super::REDIS_VERSION)] {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.integer(if version == Version::Resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.integer(id as i64);
    for (field, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
    Ok(())
}
