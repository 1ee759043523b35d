//! `MONITOR`: formats every request as a line.

use std::io::Write;

use crate::clients::Peer;
use crate::resp::Args;

use super::context::Context;
use super::refusal::Outcome;
use crate::host::{REDACTED, is_secret};

pub(super) fn monitor(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    context.host.clients.add_monitor(context.session.slot);
    context.reply().ok();
    Ok(())
}

/// Sends a request to all monitors, in the form that Redis gives it and `tiermem trace` reads. The time is that of
/// the batch in which the request came.
pub(super) fn tell(context: &mut Context<'_>, args: Args<'_>) {
    let Context { session, host, .. } = context;
    let mut line = Vec::with_capacity(128);
    let now_us = host.wall_clock.unix_us(host.now_us);
    let (seconds, micros) = (now_us / 1_000_000, now_us % 1_000_000);
    let address = match &host.clients.registry().client_info(session.slot).peer {
        Peer::Unix(path) => format!("unix:{path}"),
        peer => peer.address(),
    };
    // Writing to a vector does not fail.
    let _ = write!(line, "+{seconds}.{micros:06} [{} {address}]", session.db);
    for (at, arg) in args.iter_from(0).enumerate() {
        line.extend_from_slice(b" \"");
        quote(if is_secret(args, at) { REDACTED } else { arg }, &mut line);
        line.push(b'"');
    }
    line.extend_from_slice(b"\r\n");
    host.clients.tell_monitors(&line);
}

/// Escapes as Redis does: what cannot be printed as hexadecimal digits or a letter.
fn quote(arg: &[u8], line: &mut Vec<u8>) {
    for byte in arg {
        match byte {
            b'\\' | b'"' => line.extend_from_slice(&[b'\\', *byte]),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\t' => line.extend_from_slice(b"\\t"),
            0x07 => line.extend_from_slice(b"\\a"),
            0x08 => line.extend_from_slice(b"\\b"),
            b' '..=b'~' => line.push(*byte),
            _ => {
                let _ = write!(line, "\\x{byte:02x}");
            }
        }
    }
}
