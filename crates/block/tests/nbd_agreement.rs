//! Agreement of a client and a server, joined in memory by pipes that split the bytes at random.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use tiermem_block::nbd::client::{self, Agreed, Event, Negotiation, NegotiationError, Transmission, Wishes};
use tiermem_block::nbd::wire::{CommandFlags, STATE_HOLE, STATE_ZERO, TransmissionFlags, option, reply};
use tiermem_block::nbd::{
    BlockSizes, Command, Context, Contexts, Errno, Export, Extents, Handshake, Incoming, Progress, Replies,
    Request, Requests, Rules, Session, Tls,
};

/// One direction of a connection: what was sent, and what of it has arrived.
#[derive(Default)]
struct Pipe {
    sent: VecDeque<u8>,
    arrived: Vec<u8>,
}

impl Pipe {
    fn send(&mut self, bytes: &mut Vec<u8>) {
        self.sent.extend(bytes.drain(..));
    }

    /// Delivers up to `count` more bytes, and lets the reader take any of those that have arrived.
    fn deliver<T>(&mut self, count: usize, read: impl FnOnce(&mut &[u8]) -> T) -> T {
        self.arrived.extend(self.sent.drain(..count.min(self.sent.len())));
        let mut rest = &self.arrived[..];
        let result = read(&mut rest);
        let taken = self.arrived.len() - rest.len();
        self.arrived.drain(..taken);
        result
    }

    fn is_idle(&self) -> bool {
        self.sent.is_empty()
    }
}

/// Lengths of pieces, over and over.
#[derive(Clone, Debug)]
struct Cuts(std::iter::Cycle<std::vec::IntoIter<usize>>);

fn cuts() -> impl Strategy<Value = Cuts> {
    let piece = prop_oneof![1usize..4, 1usize..40, 1usize..5000];
    prop::collection::vec(piece, 1..20).prop_map(|pieces| Cuts(pieces.into_iter().cycle()))
}

impl Cuts {
    fn next(&mut self) -> usize {
        self.0.next().unwrap()
    }
}

fn export() -> impl Strategy<Value = Export> {
    let context = (any::<bool>(), any::<bool>()).prop_map(|(allocation, cache)| {
        let chosen = [(allocation, Context::Allocation), (cache, Context::Cache)];
        chosen.into_iter().filter(|(is_in, _)| *is_in).fold(Contexts::none(), |set, (_, next)| set.with(next))
    });
    let block = (0u32..17, 0u32..9, 0u32..1 << 26).prop_map(|(minimum, more, payload)| {
        let preferred = (1 << (minimum + more)).max(512);
        BlockSizes { minimum: 1 << minimum, preferred, payload_max: preferred + payload }
    });
    ("[abc]{0,2}", "[a-z ]{0,5}", any::<u64>(), any::<bool>(), any::<u16>(), block, context).prop_map(
        |(name, description, size_bytes, read_only, features, block, contexts)| {
            let features = TransmissionFlags::from_bits(features);
            Export { name, description, size_bytes, read_only, features, block, contexts }
        },
    )
}

fn tls() -> impl Strategy<Value = Tls> {
    prop::sample::select(vec![Tls::Off, Tls::Offered, Tls::Required])
}

fn wishes() -> impl Strategy<Value = Wishes> {
    let contexts = prop::sample::subsequence(vec!["base:allocation", "tiermem:cache", "x-other:leaf"], 0..=3);
    ("[abc]{0,2}", any::<bool>(), contexts, tls()).prop_map(|(export, structured, contexts, tls)| {
        let contexts = contexts.into_iter().map(str::to_owned).collect();
        Wishes { export, structured, contexts, tls }
    })
}

/// Both sides' view of a negotiation that was played to its end, and whether it went over to TLS.
type Ends = (Option<Session>, Option<Result<Agreed, NegotiationError>>, bool);

