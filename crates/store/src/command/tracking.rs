//! `CLIENT TRACKING` and its relatives: client-side caching.

use crate::clients::{Prefixes, TrackingMode};
use crate::resp::{Args, Writer, parse_i64};

use super::context::Context;
use super::permit::Sight;
use super::refusal::{Outcome, Refusal};
use super::session_flags::Mode;

/// The options of `CLIENT TRACKING`, and the prefixes that it names.
fn parse<'a>(context: &Context<'_>, args: Args<'a>) -> Result<(TrackingMode, Vec<&'a [u8]>), Refusal> {
    let mut mode = TrackingMode::default();
    let mut prefixes = Vec::new();
    let mut rest = args.iter_from(3).peekable();
    while let Some(option) = rest.next() {
        let is = |name: &[u8]| option.eq_ignore_ascii_case(name);
        if is(b"redirect") && rest.peek().is_some() {
            if mode.redirect != 0 {
                return Err(Refusal::Text("ERR A client can only redirect to a single other client"));
            }
            let id = rest.next().and_then(parse_i64).ok_or(Refusal::NOT_AN_INTEGER)?;
            mode.redirect = u64::try_from(id)
                .ok()
                .filter(|id| context.host.clients.registry().find(*id).is_some())
                .ok_or(Refusal::Text("ERR The client ID you want redirect to does not exist"))?;
        } else if is(b"bcast") {
            mode.broadcast = true;
        } else if is(b"optin") {
            mode.opt_in = true;
        } else if is(b"optout") {
            mode.opt_out = true;
        } else if is(b"noloop") {
            mode.no_loop = true;
        } else if is(b"prefix")
            && let Some(prefix) = rest.next()
        {
            prefixes.push(prefix);
        } else {
            return Err(Refusal::SYNTAX);
        }
    }
    Ok((mode, prefixes))
}

/// Whether the options go together, with one another and with what the client has chosen before.
fn check(old: Option<&TrackingMode>, new: &TrackingMode, prefixes: &[&[u8]]) -> Outcome {
    let refuse = |wrong: bool, text| if wrong { Err(Refusal::Text(text)) } else { Ok(()) };
    refuse(!new.broadcast && !prefixes.is_empty(), "ERR PREFIX option requires BCAST mode to be enabled")?;
    refuse(
        old.is_some_and(|old| old.broadcast != new.broadcast),
        "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with \
         a different mode.",
    )?;
    refuse(
        new.broadcast && (new.opt_in || new.opt_out),
        "ERR OPTIN and OPTOUT are not compatible with BCAST",
    )?;
    refuse(new.opt_in && new.opt_out, "ERR You can't specify both OPTIN mode and OPTOUT mode")?;
    refuse(
        old.is_some_and(|old| (new.opt_in && old.opt_out) || (new.opt_out && old.opt_in)),
        "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with \
         a different mode.",
    )?;
    if new.broadcast { check_prefixes(old, prefixes) } else { Ok(()) }
}

/// No prefix of a client may begin with another: the client would get each invalidation twice.
fn check_prefixes(old: Option<&TrackingMode>, prefixes: &[&[u8]]) -> Outcome {
    let overlap = |a: &[u8], b: &[u8]| a.starts_with(b) || b.starts_with(a);
    let refusal = |new: &[u8], what: &str, other: &[u8]| {
        let parts: [&[u8]; 7] = [
            b"ERR Prefix '",
            new,
            b"' overlaps with ",
            what.as_bytes(),
            b" '",
            other,
            b"'. Prefixes for a single client must not overlap.",
        ];
        Refusal::Built(parts.concat())
    };
    for (at, new) in prefixes.iter().enumerate() {
        let mut existing = old.iter().flat_map(|old| old.prefixes.iter());
        if let Some(other) = existing.find(|other| overlap(new, other)) {
            return Err(refusal(new, "an existing prefix", other));
        }
        if let Some(other) = prefixes[at + 1..].iter().find(|other| overlap(new, other)) {
            return Err(refusal(new, "another provided prefix", other));
        }
    }
    Ok(())
}

pub(super) fn tracking(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (mode, prefixes) = parse(context, args)?;
    let slot = context.session.slot;
    if args[2].eq_ignore_ascii_case(b"on") {
        check(context.host.clients.tracking().mode(slot), &mode, &prefixes)?;
        let mut added: Prefixes = prefixes.into_iter().map(Box::from).collect();
        if mode.broadcast && added.is_empty() {
            added.insert(Box::default());
        }
        let sight = Sight::of(context);
        if !added.iter().all(|prefix| sight.has_all(prefix)) {
            return Err(Refusal::Text(
                "NOPERM No permissions to read all keys with such a prefix: name prefixes that you may read, or track \
                 without BCAST",
            ));
        }
        let reads = !mode.broadcast;
        context.host.clients.start_tracking(slot, mode, added)?;
        context.session.mode.set(Mode::TRACKS, reads);
    } else if args[2].eq_ignore_ascii_case(b"off") {
        context.session.mode.set(Mode::TRACKS, false);
        context.host.clients.stop_tracking(slot);
    } else {
        return Err(Refusal::SYNTAX);
    }
    context.refresh();
    context.reply().ok();
    Ok(())
}

pub(super) fn caching(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let slot = context.session.slot;
    let Some(mode) = context.host.clients.tracking().mode(slot) else {
        return Err(Refusal::Text(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode \
             enabled",
        ));
    };
    let yes = args[2].eq_ignore_ascii_case(b"yes");
    if yes && !mode.opt_in {
        return Err(Refusal::Text(
            "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
        ));
    }
    if !yes && !args[2].eq_ignore_ascii_case(b"no") {
        return Err(Refusal::SYNTAX);
    }
    if !yes && !mode.opt_out {
        return Err(Refusal::Text(
            "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
        ));
    }
    context.host.clients.set_caching(slot, true);
    context.reply().ok();
    Ok(())
}

pub(super) fn getredir(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let mode = context.host.clients.tracking().mode(context.session.slot);
    let redirect = mode.map_or(-1, |mode| mode.redirect as i64);
    context.reply().integer(redirect);
    Ok(())
}

pub(super) fn trackinginfo(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let Context { session, host, output, .. } = context;
    let mode = host.clients.tracking().mode(session.slot);
    let flags: Vec<&str> = match mode {
        None => vec!["off"],
        Some(mode) => [
            (true, "on"),
            (mode.broadcast, "bcast"),
            (mode.opt_in, "optin"),
            (mode.opt_in && mode.caching, "caching-yes"),
            (mode.opt_out, "optout"),
            (mode.opt_out && mode.caching, "caching-no"),
            (mode.no_loop, "noloop"),
            (mode.broken, "broken_redirect"),
        ]
        .into_iter()
        .filter_map(|(on, name)| on.then_some(name))
        .collect(),
    };
    let mut reply = Writer::new(output.bytes(), session.version);
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.into_iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"redirect");
    reply.integer(mode.map_or(-1, |mode| mode.redirect as i64));
    reply.bulk(b"prefixes");
    let none = Prefixes::new();
    let prefixes = mode.map_or(&none, |mode| &mode.prefixes);
    reply.array(prefixes.len());
    prefixes.iter().for_each(|prefix| reply.bulk(prefix));
    Ok(())
}
