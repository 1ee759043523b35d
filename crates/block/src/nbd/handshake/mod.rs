//! Handshake of a server: fixed newstyle negotiation (section "Handshake").

mod answers;
mod asked;
#[cfg(test)]
mod tests;

use self::answers::Answers;
use self::asked::{InfoAsked, MetaAsked, Refused};
use super::context::Contexts;
use super::export::Export;
use super::fields::{Fields, Head};
use super::reassembly::Gather;
use super::rules::Rules;
use super::wire::{
    FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, GREETING_BYTES, GREETING_MAGIC, OPTION_HEADER_BYTES, OPTION_MAGIC,
    STRING_BYTES_MAX, option, reply,
};

/// The longest option data that are kept: names and queries of the
/// longest form, several of them. Longer ones are skipped and refused.
const OPTION_BYTES_MAX: u32 = 32 * 1024;

/// Whether clients may, or must, go over to TLS (section "TLS support").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// There is no TLS.
    Off,
    /// A client that asks for TLS gets it.
    Offered,
    /// A client that does not use TLS gets nothing.
    Required,
}

/// Result of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The export's place in the list that was handed to [`Handshake::receive`].
    pub export: usize,
    /// The rules that its requests are checked against.
    pub rules: Rules,
    /// The metadata contexts that a block status must describe, one chunk for each.
    pub contexts: Contexts,
}

/// Where the negotiation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All bytes were taken, and more are wanted.
    Incomplete,
    /// An option was answered. There may be more bytes to hand over, once the answer is on its way.
    Answered,
    /// When the answer was sent, the connection goes over to TLS: [`Handshake::tls_started`] comes next.
    StartTls,
    /// When the answer was sent, transmission begins; bytes that were not taken are requests.
    Transmit(Session),
    /// When the answer was sent, the connection is to be closed: the client has had enough.
    Abort,
}

/// Why a connection must be closed without another word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The client has set flags that were not offered.
    #[error("the client sets unknown flags ({0:#x})")]
    ClientFlags(u32),
    /// An option does not begin as one.
    #[error("an option begins with {0:#018x} instead of {OPTION_MAGIC:#018x}")]
    Magic(u64),
    /// The client does not speak fixed newstyle, and all that is left to it is `EXPORT_NAME`.
    #[error("option {0} from a client that does not speak fixed newstyle")]
    NotFixed(u32),
    /// `EXPORT_NAME`, which knows no error, names no export.
    #[error("the client asks for an export that does not exist, in a way that has no error reply")]
    UnknownExport,
    /// `EXPORT_NAME`, which knows no error, without TLS where TLS is required.
    #[error("the client asks for an export before TLS, which is required here")]
    TlsRequired,
    /// Bytes arrived between the agreement on TLS and its first handshake message: an attacker may have injected them.
    #[error("plain bytes follow the agreement on TLS")]
    BytesBeforeTls,
    /// The negotiation has ended before.
    #[error("the negotiation is over")]
    Over,
}

#[derive(Clone, Copy, Debug)]
enum State {
    ClientFlags,
    Header,
    Data {
        option: u32,
        len: u32,
    },
    /// Passes over an option's data, and refuses it then; `None` answers an abort.
    Drain {
        option: u32,
        left: u32,
        refusal: Option<Refused>,
    },
    AwaitTls,
    Failed(HandshakeError),
}

/// One connection's negotiation.
#[derive(Debug)]
pub struct Handshake {
    state: State,
    tls: Tls,
    over_tls: bool,
    closing: bool,
    fixed: bool,
    no_zeroes: bool,
    structured: bool,
    /// The export with selected contexts, and the contexts.
    selected: Option<(String, Contexts)>,
    gathered: Gather,
}

