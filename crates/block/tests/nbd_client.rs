//! Client side of NBD against a server's bytes written by hand.

use tiermem_block::nbd::client::{
    Agreed, Event, IssueError, Negotiation, NegotiationError, Progress, ReplyError, Transmission, Wishes,
};
use tiermem_block::nbd::wire::{CommandFlags, TransmissionFlags, option, reply};
use tiermem_block::nbd::{BlockSizes, Command, Errno, Extent, Replies, Request, Rules, Tls};

const GREETING: &[u8] = b"NBDMAGICIHAVEOPT\x00\x03";

fn answer(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x00\x03\xe8\x89\x04\x55\x65\xa9".to_vec();
    for field in [option, kind, data.len() as u32] {
        bytes.extend(field.to_be_bytes());
    }
    bytes.extend(data);
    bytes
}

/// The bytes that the client sends after `bytes`, and its progress.
fn tell(negotiation: &mut Negotiation, bytes: &[u8]) -> (Result<Progress, NegotiationError>, Vec<u8>) {
    let (mut input, mut out) = (bytes, Vec::new());
    let progress = negotiation.receive(&mut input, &mut out);
    assert!(input.is_empty() || progress.is_err());
    (progress, out)
}

/// A negotiation after all messages of `before`, none of which ended it.
fn told(wishes: Wishes, before: &[&[u8]]) -> Negotiation {
    let mut negotiation = Negotiation::new(wishes);
    for bytes in before {
        assert_eq!(tell(&mut negotiation, bytes).0, Ok(Progress::Incomplete));
    }
    negotiation
}

fn plain(export: &str) -> Wishes {
    Wishes { structured: false, ..Wishes::new(export) }
}

#[test]
fn a_negotiation_is_these_bytes() {
    let wishes = Wishes { contexts: vec!["base:allocation".to_owned()], ..Wishes::new("vol") };
    let mut negotiation = Negotiation::new(wishes);
    let incomplete = |bytes: &[u8]| (Ok(Progress::Incomplete), bytes.to_vec());
    assert_eq!(tell(&mut negotiation, GREETING), incomplete(b"\0\0\0\x03IHAVEOPT\0\0\0\x08\0\0\0\0"));
    let contexts = b"IHAVEOPT\0\0\0\x0a\0\0\0\x1e\0\0\0\x03vol\0\0\0\x01\0\0\0\x0fbase:allocation";
    assert_eq!(tell(&mut negotiation, &answer(8, 1, b"")), incomplete(contexts));
    let context = answer(10, 4, b"\0\0\0\x07base:allocation");
    assert_eq!(tell(&mut negotiation, &context), incomplete(b""));
    let go = b"IHAVEOPT\0\0\0\x07\0\0\0\x0f\0\0\0\x03vol\0\x03\0\x01\0\x02\0\x03";
    assert_eq!(tell(&mut negotiation, &answer(10, 1, b"")), incomplete(go));
    for info in [
        &b"\0\0\0\0\0\0\0\0\x20\0\0\x05"[..],
        b"\0\x01volume",
        b"\0\x02words",
        b"\0\x03\0\0\x02\0\0\0\x10\0\0\x10\0\0",
        b"\0\x63unknown",
    ] {
        assert_eq!(tell(&mut negotiation, &answer(7, 3, info)), incomplete(b""));
    }
    let (progress, out) = tell(&mut negotiation, &answer(7, 1, b""));
    let rules = Rules {
        size_bytes: 8192,
        flags: TransmissionFlags::HAS_FLAGS.with(TransmissionFlags::SEND_FLUSH),
        block: BlockSizes { minimum: 512, preferred: 4096, payload_max: 1 << 20 },
        structured: true,
        contexts: true,
    };
    let agreed = Agreed {
        rules,
        contexts: vec![(7, "base:allocation".to_owned())],
        name: Some("volume".to_owned()),
        description: Some("words".to_owned()),
    };
    assert_eq!((progress, out), (Ok(Progress::Ready(agreed)), vec![]));
    assert_eq!(tell(&mut negotiation, b"").0, Err(NegotiationError::Over));
}

