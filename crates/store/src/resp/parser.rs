//! Request parser: incremental, without copies, without allocation for an ordinary request.

use super::{Args, Span, inline, number};

/// The longest inline request, and the longest line that announces a length.
pub const INLINE_BYTES_MAX: usize = 64 * 1024;
/// The most arguments of one request.
const ARGS_MAX: u64 = 1024 * 1024;
/// A bulk string longer than this is a protocol error, as in Redis (`proto-max-bulk-len`); one that is only
/// longer than [`Limits::bulk_bytes_max`] is skipped and refused politely.
const BULK_BYTES_MAX: u64 = 512 << 20;
/// Until a client has authenticated it may send this many arguments of this many bytes.
const UNAUTHENTICATED_ARGS_MAX: u64 = 10;
const UNAUTHENTICATED_BULK_BYTES_MAX: u64 = 16 * 1024;

/// Limits of a request.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The longest argument that is kept; a longer one makes the request [`Progress::Oversize`].
    pub bulk_bytes_max: usize,
    /// The longest request in all, lengths and line ends counted; below 4 GiB.
    pub request_bytes_max: usize,
    /// Whether the client has still to give the password.
    pub unauthenticated: bool,
}

/// Bytes that are not a request. The connection cannot continue: the start of the next request is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// `*` with something that is no number, or too large a one.
    #[error("Protocol error: invalid multibulk length")]
    MultibulkLength,
    /// More arguments than an unauthenticated client may send.
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedMultibulkLength,
    /// The line behind `*` does not end.
    #[error("Protocol error: too big mbulk count string")]
    MultibulkLine,
    /// The line behind `$` does not end.
    #[error("Protocol error: too big bulk count string")]
    BulkLine,
    /// An argument that does not begin with `$`.
    #[error("Protocol error: expected '$', got '{}'", *.0 as char)]
    ExpectedBulk(u8),
    /// `$` with something that is no number, or too large a one.
    #[error("Protocol error: invalid bulk length")]
    BulkLength,
    /// A longer argument than an unauthenticated client may send.
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedBulkLength,
    /// An inline line that does not end.
    #[error("Protocol error: too big inline request")]
    InlineLine,
    /// An inline line with unbalanced quotes.
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
}