impl Handshake {
    /// A new connection; appends the greeting to `out`.
    pub fn new(tls: Tls, out: &mut Vec<u8>) -> Self {
        let greeting = Head::<GREETING_BYTES>::new()
            .u64(GREETING_MAGIC)
            .u64(OPTION_MAGIC)
            .u16(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
        out.extend_from_slice(&greeting.done());
        Handshake {
            state: State::ClientFlags,
            tls,
            over_tls: false,
            closing: false,
            fixed: false,
            no_zeroes: false,
            structured: false,
            selected: None,
            gathered: Gather::default(),
        }
    }

    /// Reads on in `input`, from which it takes what it has used, and appends the answer to `out`.
    ///
    /// It answers one option at most, so that a client that sends many cannot make many answers pile up: send what is
    /// in `out` before calling again. After an error the connection must be closed; the error is given again.
    pub fn receive(
        &mut self,
        input: &mut &[u8],
        exports: &[Export],
        out: &mut Vec<u8>,
    ) -> Result<Progress, HandshakeError> {
        let progress = self.step(input, exports, out);
        match progress {
            Err(error) => self.state = State::Failed(error),
            Ok(Progress::Transmit(_) | Progress::Abort) => self.state = State::Failed(HandshakeError::Over),
            Ok(_) => {}
        }
        progress
    }

    /// The connection has gone over to TLS. `unread` are the plain bytes that were read and not taken, of which there
    /// must be none. What was agreed on before does not count any more.
    pub fn tls_started(&mut self, unread: &[u8]) -> Result<(), HandshakeError> {
        match self.state {
            State::AwaitTls if unread.is_empty() => {}
            State::AwaitTls => return self.fail(HandshakeError::BytesBeforeTls),
            State::Failed(error) => return Err(error),
            _ => return self.fail(HandshakeError::Over),
        }
        self.over_tls = true;
        self.structured = false;
        self.selected = None;
        self.state = State::Header;
        Ok(())
    }

    /// The server is going down: options are refused from now on.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// Bytes of memory held besides itself.
    pub fn memory_bytes(&self) -> usize {
        self.gathered.memory_bytes() + self.selected.as_ref().map_or(0, |(name, _)| name.capacity())
    }

    fn fail(&mut self, error: HandshakeError) -> Result<(), HandshakeError> {
        self.state = State::Failed(error);
        Err(error)
    }

    fn step(
        &mut self,
        input: &mut &[u8],
        exports: &[Export],
        out: &mut Vec<u8>,
    ) -> Result<Progress, HandshakeError> {
        loop {
            match self.state {
                State::ClientFlags => {
                    if !self.gathered.fill(input, 4) {
                        return Ok(Progress::Incomplete);
                    }
                    let flags = Fields::new(self.gathered.bytes()).u32().unwrap_or_default();
                    self.gathered.clear();
                    if flags & !u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES) != 0 {
                        return Err(HandshakeError::ClientFlags(flags));
                    }
                    self.fixed = flags & u32::from(FLAG_FIXED_NEWSTYLE) != 0;
                    self.no_zeroes = flags & u32::from(FLAG_NO_ZEROES) != 0;
                    self.state = State::Header;
                }
                State::Header => {
                    if !self.gathered.fill(input, OPTION_HEADER_BYTES) {
                        return Ok(Progress::Incomplete);
                    }
                    let mut fields = Fields::new(self.gathered.bytes());
                    let magic = fields.u64().unwrap_or_default();
                    let (option, len) = (fields.u32().unwrap_or_default(), fields.u32().unwrap_or_default());
                    self.gathered.clear();
                    if magic != OPTION_MAGIC {
                        return Err(HandshakeError::Magic(magic));
                    }
                    self.state = self.header(option, len)?;
                }
                State::Data { option, len } => {
                    if !self.gathered.fill(input, len as usize) {
                        return Ok(Progress::Incomplete);
                    }
                    self.state = State::Header;
                    let data = self.gathered.take();
                    let progress = self.option(option, &data, exports, out);
                    self.gathered.give_back(data);
                    return progress;
                }
                State::Drain { option, left, refusal } => {
                    let passed = (left as usize).min(input.len());
                    *input = &input[passed..];
                    let left = left - passed as u32;
                    if left > 0 {
                        self.state = State::Drain { option, left, refusal };
                        return Ok(Progress::Incomplete);
                    }
                    self.state = State::Header;
                    let mut answers = Answers::new(option, out);
                    return Ok(match refusal {
                        Some((error, reason)) => {
                            answers.put(error, &[reason.as_bytes()]);
                            Progress::Answered
                        }
                        None => {
                            answers.put(reply::ACK, &[]);
                            Progress::Abort
                        }
                    });
                }
                State::AwaitTls if input.is_empty() => return Ok(Progress::Incomplete),
                State::AwaitTls => return Err(HandshakeError::BytesBeforeTls),
                State::Failed(error) => return Err(error),
            }
        }
    }

