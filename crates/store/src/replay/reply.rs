//! Reply reader for RESP2, and the null of RESP3, as far as a look-aside client needs them.
//!
//! Sans I/O: the caller reads into [`ReplyReader::space`] and takes replies out. The
//! bytes of values are counted and discarded, so a value may be larger than the buffer.

/// Bytes read at once.
const BUFFER_BYTES: usize = 256 << 10;
/// The longest first line of a reply; errors are the longest and stay far below.
const LINE_BYTES_MAX: usize = 16 << 10;
/// No server sends a value longer than this.
const VALUE_BYTES_MAX: u64 = 1 << 32;

/// One reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A status such as `OK`.
    Status,
    /// An error, as the server worded it.
    Error(String),
    /// A number.
    Integer,
    /// No such value.
    Null,
    /// A value; its bytes are kept only by [`ReplyReader::keeping`].
    Value,
}

impl Reply {
    /// What kind of reply this is, for messages.
    pub fn describe(&self) -> String {
        match self {
            Reply::Status => "a status".to_owned(),
            Reply::Error(text) => format!("the error \"{text}\""),
            Reply::Integer => "a number".to_owned(),
            Reply::Null => "a null".to_owned(),
            Reply::Value => "a value".to_owned(),
        }
    }
}

/// Bytes that are not a reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Garbage {
    /// A reply that starts with no byte of the protocol, or with one that no command sent here is answered with.
    #[error("a reply starts with \"{0}\"")]
    Type(String),
    /// A first line that does not end.
    #[error("a reply's first line is longer than {LINE_BYTES_MAX} bytes")]
    Line,
    /// A length that is not a number, negative, or absurd.
    #[error("\"{0}\" is not the length of a value")]
    Length(String),
    /// The bytes after a value are not the end of line that belongs there.
    #[error("a value is longer than its length says")]
    End,
}

/// Takes replies out of what was read.
pub struct ReplyReader {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes of the current value that are still to come, its end of line not counted.
    value_left: Option<u64>,
    kept: Option<Vec<u8>>,
}

impl ReplyReader {
    /// A reader that throws values away.
    pub fn new() -> Self {
        ReplyReader { buffer: vec![0; BUFFER_BYTES], start: 0, end: 0, value_left: None, kept: None }
    }

    /// A reader that keeps the bytes of each value until [`Self::take_value`].
    pub fn keeping() -> Self {
        ReplyReader { kept: Some(Vec::new()), ..Self::new() }
    }

    /// The bytes of the values read since the last call.
    pub fn take_value(&mut self) -> Vec<u8> {
        self.kept.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Where to read more bytes into; never empty after [`Self::next`] returned `None`.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.buffer.len() - self.end < LINE_BYTES_MAX {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.buffer[self.end..]
    }

    /// Tells that `count` bytes were read into [`Self::space`].
    pub fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.buffer.len());
    }

    /// The next whole reply, or `None` when more bytes are needed.
    pub fn next(&mut self) -> Result<Option<Reply>, Garbage> {
        if self.value_left.is_some() {
            return self.finish_value();
        }
        let available = &self.buffer[self.start..self.end];
        let Some(end) = available.iter().position(|byte| *byte == b'\n') else {
            return if available.len() > LINE_BYTES_MAX { Err(Garbage::Line) } else { Ok(None) };
        };
        let line = &available[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.start += end + 1;
        let reply = match line.split_first() {
            Some((b'$', b"-1")) | Some((b'*', b"-1")) | Some((b'_', _)) => Reply::Null,
            Some((b'$', length)) => {
                self.value_left = Some(parse_length(length)?);
                return self.finish_value();
            }
            Some((b'+', _)) => Reply::Status,
            Some((b':', _)) => Reply::Integer,
            Some((b'-', text)) => Reply::Error(String::from_utf8_lossy(text).into_owned()),
            _ => return Err(Garbage::Type(line[..line.len().min(16)].escape_ascii().to_string())),
        };
        Ok(Some(reply))
    }

    fn finish_value(&mut self) -> Result<Option<Reply>, Garbage> {
        let left = self.value_left.unwrap_or(0);
        let here = left.min((self.end - self.start) as u64);
        let part = here as usize;
        if let Some(kept) = &mut self.kept {
            kept.extend_from_slice(&self.buffer[self.start..self.start + part]);
        }
        self.start += part;
        self.value_left = Some(left - here);
        if here < left || self.end - self.start < 2 {
            return Ok(None);
        }
        if &self.buffer[self.start..self.start + 2] != b"\r\n" {
            return Err(Garbage::End);
        }
        self.start += 2;
        self.value_left = None;
        Ok(Some(Reply::Value))
    }
}

