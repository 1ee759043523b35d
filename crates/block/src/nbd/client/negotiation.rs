//! Negotiation of a client: requests what it wants option by option (section "Handshake").

use std::fmt;

use crate::nbd::fields::{Fields, Head};
use crate::nbd::handshake::Tls;
use crate::nbd::reassembly::Gather;
use crate::nbd::rules::Rules;
use crate::nbd::sizes::BlockSizes;
use crate::nbd::wire::{
    EXPORT_NAME_ZEROES, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, GREETING_BYTES, GREETING_MAGIC,
    OPTION_HEADER_BYTES, OPTION_MAGIC, OPTION_REPLY_HEADER_BYTES, OPTION_REPLY_MAGIC, STRING_BYTES_MAX,
    TransmissionFlags, info, option, reply,
};

/// The longest data of a reply that are kept.
const REPLY_BYTES_MAX: usize = 16 * 1024;
/// The most replies to one option.
const REPLIES_MAX: u32 = 1024;
/// The most metadata contexts that may be wished for.
pub(super) const CONTEXTS_MAX: usize = 64;

/// Wishes of a client.
#[derive(Clone, Debug)]
pub struct Wishes {
    /// The export's name; empty for the server's default. At most [`STRING_BYTES_MAX`] bytes.
    pub export: String,
    /// Whether replies shall be structured, if the server knows how.
    pub structured: bool,
    /// Names of metadata contexts that are wanted, if the server has them; they need structured replies. At most 64.
    pub contexts: Vec<String>,
    /// [`Tls::Offered`] means TLS where the server has it.
    pub tls: Tls,
}

impl Wishes {
    /// Structured replies of `export`, no metadata contexts, no TLS.
    pub fn new(export: impl Into<String>) -> Self {
        Wishes { export: export.into(), structured: true, contexts: Vec::new(), tls: Tls::Off }
    }
}

/// Result of the negotiation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Rules of requests.
    pub rules: Rules,
    /// Metadata contexts: the number of each in chunks, and its name.
    pub contexts: Vec<(u32, String)>,
    /// The server's own name for the export, where it told.
    pub name: Option<String>,
    /// Words for people, where the server had any.
    pub description: Option<String>,
}

/// Where the negotiation stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All bytes were taken, and more are wanted once what was appended is sent.
    Incomplete,
    /// The connection goes over to TLS; [`Negotiation::tls_started`] comes next.
    StartTls,
    /// Transmission begins; bytes that were not taken are replies.
    Ready(Agreed),
}

/// A server's refusal of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The option (see [`option`]).
    pub option: u32,
    /// The error (see [`reply`]).
    pub error: u32,
    /// The server's words, perhaps none.
    pub message: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.error {
            reply::ERR_UNSUP => "it is not supported",
            reply::ERR_POLICY => "it is forbidden",
            reply::ERR_INVALID => "it is invalid",
            reply::ERR_PLATFORM => "the platform lacks it",
            reply::ERR_TLS_REQD => "TLS is required",
            reply::ERR_UNKNOWN => "there is no such export",
            reply::ERR_SHUTDOWN => "the server is shutting down",
            reply::ERR_BLOCK_SIZE_REQD => "block sizes must be asked for",
            reply::ERR_TOO_BIG => "it is too big",
            _ => "of an unknown error",
        };
        write!(f, "the server refuses option {}, as {why}", self.option)?;
        if self.message.is_empty() { Ok(()) } else { write!(f, ": {}", self.message.escape_debug()) }
    }
}

/// Why there is no session. The connection is to be closed, when what was appended is sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NegotiationError {
    /// The other side does not greet as a server of this protocol, or speaks its oldest form.
    #[error("the peer is not a newstyle NBD server")]
    Greeting,
    /// A server that cannot do TLS, or will not, and must.
    #[error("the server has no TLS")]
    NoTls,
    /// The server refuses what cannot be done without.
    #[error("{0}")]
    Refused(Refused),
    /// A reply that is none, or to another option than was asked.
    #[error("the server's reply to option {option} is malformed: {what}")]
    Malformed {
        /// Which option was asked.
        option: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// Bytes arrived between the agreement on TLS and its first handshake message: an attacker may have injected them.
    #[error("plain bytes follow the agreement on TLS")]
    BytesBeforeTls,
    /// The negotiation has ended before.
    #[error("the negotiation is over")]
    Over,
}

