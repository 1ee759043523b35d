//! Requests as they arrive at a server.

use super::command::{Command, RawRequest, Request};
use super::errno::Errno;
use super::reassembly::Gather;
use super::rules::{Fault, Rules};
use super::wire::{REQUEST_BYTES, REQUEST_MAGIC};

/// The longest payload of a refused write that is read away; a longer one ends the connection.
const SKIPPED_BYTES_MAX: u32 = 64 << 20;

/// Incoming request or payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A request to serve. A write's payload follows: [`Requests::payload`] or [`Requests::payload_taken`] must take it
    /// before the next request is read.
    Request(Request),
    /// A request that must be refused. Its payload, if any, was skipped: a client that sends one reads no answer meanwhile.
    Refused(Refusal),
    /// The client has gone; nothing behind this counts.
    Disconnect,
}

/// A request that is not served, and what to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Cookie of the request.
    pub cookie: u64,
    /// Why.
    pub fault: Fault,
}

/// Bytes that are not a request. The connection cannot continue: the start of the next request is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// A request does not begin as one.
    #[error("a request begins with {0:#010x} instead of {REQUEST_MAGIC:#010x}")]
    Magic(u32),
    /// The payload of a write that was refused is too long to pass over.
    #[error("a refused write has {0} bytes of payload, more than are read away")]
    Payload(u32),
}

#[derive(Clone, Copy, Debug)]
enum State {
    Header,
    /// A write's payload, which the owner takes.
    Payload {
        left: u32,
    },
    /// A refused write's payload, and its refusal.
    Skip {
        left: u32,
        refusal: Refusal,
    },
    Disconnected,
    Failed(RequestError),
}

/// Reads one connection's requests and holds them against its export's rules (section "Transmission").
#[derive(Debug)]
pub struct Requests {
    rules: Rules,
    state: State,
    gathered: Gather,
}

impl Requests {
    /// Requests of a session with these rules.
    pub fn new(rules: Rules) -> Self {
        Requests { rules, state: State::Header, gathered: Gather::default() }
    }

    /// The rules that requests are checked against.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The export has another size from now on.
    pub fn resize(&mut self, size_bytes: u64) {
        self.rules.size_bytes = size_bytes;
    }