#[test]
fn what_an_old_server_lacks_is_done_without() {
    // Neither structured replies nor GO, and zeroes behind the answer.
    let mut negotiation = told(Wishes::new("vol"), &[b"NBDMAGICIHAVEOPT\x00\x01"]);
    let (_, out) = tell(&mut negotiation, &answer(8, reply::ERR_UNSUP, b"what?"));
    assert!(out.starts_with(b"IHAVEOPT\0\0\0\x07"));
    let (_, out) = tell(&mut negotiation, &answer(7, reply::ERR_UNSUP, b""));
    assert_eq!(out, b"IHAVEOPT\0\0\0\x01\0\0\0\x03vol");
    let size = [&b"\0\0\0\0\0\0\x20\0\0\x01"[..], &[0; 124]].concat();
    assert_eq!(tell(&mut negotiation, &size[..133]).0, Ok(Progress::Incomplete));
    let (Ok(Progress::Ready(agreed)), _) = tell(&mut negotiation, &size[133..]) else { panic!("it has all") };
    assert_eq!((agreed.rules.size_bytes, agreed.rules.structured), (8192, false));
    assert_eq!(agreed.rules.block, BlockSizes::default());
    // Not even fixed newstyle.
    let mut negotiation = Negotiation::new(Wishes::new("vol"));
    let (_, out) = tell(&mut negotiation, b"NBDMAGICIHAVEOPT\x00\x02");
    assert_eq!(out, b"\0\0\0\x02IHAVEOPT\0\0\0\x01\0\0\0\x03vol");
    assert!(matches!(tell(&mut negotiation, &size[..10]).0, Ok(Progress::Ready(_))));
    // Metadata contexts that are refused are done without.
    let wishes = Wishes { contexts: vec!["a:b".to_owned()], ..Wishes::new("") };
    let mut negotiation = told(wishes, &[GREETING, &answer(8, 1, b""), &answer(10, 4, b"\0\0\0\x01a:b")]);
    let (_, out) = tell(&mut negotiation, &answer(10, reply::ERR_TOO_BIG, b""));
    assert!(out.starts_with(b"IHAVEOPT\0\0\0\x07"));
    assert_eq!(
        tell(&mut negotiation, &answer(7, 3, b"\0\0\0\0\0\0\0\0\0\x01\0\x01")).0,
        Ok(Progress::Incomplete)
    );
    let (Ok(Progress::Ready(agreed)), _) = tell(&mut negotiation, &answer(7, 1, b"")) else {
        panic!("ready")
    };
    assert!(agreed.contexts.is_empty() && agreed.rules.structured && !agreed.rules.contexts);
}

#[test]
fn tls_comes_first_and_only_where_it_may_be_missing_goes_it_on_without() {
    let wishes = |tls| Wishes { tls, ..plain("vol") };
    let starttls = b"\0\0\0\x03IHAVEOPT\0\0\0\x05\0\0\0\0";
    for tls in [Tls::Offered, Tls::Required] {
        let mut negotiation = Negotiation::new(wishes(tls));
        assert_eq!(tell(&mut negotiation, GREETING).1, starttls);
        assert_eq!(tell(&mut negotiation, &answer(5, 1, b"")), (Ok(Progress::StartTls), vec![]));
        let mut out = Vec::new();
        assert_eq!(negotiation.tls_started(b"", &mut out), Ok(()));
        assert!(out.starts_with(b"IHAVEOPT\0\0\0\x07"));
    }
    let refused = answer(5, reply::ERR_POLICY, b"no");
    let (_, out) = tell(&mut told(wishes(Tls::Offered), &[GREETING]), &refused);
    assert!(out.starts_with(b"IHAVEOPT\0\0\0\x07"));
    let (progress, out) = tell(&mut told(wishes(Tls::Required), &[GREETING]), &refused);
    assert_eq!(out, b"IHAVEOPT\0\0\0\x02\0\0\0\0", "it says goodbye");
    let error = progress.expect_err("it must have TLS");
    assert_eq!(error.to_string(), "the server refuses option 5, as it is forbidden: no");
    let old = tell(&mut Negotiation::new(wishes(Tls::Required)), b"NBDMAGICIHAVEOPT\0\0");
    assert_eq!(old.0, Err(NegotiationError::NoTls));
    let mut cut = told(wishes(Tls::Required), &[GREETING]);
    assert_eq!(tell(&mut cut, &answer(5, 1, b"")).0, Ok(Progress::StartTls));
    assert_eq!(cut.tls_started(b"x", &mut Vec::new()), Err(NegotiationError::BytesBeforeTls));
}

