//! Client info as text: one client's line of `CLIENT LIST`.

use std::fmt::Write;

use super::{ClientInfo, Clients, Kind, OutputBuffers, Peer, Slot};
use crate::resp::Version;

/// The letters that Redis has for what a client is and does.
fn letters(clients: &Clients, slot: Slot) -> String {
    let client_info = clients.registry().client_info(slot);
    let tracking = clients.tracking().mode(slot);
    let letters = [
        (clients.monitors.has(slot), 'O'),
        (clients.channels().is_subscriber(slot), 'P'),
        (client_info.queued >= 0, 'x'),
        (tracking.is_some(), 't'),
        (tracking.is_some_and(|it| it.broken), 'R'),
        (tracking.is_some_and(|it| it.broadcast), 'B'),
        (clients.watched().is_dirty(slot), 'd'),
        (matches!(client_info.peer, Peer::Unix(_)), 'U'),
        (client_info.no_evict, 'e'),
        (client_info.no_touch, 'T'),
    ];
    let text: String = letters.into_iter().filter_map(|(on, letter)| on.then_some(letter)).collect();
    if text.is_empty() { "N".to_owned() } else { text }
}

/// Redis's line about a client, without its end.
pub fn describe(clients: &Clients, slot: Slot, now_us: u64) -> Vec<u8> {
    let client_info = clients.registry().client_info(slot);
    let seconds = |since: u64| now_us.saturating_sub(since) / 1_000_000;
    let mut line = format!(
        "id={} addr={} laddr={} fd={} name=",
        client_info.id,
        client_info.peer.address(),
        client_info.peer.local_address(),
        client_info.fd
    )
    .into_bytes();
    line.extend_from_slice(&client_info.name);
    let (unsent, pushed) = clients.output().waiting_for(slot);
    let waiting = unsent + pushed;
    let command = client_info.command_name();
    let redirect = clients.tracking().mode(slot).map_or(-1, |it| it.redirect as i64);
    let mut rest = String::new();
    // Writing to a string does not fail.
    let _ = write!(
        rest,
        " age={} idle={} flags={} db={} sub={} psub={} ssub=0 multi={} qbuf={} qbuf-free={} argv-mem={} multi-mem={} \
         rbs=0 rbp=0 obl={} oll=0 omem={} tot-mem={} events=r cmd={command} user={} redir={redirect} resp={}",
        seconds(client_info.created_us),
        seconds(client_info.active_us),
        letters(clients, slot),
        client_info.db,
        clients.channels().subscription_count(slot, Kind::Channel),
        clients.channels().subscription_count(slot, Kind::Pattern),
        client_info.queued,
        // What is whole of an argument was taken, though it lies there still.
        client_info.pending_bytes - client_info.parsed_bytes,
        client_info.pending_free_bytes,
        client_info.argument_bytes,
        client_info.queued_bytes,
        unsent,
        waiting,
        waiting
            + client_info.pending_bytes
            + client_info.pending_free_bytes
            + client_info.queued_bytes
            + size_of::<ClientInfo>()
            + OutputBuffers::CLIENT_BYTES,
        client_info.user_name(),
        if client_info.version == Version::Resp3 { 3 } else { 2 },
    );
    line.extend_from_slice(rest.as_bytes());
    line
}
