//! `CLIENT`: client names, the list of clients, and commands that act on other clients.

use crate::clients::{Clients, PauseKind, Peer, Slot, describe};
use crate::resp::{Args, Writer, parse_i64};
use crate::users::Users;

use super::context::Context;
use super::refusal::{Outcome, Refusal, printable};
use super::session_flags::Mode;

/// Names are shown in lists of one line per client, so they hold neither blanks nor control bytes.
pub(super) fn check_name(name: &[u8]) -> Outcome {
    if name.iter().all(u8::is_ascii_graphic) {
        return Ok(());
    }
    Err(Refusal::Text("ERR Client names cannot contain spaces, newlines or special characters."))
}

pub(super) fn id(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let id = context.session.id;
    context.reply().integer(id as i64);
    Ok(())
}

pub(super) fn setname(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    check_name(&args[2])?;
    context.host.clients.set_name(context.session.slot, &args[2])?;
    context.reply().ok();
    Ok(())
}

pub(super) fn getname(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let Context { session, host, output, .. } = context;
    let mut reply = Writer::new(output.bytes(), session.version);
    match &*host.clients.registry().client_info(session.slot).name {
        [] => reply.null(),
        name => reply.bulk(name),
    }
    Ok(())
}

/// Clients tell their library's name and version when they connect; both are checked and not kept.
pub(super) fn setinfo(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let option = [&b"lib-name"[..], b"lib-ver"].into_iter().find(|name| args[2].eq_ignore_ascii_case(name));
    let Some(option) = option else {
        let mut text = b"ERR Unrecognized option '".to_vec();
        text.extend_from_slice(printable(&args[2], args[2].len()));
        text.push(b'\'');
        return Err(Refusal::Built(text));
    };
    if !args[3].iter().all(u8::is_ascii_graphic) {
        let option = String::from_utf8_lossy(option);
        return Err(format!("ERR {option} cannot contain spaces, newlines or special characters.").into());
    }
    context.reply().ok();
    Ok(())
}

fn on_or_off(word: &[u8]) -> Result<bool, Refusal> {
    match word {
        on if on.eq_ignore_ascii_case(b"on") => Ok(true),
        off if off.eq_ignore_ascii_case(b"off") => Ok(false),
        _ => Err(Refusal::SYNTAX),
    }
}

/// No client is ever evicted here for what it holds, so this is only noted.
pub(super) fn no_evict(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let on = on_or_off(&args[2])?;
    context.host.clients.registry_mut().client_info_mut(context.session.slot).no_evict = on;
    context.reply().ok();
    Ok(())
}

pub(super) fn no_touch(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let on = on_or_off(&args[2])?;
    context.session.mode.set(Mode::NO_TOUCH, on);
    context.host.clients.registry_mut().client_info_mut(context.session.slot).no_touch = on;
    context.reply().ok();
    Ok(())
}

pub(super) fn reply(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let mode = &mut context.session.mode;
    if args[2].eq_ignore_ascii_case(b"on") {
        mode.set(Mode::SILENT, false);
        context.session.is_skipped = false;
        context.reply().ok();
    } else if args[2].eq_ignore_ascii_case(b"off") {
        mode.set(Mode::SILENT, true);
    } else if args[2].eq_ignore_ascii_case(b"skip") {
        // Off stays off.
        let silent = mode.has(Mode::SILENT);
        mode.set(Mode::SKIP_NEXT, !silent);
    } else {
        return Err(Refusal::SYNTAX);
    }
    Ok(())
}