#[test]
fn a_server_that_makes_no_sense_is_left() {
    let oldstyle = tell(&mut Negotiation::new(plain("")), b"NBDMAGIC\x00\x00\x42\x02\x81\x86\x12\x53\0\0");
    assert_eq!(oldstyle.0, Err(NegotiationError::Greeting));
    let unknown = tell(&mut told(plain(""), &[GREETING]), &answer(7, reply::ERR_UNKNOWN, b""));
    let Err(NegotiationError::Refused(refused)) = unknown.0 else { panic!("there is no such export") };
    assert_eq!((refused.option, refused.error), (option::GO, reply::ERR_UNKNOWN));
    let mut magic = answer(7, 1, b"");
    magic[0] = 1;
    for bytes in [
        magic,
        answer(6, 1, b""),
        answer(7, 1, b""),
        answer(7, 1, b"x"),
        answer(7, 2, b""),
        answer(7, 4, b"\0\0\0\x01a:b"),
        answer(7, 3, b""),
        answer(7, 3, b"\0\0\0\0"),
        answer(7, 3, b"\0\x03\0\0\0\x03\0\0\x10\0\0\x10\0\0"),
        answer(7, 3, &[0; 20_000]),
    ] {
        let (progress, _) = tell(&mut told(plain(""), &[GREETING]), &bytes);
        let malformed = matches!(progress, Err(NegotiationError::Malformed { option: option::GO, .. }));
        assert!(malformed, "{progress:?}");
    }
    let wishes = Wishes { contexts: vec!["a:b".to_owned()], ..Wishes::new("") };
    for context in [&b"\0\0\0\x01x:y"[..], b"\0\0", b"\0\0\0\x01\xff"] {
        let mut negotiation = told(wishes.clone(), &[GREETING, &answer(8, 1, b"")]);
        let (progress, _) = tell(&mut negotiation, &answer(10, 4, context));
        assert!(matches!(progress, Err(NegotiationError::Malformed { .. })), "{context:?}");
    }
}

fn agreed(structured: bool) -> Agreed {
    let rules = Rules {
        size_bytes: 1 << 20,
        flags: TransmissionFlags::SEND_FLUSH.with(TransmissionFlags::SEND_DF),
        block: BlockSizes::default(),
        structured,
        contexts: structured,
    };
    let contexts = vec![(1, "a:a".to_owned()), (9, "b:b".to_owned())];
    Agreed { rules, contexts, name: None, description: None }
}

fn request(cookie: u64, command: Command, offset: u64, len_bytes: u32) -> Request {
    Request { cookie, command, flags: CommandFlags::none(), offset, len_bytes }
}

/// A transmission in which `request` is under way.
fn under_way(structured: bool, request: Request) -> Transmission {
    let mut transmission = Transmission::new(&agreed(structured));
    assert_eq!(transmission.issue(request), Ok(request.encode()));
    transmission
}

/// All that `bytes` say, the data left out.
fn events(transmission: &mut Transmission, mut bytes: &[u8]) -> Result<Vec<Event>, ReplyError> {
    let mut events = Vec::new();
    while let Some(event) = transmission.next(&mut bytes)? {
        transmission.payload(&mut bytes);
        events.push(event);
    }
    assert!(bytes.is_empty());
    Ok(events)
}