fn parse_length(text: &[u8]) -> Result<u64, Garbage> {
    let digits = str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits
        .and_then(|digits| digits.parse().ok())
        .filter(|length| *length <= VALUE_BYTES_MAX)
        .ok_or_else(|| Garbage::Length(text[..text.len().min(32)].escape_ascii().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Feeds `bytes` in parts of `step` bytes and collects the replies up to the first garbage.
    fn read(bytes: &[u8], step: usize) -> Result<Vec<Reply>, Garbage> {
        let (mut reader, mut replies) = (ReplyReader::new(), Vec::new());
        let mut at = 0;
        while at < bytes.len() {
            let space = reader.space();
            let count = step.min(bytes.len() - at).min(space.len());
            assert!(count > 0, "the reader ran out of space");
            space[..count].copy_from_slice(&bytes[at..at + count]);
            reader.filled(count);
            at += count;
            while let Some(reply) = reader.next()? {
                replies.push(reply);
            }
        }
        Ok(replies)
    }

    #[test]
    fn replies_come_out_however_they_arrive() {
        let big = vec![b'\n'; BUFFER_BYTES + 1000];
        let mut stream = b"+OK\r\n$-1\r\n$5\r\na\r\nbc\r\n:12\r\n-ERR no\r\n_\r\n$0\r\n\r\n".to_vec();
        stream.extend_from_slice(format!("${}\r\n", big.len()).as_bytes());
        stream.extend_from_slice(&big);
        stream.extend_from_slice(b"\r\n+PONG\r\n");
        let wanted = vec![
            Reply::Status,
            Reply::Null,
            Reply::Value,
            Reply::Integer,
            Reply::Error("ERR no".into()),
            Reply::Null,
            Reply::Value,
            Reply::Value,
            Reply::Status,
        ];
        for step in [1, 2, 3, 7, 1000, usize::MAX] {
            assert_eq!(read(&stream, step), Ok(wanted.clone()), "step {step}");
        }
    }

    #[test]
    fn what_is_no_reply_is_told_apart() {
        assert_eq!(read(b"HTTP/1.1 400\r\n", 5), Err(Garbage::Type("HTTP/1.1 400".into())));
        assert_eq!(read(b"\r\n", 5), Err(Garbage::Type(String::new())));
        assert_eq!(read(b"*2\r\n", 5), Err(Garbage::Type("*2".into())));
        assert_eq!(read(b"$x\r\n", 5), Err(Garbage::Length("x".into())));
        assert_eq!(read(b"$-2\r\n", 5), Err(Garbage::Length("-2".into())));
        assert_eq!(read(b"$99999999999999999999\r\n", 30), Err(Garbage::Length("9".repeat(20))));
        assert_eq!(read(b"$1\r\nabc", 5), Err(Garbage::End));
        assert_eq!(read(&vec![b'+'; 100_000], 4096), Err(Garbage::Line));
    }

    #[test]
    fn values_are_kept_when_asked_for() {
        let mut reader = ReplyReader::keeping();
        let bytes = b"$3\r\nabc\r\n";
        reader.space()[..bytes.len()].copy_from_slice(bytes);
        reader.filled(bytes.len());
        assert_eq!(reader.next(), Ok(Some(Reply::Value)));
        assert_eq!(reader.take_value(), b"abc");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000), step in 1usize..50) {
            let _ = read(&bytes, step);
        }

        #[test]
        fn nor_do_bytes_of_the_protocol(text in "([$:+_*-][0-9-]{0,4}(\r\n)?){0,50}", step in 1usize..50) {
            let _ = read(text.as_bytes(), step);
        }
    }
}
