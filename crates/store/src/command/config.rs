//! `CONFIG GET` of what clients ask for and `CONFIG SET` of what really changes.

use crate::engine::{DATABASES, Eviction};
use crate::resp::Args;

use super::context::{Context, Outcome, Refusal};
use super::observing;
use super::refusal::printable;
use crate::glob;

/// Seconds after which a silent TCP peer is probed.
pub const TCP_KEEPALIVE_S: u64 = 300;
const EVICTION_POLICY: &str = "maxmemory-policy";

/// The parameters there are, in Redis's names.
const PARAMETERS: [&str; 13] = [
    "appendonly",
    "bind",
    "databases",
    "io-threads",
    "maxclients",
    "maxmemory",
    EVICTION_POLICY,
    "port",
    "proto-max-bulk-len",
    "save",
    "tcp-keepalive",
    "timeout",
    "unixsocket",
];

fn parameters() -> impl Iterator<Item = &'static str> {
    PARAMETERS.into_iter().chain(observing::NAMES)
}

fn policy_name(eviction: Eviction) -> &'static str {
    match eviction {
        Eviction::AllKeys => "allkeys-lru",
        Eviction::Forbidden => "noeviction",
    }
}

fn value(context: &Context<'_>, parameter: &str) -> String {
    match parameter {
        "appendonly" => "no".to_owned(),
        "databases" => DATABASES.to_string(),
        "io-threads" => "1".to_owned(),
        "maxclients" => context.host.maxclients.to_string(),
        "maxmemory" => capacity_bytes(context).to_string(),
        EVICTION_POLICY => policy_name(context.engine.eviction()).to_owned(),
        "port" => context.host.tcp_port.to_string(),
        "proto-max-bulk-len" => context.engine.value_bytes_max().to_string(),
        "tcp-keepalive" => TCP_KEEPALIVE_S.to_string(),
        "timeout" => context.host.timeout_s.to_string(),
        "unixsocket" => context.host.unix_socket.clone(),
        name => context.host.observing.get(name),
    }
}

/// What all tiers together hold.
pub(super) fn capacity_bytes(context: &Context<'_>) -> u64 {
    context.engine.stats().tiers.iter().map(|tier| tier.capacity_bytes).sum()
}

pub(super) fn get(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let chosen = parameters().filter(|parameter| {
        args.iter_from(2).any(|pattern| glob::matches(pattern, parameter.as_bytes(), true))
    });
    let chosen: Vec<_> = chosen.map(|parameter| (parameter, value(context, parameter))).collect();
    let mut reply = context.reply();
    reply.map(chosen.len());
    for (parameter, value) in chosen {
        reply.bulk(parameter.as_bytes());
        reply.bulk(value.as_bytes());
    }
    Ok(())
}

fn failed(parameter: &str, why: &str) -> Refusal {
    format!("ERR CONFIG SET failed (possibly related to argument '{parameter}') - {why}").into()
}

/// Checks every pair before it changes anything, so that a refused call leaves all as it was.
pub(super) fn set(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() % 2 == 1 {
        return Err(Refusal::SYNTAX);
    }
    let mut eviction = None;
    let (mut observing, mut changed) = (context.host.observing.clone(), Vec::new());
    for at in (2..args.len()).step_by(2) {
        let (name, value) = (&args[at], &args[at + 1]);
        let Some(parameter) = parameters().find(|known| known.as_bytes().eq_ignore_ascii_case(name)) else {
            let mut text = b"ERR Unknown option or number of arguments for CONFIG SET - '".to_vec();
            text.extend_from_slice(printable(name, name.len()));
            text.push(b'\'');
            return Err(Refusal::Built(text));
        };
        if observing::NAMES.contains(&parameter) {
            if changed.contains(&parameter) {
                return Err(failed(parameter, "duplicate parameter"));
            }
            changed.push(parameter);
            let text = std::str::from_utf8(value).map_err(|_| failed(parameter, "argument is no UTF-8"))?;
            observing.set(parameter, text).map_err(|why| failed(parameter, &why))?;
            continue;
        }
        if parameter != EVICTION_POLICY {
            return Err(failed(parameter, "can't set immutable config"));
        }
        if eviction.is_some() {
            return Err(failed(parameter, "duplicate parameter"));
        }
        let known = [Eviction::AllKeys, Eviction::Forbidden];
        let chosen = known.into_iter().find(|it| policy_name(*it).as_bytes().eq_ignore_ascii_case(value));
        eviction = Some(chosen.ok_or_else(|| {
            failed(parameter, "argument(s) must be one of the following: allkeys-lru, noeviction")
        })?);
    }
    eviction.into_iter().for_each(|eviction| context.engine.set_eviction(eviction));
    context.host.observe(observing);
    context.refresh();
    context.reply().ok();
    Ok(())
}