#[test]
fn only_what_the_server_takes_is_sent() {
    let mut transmission = under_way(true, request(1, Command::Read, 0, 512));
    assert_eq!(transmission.issue(request(1, Command::Flush, 0, 0)), Err(IssueError::Cookie(1)));
    for (bad, error) in [
        (request(2, Command::Trim, 0, 512), Errno::Inval),
        (request(2, Command::Write, 1 << 20, 1), Errno::NoSpc),
        (request(2, Command::Read, 0, 0), Errno::Inval),
    ] {
        let Err(IssueError::Fault(fault)) = transmission.issue(bad) else { panic!("it would be refused") };
        assert_eq!(fault.error, error);
    }
    assert_eq!(transmission.under_way(), 1);
    assert!(transmission.issue(request(2, Command::Disconnect, 0, 0)).is_ok());
    assert_eq!(transmission.issue(request(3, Command::Flush, 0, 0)), Err(IssueError::Disconnected));
}

#[test]
fn simple_replies_bring_data_when_they_are_to_reads() {
    let mut transmission = under_way(false, request(1, Command::Read, 512, 4));
    for cookie in [2, 3] {
        assert!(transmission.issue(request(cookie, Command::Flush, 0, 0)).is_ok());
    }
    let bytes = [
        &Replies::simple(2, None)[..],
        &Replies::simple(1, None),
        b"data",
        &Replies::simple(3, Some(Errno::Io)),
    ]
    .concat();
    let expected = [
        Event::Done { cookie: 2, result: Ok(()) },
        Event::Data { cookie: 1, offset: 512, len_bytes: 4 },
        Event::Done { cookie: 1, result: Ok(()) },
        Event::Done { cookie: 3, result: Err(Errno::Io) },
    ];
    assert_eq!(events(&mut transmission, &bytes).as_deref(), Ok(&expected[..]));
    assert_eq!(transmission.under_way(), 0);
    assert_eq!(events(&mut transmission, &bytes), Err(ReplyError::Cookie(2)));
    let mut failed = under_way(false, request(1, Command::Read, 512, 4));
    let expected = [Event::Done { cookie: 1, result: Err(Errno::Inval) }];
    let unknown = b"\x67\x44\x66\x98\x00\x00\x00\x02\0\0\0\0\0\0\0\x01";
    assert_eq!(events(&mut failed, unknown).as_deref(), Ok(&expected[..]));
}

