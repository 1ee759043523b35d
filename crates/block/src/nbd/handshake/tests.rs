//! Tests of each option against bytes written by hand.

use super::*;
use crate::nbd::wire::{STRING_BYTES_MAX, TransmissionFlags};

const GREETING: &[u8] = b"NBDMAGICIHAVEOPT\x00\x03";
const FIXED: &[u8] = b"\0\0\0\x03";

fn exports() -> Vec<Export> {
    let first = Export {
        description: "scratch".to_owned(),
        features: TransmissionFlags::SEND_FLUSH.with(TransmissionFlags::SEND_DF),
        contexts: Contexts::all(),
        ..Export::new("vol", 0x10_0000)
    };
    vec![first, Export { read_only: true, ..Export::new("ro", 512) }]
}

/// An option as it goes over the wire.
fn asked(option: u8, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT\0\0\0".to_vec();
    bytes.push(option);
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// A reply as it goes over the wire.
fn answer(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x00\x03\xe8\x89\x04\x55\x65\xa9".to_vec();
    for field in [option, kind, data.len() as u32] {
        bytes.extend(field.to_be_bytes());
    }
    bytes.extend(data);
    bytes
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}

/// A handshake that has read `flags`.
fn begun(tls: Tls, flags: &[u8]) -> Handshake {
    let mut out = Vec::new();
    let mut handshake = Handshake::new(tls, &mut out);
    assert_eq!(out, GREETING);
    out.clear();
    let progress = handshake.receive(&mut &flags[..], &exports(), &mut out);
    assert_eq!((progress, out), (Ok(Progress::Incomplete), vec![]));
    handshake
}

/// The result of one option, which must be taken whole.
fn one(handshake: &mut Handshake, option: u8, data: &[u8]) -> (Result<Progress, HandshakeError>, Vec<u8>) {
    let (mut out, bytes) = (Vec::new(), asked(option, data));
    let mut input = &bytes[..];
    let progress = handshake.receive(&mut input, &exports(), &mut out);
    assert!(progress.is_err() || input.is_empty());
    (progress, out)
}

/// Sends an option and ignores its answer.
fn said(handshake: &mut Handshake, option: u8, data: &[u8]) {
    assert!(one(handshake, option, data).0.is_ok());
}

/// The answer to `option`, if its data do not end the negotiation; error messages are left out.
fn refusal(handshake: &mut Handshake, option: u8, data: &[u8]) -> u32 {
    let (progress, out) = one(handshake, option, data);
    assert_eq!(progress, Ok(Progress::Answered));
    assert_eq!(out[8..12], u32::from(option).to_be_bytes());
    u32::from_be_bytes(*out[12..].first_chunk().unwrap())
}

#[test]
fn an_export_is_described_and_entered() {
    let mut handshake = begun(Tls::Off, FIXED);
    let size = b"\0\0\0\0\0\0\0\x10\0\0\x00\x05";
    let data = [&string("vol")[..], b"\0\x03\0\x03\0\x02\0\x01"].concat();
    let told = |option| {
        [
            answer(option, 3, size),
            answer(option, 3, b"\0\x01vol"),
            answer(option, 3, b"\0\x02scratch"),
            answer(option, 3, b"\0\x03\0\0\0\x01\0\0\x10\0\x02\0\0\0"),
            answer(option, 1, b""),
        ]
        .concat()
    };
    assert_eq!(one(&mut handshake, 6, &data), (Ok(Progress::Answered), told(6)));
    let (progress, out) = one(&mut handshake, 7, &data);
    assert_eq!(out, told(7));
    let Ok(Progress::Transmit(session)) = progress else { panic!("it was acknowledged") };
    assert_eq!((session.export, session.rules.size_bytes), (0, 0x10_0000));
    assert!(!session.rules.structured && session.contexts.is_empty());
    let (progress, out) = one(&mut handshake, 7, &data);
    assert_eq!((progress, out), (Err(HandshakeError::Over), vec![]));
    // What is not known is ignored, and nothing but the size comes unasked.
    let data = [&string("ro")[..], b"\0\x02\0\x63\0\0"].concat();
    let told = [answer(7, 3, b"\0\0\0\0\0\0\0\0\x02\0\0\x03"), answer(7, 1, b"")].concat();
    assert_eq!(one(&mut begun(Tls::Off, FIXED), 7, &data).1, told);
}

#[test]
fn exports_are_listed() {
    let mut handshake = begun(Tls::Off, FIXED);
    let listed =
        [answer(3, 2, b"\0\0\0\x03volscratch"), answer(3, 2, b"\0\0\0\x02ro"), answer(3, 1, b"")].concat();
    assert_eq!(one(&mut handshake, 3, b""), (Ok(Progress::Answered), listed));
    assert_eq!(refusal(&mut handshake, 3, b"x"), reply::ERR_INVALID);
}

#[test]
fn the_oldest_way_in_has_zeroes_behind_it_unless_both_sides_left_them_out() {
    let told = b"\0\0\0\0\0\x10\0\0\x00\x05";
    let (progress, out) = one(&mut begun(Tls::Off, FIXED), 1, b"vol");
    assert!(matches!(progress, Ok(Progress::Transmit(_))));
    assert_eq!(out, told);
    let (_, out) = one(&mut begun(Tls::Off, b"\0\0\0\0"), 1, b"vol");
    assert_eq!(out, [&told[..], &[0; 124]].concat());
    for name in [&b"other"[..], b"", b"\xff"] {
        let (progress, out) = one(&mut begun(Tls::Off, FIXED), 1, name);
        assert_eq!((progress, out), (Err(HandshakeError::UnknownExport), vec![]));
    }
    let long = one(&mut begun(Tls::Off, FIXED), 1, &[b'a'; STRING_BYTES_MAX + 1]);
    assert_eq!(long, (Err(HandshakeError::UnknownExport), vec![]));
}

#[test]
fn structured_replies_come_before_metadata_contexts() {
    let mut handshake = begun(Tls::Off, FIXED);
    let none = [&string("vol")[..], b"\0\0\0\0"].concat();
    for option in [9, 10] {
        assert_eq!(refusal(&mut handshake, option, &none), reply::ERR_INVALID);
    }
    assert_eq!(one(&mut handshake, 8, b""), (Ok(Progress::Answered), answer(8, 1, b"")));
    let all =
        [answer(9, 4, b"\0\0\0\0base:allocation"), answer(9, 4, b"\0\0\0\0tiermem:cache"), answer(9, 1, b"")];
    assert_eq!(one(&mut handshake, 9, &none).1, all.concat());
    let query = |texts: &[&str]| {
        let mut data = [string("vol"), (texts.len() as u32).to_be_bytes().to_vec()].concat();
        texts.iter().for_each(|text| data.extend(string(text)));
        data
    };
    let wildcards = query(&["tiermem:", "qemu:"]);
    assert_eq!(one(&mut handshake, 9, &wildcards).1, [all[1].clone(), all[2].clone()].concat());
    assert_eq!(one(&mut handshake, 10, &wildcards).1, answer(10, 1, b""));
    let twice = query(&["tiermem:cache", "tiermem:cache", "base:allocation"]);
    let set = [
        answer(10, 4, b"\0\0\0\x01base:allocation"),
        answer(10, 4, b"\0\0\0\x02tiermem:cache"),
        answer(10, 1, b""),
    ];
    assert_eq!(one(&mut handshake, 10, &twice).1, set.concat());
    let (progress, _) = one(&mut handshake, 7, &[&string("vol")[..], b"\0\0"].concat());
    let Ok(Progress::Transmit(session)) = progress else { panic!("it was acknowledged") };
    assert_eq!((session.contexts, session.rules.contexts), (Contexts::all(), true));
    assert!(session.rules.flags.contains(TransmissionFlags::SEND_DF));
}

#[test]
fn a_selection_counts_for_its_export_until_the_next_one() {
    let good = [&string("vol")[..], b"\0\0\0\x01", &string("base:allocation")].concat();
    let chosen = |more: &[u8], name: &str| {
        let mut handshake = begun(Tls::Off, FIXED);
        said(&mut handshake, 8, b"");
        said(&mut handshake, 10, &good);
        if !more.is_empty() {
            said(&mut handshake, 10, more);
        }
        let (progress, _) = one(&mut handshake, 1, name.as_bytes());
        let Ok(Progress::Transmit(session)) = progress else { panic!("{name} exists") };
        session.contexts.is_empty()
    };
    assert!(!chosen(b"", "vol"));
    assert!(chosen(b"", "ro"));
    assert!(chosen(&[&string("vol")[..], b"\0\0\0\0"].concat(), "vol"));
    assert!(chosen(b"nonsense", "vol"), "a selection that fails replaces the one before");
}

#[test]
fn malformed_options_are_refused_and_the_stream_stays_in_step() {
    let mut handshake = begun(Tls::Off, FIXED);
    said(&mut handshake, 8, b"");
    let vol = string("vol");
    let with = |more: &[u8]| [&vol[..], more].concat();
    for option in [6, 7] {
        for data in [&b""[..], b"\0\0", b"\0\0\0\x09vol\0\0", &with(b""), &with(b"\0\x01"), &with(b"\0\0\0")]
        {
            assert_eq!(refusal(&mut handshake, option, data), reply::ERR_INVALID, "{data:?}");
        }
        assert_eq!(refusal(&mut handshake, option, &with(b"\xff\xff\0\0")), reply::ERR_INVALID);
        assert_eq!(refusal(&mut handshake, option, b"\0\0\0\x01\xff\0\0"), reply::ERR_INVALID);
        assert_eq!(refusal(&mut handshake, option, b"\0\0\0\x01x\0\0"), reply::ERR_UNKNOWN);
        let long = [&string(&"a".repeat(4097))[..], b"\0\0"].concat();
        assert_eq!(refusal(&mut handshake, option, &long), reply::ERR_TOO_BIG);
    }
    for option in [9, 10] {
        for data in [&with(b"")[..], &with(b"\0\0\0\x01"), &with(b"\xff\xff\xff\xff"), &with(b"\0\0\0\0\0")] {
            assert_eq!(refusal(&mut handshake, option, data), reply::ERR_INVALID, "{data:?}");
        }
        let bare = [&vol[..], b"\0\0\0\x01", &string("base")].concat();
        assert_eq!(refusal(&mut handshake, option, &bare), reply::ERR_INVALID);
        assert_eq!(refusal(&mut handshake, option, b"\0\0\0\x01x\0\0\0\0"), reply::ERR_UNKNOWN);
    }
    for option in [4, 11, 99] {
        assert_eq!(refusal(&mut handshake, option, b"some data"), reply::ERR_UNSUP);
    }
    assert_eq!(refusal(&mut handshake, 8, b"x"), reply::ERR_INVALID);
    assert_eq!(one(&mut handshake, 2, b"bye"), (Ok(Progress::Abort), answer(2, 1, b"")));
}

#[test]
fn an_option_too_long_passes_by_and_is_not_kept() {
    let mut handshake = begun(Tls::Off, FIXED);
    let mut out = Vec::new();
    let mut bytes = &b"IHAVEOPT\0\0\0\x07\x01\0\0\0"[..];
    let incomplete = Ok(Progress::Incomplete);
    assert_eq!(handshake.receive(&mut bytes, &exports(), &mut out), incomplete);
    let piece = vec![0; 1 << 20];
    for _ in 0..15 {
        assert_eq!(handshake.receive(&mut &piece[..], &exports(), &mut out), incomplete);
        assert!(handshake.memory_bytes() <= 4096 && out.is_empty());
    }
    assert_eq!(handshake.receive(&mut &piece[..], &exports(), &mut out), Ok(Progress::Answered));
    assert_eq!(out[12..16], reply::ERR_TOO_BIG.to_be_bytes());
    assert_eq!(one(&mut handshake, 8, b"").0, Ok(Progress::Answered));
}

#[test]
fn without_tls_there_is_none_and_where_it_is_required_nothing_goes_without() {
    let mut handshake = begun(Tls::Off, FIXED);
    assert_eq!(refusal(&mut handshake, 5, b""), reply::ERR_POLICY);
    let mut handshake = begun(Tls::Required, FIXED);
    for option in [3, 4, 6, 7, 8, 9, 10, 11, 99] {
        assert_eq!(refusal(&mut handshake, option, b"data"), reply::ERR_TLS_REQD);
    }
    assert_eq!(refusal(&mut handshake, 5, b"x"), reply::ERR_INVALID);
    assert_eq!(one(&mut handshake, 1, b"vol").0, Err(HandshakeError::TlsRequired));
    assert_eq!(one(&mut begun(Tls::Required, FIXED), 2, b"").0, Ok(Progress::Abort));
    assert_eq!(one(&mut begun(Tls::Required, b"\0\0\0\0"), 5, b"").0, Err(HandshakeError::NotFixed(5)));
}

#[test]
fn what_was_said_before_tls_does_not_count() {
    for tls in [Tls::Offered, Tls::Required] {
        let mut handshake = begun(tls, FIXED);
        if tls == Tls::Offered {
            said(&mut handshake, 8, b"");
        }
        assert_eq!(one(&mut handshake, 5, b""), (Ok(Progress::StartTls), answer(5, 1, b"")));
        assert_eq!(handshake.tls_started(b""), Ok(()));
        assert_eq!(refusal(&mut handshake, 5, b""), reply::ERR_INVALID);
        let (progress, _) = one(&mut handshake, 1, b"vol");
        let Ok(Progress::Transmit(session)) = progress else { panic!("TLS was started") };
        assert!(!session.rules.structured);
    }
    // Bytes that came in the clear must not pass for what came over TLS, wherever they were cut.
    let mut handshake = begun(Tls::Offered, FIXED);
    said(&mut handshake, 5, b"");
    assert_eq!(handshake.tls_started(b"I"), Err(HandshakeError::BytesBeforeTls));
    let mut handshake = begun(Tls::Offered, FIXED);
    said(&mut handshake, 5, b"");
    assert_eq!(one(&mut handshake, 8, b"").0, Err(HandshakeError::BytesBeforeTls));
    assert_eq!(handshake.tls_started(b""), Err(HandshakeError::BytesBeforeTls));
    assert_eq!(begun(Tls::Offered, FIXED).tls_started(b""), Err(HandshakeError::Over));
}

#[test]
fn strangers_are_dropped() {
    let mut out = Vec::new();
    for flags in [b"\0\0\0\x04", b"\x80\0\0\x03"] {
        let mut handshake = Handshake::new(Tls::Off, &mut out);
        let error = Err(HandshakeError::ClientFlags(u32::from_be_bytes(*flags)));
        assert_eq!(handshake.receive(&mut &flags[..], &[], &mut out), error);
        assert_eq!(handshake.receive(&mut &b""[..], &[], &mut out), error);
    }
    let mut handshake = begun(Tls::Off, FIXED);
    let magic = HandshakeError::Magic(u64::from_be_bytes(*b"GET / HT"));
    assert_eq!(handshake.receive(&mut &b"GET / HTTP/1.1\r\n"[..], &[], &mut out), Err(magic));
    assert_eq!(one(&mut begun(Tls::Off, b"\0\0\0\0"), 7, b"").0, Err(HandshakeError::NotFixed(7)));
}

#[test]
fn a_server_that_goes_down_says_so() {
    let mut handshake = begun(Tls::Required, FIXED);
    handshake.close();
    assert_eq!(refusal(&mut handshake, 7, b"data"), reply::ERR_SHUTDOWN);
    assert_eq!(one(&mut handshake, 2, b""), (Ok(Progress::Abort), answer(2, 1, b"")));
}

#[test]
fn one_option_is_answered_at_a_time() {
    let mut handshake = begun(Tls::Off, FIXED);
    let bytes = asked(3, b"").repeat(100);
    let (mut input, mut out) = (&bytes[..], Vec::new());
    for left in (0..100).rev() {
        assert_eq!(handshake.receive(&mut input, &exports(), &mut out), Ok(Progress::Answered));
        assert_eq!(input.len(), left * 16);
    }
    assert_eq!(handshake.receive(&mut input, &exports(), &mut out), Ok(Progress::Incomplete));
}