/// Result of [`Parser::parse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A request: [`Parser::args`] has it, [`Parser::consumed`] bytes belong to it.
    Complete,
    /// A request without arguments, which has no reply: [`Parser::consumed`] bytes belong to it.
    Empty,
    /// A request that was too large to keep; all its bytes have gone by.
    Oversize,
    /// More bytes are wanted: the buffer must come to hold at least `bytes_min` to get any further.
    Incomplete {
        /// Bytes from the request's first.
        bytes_min: usize,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Form {
    #[default]
    Unknown,
    Multibulk,
    Inline,
}

/// One request on its way in.
///
/// The caller hands the same bytes again, with more behind them, until the request is complete; everything
/// is counted from the request's first byte, so the caller may move them.
#[derive(Debug, Default)]
pub struct Parser {
    args: Vec<Span>,
    /// The words of an inline request, unquoted.
    inline: Vec<u8>,
    /// The first byte not looked at.
    at: usize,
    /// Arguments with a length line that is not read yet.
    args_missing: usize,
    /// Bytes awaited of the present argument, its line end counted; 0 before its length is known.
    awaited: usize,
    form: Form,
    /// The request is too large: its bytes are only counted.
    oversize: bool,
}

impl Parser {
    /// Reads on in `buffer`, which begins with the request's first byte (less what [`Self::discard`] took).
    pub fn parse(&mut self, buffer: &[u8], limits: &Limits) -> Result<Progress, ProtocolError> {
        if self.form == Form::Unknown {
            match buffer.first() {
                None => return Ok(Progress::Incomplete { bytes_min: 1 }),
                Some(b'*') => match self.multibulk_header(buffer, limits)? {
                    None => {}
                    Some(progress) => return Ok(progress),
                },
                Some(_) => return self.inline_line(buffer),
            }
        }
        self.multibulk_args(buffer, limits)
    }

    /// The arguments of a [`Progress::Complete`] request that begins `buffer`.
    pub fn args<'a>(&'a self, buffer: &'a [u8]) -> Args<'a> {
        match self.form {
            Form::Inline => Args::new(&self.inline, &self.args),
            _ => Args::new(buffer, &self.args),
        }
    }

    /// Bytes of the buffer that belong to the request just finished.
    pub fn consumed(&self) -> usize {
        self.at
    }

    /// Gets ready for the next request; memory for arguments is kept for it.
    pub fn reset(&mut self) {
        self.args.clear();
        self.inline.clear();
        (self.at, self.args_missing, self.awaited) = (0, 0, 0);
        (self.form, self.oversize) = (Form::Unknown, false);
    }

    /// Whether a request has begun and not ended.
    pub fn is_midway(&self) -> bool {
        self.form != Form::Unknown
    }

    /// Number of the buffer's first bytes that a too large request no longer
    /// needs. The caller must drop them before it calls [`Self::parse`] again.
    pub fn discard(&mut self) -> usize {
        if self.oversize { core::mem::take(&mut self.at) } else { 0 }
    }

    /// Bytes of the arguments that are known so far.
    pub fn argument_bytes(&self) -> usize {
        self.args.iter().map(|span| span.len as usize).sum()
    }

    /// Bytes of memory kept for argument places and inline words.
    pub fn memory_bytes(&self) -> usize {
        self.args.capacity() * size_of::<Span>() + self.inline.capacity()
    }

    /// Gives memory back that only an unusual request needed.
    pub fn shrink(&mut self, args_max: usize) {
        if self.args.capacity() > args_max {
            self.args.shrink_to(args_max);
        }
        if self.inline.capacity() > 0 {
            self.inline = Vec::new();
        }
    }

    /// Reads `*count`; `None` when arguments follow.
    fn multibulk_header(
        &mut self,
        buffer: &[u8],
        limits: &Limits,
    ) -> Result<Option<Progress>, ProtocolError> {
        let Some((header, end)) = line(buffer, 0, ProtocolError::MultibulkLine)? else {
            return Ok(Some(Progress::Incomplete { bytes_min: buffer.len() + 1 }));
        };
        let count = number::parse_i64(&header[1..]).ok_or(ProtocolError::MultibulkLength)?;
        self.at = end;
        let count = u64::try_from(count).unwrap_or(0);
        if count > ARGS_MAX {
            return Err(ProtocolError::MultibulkLength);
        }
        if count > UNAUTHENTICATED_ARGS_MAX && limits.unauthenticated {
            return Err(ProtocolError::UnauthenticatedMultibulkLength);
        }
        if count == 0 {
            return Ok(Some(Progress::Empty));
        }
        self.form = Form::Multibulk;
        self.args_missing = count as usize;
        Ok(None)
    }

    fn multibulk_args(&mut self, buffer: &[u8], limits: &Limits) -> Result<Progress, ProtocolError> {
        loop {
            if self.awaited > 0 {
                // Redis steps over the two bytes behind an argument without looking; so do we.
                let there = buffer.len() - self.at;
                if self.oversize {
                    let passed = self.awaited.min(there);
                    self.at += passed;
                    self.awaited -= passed;
                    if self.awaited > 0 {
                        return Ok(Progress::Incomplete { bytes_min: self.at + 1 });
                    }
                } else {
                    if there < self.awaited {
                        return Ok(Progress::Incomplete { bytes_min: self.at + self.awaited });
                    }
                    self.args.push(Span { start: self.at as u32, len: (self.awaited - 2) as u32 });
                    self.at += self.awaited;
                    self.awaited = 0;
                }
            }
            if self.args_missing == 0 {
                return Ok(if self.oversize { Progress::Oversize } else { Progress::Complete });
            }
            let Some((header, end)) = line(buffer, self.at, ProtocolError::BulkLine)? else {
                return Ok(Progress::Incomplete { bytes_min: buffer.len() + 1 });
            };
            let [b'$', digits @ ..] = header else {
                return Err(ProtocolError::ExpectedBulk(buffer[self.at]));
            };
            let len = number::parse_i64(digits)
                .and_then(|len| u64::try_from(len).ok())
                .filter(|len| *len <= BULK_BYTES_MAX)
                .ok_or(ProtocolError::BulkLength)?;
            if len > UNAUTHENTICATED_BULK_BYTES_MAX && limits.unauthenticated {
                return Err(ProtocolError::UnauthenticatedBulkLength);
            }
            self.at = end;
            self.args_missing -= 1;
            self.awaited = len as usize + 2;
            if len as usize > limits.bulk_bytes_max || end + self.awaited > limits.request_bytes_max {
                self.oversize = true;
                self.args = Vec::new();
            }
        }
    }

    fn inline_line(&mut self, buffer: &[u8]) -> Result<Progress, ProtocolError> {
        let window = &buffer[..buffer.len().min(INLINE_BYTES_MAX + 1)];
        let Some(end) = window.iter().position(|byte| *byte == b'\n') else {
            if buffer.len() > INLINE_BYTES_MAX {
                return Err(ProtocolError::InlineLine);
            }
            return Ok(Progress::Incomplete { bytes_min: buffer.len() + 1 });
        };
        self.at = end + 1;
        let line = &buffer[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if !inline::split(line, &mut self.inline, &mut self.args) {
            return Err(ProtocolError::Quotes);
        }
        self.form = Form::Inline;
        Ok(if self.args.is_empty() { Progress::Empty } else { Progress::Complete })
    }
}

/// The line that begins at `from`, without its end, and where the next one begins; `None` when it
/// is incomplete. Any byte behind the carriage return is taken for the line feed, as in Redis.
fn line(
    buffer: &[u8],
    from: usize,
    too_long: ProtocolError,
) -> Result<Option<(&[u8], usize)>, ProtocolError> {
    let rest = &buffer[from..];
    match rest.iter().take(INLINE_BYTES_MAX).position(|byte| *byte == b'\r') {
        Some(end) if end + 1 < rest.len() => Ok(Some((&rest[..end], from + end + 2))),
        None if rest.len() >= INLINE_BYTES_MAX => Err(too_long),
        _ => Ok(None),
    }
}