#[test]
fn chunks_come_in_any_order_and_must_be_whole() {
    let read = || under_way(true, request(1, Command::Read, 512, 12));
    let data =
        |offset, text: &[u8], done| [&Replies::data(1, offset, text.len() as u32, done)[..], text].concat();
    let hole = |offset, len, done| Replies::hole(1, offset, len, done).to_vec();
    let bytes = [data(520, b"late", false), hole(512, 4, false), data(516, b"last", true)].concat();
    let expected = [
        Event::Data { cookie: 1, offset: 520, len_bytes: 4 },
        Event::Hole { cookie: 1, offset: 512, len_bytes: 4 },
        Event::Data { cookie: 1, offset: 516, len_bytes: 4 },
        Event::Done { cookie: 1, result: Ok(()) },
    ];
    assert_eq!(events(&mut read(), &bytes).as_deref(), Ok(&expected[..]));
    let failed = [
        data(512, b"data", false),
        Replies::error_at(1, Errno::Io, 516, false).to_vec(),
        hole(516, 8, false),
    ];
    let failed = [failed.concat(), Replies::none(1).to_vec()].concat();
    let expected = [
        Event::Data { cookie: 1, offset: 512, len_bytes: 4 },
        Event::Error { cookie: 1, error: Errno::Io, offset: Some(516), message: String::new() },
        Event::Hole { cookie: 1, offset: 516, len_bytes: 8 },
        Event::Done { cookie: 1, result: Err(Errno::Io) },
    ];
    assert_eq!(events(&mut read(), &failed).as_deref(), Ok(&expected[..]));
    let mut refused = Vec::new();
    Replies::new(true).failed(1, Errno::NoMem, "no", &mut refused);
    let expected = [
        Event::Error { cookie: 1, error: Errno::NoMem, offset: None, message: "no".to_owned() },
        Event::Done { cookie: 1, result: Err(Errno::NoMem) },
    ];
    assert_eq!(events(&mut read(), &refused).as_deref(), Ok(&expected[..]));
    let mut status = Vec::new();
    Replies::status(1, 1, &[Extent { len_bytes: 12, flags: 0 }], true, &mut status);
    let with = |at: usize, byte: u8, mut bytes: Vec<u8>| {
        bytes[at] = byte;
        bytes
    };
    for bad in [
        data(512, b"data", true),
        Replies::none(1).to_vec(),
        [data(512, b"data", false), data(515, b"data", false)].concat(),
        data(511, b"data", false),
        data(521, b"data", false),
        hole(512, 0, false),
        hole(u64::MAX, 2, false),
        Replies::data(1, 512, 0, false).to_vec(),
        Replies::error_at(1, Errno::Io, 524, true).to_vec(),
        Replies::simple(1, None).to_vec(),
        status,
        with(5, 0, Replies::none(1).to_vec()),
        with(7, 3, Replies::none(1).to_vec()),
        with(17, 1, refused.clone()),
        with(25, 200, refused.clone()),
        with(23, 0, refused),
    ] {
        let seen = events(&mut read(), &bad);
        assert!(matches!(seen, Err(ReplyError::Malformed { cookie: 1, .. })), "{bad:?} {seen:?}");
    }
    assert_eq!(events(&mut read(), b"\0\0\0\0"), Err(ReplyError::Magic(0)));
    let mut simple = under_way(false, request(1, Command::Read, 512, 12));
    assert_eq!(events(&mut simple, &Replies::none(1)), Err(ReplyError::Magic(0x668e_33ef)));
}

#[test]
fn a_block_status_describes_each_context_once() {
    let extents = |list: &[(u32, u32)]| {
        list.iter().map(|&(len_bytes, flags)| Extent { len_bytes, flags }).collect::<Vec<_>>()
    };
    let status = |context, list: &[(u32, u32)], done| {
        let mut bytes = Vec::new();
        Replies::status(1, context, &extents(list), done, &mut bytes);
        bytes
    };
    let asked = |flags| Request { flags, ..request(1, Command::BlockStatus, 4096, 1024) };
    let all = || under_way(true, asked(CommandFlags::none()));
    let bytes = [status(9, &[(512, 0), (4096, 3)], false), status(1, &[(100, 1)], true)].concat();
    let event = |context_id, offset, len_bytes, flags| {
        let extent = Extent { len_bytes, flags };
        Event::Extent { cookie: 1, context_id, offset, extent }
    };
    let done = Event::Done { cookie: 1, result: Ok(()) };
    let expected = [event(9, 4096, 512, 0), event(9, 4608, 4096, 3), event(1, 4096, 100, 1), done];
    assert_eq!(events(&mut all(), &bytes).as_deref(), Ok(&expected[..]));
    for bad in [
        status(1, &[(512, 0)], true),
        status(2, &[(512, 0)], false),
        [status(1, &[(512, 0)], false), status(1, &[(512, 0)], true)].concat(),
        status(1, &[(0, 0)], false),
        status(1, &[], false),
        status(1, &[(1024, 0), (1, 0)], false),
        Replies::simple(1, None).to_vec(),
    ] {
        let seen = events(&mut all(), &bad);
        assert!(matches!(seen, Err(ReplyError::Malformed { cookie: 1, .. })), "{bad:?} {seen:?}");
    }
    for bad in [status(1, &[(512, 0), (512, 1)], false), status(1, &[(1025, 0)], false)] {
        let mut one = under_way(true, asked(CommandFlags::REQ_ONE));
        assert!(matches!(events(&mut one, &bad), Err(ReplyError::Malformed { .. })));
    }
}