fn negotiate(exports: &[Export], server_tls: Tls, wishes: &Wishes, cuts: &mut Cuts) -> Ends {
    let (mut to_client, mut to_server, mut out) = (Pipe::default(), Pipe::default(), Vec::new());
    let mut server = Handshake::new(server_tls, &mut out);
    to_client.send(&mut out);
    let mut client = Negotiation::new(wishes.clone());
    let (mut session, mut agreed, mut over_tls) = (None, None, [false; 2]);
    while !(to_client.is_idle() && to_server.is_idle()) {
        if agreed.is_none() {
            let progress = to_client.deliver(cuts.next(), |bytes| client.receive(bytes, &mut out));
            match progress {
                Ok(client::Progress::Incomplete) => {}
                Ok(client::Progress::StartTls) => {
                    over_tls[0] = true;
                    client.tls_started(&to_client.arrived, &mut out).unwrap();
                }
                Ok(client::Progress::Ready(terms)) => agreed = Some(Ok(terms)),
                Err(error) => agreed = Some(Err(error)),
            }
            to_server.send(&mut out);
        } else {
            to_client.sent.clear();
        }
        if session.is_some() {
            continue;
        }
        let progress = to_server.deliver(cuts.next(), |bytes| server.receive(bytes, exports, &mut out));
        match progress.unwrap() {
            Progress::Incomplete | Progress::Answered => {}
            Progress::StartTls => {
                over_tls[1] = true;
                server.tls_started(&to_server.arrived).unwrap();
            }
            Progress::Transmit(terms) => session = Some(terms),
            Progress::Abort => break,
        }
        to_client.send(&mut out);
    }
    assert_eq!(over_tls[0], over_tls[1]);
    (session, agreed, over_tls[0])
}

/// Model of an export, kept obvious: bytes and which blocks of 512 were written.
struct Disk {
    bytes: Vec<u8>,
    rules: Rules,
}

const DISK_BYTES: usize = 16 * 1024;

/// Expected outcome of a request.
#[derive(Debug, PartialEq)]
enum Outcome {
    Failed(Errno),
    Done,
    Read(Vec<u8>),
    /// The state of each byte, in one context and in the other.
    Status([Vec<u32>; 2]),
}

impl Disk {
    fn status(&self, request: &Request, context: Context) -> impl Iterator<Item = u32> {
        let range = request.offset as usize..request.end() as usize;
        self.bytes[range].iter().map(move |byte| match (byte, context) {
            (0, Context::Allocation) => STATE_HOLE | STATE_ZERO,
            (_, Context::Allocation) => 0,
            (byte, Context::Cache) => u32::from(*byte & 1),
        })
    }

    fn serve(&mut self, request: &Request, payload: &[u8]) -> Outcome {
        if let Err(fault) = self.rules.check(request) {
            return Outcome::Failed(fault.error);
        }
        let range = request.offset as usize..request.end() as usize;
        match request.command {
            Command::Read => return Outcome::Read(self.bytes[range].to_vec()),
            Command::Write => self.bytes[range].copy_from_slice(payload),
            Command::Trim | Command::WriteZeroes => self.bytes[range].fill(0),
            Command::BlockStatus => {
                return Outcome::Status(Context::ALL.map(|context| self.status(request, context).collect()));
            }
            _ => {}
        }
        Outcome::Done
    }

