//! Replies of any kind, parsed from a byte stream with their bytes. Sans I/O.

/// The longest first line of a reply.
const LINE_BYTES_MAX: usize = 64 << 10;
/// No server sends a longer string.
const BULK_BYTES_MAX: usize = 1 << 32;
/// Elements of an array at most, and how deep arrays may nest.
const ELEMENTS_MAX: usize = 1 << 28;
const DEPTH_MAX: usize = 8;

/// One reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A status such as `OK`.
    Status(Vec<u8>),
    /// An error, as the server worded it.
    Error(String),
    /// A number.
    Integer(i64),
    /// No such value.
    Null,
    /// A string.
    Bulk(Vec<u8>),
    /// Several replies.
    Array(Vec<Reply>),
}

impl Reply {
    /// The kind of reply, for messages.
    pub fn describe(&self) -> String {
        match self {
            Reply::Status(text) => format!("the status {}", text.escape_ascii()),
            Reply::Error(text) => format!("the error \"{text}\""),
            Reply::Integer(number) => format!("the number {number}"),
            Reply::Null => "a null".to_owned(),
            Reply::Bulk(_) => "a string".to_owned(),
            Reply::Array(elements) => format!("an array of {}", elements.len()),
        }
    }
}

/// Bytes that are no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Garbage {
    /// A reply that starts with no byte of the protocol.
    #[error("a reply starts with \"{0}\"")]
    Type(String),
    /// A first line that does not end.
    #[error("a reply's first line is longer than {LINE_BYTES_MAX} bytes")]
    Line,
    /// A length or number that is none.
    #[error("\"{0}\" is no number that belongs there")]
    Number(String),
    /// The bytes after a string are not the end of line that belongs there.
    #[error("a string is longer than its length says")]
    End,
    /// Arrays within arrays.
    #[error("arrays are nested too deeply")]
    Depth,
}

/// Parses replies from the bytes read. It keeps the parts of an incomplete reply,
/// so no byte is scanned twice except those of an incomplete line or string.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
    /// Arrays that are not whole, the outer before the inner: how many elements each lacks, and those it has.
    open: Vec<(usize, Vec<Reply>)>,
}

/// The item at the start of the bytes.
enum ParsedReply {
    Whole(Reply),
    /// The head of an array of this number of elements, at least one.
    Head(usize),
}

impl Decoder {
    /// Adds what was read.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        } else if self.start > 1 << 20 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole reply, or `None` when more bytes are needed.
    pub fn next(&mut self) -> Result<Option<Reply>, Garbage> {
        loop {
            let Some((part, len)) = part(&self.buffer[self.start..])? else { return Ok(None) };
            self.start += len;
            let mut reply = match part {
                ParsedReply::Head(_) if self.open.len() >= DEPTH_MAX => return Err(Garbage::Depth),
                ParsedReply::Head(count) => {
                    // A count alone costs no memory.
                    self.open.push((count, Vec::with_capacity(count.min(1024))));
                    continue;
                }
                ParsedReply::Whole(reply) => reply,
            };
            loop {
                let Some((missing, elements)) = self.open.last_mut() else { return Ok(Some(reply)) };
                elements.push(reply);
                *missing -= 1;
                if *missing > 0 {
                    break;
                }
                reply = Reply::Array(core::mem::take(elements));
                self.open.pop();
            }
        }
    }
}

/// The part that `bytes` begin with, and its length; `None` when it is not whole.
fn part(bytes: &[u8]) -> Result<Option<(ParsedReply, usize)>, Garbage> {
    let Some(end) = bytes.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\n') else {
        return if bytes.len() >= LINE_BYTES_MAX { Err(Garbage::Line) } else { Ok(None) };
    };
    let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    let at = end + 1;
    let Some((kind, text)) = line.split_first() else { return Err(Garbage::Type(String::new())) };
    let reply = match kind {
        b'+' => Reply::Status(text.to_vec()),
        b'-' => Reply::Error(String::from_utf8_lossy(text).into_owned()),
        b':' => Reply::Integer(number(text)?),
        b'_' => Reply::Null,
        b'$' | b'*' if text == b"-1" => Reply::Null,
        b'$' => {
            let len = length(text, BULK_BYTES_MAX)?;
            let Some(found) = bytes.get(at..at + len + 2) else { return Ok(None) };
            if !found.ends_with(b"\r\n") {
                return Err(Garbage::End);
            }
            return Ok(Some((ParsedReply::Whole(Reply::Bulk(found[..len].to_vec())), at + len + 2)));
        }
        b'*' => match length(text, ELEMENTS_MAX)? {
            0 => Reply::Array(Vec::new()),
            count => return Ok(Some((ParsedReply::Head(count), at))),
        },
        _ => return Err(Garbage::Type(line[..line.len().min(16)].escape_ascii().to_string())),
    };
    Ok(Some((ParsedReply::Whole(reply), at)))
}

