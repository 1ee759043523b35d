//! Transmission of a client: its requests and their replies (section "Transmission").

use std::collections::HashMap;

use super::cover::Cover;
use super::negotiation::{Agreed, CONTEXTS_MAX};
use crate::nbd::command::{Command, Request};
use crate::nbd::errno::Errno;
use crate::nbd::extents::Extent;
use crate::nbd::fields::Fields;
use crate::nbd::reassembly::Gather;
use crate::nbd::rules::{Fault, Rules};
use crate::nbd::wire::{
    CHUNK_HEADER_BYTES, CommandFlags, EXTENTS_MAX, REPLY_FLAG_DONE, REQUEST_BYTES, SIMPLE_REPLY_BYTES,
    SIMPLE_REPLY_MAGIC, STRING_BYTES_MAX, STRUCTURED_REPLY_MAGIC, chunk,
};

/// The longest payload of an error: a message, an error's number and offset, and what may be added to that one day.
const ERROR_BYTES_MAX: u32 = STRING_BYTES_MAX as u32 + 64;

/// A piece of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Data of a read. They follow: [`Transmission::payload`] or [`Transmission::payload_taken`] must take them before
    /// the next piece is read.
    Data {
        /// The read.
        cookie: u64,
        /// The volume's byte that is the first of them.
        offset: u64,
        /// How many they are.
        len_bytes: u32,
    },
    /// Zeroes of a read.
    Hole {
        /// The read.
        cookie: u64,
        /// The volume's byte that is the first of them.
        offset: u64,
        /// How many they are.
        len_bytes: u32,
    },
    /// One extent of a block status; those of one metadata context come in ascending order.
    Extent {
        /// The block status.
        cookie: u64,
        /// The metadata context's number.
        context_id: u32,
        /// The volume's first byte of the extent, which may reach beyond the request.
        offset: u64,
        /// Its length and state.
        extent: Extent,
    },
    /// Something went wrong; the request will fail when its reply ends.
    Error {
        /// The request.
        cookie: u64,
        /// What.
        error: Errno,
        /// Offset of the error, if known.
        offset: Option<u64>,
        /// The server's words, perhaps none.
        message: String,
    },
    /// The reply has ended, and its cookie is free.
    Done {
        /// The request.
        cookie: u64,
        /// Whether it was done; the first error otherwise.
        result: Result<(), Errno>,
    },
}

/// Why a request cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IssueError {
    /// The cookie belongs to a request in flight.
    #[error("cookie {0} is in use")]
    Cookie(u64),
    /// The server would refuse it.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The client has said goodbye.
    #[error("the session has been ended")]
    Disconnected,
}

/// Bytes that are not a reply to any request. The connection cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// A reply does not begin as one.
    #[error("a reply begins with {0:#010x}")]
    Magic(u32),
    /// A reply to a request that is not under way.
    #[error("a reply to cookie {0}, which is not in use")]
    Cookie(u64),
    /// A reply that its request cannot have.
    #[error("the reply to cookie {cookie} is malformed: {what}")]
    Malformed {
        /// The request.
        cookie: u64,
        /// What is wrong.
        what: &'static str,
    },
}

/// A request that is under way.
#[derive(Debug)]
struct Pending {
    request: Request,
    /// The bytes of a read that have arrived.
    cover: Cover,
    /// The metadata contexts with a chunk that has arrived, one bit each.
    described: u64,
    error: Option<Errno>,
}

/// The current chunk as far as it is known.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    cookie: u64,
    kind: u16,
    done: bool,
    len: u32,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Head,
    /// The first fields of a chunk's payload, this number of bytes.
    Fields(Chunk, usize),
    /// Data, which the owner takes.
    Payload {
        cookie: u64,
        left: u32,
        done: bool,
    },
    Extents {
        chunk: Chunk,
        context_id: u32,
        offset: u64,
        left: u32,
    },
    Failed(ReplyError),
}

/// One connection's requests and replies. Several requests may be under way, and it holds a little for each.
#[derive(Debug)]
pub struct Transmission {
    rules: Rules,
    context_ids: Vec<u32>,
    pending: HashMap<u64, Pending>,
    disconnected: bool,
    state: State,
    gathered: Gather,
}

