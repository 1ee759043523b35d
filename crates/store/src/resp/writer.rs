//! Reply writer for RESP2 and RESP3.

/// Which form of the protocol a client asked for with `HELLO`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// The form every client understands.
    #[default]
    Resp2,
    /// The form with maps, doubles and one null.
    Resp3,
}

/// Appends replies to a buffer.
#[derive(Debug)]
pub struct Writer<'a> {
    bytes: &'a mut Vec<u8>,
    version: Version,
}

impl<'a> Writer<'a> {
    /// Writes behind what `bytes` holds.
    pub fn new(bytes: &'a mut Vec<u8>, version: Version) -> Self {
        Writer { bytes, version }
    }

    /// `+text`; the text must hold no line end.
    #[inline]
    pub fn simple(&mut self, text: &str) {
        self.bytes.push(b'+');
        self.bytes.extend_from_slice(text.as_bytes());
        self.line_end();
    }

    /// `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.bytes.extend_from_slice(b"+OK\r\n");
    }

    /// `-text`, the error's code first. Line ends, which a client's own words may bring in, become blanks.
    pub fn error(&mut self, text: &[u8]) {
        self.bytes.push(b'-');
        self.bytes.extend(text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }));
        self.line_end();
    }

    /// `:value`.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        self.header(b':', value);
    }

    /// A byte string.
    #[inline]
    pub fn bulk(&mut self, value: &[u8]) {
        self.bulk_header(value.len());
        self.bytes.extend_from_slice(value);
        self.line_end();
    }

    /// The head of a byte string; the caller sends its bytes and line end.
    #[inline]
    pub fn bulk_header(&mut self, len: usize) {
        self.header(b'$', len as i64);
    }

    /// No value: the null string of RESP2, the null of RESP3.
    #[inline]
    pub fn null(&mut self) {
        self.bytes.extend_from_slice(match self.version {
            Version::Resp2 => b"$-1\r\n",
            Version::Resp3 => b"_\r\n",
        });
    }

    /// The head of an array of `len` replies.
    pub fn array(&mut self, len: usize) {
        self.header(b'*', len as i64);
    }

    /// The head of a push message of `len` parts; in RESP2 an array.
    pub fn push(&mut self, len: usize) {
        self.header(if self.version == Version::Resp3 { b'>' } else { b'*' }, len as i64);
    }

    /// No array: the null array of RESP2, the null of RESP3.
    pub fn null_array(&mut self) {
        self.bytes.extend_from_slice(match self.version {
            Version::Resp2 => b"*-1\r\n",
            Version::Resp3 => b"_\r\n",
        });
    }

    /// The head of a map of `len` pairs; in RESP2 an array of twice as many replies.
    pub fn map(&mut self, len: usize) {
        match self.version {
            Version::Resp2 => self.header(b'*', 2 * len as i64),
            Version::Resp3 => self.header(b'%', len as i64),
        }
    }

    /// The head of a set; in RESP2 an array.
    pub fn set(&mut self, len: usize) {
        self.header(if self.version == Version::Resp3 { b'~' } else { b'*' }, len as i64);
    }

    /// A number; in RESP2 its text as a string.
    pub fn double(&mut self, value: f64) {
        let text = if value.is_nan() {
            "nan".to_owned()
        } else if value.is_infinite() {
            (if value > 0.0 { "inf" } else { "-inf" }).to_owned()
        } else {
            value.to_string()
        };
        match self.version {
            Version::Resp2 => self.bulk(text.as_bytes()),
            Version::Resp3 => {
                self.bytes.push(b',');
                self.bytes.extend_from_slice(text.as_bytes());
                self.line_end();
            }
        }
    }

    /// Text for people (`INFO`): verbatim in RESP3, a string in RESP2.
    pub fn verbatim(&mut self, text: &[u8]) {
        match self.version {
            Version::Resp2 => self.bulk(text),
            Version::Resp3 => {
                self.header(b'=', text.len() as i64 + 4);
                self.bytes.extend_from_slice(b"txt:");
                self.bytes.extend_from_slice(text);
                self.line_end();
            }
        }
    }

    #[inline]
    fn header(&mut self, kind: u8, value: i64) {
        self.bytes.push(kind);
        // Most lengths and counts are below 100, and the general way costs a call.
        match value {
            0..=9 => self.bytes.push(b'0' + value as u8),
            10..=99 => self.bytes.extend_from_slice(&[b'0' + (value / 10) as u8, b'0' + (value % 10) as u8]),
            _ => self.bytes.extend_from_slice(itoa::Buffer::new().format(value).as_bytes()),
        }
        self.line_end();
    }

    #[inline]
    fn line_end(&mut self) {
        self.bytes.extend_from_slice(b"\r\n");
    }
}
