//! Player of bytes to one of the NBD machines, in pieces of any
//! size, that notes all results. Tests and the fuzz target use it.

use tiermem_block::nbd::client::{Agreed, Event, Negotiation, Transmission, Wishes};
use tiermem_block::nbd::wire::{CommandFlags, TransmissionFlags};
use tiermem_block::nbd::{
    BlockSizes, Command, Contexts, Export, Handshake, Incoming, Progress, Request, Requests, Rules, Tls,
    client,
};

/// No machine may hold more than this for any input.
pub const MEMORY_BYTES_MAX: usize = 256 * 1024;
/// Number of parts to play.
pub const PARTS: u8 = 7;
/// Most notes, so that replies to long nonsense stay small.
const NOTES_MAX: usize = 4096;

/// Output of a machine, in words and in bytes, and the bytes that it passed through as payload.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Notes {
    pub said: Vec<String>,
    pub sent: Vec<u8>,
    pub payload: Vec<u8>,
}

/// Exports for a server.
pub fn exports() -> Vec<Export> {
    let features = TransmissionFlags::from_bits(0xffff).without(TransmissionFlags::READ_ONLY);
    let open = Export { features, contexts: Contexts::all(), ..Export::new("vol", 1 << 20) };
    vec![open, Export { read_only: true, description: "words".to_owned(), ..Export::new("ro", 4096) }]
}

/// The rules that a client and a server of the first of [`exports`] agreed on.
fn rules(structured: bool) -> Rules {
    exports()[0].rules_for(structured, if structured { Contexts::all() } else { Contexts::none() })
}

/// Feeds `bytes` in pieces to `part`, which takes a part of each piece and returns whether it continues.
fn feed(bytes: &[u8], step: usize, mut part: impl FnMut(&mut &[u8]) -> bool) {
    for mut piece in bytes.chunks(step) {
        if !part(&mut piece) {
            return;
        }
    }
}

fn play_handshake(bytes: &[u8], step: usize, tls: Tls, notes: &mut Notes) {
    let mut handshake = Handshake::new(tls, &mut notes.sent);
    let exports = exports();
    if tls == Tls::Required {
        let start = b"\0\0\0\x03IHAVEOPT\0\0\0\x05\0\0\0\0";
        let started = handshake.receive(&mut &start[..], &exports, &mut notes.sent);
        assert_eq!(started, Ok(Progress::StartTls));
        assert_eq!(handshake.tls_started(b""), Ok(()));
    }
    feed(bytes, step, |piece| {
        loop {
            let progress = handshake.receive(piece, &exports, &mut notes.sent);
            assert!(handshake.memory_bytes() <= MEMORY_BYTES_MAX);
            if progress == Ok(Progress::Incomplete) {
                assert!(piece.is_empty());
                return true;
            }
            notes.said.push(format!("{progress:?}"));
            let goes_on = matches!(progress, Ok(Progress::Answered | Progress::StartTls));
            if !goes_on || notes.said.len() == NOTES_MAX {
                return false;
            }
        }
    });
}

fn play_requests(bytes: &[u8], step: usize, notes: &mut Notes) {
    let mut requests = Requests::new(rules(true));
    feed(bytes, step, |piece| {
        loop {
            notes.payload.extend(requests.payload(piece));
            assert!(requests.memory_bytes() <= MEMORY_BYTES_MAX);
            match requests.next(piece) {
                Ok(None) => {
                    assert!(piece.is_empty() || notes.said.last().is_some_and(|said| said == "Disconnect"));
                    return true;
                }
                Ok(Some(incoming)) => notes.said.push(match incoming {
                    Incoming::Disconnect => "Disconnect".to_owned(),
                    other => format!("{other:?}"),
                }),
                Err(error) => {
                    notes.said.push(error.to_string());
                    return false;
                }
            }
        }
    });
}

fn play_negotiation(bytes: &[u8], step: usize, tls: Tls, notes: &mut Notes) {
    let contexts = vec!["base:allocation".to_owned(), "tiermem:cache".to_owned()];
    let mut negotiation = Negotiation::new(Wishes { contexts, tls, ..Wishes::new("vol") });
    feed(bytes, step, |piece| {
        loop {
            let progress = negotiation.receive(piece, &mut notes.sent);
            assert!(negotiation.memory_bytes() <= MEMORY_BYTES_MAX);
            match progress {
                Ok(client::Progress::Incomplete) => {
                    assert!(piece.is_empty());
                    return true;
                }
                Ok(client::Progress::StartTls) => notes.said.push("StartTls".to_owned()),
                other => {
                    notes.said.push(format!("{other:?}"));
                    return false;
                }
            }
        }
    });
}

fn play_transmission(bytes: &[u8], step: usize, structured: bool, notes: &mut Notes) {
    let rules = Rules { block: BlockSizes::default(), ..rules(structured) };
    let contexts = vec![(1, "base:allocation".to_owned()), (2, "tiermem:cache".to_owned())];
    let mut transmission = Transmission::new(&Agreed { rules, contexts, name: None, description: None });
    let commands = [Command::Read, Command::Write, Command::Flush, Command::Read, Command::BlockStatus];
    for (cookie, command) in (0..).zip(commands) {
        let len_bytes = if command == Command::Flush { 0 } else { 4096 };
        let request = Request { cookie, command, flags: CommandFlags::none(), offset: 0, len_bytes };
        // Without structured replies there is no block status.
        assert!(transmission.issue(request).is_ok() || !structured);
    }
    feed(bytes, step, |piece| {
        loop {
            notes.payload.extend(transmission.payload(piece));
            assert!(transmission.memory_bytes() <= MEMORY_BYTES_MAX);
            match transmission.next(piece) {
                Ok(None) => {
                    assert!(piece.is_empty());
                    return true;
                }
                Ok(Some(event)) => {
                    // A cookie that is free again is used again, so that noise has more to say.
                    if let Event::Done { cookie, .. } = event {
                        let flags = CommandFlags::none();
                        let read =
                            Request { cookie, command: Command::Read, flags, offset: 0, len_bytes: 64 };
                        assert!(transmission.issue(read).is_ok());
                    }
                    notes.said.push(format!("{event:?}"));
                }
                Err(error) => {
                    notes.said.push(error.to_string());
                    return false;
                }
            }
        }
    });
}

/// What the machine number `part` makes of `bytes`, fed `step` bytes at a time.
pub fn play(part: u8, bytes: &[u8], step: usize) -> Notes {
    let mut notes = Notes::default();
    match part % PARTS {
        0 => play_handshake(bytes, step, Tls::Offered, &mut notes),
        1 => play_handshake(bytes, step, Tls::Required, &mut notes),
        2 => play_requests(bytes, step, &mut notes),
        3 => play_negotiation(bytes, step, Tls::Off, &mut notes),
        4 => play_negotiation(bytes, step, Tls::Offered, &mut notes),
        5 => play_transmission(bytes, step, true, &mut notes),
        _ => play_transmission(bytes, step, false, &mut notes),
    }
    notes
}