impl Transmission {
    /// A session on these terms.
    pub fn new(agreed: &Agreed) -> Self {
        Transmission {
            rules: agreed.rules,
            context_ids: agreed.contexts.iter().take(CONTEXTS_MAX).map(|(id, _)| *id).collect(),
            pending: HashMap::new(),
            disconnected: false,
            state: State::Head,
            gathered: Gather::default(),
        }
    }

    /// The rules that requests are checked against.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Starts `request` and gives its header; a write's payload is to be sent behind it. After a disconnect nothing can
    /// be sent.
    pub fn issue(&mut self, request: Request) -> Result<[u8; REQUEST_BYTES], IssueError> {
        if self.disconnected {
            return Err(IssueError::Disconnected);
        }
        self.rules.check(&request)?;
        if request.command == Command::Disconnect {
            self.disconnected = true;
            return Ok(request.encode());
        }
        if self.pending.contains_key(&request.cookie) {
            return Err(IssueError::Cookie(request.cookie));
        }
        let pending = Pending { request, cover: Cover::default(), described: 0, error: None };
        self.pending.insert(request.cookie, pending);
        Ok(request.encode())
    }

    /// Number of requests in flight.
    pub fn under_way(&self) -> usize {
        self.pending.len()
    }

    /// Reads on in `input`, from which it takes what it has used. `None` when more bytes are wanted or a payload is to
    /// be taken first.
    ///
    /// After an error the connection must be closed; the error is given again.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Event>, ReplyError> {
        let event = self.step(input);
        if let Err(error) = event {
            self.state = State::Failed(error);
        }
        event
    }

    /// Bytes of the present data that have still to be taken.
    pub fn payload_left(&self) -> u32 {
        match self.state {
            State::Payload { left, .. } => left,
            _ => 0,
        }
    }

    /// Takes from `input` what it holds of the present data.
    pub fn payload<'a>(&mut self, input: &mut &'a [u8]) -> &'a [u8] {
        let (payload, rest) = input.split_at((self.payload_left() as usize).min(input.len()));
        *input = rest;
        self.payload_taken(payload.len());
        payload
    }

    /// Says that `bytes` of the present data were read past this machine, straight to where they belong.
    ///
    /// # Panics
    ///
    /// When that is more than [`Self::payload_left`].
    pub fn payload_taken(&mut self, bytes: usize) {
        assert!(bytes <= self.payload_left() as usize, "only the payload bypasses the machine");
        if let State::Payload { left, .. } = &mut self.state {
            *left -= bytes as u32;
        }
    }

    /// Bytes of memory held besides itself, but for a fixed amount per request under way.
    pub fn memory_bytes(&self) -> usize {
        let covers: usize = self.pending.values().map(|pending| pending.cover.memory_bytes()).sum();
        self.gathered.memory_bytes() + covers
    }

    fn step(&mut self, input: &mut &[u8]) -> Result<Option<Event>, ReplyError> {
        loop {
            match self.state {
                State::Head => {
                    if !self.gathered.fill(input, 4) {
                        return Ok(None);
                    }
                    let magic = Fields::new(self.gathered.bytes()).u32().unwrap_or_default();
                    let simple = magic == SIMPLE_REPLY_MAGIC;
                    if !simple && (magic != STRUCTURED_REPLY_MAGIC || !self.rules.structured) {
                        return Err(ReplyError::Magic(magic));
                    }
                    if !self
                        .gathered
                        .fill(input, if simple { SIMPLE_REPLY_BYTES } else { CHUNK_HEADER_BYTES })
                    {
                        return Ok(None);
                    }
                    let event = if simple { self.simple()? } else { self.chunk()? };
                    if event.is_some() {
                        return Ok(event);
                    }
                }
                State::Fields(chunk, wanted) => {
                    if !self.gathered.fill(input, wanted) {
                        return Ok(None);
                    }
                    let event = self.fields(chunk)?;
                    self.gathered.clear();
                    if event.is_some() {
                        return Ok(event);
                    }
                }
                State::Payload { left: 1.., .. } => return Ok(None),
                State::Payload { cookie, done, .. } => {
                    self.state = State::Head;
                    if done {
                        return self.finish(cookie).map(Some);
                    }
                }
                State::Extents { chunk, left: 0, .. } => {
                    self.state = State::Head;
                    if chunk.done {
                        return self.finish(chunk.cookie).map(Some);
                    }
                }
                State::Extents { chunk, context_id, offset, left } => {
                    if !self.gathered.fill(input, 8) {
                        return Ok(None);
                    }
                    let mut fields = Fields::new(self.gathered.bytes());
                    let (len_bytes, flags) =
                        (fields.u32().unwrap_or_default(), fields.u32().unwrap_or_default());
                    self.gathered.clear();
                    let next = self.extent(chunk, offset, len_bytes)?;
                    self.state = State::Extents { chunk, context_id, offset: next, left: left - 1 };
                    let extent = Extent { len_bytes, flags };
                    return Ok(Some(Event::Extent { cookie: chunk.cookie, context_id, offset, extent }));
                }
                State::Failed(error) => return Err(error),
            }
        }
    }

    /// A simple reply with a complete header.
    fn simple(&mut self) -> Result<Option<Event>, ReplyError> {
        let mut fields = Fields::new(self.gathered.bytes());
        let _magic = fields.u32();
        let (error, cookie) = (fields.u32().unwrap_or_default(), fields.u64().unwrap_or_default());
        self.gathered.clear();
        let pending = self.pending.get_mut(&cookie).ok_or(ReplyError::Cookie(cookie))?;
        let request = pending.request;
        if self.rules.structured && request.command == Command::Read {
            return Err(ReplyError::Malformed { cookie, what: "a read's reply is not structured" });
        }
        if error != 0 {
            pending.error = Some(Errno::from_wire(error));
        } else if request.command == Command::Read {
            if !pending.cover.add(request.offset, request.end()) {
                return Err(ReplyError::Malformed { cookie, what: "data come twice" });
            }
            self.state = State::Payload { cookie, left: request.len_bytes, done: true };
            return Ok(Some(Event::Data { cookie, offset: request.offset, len_bytes: request.len_bytes }));
        }
        self.finish(cookie).map(Some)
    }

    /// A chunk with a complete header.
    fn chunk(&mut self) -> Result<Option<Event>, ReplyError> {
        let mut fields = Fields::new(self.gathered.bytes());
        let _magic = fields.u32();
        let (flags, kind) = (fields.u16().unwrap_or_default(), fields.u16().unwrap_or_default());
        let (cookie, len) = (fields.u64().unwrap_or_default(), fields.u32().unwrap_or_default());
        self.gathered.clear();
        let chunk = Chunk { cookie, kind, done: flags & REPLY_FLAG_DONE != 0, len };
        let pending = self.pending.get(&cookie).ok_or(ReplyError::Cookie(cookie))?;
        let malformed = |what| Err(ReplyError::Malformed { cookie, what });
        let read = pending.request.command == Command::Read;
        let wanted = match kind {
            chunk::NONE if len == 0 && chunk.done => return self.finish(cookie).map(Some),
            chunk::OFFSET_DATA if read && len > 8 => 8,
            chunk::OFFSET_HOLE if read && len == 12 => 12,
            chunk::BLOCK_STATUS if pending.request.command == Command::BlockStatus => {
                let extents = len.saturating_sub(4) / 8;
                if extents == 0 || len % 8 != 4 || extents > EXTENTS_MAX {
                    return malformed("a block status of the wrong length");
                }
                if pending.request.flags.contains(CommandFlags::REQ_ONE) && extents != 1 {
                    return malformed("more than one extent");
                }
                4
            }
            chunk::NONE | chunk::OFFSET_DATA | chunk::OFFSET_HOLE | chunk::BLOCK_STATUS => {
                return malformed("a chunk of the wrong length, or for another command");
            }
            _ if kind & chunk::ERROR_BIT == 0 => return malformed("a chunk of an unknown type"),
            _ if !(6..=ERROR_BYTES_MAX).contains(&len) => return malformed("an error of the wrong length"),
            _ => len as usize,
        };
        self.state = State::Fields(chunk, wanted);
        Ok(None)
    }

    /// The first fields of a chunk's payload, which were gathered; all of an error's.
    fn fields(&mut self, chunk: Chunk) -> Result<Option<Event>, ReplyError> {
        let cookie = chunk.cookie;
        let malformed = |what| ReplyError::Malformed { cookie, what };
        let short = || malformed("a chunk is too short");
        let pending = self.pending.get_mut(&cookie).ok_or(ReplyError::Cookie(cookie))?;
        let request = pending.request;
        let mut fields = Fields::new(self.gathered.bytes());
        if chunk.kind & chunk::ERROR_BIT != 0 {
            let error =
                fields.u32().filter(|error| *error != 0).ok_or(malformed("an error without a number"))?;
            let error = Errno::from_wire(error);
            let len = fields.u16().ok_or_else(short)?;
            let message = fields.bytes(usize::from(len)).ok_or_else(short)?;
            let offset = match chunk.kind {
                chunk::ERROR_OFFSET => Some(fields.u64().ok_or_else(short)?),
                _ => None,
            };
            if offset.is_some_and(|offset| !(request.offset..request.end()).contains(&offset)) {
                return Err(malformed("an error outside of the request"));
            }
            pending.error.get_or_insert(error);
            let message = String::from_utf8_lossy(message).into_owned();
            self.state = State::Payload { cookie, left: 0, done: chunk.done };
            return Ok(Some(Event::Error { cookie, error, offset, message }));
        }
        if chunk.kind == chunk::BLOCK_STATUS {
            let context_id = fields.u32().ok_or_else(short)?;
            let at = self.context_ids.iter().position(|id| *id == context_id);
            let bit = 1u64 << at.ok_or(malformed("a metadata context that was not asked for"))?;
            if pending.described & bit != 0 {
                return Err(malformed("a metadata context comes twice"));
            }
            pending.described |= bit;
            let left = chunk.len.saturating_sub(4) / 8;
            self.state = State::Extents { chunk, context_id, offset: request.offset, left };
            return Ok(None);
        }
        let offset = fields.u64().ok_or_else(short)?;
        let hole = chunk.kind == chunk::OFFSET_HOLE;
        let len_bytes = if hole { fields.u32().ok_or_else(short)? } else { chunk.len.saturating_sub(8) };
        let end = offset.checked_add(u64::from(len_bytes)).filter(|end| *end <= request.end());
        let end = end.filter(|_| len_bytes > 0 && offset >= request.offset);
        let end = end.ok_or(malformed("data outside of the request"))?;
        if !pending.cover.add(offset, end) {
            return Err(malformed("data come twice, or too scattered"));
        }
        let left = if hole { 0 } else { len_bytes };
        self.state = State::Payload { cookie, left, done: chunk.done };
        Ok(Some(match hole {
            true => Event::Hole { cookie, offset, len_bytes },
            false => Event::Data { cookie, offset, len_bytes },
        }))
    }

    /// Where the extent behind one of `len_bytes` at `offset` begins.
    fn extent(&self, chunk: Chunk, offset: u64, len_bytes: u32) -> Result<u64, ReplyError> {
        let cookie = chunk.cookie;
        let malformed = |what| ReplyError::Malformed { cookie, what };
        let request = self.pending.get(&cookie).ok_or(ReplyError::Cookie(cookie))?.request;
        if len_bytes == 0 || offset >= request.end() {
            return Err(malformed("an extent of no bytes, or outside of the request"));
        }
        let next = offset.checked_add(u64::from(len_bytes)).ok_or(malformed("an extent without an end"))?;
        if request.flags.contains(CommandFlags::REQ_ONE) && next > request.end() {
            return Err(malformed("an extent reaches beyond the request"));
        }
        Ok(next)
    }

    /// Ends a reply, and holds it against what a success must have brought.
    fn finish(&mut self, cookie: u64) -> Result<Event, ReplyError> {
        let pending = self.pending.remove(&cookie).ok_or(ReplyError::Cookie(cookie))?;
        let request = pending.request;
        if let Some(error) = pending.error {
            return Ok(Event::Done { cookie, result: Err(error) });
        }
        let whole = match request.command {
            Command::Read => pending.cover.is_whole(request.offset, request.end()),
            Command::BlockStatus => pending.described.count_ones() as usize == self.context_ids.len(),
            _ => true,
        };
        if !whole {
            return Err(ReplyError::Malformed { cookie, what: "it ends before all was said" });
        }
        Ok(Event::Done { cookie, result: Ok(()) })
    }
}