    /// Decides from an option's header whether its data are wanted at all.
    fn header(&self, option: u32, len: u32) -> Result<State, HandshakeError> {
        // The last resort of old clients has no error reply, so that what is refused politely to others ends these.
        if option == option::EXPORT_NAME {
            if self.tls == Tls::Required && !self.over_tls {
                return Err(HandshakeError::TlsRequired);
            }
            if len as usize > STRING_BYTES_MAX || self.closing {
                return Err(HandshakeError::UnknownExport);
            }
            return Ok(State::Data { option, len });
        }
        if !self.fixed {
            return Err(HandshakeError::NotFixed(option));
        }
        let drain = |refusal| Ok(State::Drain { option, left: len, refusal });
        let refuse = |error, reason| drain(Some((error, reason)));
        if option == option::ABORT {
            return drain(None);
        }
        if self.closing {
            return refuse(reply::ERR_SHUTDOWN, "the server is shutting down");
        }
        if self.tls == Tls::Required && !self.over_tls && option != option::STARTTLS {
            return refuse(reply::ERR_TLS_REQD, "TLS is required here");
        }
        match option {
            option::LIST | option::STARTTLS | option::STRUCTURED_REPLY if len > 0 => {
                refuse(reply::ERR_INVALID, "this option has no data")
            }
            option::LIST
            | option::STARTTLS
            | option::STRUCTURED_REPLY
            | option::INFO
            | option::GO
            | option::LIST_META_CONTEXT
            | option::SET_META_CONTEXT => {
                if len > OPTION_BYTES_MAX {
                    return refuse(reply::ERR_TOO_BIG, "the option is too long");
                }
                Ok(State::Data { option, len })
            }
            _ => refuse(reply::ERR_UNSUP, "an unknown option"),
        }
    }

    /// Executes an option with complete `data`.
    fn option(
        &mut self,
        option: u32,
        data: &[u8],
        exports: &[Export],
        out: &mut Vec<u8>,
    ) -> Result<Progress, HandshakeError> {
        let mut answers = Answers::new(option, out);
        let done = match option {
            option::EXPORT_NAME => return self.export_name(data, exports, out),
            option::LIST => {
                exports.iter().for_each(|export| answers.server(export));
                Ok(Progress::Answered)
            }
            option::STARTTLS => self.start_tls(),
            option::STRUCTURED_REPLY => {
                self.structured = true;
                Ok(Progress::Answered)
            }
            option::INFO | option::GO => self.info(option, data, exports, &mut answers),
            _ => self.meta_context(option, data, exports, &mut answers),
        };
        Ok(match done {
            Ok(progress) => {
                answers.put(reply::ACK, &[]);
                progress
            }
            Err((error, reason)) => {
                answers.put(error, &[reason.as_bytes()]);
                Progress::Answered
            }
        })
    }

    fn start_tls(&mut self) -> Result<Progress, Refused> {
        if self.tls == Tls::Off {
            return Err((reply::ERR_POLICY, "there is no TLS here"));
        }
        if self.over_tls {
            return Err((reply::ERR_INVALID, "this is TLS already"));
        }
        self.state = State::AwaitTls;
        Ok(Progress::StartTls)
    }

    fn export_name(
        &self,
        data: &[u8],
        exports: &[Export],
        out: &mut Vec<u8>,
    ) -> Result<Progress, HandshakeError> {
        let found = core::str::from_utf8(data).ok().and_then(|name| Export::find(exports, name));
        let at = found.ok_or(HandshakeError::UnknownExport)?;
        let session = self.session(exports, at);
        answers::export_name(&session.rules, self.no_zeroes, out);
        Ok(Progress::Transmit(session))
    }

    fn info(
        &self,
        option: u32,
        data: &[u8],
        exports: &[Export],
        answers: &mut Answers<'_>,
    ) -> Result<Progress, Refused> {
        let asked = InfoAsked::read(data)?;
        let at = find(exports, asked.name)?;
        let session = self.session(exports, at);
        answers.info(&exports[at], &session.rules, &asked);
        Ok(if option == option::GO { Progress::Transmit(session) } else { Progress::Answered })
    }

    fn meta_context(
        &mut self,
        option: u32,
        data: &[u8],
        exports: &[Export],
        answers: &mut Answers<'_>,
    ) -> Result<Progress, Refused> {
        let set = option == option::SET_META_CONTEXT;
        if set {
            // A selection replaces the one before, even one that fails.
            self.selected = None;
        }
        if !self.structured {
            return Err((reply::ERR_INVALID, "metadata contexts need structured replies"));
        }
        let asked = MetaAsked::read(data)?;
        let export = &exports[find(exports, asked.name)?];
        let contexts = asked.contexts(export.contexts, !set)?;
        for context in contexts.iter() {
            answers.meta_context(if set { context.id() } else { 0 }, context.name());
        }
        if set {
            self.selected = Some((export.name.clone(), contexts));
        }
        Ok(Progress::Answered)
    }

    fn session(&self, exports: &[Export], at: usize) -> Session {
        let export = &exports[at];
        let contexts = match &self.selected {
            Some((name, contexts)) if *name == export.name => *contexts,
            _ => Contexts::none(),
        };
        Session { export: at, rules: export.rules_for(self.structured, contexts), contexts }
    }
}

fn find(exports: &[Export], name: &str) -> Result<usize, Refused> {
    Export::find(exports, name).ok_or((reply::ERR_UNKNOWN, "there is no export of this name"))
}