    /// Answers with what `outcome` says; reads in chunks of up to `chunk` bytes, the last one first.
    fn answer(&self, request: &Request, outcome: Outcome, chunk: usize, out: &mut Vec<u8>) {
        let (replies, cookie) = (Replies::new(self.rules.structured), request.cookie);
        match outcome {
            Outcome::Failed(error) => replies.failed(cookie, error, "as the model says", out),
            Outcome::Done => replies.done(cookie, out),
            Outcome::Read(data)
                if !self.rules.structured || request.flags.contains(CommandFlags::DF) || chunk == 1 =>
            {
                replies.read_whole(cookie, request.offset, request.len_bytes, out);
                out.extend(data);
            }
            Outcome::Read(data) => {
                for (at, piece) in data.chunks(chunk).enumerate().rev() {
                    let offset = request.offset + (at * chunk) as u64;
                    let (len, done) = (piece.len() as u32, at == 0 && chunk.is_multiple_of(2));
                    if piece.iter().all(|byte| *byte == 0) {
                        out.extend(Replies::hole(cookie, offset, len, done));
                    } else {
                        out.extend(Replies::data(cookie, offset, len, done));
                        out.extend(piece);
                    }
                }
                if chunk % 2 == 1 {
                    out.extend(Replies::none(cookie));
                }
            }
            Outcome::Status(_) => {
                for context in Context::ALL {
                    let mut extents = Extents::new(request, 1 << 16);
                    for flags in self.status(request, context) {
                        if !extents.push(1, flags) {
                            break;
                        }
                    }
                    let done = context == Context::Cache;
                    Replies::status(cookie, context.id(), extents.as_slice(), done, out);
                }
            }
        }
    }
}

/// A request that may be sound or not, and the byte that a write repeats.
fn request() -> impl Strategy<Value = (Request, u8)> {
    let command = prop::sample::select(Command::ALL.to_vec())
        .prop_filter("the end", |command| *command != Command::Disconnect);
    let offset = prop_oneof![9 => 0u64..DISK_BYTES as u64, 1 => any::<u64>()];
    let len = prop_oneof![0u32..64, 0u32..4000];
    let flags = prop_oneof![3 => Just(0u16), 1 => 0u16..32];
    (command, offset, len, flags, any::<u8>()).prop_map(|(command, offset, len, flags, byte)| {
        let flush = command == Command::Flush;
        let (offset, len_bytes) = if flush { (0, 0) } else { (offset, len) };
        (Request { cookie: 0, command, flags: CommandFlags::from_bits(flags), offset, len_bytes }, byte)
    })
}

/// The parts of a reply that the client has seen.
#[derive(Default)]
struct Seen {
    data: Vec<u8>,
    states: [Vec<u32>; 2],
}

/// The server's end of a connection.
struct Serving {
    requests: Requests,
    disk: Disk,
    /// The write whose payload is on its way.
    writing: Option<(Request, Vec<u8>)>,
    /// Bytes of the pieces in which reads are answered.
    chunks: std::iter::Cycle<std::vec::IntoIter<usize>>,
    /// Whether the client has said goodbye.
    gone: bool,
}

impl Serving {
    /// Takes what it wants of the bytes that have arrived, and answers.
    fn take(&mut self, bytes: &mut &[u8], out: &mut Vec<u8>) {
        loop {
            if let Some((request, mut payload)) = self.writing.take() {
                Vec::extend(&mut payload, self.requests.payload(bytes));
                if self.requests.payload_left() > 0 {
                    self.writing = Some((request, payload));
                    return;
                }
                let outcome = self.disk.serve(&request, &payload);
                self.disk.answer(&request, outcome, 1, out);
            }
            match self.requests.next(bytes).unwrap() {
                None => return,
                Some(Incoming::Request(request)) if request.command == Command::Write => {
                    self.writing = Some((request, Vec::new()));
                }
                Some(Incoming::Request(request)) => {
                    let outcome = self.disk.serve(&request, &[]);
                    self.disk.answer(&request, outcome, self.chunks.next().unwrap(), out);
                }
                Some(Incoming::Refused(refusal)) => {
                    let (error, reason) = (refusal.fault.error, refusal.fault.reason);
                    Replies::new(self.disk.rules.structured).failed(refusal.cookie, error, reason, out);
                }
                Some(Incoming::Disconnect) => self.gone = true,
            }
        }
    }
}

/// The client's end, and what it expects of each request.
struct Asking {
    transmission: Transmission,
    expected: BTreeMap<u64, (Request, Outcome, Seen)>,
    /// The read that data are arriving for, and the position of the next ones.
    filling: Option<(u64, usize)>,
}