    /// Reads on in `input`, from which it takes what it has used. `None` when more bytes are wanted, when a payload is
    /// to be taken first, or when the client has disconnected.
    ///
    /// After an error the connection must be closed; the error is given again.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Incoming>, RequestError> {
        loop {
            match self.state {
                State::Header => {
                    // Headers mostly come whole, and then nothing is copied.
                    let raw = if self.gathered.bytes().is_empty() && input.len() >= REQUEST_BYTES {
                        let (header, rest) = input.split_at(REQUEST_BYTES);
                        *input = rest;
                        RawRequest::decode(header)
                    } else {
                        if !self.gathered.fill(input, REQUEST_BYTES) {
                            return Ok(None);
                        }
                        let raw = RawRequest::decode(self.gathered.bytes());
                        self.gathered.clear();
                        raw
                    };
                    let Some(raw) = raw else { return Ok(None) };
                    if let Some(incoming) = self.header(&raw)? {
                        return Ok(Some(incoming));
                    }
                }
                State::Skip { left, refusal } => {
                    let skipped = (left as usize).min(input.len());
                    *input = &input[skipped..];
                    let left = left - skipped as u32;
                    if left > 0 {
                        self.state = State::Skip { left, refusal };
                        return Ok(None);
                    }
                    self.state = State::Header;
                    return Ok(Some(Incoming::Refused(refusal)));
                }
                State::Payload { left: 0 } => self.state = State::Header,
                State::Payload { .. } | State::Disconnected => return Ok(None),
                State::Failed(error) => return Err(error),
            }
        }
    }

    /// Bytes of the present write's payload that have still to be taken.
    pub fn payload_left(&self) -> u32 {
        match self.state {
            State::Payload { left } => left,
            _ => 0,
        }
    }

    /// Takes from `input` what it holds of the present payload.
    pub fn payload<'a>(&mut self, input: &mut &'a [u8]) -> &'a [u8] {
        let (payload, rest) = input.split_at((self.payload_left() as usize).min(input.len()));
        *input = rest;
        self.payload_taken(payload.len());
        payload
    }

    /// Says that `bytes` of the present payload were read past this machine, straight to where they belong.
    ///
    /// # Panics
    ///
    /// When that is more than [`Self::payload_left`].
    pub fn payload_taken(&mut self, bytes: usize) {
        let left = self.payload_left();
        assert!(bytes <= left as usize, "only the payload bypasses the machine");
        if let State::Payload { .. } = self.state {
            self.state = State::Payload { left: left - bytes as u32 };
        }
    }

    /// Bytes of memory held besides itself.
    pub fn memory_bytes(&self) -> usize {
        self.gathered.memory_bytes()
    }

    /// What a header asks for; `None` where that is refused, and its payload comes first.
    fn header(&mut self, raw: &RawRequest) -> Result<Option<Incoming>, RequestError> {
        if raw.magic != REQUEST_MAGIC {
            let error = RequestError::Magic(raw.magic);
            self.state = State::Failed(error);
            return Err(error);
        }
        let checked = match raw.request() {
            None => Err(Fault { error: Errno::Inval, reason: "an unknown command" }),
            Some(request) => self.rules.check(&request).map(|()| request),
        };
        match checked {
            Ok(Request { command: Command::Disconnect, .. }) => {
                self.state = State::Disconnected;
                Ok(Some(Incoming::Disconnect))
            }
            Ok(request) => {
                self.state = State::Payload { left: request.payload_bytes() };
                Ok(Some(Incoming::Request(request)))
            }
            Err(fault) => {
                let payload_bytes = if raw.code == Command::Write.code() { raw.len_bytes } else { 0 };
                if payload_bytes > self.rules.block.payload_max.max(SKIPPED_BYTES_MAX) {
                    let error = RequestError::Payload(payload_bytes);
                    self.state = State::Failed(error);
                    return Err(error);
                }
                self.state =
                    State::Skip { left: payload_bytes, refusal: Refusal { cookie: raw.cookie, fault } };
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbd::wire::{CommandFlags, TransmissionFlags};
    use crate::nbd::{Contexts, Export};

    fn requests() -> Requests {
        let features = TransmissionFlags::SEND_FLUSH;
        Requests::new(Export { features, ..Export::new("", 4096) }.rules_for(true, Contexts::none()))
    }

    fn request(command: Command, offset: u64, len_bytes: u32) -> Request {
        Request { cookie: offset + 1, command, flags: CommandFlags::none(), offset, len_bytes }
    }

    #[test]
    fn a_payload_is_taken_by_the_owner_and_a_refused_one_is_passed_over() {
        let write = request(Command::Write, 8, 4);
        let beyond = request(Command::Write, 4094, 4);
        let read = request(Command::Read, 0, 1);
        let bytes = [
            &write.encode()[..],
            b"data",
            &beyond.encode(),
            b"more",
            &write.encode(),
            b"data",
            &read.encode(),
            b"rest",
        ]
        .concat();
        let (mut requests, mut input) = (requests(), &bytes[..]);
        assert_eq!(requests.next(&mut input), Ok(Some(Incoming::Request(write))));
        assert_eq!(requests.payload_left(), 4);
        assert_eq!(requests.next(&mut input), Ok(None), "the payload comes first");
        assert_eq!(requests.payload(&mut input), b"data");
        let Ok(Some(Incoming::Refused(refusal))) = requests.next(&mut input) else {
            panic!("it is too long")
        };
        assert_eq!((refusal.cookie, refusal.fault.error), (4095, Errno::NoSpc));
        assert_eq!(requests.payload_left(), 0);
        assert_eq!(requests.next(&mut input), Ok(Some(Incoming::Request(write))));
        input = &input[4..];
        requests.payload_taken(4);
        assert_eq!(requests.next(&mut input), Ok(Some(Incoming::Request(read))));
        assert_eq!(requests.next(&mut input), Ok(None));
        assert!(input.is_empty(), "it has gathered the part of a header");
    }

    #[test]
    fn nonsense_is_answered_or_ends_the_connection() {
        let mut unknown = request(Command::Read, 0, 9).encode();
        unknown[7] = 99;
        let (mut requests, mut input) = (requests(), &unknown[..]);
        let Ok(Some(Incoming::Refused(refusal))) = requests.next(&mut input) else { panic!("unknown") };
        assert_eq!(refusal.fault.error, Errno::Inval);
        let mut magic = request(Command::Read, 0, 9).encode();
        magic[0] = 0;
        let mut input = &magic[..];
        assert_eq!(requests.next(&mut input), Err(RequestError::Magic(0x0060_9513)));
        assert_eq!(requests.next(&mut &b""[..]), Err(RequestError::Magic(0x0060_9513)));
    }

    #[test]
    fn nobody_waits_for_gigabytes_that_are_not_wanted() {
        let long = request(Command::Write, 0, SKIPPED_BYTES_MAX);
        let (mut machine, header) = (requests(), long.encode());
        assert_eq!(machine.next(&mut &header[..]), Ok(None), "its answer comes behind its payload");
        let part = vec![0; 1 << 20];
        for at in 1..64 {
            assert_eq!(machine.next(&mut &part[..]), Ok(None), "{at}");
        }
        let bytes = [&part[..], &request(Command::Read, 0, 1).encode()].concat();
        let mut input = &bytes[..];
        assert!(
            matches!(machine.next(&mut input), Ok(Some(Incoming::Refused(refusal))) if refusal.cookie == 1)
        );
        assert!(matches!(machine.next(&mut input), Ok(Some(Incoming::Request(_)))));
        let longer = request(Command::Write, 0, SKIPPED_BYTES_MAX + 1);
        let (mut machine, header) = (requests(), longer.encode());
        for input in [&header[..], b""] {
            assert_eq!(machine.next(&mut { input }), Err(RequestError::Payload(longer.len_bytes)));
        }
    }

    #[test]
    fn nothing_counts_behind_a_disconnect() {
        let bytes = [request(Command::Disconnect, 0, 0).encode(), [0; 28]].concat();
        let (mut requests, mut input) = (requests(), &bytes[..]);
        assert_eq!(requests.next(&mut input), Ok(Some(Incoming::Disconnect)));
        assert_eq!(requests.next(&mut input), Ok(None));
    }

    #[test]
    fn a_resized_export_takes_other_requests() {
        let mut requests = requests();
        let read = request(Command::Read, 4096, 1);
        assert!(matches!(requests.next(&mut &read.encode()[..]), Ok(Some(Incoming::Refused(_)))));
        requests.resize(4097);
        assert_eq!(requests.next(&mut &read.encode()[..]), Ok(Some(Incoming::Request(read))));
    }
}