fn number(text: &[u8]) -> Result<i64, Garbage> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Garbage::Number(text[..text.len().min(32)].escape_ascii().to_string()))
}

fn length(text: &[u8], max: usize) -> Result<usize, Garbage> {
    let length = usize::try_from(number(text)?).ok().filter(|length| *length <= max);
    length.ok_or_else(|| Garbage::Number(text[..text.len().min(32)].escape_ascii().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(bytes: &[u8], step: usize) -> Result<Vec<Reply>, Garbage> {
        let (mut decoder, mut replies) = (Decoder::default(), Vec::new());
        for piece in bytes.chunks(step) {
            decoder.feed(piece);
            while let Some(reply) = decoder.next()? {
                replies.push(reply);
            }
        }
        Ok(replies)
    }

    fn encode(reply: &Reply, out: &mut Vec<u8>) {
        match reply {
            Reply::Status(text) => out.extend([b"+", &text[..], b"\r\n"].concat()),
            Reply::Error(text) => out.extend(format!("-{text}\r\n").bytes()),
            Reply::Integer(number) => out.extend(format!(":{number}\r\n").bytes()),
            Reply::Null => out.extend(b"$-1\r\n"),
            Reply::Bulk(bytes) => {
                out.extend(format!("${}\r\n", bytes.len()).bytes());
                out.extend([&bytes[..], b"\r\n"].concat());
            }
            Reply::Array(elements) => {
                out.extend(format!("*{}\r\n", elements.len()).bytes());
                elements.iter().for_each(|element| encode(element, out));
            }
        }
    }

    fn reply() -> impl Strategy<Value = Reply> {
        let bytes = prop::collection::vec(any::<u8>(), 0..200);
        let leaf = prop_oneof![
            "[a-zA-Z ]{0,20}".prop_map(|text| Reply::Status(text.into_bytes())),
            "[a-zA-Z ]{0,20}".prop_map(Reply::Error),
            any::<i64>().prop_map(Reply::Integer),
            Just(Reply::Null),
            bytes.prop_map(Reply::Bulk),
        ];
        leaf.prop_recursive(3, 40, 8, |inner| prop::collection::vec(inner, 0..8).prop_map(Reply::Array))
    }

    proptest! {
        #[test]
        fn replies_come_out_however_they_arrive(replies in prop::collection::vec(reply(), 0..12), step in 1usize..400) {
            let mut bytes = Vec::new();
            replies.iter().for_each(|reply| encode(reply, &mut bytes));
            prop_assert_eq!(decode(&bytes, step), Ok(replies));
        }

        #[test]
        fn no_bytes_make_it_panic(text in "([$:+_*-][0-9-]{0,9}(\r\n)?|[ab]{0,3}){0,50}", step in 1usize..50) {
            let _ = decode(text.as_bytes(), step);
        }
    }

    #[test]
    fn what_is_no_reply_is_told_apart() {
        assert_eq!(decode(b"HTTP/1.1 400\r\n", 5), Err(Garbage::Type("HTTP/1.1 400".into())));
        assert_eq!(decode(b"$x\r\n", 5), Err(Garbage::Number("x".into())));
        assert_eq!(decode(b"*999999999999\r\n", 5), Err(Garbage::Number("999999999999".into())));
        assert_eq!(decode(b"$1\r\nabc\r\n", 50), Err(Garbage::End));
        assert_eq!(decode(&b"*1\r\n".repeat(20), 50), Err(Garbage::Depth));
        assert_eq!(decode(&vec![b'+'; 100_000], 4096), Err(Garbage::Line));
    }
}
