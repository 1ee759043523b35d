//! Reply end: finds where a reply ends in bytes that arrive piece by piece.

use super::number::parse_i64;

/// Steps over one reply, RESP2 or RESP3. It keeps its position, so no
/// element is scanned twice even if a long reply arrives in many pieces.
#[derive(Clone, Copy, Debug)]
pub struct ReplyEnd {
    at: usize,
    /// Elements still to be stepped over.
    missing: u64,
    /// Where the element ends that was not whole in the last call, if that is known.
    element_end: usize,
}

impl Default for ReplyEnd {
    fn default() -> Self {
        ReplyEnd { at: 0, missing: 1, element_end: 0 }
    }
}

impl ReplyEnd {
    /// Length of the reply that `bytes` begin with, once it is complete.
    /// The bytes are those of the call before, with more behind them.
    pub fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        while self.missing > 0 {
            let rest = bytes.get(self.at..).filter(|rest| !rest.is_empty())?;
            let line = memchr::memchr(b'\n', rest)? + 1;
            let number = || parse_i64(rest[1..line].trim_ascii_end()).and_then(|it| u64::try_from(it).ok());
            let (len, elements) = match rest[0] {
                // A null string is its line.
                b'$' | b'=' | b'!' => (line + number().map_or(0, |len| len as usize + 2), 0),
                b'*' | b'~' | b'>' => (line, number().unwrap_or(0)),
                b'%' => (line, 2 * number().unwrap_or(0)),
                // What an attribute describes comes behind it.
                b'|' => (line, 2 * number().unwrap_or(0) + 1),
                _ => (line, 0),
            };
            if rest.len() < len {
                self.element_end = self.at + len;
                return None;
            }
            self.at += len;
            self.missing = self.missing - 1 + elements;
        }
        Some(self.at)
    }

    /// How many more bytes the element needs that was not whole in the last call, when `len` bytes are there; 0 where that is
    /// not known.
    pub fn missing_bytes(&self, len: usize) -> usize {
        self.element_end.saturating_sub(len)
    }
}

/// The first line of a reply, without its end.
pub fn whole_line(reply: &[u8]) -> &[u8] {
    let line = memchr::memchr(b'\n', reply).map_or(reply, |end| &reply[..end]);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The elements of an array, each with its bytes.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    rest: &'a [u8],
    missing: u64,
}

impl<'a> Elements<'a> {
    /// The elements of a complete reply; a reply other than an array has none.
    pub fn of(reply: &'a [u8]) -> Self {
        let line = whole_line(reply);
        let missing = match line.split_first() {
            Some((b'*' | b'~' | b'>', digits)) => parse_i64(digits).and_then(|it| u64::try_from(it).ok()),
            _ => None,
        };
        Elements { rest: reply.get(line.len() + 2..).unwrap_or_default(), missing: missing.unwrap_or(0) }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.missing = self.missing.checked_sub(1)?;
        let (element, rest) = self.rest.split_at(ReplyEnd::default().find(self.rest)?);
        self.rest = rest;
        Some(element)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_string_says_how_much_of_it_is_missing() {
        let mut end = ReplyEnd::default();
        assert_eq!((end.find(b"*2\r\n$1\r\na\r\n$10"), end.missing_bytes(14)), (None, 0));
        let bytes = b"*2\r\n$1\r\na\r\n$1000\r\nabc";
        assert_eq!((end.find(bytes), end.missing_bytes(bytes.len())), (None, 1000 + 2 - 3));
        let whole = [&bytes[..], &[b'x'; 997], b"\r\n"].concat();
        assert_eq!((end.find(&whole), end.missing_bytes(whole.len())), (Some(whole.len()), 0));
    }

    #[test]
    fn ends_are_found_whatever_the_pieces() {
        for reply in [
            "+OK\r\n",
            "-ERR x\r\n",
            ":5\r\n",
            "$-1\r\n",
            "$0\r\n\r\n",
            "$5\r\na\r\nb\n\r\n",
            "*-1\r\n",
            "*0\r\n",
            "*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
            "%1\r\n+a\r\n*2\r\n_\r\n#t\r\n",
            ">2\r\n$1\r\na\r\n~1\r\n,1.5\r\n",
            "=7\r\ntxt:abc\r\n",
            "|1\r\n+a\r\n+b\r\n:1\r\n",
        ] {
            let bytes = format!("{reply}+NEXT\r\n").into_bytes();
            for step in 1..bytes.len() {
                let mut end = ReplyEnd::default();
                let mut there = 0;
                let found = loop {
                    if let Some(found) = end.find(&bytes[..there]) {
                        break found;
                    }
                    there = (there + step).min(bytes.len());
                };
                assert_eq!(found, reply.len(), "{reply:?} in pieces of {step}");
            }
        }
    }
}