impl Asking {
    /// Takes what it wants of the bytes that have arrived.
    fn take(&mut self, bytes: &mut &[u8]) {
        loop {
            if let Some((cookie, at)) = self.filling.take() {
                let payload = self.transmission.payload(bytes);
                let (_, _, seen) = self.expected.get_mut(&cookie).unwrap();
                seen.data[at..at + payload.len()].copy_from_slice(payload);
                if self.transmission.payload_left() > 0 {
                    self.filling = Some((cookie, at + payload.len()));
                    return;
                }
            }
            let Some(event) = self.transmission.next(bytes).unwrap() else { return };
            self.note(event);
        }
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Data { cookie, offset, .. } => {
                let request = self.begin_data(cookie);
                self.filling = Some((cookie, (offset - request.offset) as usize));
            }
            Event::Hole { cookie, .. } => {
                self.begin_data(cookie);
            }
            Event::Extent { cookie, context_id, extent, .. } => {
                let (_, _, seen) = self.expected.get_mut(&cookie).unwrap();
                let states = &mut seen.states[context_id as usize - 1];
                states.extend(vec![extent.flags; extent.len_bytes as usize]);
            }
            Event::Error { .. } => {}
            Event::Done { cookie, result } => {
                let (request, outcome, seen) = self.expected.remove(&cookie).unwrap();
                check(&request, outcome, &seen, result);
            }
        }
    }

    /// Data of a read arrive: what does not is a hole.
    fn begin_data(&mut self, cookie: u64) -> Request {
        let (request, _, seen) = self.expected.get_mut(&cookie).unwrap();
        seen.data.resize(request.len_bytes as usize, 0);
        *request
    }
}

/// Whether the reply to a request is what was expected.
fn check(request: &Request, outcome: Outcome, seen: &Seen, result: Result<(), Errno>) {
    match (outcome, result) {
        (Outcome::Failed(error), result) => assert_eq!(result, Err(error)),
        (Outcome::Read(data), Ok(())) => assert_eq!(seen.data, data),
        (Outcome::Status(states), Ok(())) => {
            let one = request.flags.contains(CommandFlags::REQ_ONE);
            for (told, states) in seen.states.iter().zip(states) {
                assert!(one || told.len() == states.len());
                assert_eq!(told[..], states[..told.len()]);
            }
        }
        (Outcome::Done, result) => assert_eq!(result, Ok(())),
        (outcome, result) => panic!("{outcome:?} {result:?}"),
    }
}

