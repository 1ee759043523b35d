//! `ACL`: users listed and changed while the server runs.
//!
//! Every shard runs `SETUSER` and `DELUSER` in the same order. Each
//! shard has all users, and acts on the clients that are at home there.

use crate::clients::{Clients, Kind, Slot};
use crate::resp::{Args, parse_i64};
use crate::users::{self, CATEGORIES, Command, DEFAULT, User, Users, find_category, is_name};

use super::context::Context;
use super::refusal::{Outcome, Refusal, printable};

/// Bits of a password that `ACL GENPASS` makes, and the most.
const PASSWORD_BITS: i64 = 256;
const PASSWORD_BITS_MAX: i64 = 4096;

pub(super) fn whoami(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let name = context.session.login.name().cloned();
    context.reply().bulk(name.as_deref().unwrap_or(DEFAULT).as_bytes());
    Ok(())
}

pub(super) fn users(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let names: Vec<_> = context.host.settings.users.iter().map(|user| user.name().clone()).collect();
    let mut reply = context.reply();
    reply.array(names.len());
    names.iter().for_each(|name| reply.bulk(name.as_bytes()));
    Ok(())
}

pub(super) fn list(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let line = |user: &User| format!("user {} {}", user.name(), user.describe());
    let lines: Vec<String> = context.host.settings.users.iter().map(line).collect();
    let mut reply = context.reply();
    reply.array(lines.len());
    lines.iter().for_each(|line| reply.bulk(line.as_bytes()));
    Ok(())
}

pub(super) fn getuser(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let name = std::str::from_utf8(&args[2]).unwrap_or_default();
    let Some(user) = context.host.settings.users.get(name).cloned() else {
        context.reply().null();
        return Ok(());
    };
    let mut reply = context.reply();
    reply.map(6);
    reply.bulk(b"flags");
    reply.set(user.flags().count());
    user.flags().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    let digests = user.digests();
    reply.array(digests.len());
    digests.iter().for_each(|digest| reply.bulk(digest.as_bytes()));
    for (field, rules) in
        [("commands", user.command_rules()), ("keys", user.key_rules()), ("channels", user.channel_rules())]
    {
        reply.bulk(field.as_bytes());
        reply.bulk(rules.as_bytes());
    }
    reply.bulk(b"selectors");
    reply.array(0);
    Ok(())
}

/// The name of a user to be: text without blanks.
fn name(word: &[u8]) -> Result<&str, Refusal> {
    std::str::from_utf8(word)
        .ok()
        .filter(|name| is_name(name))
        .ok_or(Refusal::Text("ERR Usernames can't contain spaces or null characters"))
}

/// Replaces the users by the changed ones.
fn replace(context: &mut Context<'_>, users: Users) -> Outcome {
    if context.engine.tenants().have_owners() {
        let owners = users.owners().map_err(|shared| Refusal::from(format!("ERR {shared}")))?;
        context.engine.tenants_mut().set_owners(&owners);
    }
    let mut settings = context.host.settings.clone();
    settings.users = users;
    context.host.change_settings(settings);
    Ok(())
}

/// Disconnects clients; the one that asks still gets its reply.
fn disconnect(context: &mut Context<'_>, meant: impl Fn(&Context<'_>, Slot) -> bool) {
    let seen = &*context;
    let slots: Vec<Slot> =
        seen.host.clients.registry().connected().filter(|slot| meant(seen, *slot)).collect();
    for slot in slots {
        if slot == context.session.slot {
            context.session.closing = true;
        } else {
            context.host.clients.output_mut().kill(slot);
        }
    }
}