#[derive(Clone, Debug)]
enum State {
    Greeting,
    /// The head of a reply to this option.
    Reply(u32),
    /// The data of a reply.
    Data {
        option: u32,
        kind: u32,
        len: usize,
    },
    AwaitTls,
    /// The answer to `EXPORT_NAME`.
    ExportName,
    Failed(NegotiationError),
}

/// One connection's negotiation, as the client sees it.
#[derive(Debug)]
pub struct Negotiation {
    wishes: Wishes,
    state: State,
    no_zeroes: bool,
    structured: bool,
    contexts: Vec<(u32, String)>,
    size: Option<(u64, TransmissionFlags)>,
    block: BlockSizes,
    name: Option<String>,
    description: Option<String>,
    replies: u32,
    gathered: Gather,
}

impl Negotiation {
    /// A new connection, on which the server speaks first.
    ///
    /// # Panics
    ///
    /// When a name is longer than the protocol allows, or there are too many of them.
    pub fn new(wishes: Wishes) -> Self {
        let names = || wishes.contexts.iter().chain([&wishes.export]);
        assert!(names().all(|name| name.len() <= STRING_BYTES_MAX), "a name is too long for the protocol");
        assert!(wishes.contexts.len() <= CONTEXTS_MAX, "too many metadata contexts");
        Negotiation {
            wishes,
            state: State::Greeting,
            no_zeroes: false,
            structured: false,
            contexts: Vec::new(),
            size: None,
            block: BlockSizes::default(),
            name: None,
            description: None,
            replies: 0,
            gathered: Gather::default(),
        }
    }