/// No command blocks, so no client can be unblocked.
pub(super) fn unblock(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if let Some(how) = args.get(3)
        && !how.eq_ignore_ascii_case(b"timeout")
        && !how.eq_ignore_ascii_case(b"error")
    {
        return Err(Refusal::Text("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
    }
    parse_i64(&args[2]).ok_or(Refusal::NOT_AN_INTEGER)?;
    context.reply().integer(0);
    Ok(())
}

pub(super) fn pause(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let kind = match args.get(3) {
        None => PauseKind::All,
        Some(word) if word.eq_ignore_ascii_case(b"all") => PauseKind::All,
        Some(word) if word.eq_ignore_ascii_case(b"write") => PauseKind::Write,
        Some(_) => return Err(Refusal::Text("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    if args.len() > 4 {
        return Err(Refusal::SYNTAX);
    }
    let timeout_ms =
        parse_i64(&args[2]).ok_or(Refusal::Text("ERR timeout is not an integer or out of range"))?;
    let timeout_ms = u64::try_from(timeout_ms).map_err(|_| Refusal::Text("ERR timeout is negative"))?;
    let until_us = context.host.now_us.saturating_add(timeout_ms.saturating_mul(1000));
    context.host.clients.pause(kind, until_us);
    context.reply().ok();
    Ok(())
}

pub(super) fn unpause(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    context.host.clients.unpause();
    context.reply().ok();
    Ok(())
}

/// Updates the facts about this client: the connection does so only after the batch.
fn note(context: &mut Context<'_>) {
    let Context { session, host, .. } = context;
    let now_us = host.now_us;
    session.note(host.clients.registry_mut().client_info_mut(session.slot), now_us);
}

pub(super) fn info(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    note(context);
    let mut line = describe(&context.host.clients, context.session.slot, context.host.now_us);
    line.push(b'\n');
    context.reply().verbatim(&line);
    Ok(())
}

/// The types that Redis distinguishes; there are no masters and replicas here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientType {
    Normal,
    Subscriber,
    Master,
    Replica,
}

impl ClientType {
    fn parse(word: &[u8]) -> Result<Self, Refusal> {
        let types: [(&[u8], ClientType); 5] = [
            (b"normal", ClientType::Normal),
            (b"pubsub", ClientType::Subscriber),
            (b"master", ClientType::Master),
            (b"replica", ClientType::Replica),
            (b"slave", ClientType::Replica),
        ];
        let found = types.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name));
        found.map(|(_, kind)| kind).ok_or_else(|| {
            let text = [b"ERR Unknown client type '", printable(word, word.len()), b"'"].concat();
            Refusal::Built(text)
        })
    }

    fn of(clients: &Clients, slot: Slot) -> Self {
        if clients.channels().is_subscriber(slot) { ClientType::Subscriber } else { ClientType::Normal }
    }
}

pub(super) fn list(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    note(context);
    let clients = &context.host.clients;
    let slots: Vec<Slot> = match args.get(2) {
        None => clients.registry().connected().collect(),
        Some(option) if option.eq_ignore_ascii_case(b"type") && args.len() == 4 => {
            let kind = ClientType::parse(&args[3])?;
            clients.registry().connected().filter(|slot| ClientType::of(clients, *slot) == kind).collect()
        }
        Some(option) if option.eq_ignore_ascii_case(b"id") && args.len() > 3 => {
            let ids: Option<Vec<i64>> = args.iter_from(3).map(parse_i64).collect();
            let ids = ids.ok_or(Refusal::Text("ERR Invalid client ID"))?;
            ids.into_iter()
                .filter_map(|id| clients.registry().find(u64::try_from(id).ok()?))
                .filter(|slot| clients.registry().client_info(*slot).home.is_none())
                .collect()
        }
        Some(_) => return Err(Refusal::SYNTAX),
    };
    let mut text = Vec::new();
    for slot in slots {
        text.extend_from_slice(&describe(clients, slot, context.host.now_us));
        text.push(b'\n');
    }
    context.reply().verbatim(&text);
    Ok(())
}

/// The clients that `CLIENT KILL` selects: those that pass every given filter.
struct Filter<'a> {
    id: Option<u64>,
    kind: Option<ClientType>,
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
    skip_me: bool,
}

impl<'a> Filter<'a> {
    fn parse(args: Args<'a>, users: &Users) -> Result<Self, Refusal> {
        let mut filter =
            Filter { id: None, kind: None, address: None, local_address: None, user: None, skip_me: true };
        if args.len() == 3 {
            (filter.address, filter.skip_me) = (args.get(2), false);
            return Ok(filter);
        }
        let mut rest = args.iter_from(2);
        while let Some(option) = rest.next() {
            let value = rest.next().ok_or(Refusal::SYNTAX)?;
            let is = |name: &[u8]| option.eq_ignore_ascii_case(name);
            if is(b"id") {
                let id = parse_i64(value).and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0);
                filter.id = Some(id.ok_or(Refusal::Text("ERR client-id should be greater than 0"))?);
            } else if is(b"type") {
                filter.kind = Some(ClientType::parse(value)?);
            } else if is(b"addr") {
                filter.address = Some(value);
            } else if is(b"laddr") {
                filter.local_address = Some(value);
            } else if is(b"user") {
                if std::str::from_utf8(value).ok().and_then(|name| users.get(name)).is_none() {
                    return Err(Refusal::Built(
                        [b"ERR No such user '", printable(value, value.len()), b"'"].concat(),
                    ));
                }
                filter.user = Some(value);
            } else if is(b"skipme") {
                filter.skip_me = match value {
                    yes if yes.eq_ignore_ascii_case(b"yes") => true,
                    no if no.eq_ignore_ascii_case(b"no") => false,
                    _ => return Err(Refusal::SYNTAX),
                };
            } else {
                return Err(Refusal::SYNTAX);
            }
        }
        Ok(filter)
    }

    fn means(&self, clients: &Clients, slot: Slot) -> bool {
        let client_info = clients.registry().client_info(slot);
        let is = |wanted: Option<&[u8]>, address: fn(&Peer) -> String| {
            wanted.is_none_or(|wanted| wanted == address(&client_info.peer).as_bytes())
        };
        self.id.is_none_or(|id| id == client_info.id)
            && self.kind.is_none_or(|kind| kind == ClientType::of(clients, slot))
            && self.user.is_none_or(|user| user == client_info.user_name().as_bytes())
            && is(self.address, Peer::address)
            && is(self.local_address, Peer::local_address)
    }
}

pub(super) fn kill(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let filter = Filter::parse(args, &context.host.settings.users)?;
    let Context { session, host, .. } = context;
    let clients = &mut host.clients;
    let meant: Vec<Slot> = clients
        .registry()
        .connected()
        .filter(|slot| !(filter.skip_me && *slot == session.slot) && filter.means(clients, *slot))
        .collect();
    for slot in &meant {
        if *slot == session.slot {
            // Its reply is still sent.
            session.closing = true;
        } else {
            clients.output_mut().kill(*slot);
        }
    }
    if args.len() > 3 {
        context.reply().integer(meant.len() as i64);
    } else if meant.is_empty() {
        return Err(Refusal::Text("ERR No such client"));
    } else {
        context.reply().ok();
    }
    Ok(())
}