/// Whether a client still receives messages that its user may not receive
/// any more: it subscribed, or tracks prefixes, under earlier permissions.
fn hears_too_much(clients: &Clients, slot: Slot, user: &User) -> bool {
    let channels = clients.channels().subscriptions(slot, Kind::Channel);
    let patterns = clients.channels().subscriptions(slot, Kind::Pattern);
    let tracked = clients.tracking().mode(slot).filter(|mode| mode.broadcast);
    !channels.iter().all(|channel| user.may_use_channel(channel))
        || !patterns.iter().all(|pattern| user.may_use_pattern(pattern))
        || tracked.is_some_and(|mode| !mode.prefixes.iter().all(|prefix| user.may_read_all(prefix)))
}

pub(super) fn setuser(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let name = name(&args[2])?;
    let mut users = context.host.settings.users.clone();
    users.change(name, args.iter_from(3)).map_err(|bad| {
        let rule = printable(&bad.rule, bad.rule.len());
        let parts: [&[u8]; 4] = [b"ERR Error in ACL SETUSER modifier '", rule, b"': ", bad.why.as_bytes()];
        Refusal::Built(parts.concat())
    })?;
    replace(context, users)?;
    disconnect(context, |context, slot| {
        let clients = &context.host.clients;
        let user = context
            .host
            .settings
            .users
            .get(name)
            .filter(|_| clients.registry().client_info(slot).user_name() == name);
        user.is_some_and(|user| hears_too_much(clients, slot, user))
    });
    context.reply().ok();
    Ok(())
}

pub(super) fn deluser(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.iter_from(2).any(|name| *name == *DEFAULT.as_bytes()) {
        return Err(Refusal::Text("ERR The 'default' user cannot be removed"));
    }
    let mut users = context.host.settings.users.clone();
    let names = args.iter_from(2).filter_map(|name| std::str::from_utf8(name).ok());
    let deleted: Vec<&str> = names.filter(|name| users.delete(name)).collect();
    replace(context, users)?;
    disconnect(context, |context, slot| {
        deleted.contains(&context.host.clients.registry().client_info(slot).user_name())
    });
    context.reply().integer(deleted.len() as i64);
    Ok(())
}

/// Redis's error where a subcommand with at most one argument gets more.
fn too_many(subcommand: &str) -> Refusal {
    format!("ERR unknown subcommand or wrong number of arguments for '{subcommand}'. Try ACL HELP.").into()
}

pub(super) fn cat(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let names: Vec<String> = match args.get(2) {
        None => CATEGORIES.map(str::to_owned).into(),
        Some(name) if args.len() == 3 => {
            let category = find_category(name).ok_or_else(|| {
                Refusal::Built([b"ERR Unknown category '", printable(name, 128), b"'"].concat())
            })?;
            Command::all().filter(|it| it.is_in(category)).map(|it| it.spec.full_name()).collect()
        }
        Some(_) => return Err(too_many("CAT")),
    };
    let mut reply = context.reply();
    reply.array(names.len());
    names.iter().for_each(|name| reply.bulk(name.as_bytes()));
    Ok(())
}

pub(super) fn genpass(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    const UNUSABLE: Refusal = Refusal::Text(
        "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096",
    );
    let bits = match args.get(2) {
        None => PASSWORD_BITS,
        Some(bits) if args.len() == 3 => parse_i64(bits).ok_or(Refusal::NOT_AN_INTEGER)?,
        Some(_) => return Err(too_many("GENPASS")),
    };
    if !(1..=PASSWORD_BITS_MAX).contains(&bits) {
        return Err(UNUSABLE);
    }
    let digits = (bits as usize).div_ceil(4);
    let password = users::random_hex(digits).map_err(|users::Randomless| {
        Refusal::Text("ERR the system gives no random numbers: try again later")
    })?;
    context.reply().bulk(password.as_bytes());
    Ok(())
}

/// `SAVE` and `LOAD` are about a file of users alone, which there is not.
pub(super) fn no_file(_: &mut Context<'_>, _: Args<'_>) -> Outcome {
    Err(Refusal::Text(
        "ERR there is no ACL file here: users stand in the configuration file as [[user]], CONFIG REWRITE writes them there, \
         and a start reads them",
    ))
}
