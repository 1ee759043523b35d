//! Request assembled from words.

use super::{Args, Span};

/// A request of its own, as arguments or as the bytes that are sent.
#[derive(Clone, Debug, Default)]
pub struct Request {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl Request {
    /// A request of these words.
    pub fn of<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut request = Request::default();
        words.into_iter().for_each(|word| request.push(word));
        request
    }

    /// Adds an argument; the first is the command's name.
    pub fn push(&mut self, word: &[u8]) {
        self.spans.push(Span { start: self.bytes.len() as u32, len: word.len() as u32 });
        self.bytes.extend_from_slice(word);
    }

    /// Its arguments.
    pub fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }
}

impl Args<'_> {
    /// Appends the request as it is sent.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        /// Digits and line ends of an argument, at most.
        const FRAME_BYTES: usize = 24;
        // A buffer that doubles would take a long value's memory three times.
        let len: usize = self.iter_from(0).map(|arg| arg.len() + FRAME_BYTES).sum();
        if len > bytes.capacity() {
            bytes.reserve_exact(len + FRAME_BYTES);
        }
        let mut number = itoa::Buffer::new();
        let mut header = |bytes: &mut Vec<u8>, kind, number_of: usize| {
            bytes.push(kind);
            bytes.extend_from_slice(number.format(number_of).as_bytes());
            bytes.extend_from_slice(b"\r\n");
        };
        header(bytes, b'*', self.len());
        for arg in self.iter_from(0) {
            header(bytes, b'$', arg.len());
            bytes.extend_from_slice(arg);
            bytes.extend_from_slice(b"\r\n");
        }
    }
}