    /// Reads on in `input`, from which it takes what it has used, and appends what is to be sent to `out`.
    ///
    /// An error is given again by any later call.
    pub fn receive(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Progress, NegotiationError> {
        let progress = self.step(input, out);
        match &progress {
            Ok(Progress::Ready(_)) => self.state = State::Failed(NegotiationError::Over),
            Err(error) => self.state = State::Failed(error.clone()),
            Ok(_) => {}
        }
        progress
    }

    /// The connection has gone over to TLS. `unread` are the plain bytes that were read and not taken, of which there
    /// must be none. Appends the next option to `out`.
    pub fn tls_started(&mut self, unread: &[u8], out: &mut Vec<u8>) -> Result<(), NegotiationError> {
        let error = match &self.state {
            State::AwaitTls if unread.is_empty() => {
                self.ask_structured(out);
                return Ok(());
            }
            State::AwaitTls => NegotiationError::BytesBeforeTls,
            State::Failed(error) => error.clone(),
            _ => NegotiationError::Over,
        };
        self.state = State::Failed(error.clone());
        Err(error)
    }

    /// Bytes of memory held besides itself and what was wished for.
    pub fn memory_bytes(&self) -> usize {
        let contexts: usize = self.contexts.iter().map(|(_, name)| name.capacity()).sum();
        let words = [&self.name, &self.description].into_iter().flatten().map(String::capacity);
        self.gathered.memory_bytes() + contexts + words.sum::<usize>()
    }

    fn step(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Progress, NegotiationError> {
        loop {
            match self.state {
                State::Greeting => {
                    if !self.gathered.fill(input, GREETING_BYTES) {
                        return Ok(Progress::Incomplete);
                    }
                    self.greeting(out)?;
                }
                State::Reply(option) => {
                    if !self.gathered.fill(input, OPTION_REPLY_HEADER_BYTES) {
                        return Ok(Progress::Incomplete);
                    }
                    self.state = self.reply_head(option)?;
                    self.gathered.clear();
                }
                State::Data { option, kind, len } => {
                    if !self.gathered.fill(input, len) {
                        return Ok(Progress::Incomplete);
                    }
                    let data = self.gathered.take();
                    let progress = self.reply(option, kind, &data, out);
                    self.gathered.give_back(data);
                    if let Some(progress) = progress? {
                        return Ok(progress);
                    }
                }
                State::ExportName => {
                    let zeroes = if self.no_zeroes { 0 } else { EXPORT_NAME_ZEROES };
                    if !self.gathered.fill(input, 10 + zeroes) {
                        return Ok(Progress::Incomplete);
                    }
                    let mut fields = Fields::new(self.gathered.bytes());
                    self.size = fields.u64().zip(fields.u16().map(TransmissionFlags::from_bits));
                    return self.ready(option::EXPORT_NAME);
                }
                State::AwaitTls if input.is_empty() => return Ok(Progress::Incomplete),
                State::AwaitTls => return Err(NegotiationError::BytesBeforeTls),
                State::Failed(ref error) => return Err(error.clone()),
            }
        }
    }

    fn greeting(&mut self, out: &mut Vec<u8>) -> Result<(), NegotiationError> {
        let mut fields = Fields::new(self.gathered.bytes());
        let magics = (fields.u64(), fields.u64());
        let flags = fields.u16().unwrap_or_default();
        self.gathered.clear();
        if magics != (Some(GREETING_MAGIC), Some(OPTION_MAGIC)) {
            return Err(NegotiationError::Greeting);
        }
        // Only what the server has offered may be taken.
        let taken = flags & (FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
        self.no_zeroes = taken & FLAG_NO_ZEROES != 0;
        out.extend_from_slice(&u32::from(taken).to_be_bytes());
        let fixed = taken & FLAG_FIXED_NEWSTYLE != 0;
        match self.wishes.tls {
            Tls::Required if !fixed => return Err(NegotiationError::NoTls),
            _ if !fixed => self.ask_export_name(out),
            Tls::Off => self.ask_structured(out),
            Tls::Offered | Tls::Required => self.ask(option::STARTTLS, &[], out),
        }
        Ok(())
    }

    /// Sends an option with the concatenated `parts` as its data.
    fn ask(&mut self, option: u32, parts: &[&[u8]], out: &mut Vec<u8>) {
        send(option, parts, out);
        self.replies = 0;
        self.state = State::Reply(option);
    }

    fn ask_structured(&mut self, out: &mut Vec<u8>) {
        if self.wishes.structured {
            self.ask(option::STRUCTURED_REPLY, &[], out);
        } else {
            self.ask_go(out);
        }
    }

    fn ask_contexts(&mut self, out: &mut Vec<u8>) {
        if self.wishes.contexts.is_empty() {
            return self.ask_go(out);
        }
        let mut data = Vec::new();
        let string = |data: &mut Vec<u8>, text: &str| {
            data.extend_from_slice(&(text.len() as u32).to_be_bytes());
            data.extend_from_slice(text.as_bytes());
        };
        string(&mut data, &self.wishes.export);
        data.extend_from_slice(&(self.wishes.contexts.len() as u32).to_be_bytes());
        self.wishes.contexts.iter().for_each(|query| string(&mut data, query));
        self.ask(option::SET_META_CONTEXT, &[&data], out);
    }

    fn ask_go(&mut self, out: &mut Vec<u8>) {
        let name = core::mem::take(&mut self.wishes.export);
        let len = (name.len() as u32).to_be_bytes();
        let wanted =
            Head::<8>::new().u16(3).u16(info::NAME).u16(info::DESCRIPTION).u16(info::BLOCK_SIZE).done();
        self.ask(option::GO, &[&len, name.as_bytes(), &wanted], out);
        self.wishes.export = name;
    }

    fn ask_export_name(&mut self, out: &mut Vec<u8>) {
        send(option::EXPORT_NAME, &[self.wishes.export.as_bytes()], out);
        self.state = State::ExportName;
    }

    /// Reads the head of a reply to `option`.
    fn reply_head(&mut self, option: u32) -> Result<State, NegotiationError> {
        let malformed = |what| Err(NegotiationError::Malformed { option, what });
        let mut fields = Fields::new(self.gathered.bytes());
        if fields.u64() != Some(OPTION_REPLY_MAGIC) {
            return malformed("it does not begin as one");
        }
        if fields.u32() != Some(option) {
            return malformed("it is to another option");
        }
        self.replies += 1;
        let (kind, len) = (fields.u32().unwrap_or_default(), fields.u32().unwrap_or_default() as usize);
        if len > REPLY_BYTES_MAX || self.replies > REPLIES_MAX {
            return malformed("it is too long");
        }
        Ok(State::Data { option, kind, len })
    }

    /// Continues after a reply with all of its data.
    fn reply(
        &mut self,
        option: u32,
        kind: u32,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Progress>, NegotiationError> {
        let malformed = |what| Err(NegotiationError::Malformed { option, what });
        if kind & reply::ERROR_BIT != 0 {
            let message = String::from_utf8_lossy(&data[..data.len().min(STRING_BYTES_MAX)]).into_owned();
            return self.refused(Refused { option, error: kind, message }, out).map(|()| None);
        }
        if kind == reply::ACK && !data.is_empty() {
            return malformed("an acknowledgement has data");
        }
        match (option, kind) {
            (option::STARTTLS, reply::ACK) => {
                self.state = State::AwaitTls;
                return Ok(Some(Progress::StartTls));
            }
            (option::STRUCTURED_REPLY, reply::ACK) => {
                self.structured = true;
                self.ask_contexts(out);
            }
            (option::SET_META_CONTEXT, reply::META_CONTEXT) => {
                self.context(data)?;
                self.state = State::Reply(option);
            }
            (option::SET_META_CONTEXT, reply::ACK) => self.ask_go(out),
            (option::GO, reply::INFO) => {
                self.info(data)?;
                self.state = State::Reply(option);
            }
            (option::GO, reply::ACK) => return self.ready(option).map(Some),
            _ => return malformed("it is of a type that does not belong here"),
        }
        Ok(None)
    }

    /// Does without what was refused, where one can.
    fn refused(&mut self, refused: Refused, out: &mut Vec<u8>) -> Result<(), NegotiationError> {
        let hopeless = matches!(refused.error, reply::ERR_SHUTDOWN | reply::ERR_TLS_REQD);
        match refused.option {
            option::STARTTLS if !hopeless && self.wishes.tls == Tls::Offered => self.ask_structured(out),
            option::STRUCTURED_REPLY if !hopeless => self.ask_go(out),
            option::SET_META_CONTEXT if !hopeless => {
                self.contexts.clear();
                self.ask_go(out);
            }
            option::GO if refused.error == reply::ERR_UNSUP => self.ask_export_name(out),
            _ => {
                // To leave without a word is not polite as long as options are spoken.
                send(option::ABORT, &[], out);
                return Err(NegotiationError::Refused(refused));
            }
        }
        Ok(())
    }

    fn context(&mut self, data: &[u8]) -> Result<(), NegotiationError> {
        let malformed = |what| Err(NegotiationError::Malformed { option: option::SET_META_CONTEXT, what });
        let mut fields = Fields::new(data);
        let Some(id) = fields.u32() else { return malformed("a metadata context has no number") };
        let Ok(name) = core::str::from_utf8(fields.rest()) else { return malformed("a name is not UTF-8") };
        let asked = self.wishes.contexts.iter().any(|wish| wish == name);
        if !asked || self.contexts.iter().any(|(known_id, known)| *known_id == id || known == name) {
            return malformed("a metadata context that was not asked for, or twice the same");
        }
        self.contexts.push((id, name.to_owned()));
        Ok(())
    }

    fn info(&mut self, data: &[u8]) -> Result<(), NegotiationError> {
        let malformed = |what| Err(NegotiationError::Malformed { option: option::GO, what });
        let mut fields = Fields::new(data);
        let Some(kind) = fields.u16() else { return malformed("information without a type") };
        let text = || {
            Some(
                String::from_utf8_lossy(&fields.rest()[..fields.rest().len().min(STRING_BYTES_MAX)])
                    .into_owned(),
            )
        };
        match (kind, data.len()) {
            (info::EXPORT, 12) => {
                self.size = fields.u64().zip(fields.u16().map(TransmissionFlags::from_bits));
            }
            (info::NAME, _) => self.name = text(),
            (info::DESCRIPTION, _) => self.description = text(),
            (info::BLOCK_SIZE, 14) => {
                let mut size = || fields.u32().unwrap_or_default();
                let block = BlockSizes { minimum: size(), preferred: size(), payload_max: size() };
                if !block.are_sound() {
                    return malformed("the block sizes make no sense");
                }
                self.block = block;
            }
            (info::EXPORT | info::BLOCK_SIZE, _) => return malformed("information of the wrong length"),
            // What is not known was not asked for, and is to be ignored.
            _ => {}
        }
        Ok(())
    }

    fn ready(&mut self, option: u32) -> Result<Progress, NegotiationError> {
        let Some((size_bytes, flags)) = self.size else {
            return Err(NegotiationError::Malformed { option, what: "the export's size is missing" });
        };
        let contexts = core::mem::take(&mut self.contexts);
        let rules = Rules {
            size_bytes,
            flags,
            block: self.block,
            structured: self.structured,
            contexts: !contexts.is_empty(),
        };
        let (name, description) = (self.name.take(), self.description.take());
        Ok(Progress::Ready(Agreed { rules, contexts, name, description }))
    }
}

/// Appends an option with the concatenated `parts` as its data.
fn send(option: u32, parts: &[&[u8]], out: &mut Vec<u8>) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let head = Head::<OPTION_HEADER_BYTES>::new().u64(OPTION_MAGIC).u32(option).u32(len as u32);
    out.extend_from_slice(&head.done());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}
