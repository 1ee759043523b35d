//! Look-ahead in a pipeline: the keys of the next requests, before any of them runs.

/// A request with more arguments ends the look: going over them twice would cost more than it gains.
const ARGS_MAX: usize = 8;
/// Digits of a length that are looked at.
const DIGITS_MAX: usize = 9;

/// The second arguments, the key in most commands, of the whole requests at the start of some bytes.
///
/// Only a hint: it ends at the first request that is anything but a short array of strings with a key, and whether
/// what it passes over are good requests the [`super::Parser`] decides.
#[derive(Clone, Debug)]
pub struct KeysAhead<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> KeysAhead<'a> {
    /// Looks at `bytes`, which begin with a request.
    pub fn new(bytes: &'a [u8]) -> Self {
        KeysAhead { bytes, at: 0 }
    }

    /// Bytes of the requests with keys that were returned.
    pub fn passed(&self) -> usize {
        self.at
    }

    /// The number behind `kind` at `at`, and where the next line begins.
    #[inline]
    fn number(&self, kind: u8, mut at: usize) -> Option<(usize, usize)> {
        if self.bytes.get(at) != Some(&kind) {
            return None;
        }
        let mut number = 0;
        for _ in 0..=DIGITS_MAX {
            at += 1;
            match self.bytes.get(at)? {
                digit @ b'0'..=b'9' => number = number * 10 + usize::from(digit - b'0'),
                b'\r' => return Some((number, at + 2)),
                _ => return None,
            }
        }
        None
    }
}

impl<'a> Iterator for KeysAhead<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (count, mut at) = self.number(b'*', self.at)?;
        if !(2..=ARGS_MAX).contains(&count) {
            return None;
        }
        let mut key = None;
        for arg in 0..count {
            let (len, start) = self.number(b'$', at)?;
            if arg == 1 {
                key = self.bytes.get(start..start + len);
            }
            at = start + len + 2;
        }
        if at > self.bytes.len() {
            return None;
        }
        self.at = at;
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::{Limits, Parser, Progress};
    use proptest::prelude::*;

    fn keys(bytes: &[u8]) -> Vec<&[u8]> {
        KeysAhead::new(bytes).collect()
    }

    #[test]
    fn keys_are_seen_up_to_what_is_no_plain_request() {
        let get = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n";
        let set = b"*3\r\n$3\r\nSET\r\n$2\r\nbc\r\n$4\r\n\r\n*2\r\n";
        let both = [&get[..], set].concat();
        assert_eq!(keys(&both), [b"a".as_slice(), b"bc"]);
        for rest in
            ["*1\r\n$4\r\nPING\r\n", "GET d\r\n", "*9\r\n", "*-1\r\n", "*2\r\n$-1\r\n", "*0000000000002\r\n"]
        {
            let bytes = [&both, rest.as_bytes(), get].concat();
            let mut ahead = KeysAhead::new(&bytes);
            assert_eq!(ahead.by_ref().count(), 2, "{rest}");
            assert_eq!(ahead.passed(), both.len());
        }
        for end in 0..both.len() {
            assert_eq!(keys(&both[..end]).len(), usize::from(end >= get.len()));
        }
    }

    proptest! {
        /// No input makes it panic, and for valid requests it returns their second argument.
        #[test]
        fn it_sees_what_the_parser_reads(
            requests in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..12), 2..6), 0..6),
            noise in prop::collection::vec(prop::sample::select(b"*$0129\r\nG".to_vec()), 0..40),
        ) {
            let mut bytes = Vec::new();
            for args in &requests {
                bytes.extend(format!("*{}\r\n", args.len()).bytes());
                for arg in args {
                    bytes.extend(format!("${}\r\n", arg.len()).bytes());
                    bytes.extend(arg);
                    bytes.extend(b"\r\n");
                }
            }
            let good = bytes.len();
            bytes.extend(&noise);
            let limits = Limits { bulk_bytes_max: 100, request_bytes_max: 1000, unauthenticated: false };
            let (mut parser, mut at) = (Parser::default(), 0);
            let mut ahead = KeysAhead::new(&bytes);
            while at < good {
                prop_assert_eq!(parser.parse(&bytes[at..], &limits), Ok(Progress::Complete));
                prop_assert_eq!(ahead.next(), parser.args(&bytes[at..]).get(1));
                at += parser.consumed();
                prop_assert_eq!(ahead.passed(), at);
                parser.reset();
            }
            ahead.for_each(drop);
        }
    }
}
