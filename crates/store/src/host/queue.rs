//! Transaction queue: the requests since `MULTI`.

use crate::command::{Flags, Spec};
use crate::resp::{Args, Span};

/// Bytes that a queued request takes beside its own.
pub const QUEUED_BYTES: usize = size_of::<Queued>();

#[derive(Debug)]
struct Queued {
    spec: &'static Spec,
    /// Where its bytes and its arguments' places end.
    bytes_end: usize,
    spans_end: usize,
}

/// The queue of one transaction. Its memory counts as that of an unfinished request.
#[derive(Debug, Default)]
pub struct Transaction {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    requests: Vec<Queued>,
    /// A request was refused, so the transaction will be.
    failed: bool,
    writes: bool,
}

impl Transaction {
    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.spans.capacity() * size_of::<Span>()
            + self.requests.capacity() * size_of::<Queued>()
    }

    /// Requests queued.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether no request is queued.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether one of them may change something.
    pub fn writes(&self) -> bool {
        self.writes
    }

    /// Whether it will not run, since a request was refused.
    pub fn is_void(&self) -> bool {
        self.failed
    }

    /// The requests queued, in order.
    pub fn requests(&self) -> impl Iterator<Item = Args<'_>> {
        self.iter().map(|(_, args)| args)
    }

    /// Voids it: a request was refused.
    pub fn fail(&mut self) {
        *self = Transaction { failed: true, ..Transaction::default() };
    }

    /// Queues a request.
    pub fn push(&mut self, spec: &'static Spec, args: Args<'_>) {
        let start = self.bytes.len();
        for arg in args.iter_from(0) {
            let place = Span { start: (self.bytes.len() - start) as u32, len: arg.len() as u32 };
            self.spans.push(place);
            self.bytes.extend_from_slice(arg);
        }
        self.writes |= spec.flags.contains(Flags::WRITE) || spec.name == "publish";
        self.requests.push(Queued { spec, bytes_end: self.bytes.len(), spans_end: self.spans.len() });
    }

    /// The requests queued, in order, each with its command.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Spec, Args<'_>)> {
        let (mut bytes_start, mut spans_start) = (0, 0);
        self.requests.iter().map(move |it| {
            let args =
                Args::new(&self.bytes[bytes_start..it.bytes_end], &self.spans[spans_start..it.spans_end]);
            (bytes_start, spans_start) = (it.bytes_end, it.spans_end);
            (it.spec, args)
        })
    }
}