proptest! {
    #[test]
    fn both_sides_agree_on_options(
        exports in prop::collection::vec(export(), 0..4),
        server_tls in tls(),
        wishes in wishes(),
        mut cuts in cuts(),
    ) {
        let (session, agreed, over_tls) = negotiate(&exports, server_tls, &wishes, &mut cuts);
        let agreed = agreed.expect("the client comes to an end");
        let may_tls = server_tls != Tls::Off && wishes.tls != Tls::Off;
        prop_assert_eq!(over_tls, may_tls);
        let refused = |option, error| match &agreed {
            Err(NegotiationError::Refused(refused)) => refused.option == option && refused.error == error,
            _ => false,
        };
        if !may_tls && wishes.tls == Tls::Required {
            prop_assert!(refused(option::STARTTLS, reply::ERR_POLICY) && session.is_none());
            return Ok(());
        }
        if !may_tls && server_tls == Tls::Required {
            let first = if wishes.structured { option::STRUCTURED_REPLY } else { option::GO };
            prop_assert!(refused(first, reply::ERR_TLS_REQD) && session.is_none());
            return Ok(());
        }
        let by_name = exports.iter().position(|export| export.name == wishes.export);
        let meant = by_name.or_else(|| (wishes.export.is_empty() && exports.len() == 1).then_some(0));
        let Some(at) = meant else {
            prop_assert!(refused(option::GO, reply::ERR_UNKNOWN) && session.is_none());
            return Ok(());
        };
        let (session, agreed) = (session.unwrap(), agreed.unwrap());
        prop_assert_eq!(session.export, at);
        prop_assert_eq!(session.rules, agreed.rules);
        prop_assert_eq!(agreed.rules.size_bytes, exports[at].size_bytes);
        prop_assert_eq!(agreed.rules.structured, wishes.structured);
        prop_assert_eq!(agreed.name.as_deref(), Some(&exports[at].name[..]));
        prop_assert_eq!(agreed.description.unwrap_or_default(), &exports[at].description[..]);
        let known: Vec<_> = session.contexts.iter().map(|known| (known.id(), known.name().to_owned())).collect();
        prop_assert_eq!(&known, &agreed.contexts);
        for context in Context::ALL {
            let wanted = wishes.structured && wishes.contexts.iter().any(|wish| wish == context.name());
            prop_assert_eq!(session.contexts.contains(context), wanted && exports[at].contexts.contains(context));
        }
    }

    #[test]
    fn both_sides_agree_on_requests_and_replies(
        requests in prop::collection::vec(request(), 1..40),
        structured: bool,
        features: u16,
        payload_max in 512u32..5000,
        chunks in prop::collection::vec(1usize..600, 1..10),
        mut cuts in cuts(),
    ) {
        let block = BlockSizes { minimum: 1, preferred: 512, payload_max };
        let contexts = if structured { Contexts::all() } else { Contexts::none() };
        let features = TransmissionFlags::from_bits(features);
        let export = Export { features, block, ..Export::new("", DISK_BYTES as u64) };
        let rules = export.rules_for(structured, contexts);
        // The client believes that anything goes, so that the server has something to refuse.
        let everything = TransmissionFlags::from_bits(0xffff).without(TransmissionFlags::READ_ONLY);
        let lax = Rules { size_bytes: u64::MAX, flags: everything, block: BlockSizes::default(), ..rules };
        let terms = contexts.iter().map(|context| (context.id(), context.name().to_owned())).collect();
        let agreed = Agreed { rules: lax, contexts: terms, name: None, description: None };

        let mut client =
            Asking { transmission: Transmission::new(&agreed), expected: BTreeMap::new(), filling: None };
        let disk = || Disk { bytes: vec![0; DISK_BYTES], rules };
        let (requests_in, chunks) = (Requests::new(rules), chunks.into_iter().cycle());
        let mut server = Serving { requests: requests_in, disk: disk(), writing: None, chunks, gone: false };
        let mut model = disk();
        let (mut to_client, mut to_server, mut out) = (Pipe::default(), Pipe::default(), Vec::new());
        for (cookie, (request, byte)) in (0u64..).zip(requests) {
            let request = Request { cookie, ..request };
            let payload = vec![byte; request.payload_bytes() as usize];
            match client.transmission.issue(request) {
                Ok(header) => {
                    out.extend(header);
                    out.extend(&payload);
                    client.expected.insert(cookie, (request, model.serve(&request, &payload), Seen::default()));
                }
                Err(_) => prop_assert!(lax.check(&request).is_err()),
            }
        }
        let goodbye =
            Request { cookie: 0, command: Command::Disconnect, flags: CommandFlags::none(), offset: 0, len_bytes: 0 };
        out.extend(client.transmission.issue(goodbye).unwrap());
        to_server.send(&mut out);
        while !(to_client.is_idle() && to_server.is_idle()) {
            to_server.deliver(cuts.next(), |bytes| server.take(bytes, &mut out));
            to_client.send(&mut out);
            to_client.deliver(cuts.next(), |bytes| client.take(bytes));
        }
        prop_assert!(server.gone && client.expected.is_empty());
        prop_assert_eq!(client.transmission.under_way(), 0);
        prop_assert!(server.disk.bytes == model.bytes);
    }
}
