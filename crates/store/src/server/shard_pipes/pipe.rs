//! Pipe to another shard.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use super::Broken;
use crate::host::Session;
use crate::resp::{Args, ReplyEnd, Request, Version};
use crate::shards::ShardSet;
use crate::users::DEFAULT;

/// A reply at least this long goes out in the memory that it came in.
pub(super) const LARGE_BYTES: usize = 32 << 10;
/// Memory of buffers kept between requests.
const KEPT_BYTES: usize = 4 << 10;

/// For which request a reply is, and which part of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    /// The place of the reply; `None`: it is discarded.
    pub(super) number: Option<u64>,
    pub(super) part: usize,
}

impl Expected {
    /// A reply that is discarded.
    pub(super) const NONE: Expected = Expected { number: None, part: 0 };
}

/// The home's end of a pipe, and what has been asked through it.
#[derive(Debug)]
pub(super) struct Link {
    pipe: DuplexStream,
    outgoing: Vec<u8>,
    /// Bytes of `outgoing` that the pipe has.
    written: usize,
    incoming: Vec<u8>,
    /// Bytes of `incoming` that were dealt with.
    taken: usize,
    /// Where the next reply ends, from there.
    end: ReplyEnd,
    pub(super) expected: VecDeque<Expected>,
    /// The last request that was answered here.
    pub(super) answered: Option<u64>,
    /// What the guest knows of the session.
    pub(super) db: u8,
    pub(super) version: Version,
    /// The client's name as the guest knows it; the slow log there shows it.
    name: Box<[u8]>,
    /// The user as the guest knows it; a scan there shows only this user's keys.
    user: Option<Arc<str>>,
    /// The guest watches keys.
    pub(super) watches: bool,
}

impl Link {
    pub(super) fn new(pipe: DuplexStream) -> Self {
        Link {
            pipe,
            outgoing: Vec::new(),
            written: 0,
            incoming: Vec::new(),
            taken: 0,
            end: ReplyEnd::default(),
            expected: VecDeque::new(),
            answered: None,
            db: 0,
            version: Version::default(),
            name: Box::default(),
            user: None,
            watches: false,
        }
    }

    /// Bytes that wait to be sent.
    pub(super) fn outgoing_bytes(&self) -> usize {
        self.outgoing.len() - self.written
    }

    /// Memory for replies that are not whole yet, in bytes.
    pub(super) fn incoming_bytes(&self) -> usize {
        self.incoming.capacity()
    }

    /// Whether nothing is to be sent, and no answer to come.
    pub(super) fn is_idle(&self) -> bool {
        self.outgoing.is_empty() && self.expected.is_empty()
    }

    /// Tells the guest what has changed in the session.
    pub(super) fn follow(&mut self, session: &Session, name: &[u8]) {
        if *self.name != *name {
            self.name = name.into();
            self.tell([b"CLIENT", b"SETNAME", name]);
        }
        if self.user.as_ref() != session.login.name() {
            self.user = session.login.name().cloned();
            self.tell([b"AUTH", self.user.clone().as_deref().unwrap_or(DEFAULT).as_bytes(), b""]);
        }
        if self.version != session.version {
            self.version = session.version;
            let version: &[u8] = if session.version == Version::Resp3 { b"3" } else { b"2" };
            self.tell([b"HELLO", version]);
        }
        if self.db != session.db {
            self.db = session.db;
            self.tell([b"SELECT", itoa::Buffer::new().format(session.db).as_bytes()]);
        }
        if self.watches && session.watched_shards == ShardSet::Empty {
            self.watches = false;
            self.tell([b"UNWATCH"]);
        }
    }

    /// Sends a request and discards its reply.
    pub(super) fn tell<const N: usize>(&mut self, words: [&[u8]; N]) {
        self.ask(Request::of(words).args(), Expected::NONE);
    }

    /// Sends a request.
    pub(super) fn ask(&mut self, args: Args<'_>, expected: Expected) {
        args.write(&mut self.outgoing);
        self.expected.push_back(expected);
    }

    /// Writes as much as the pipe takes; whether it took anything.
    pub(super) fn write(&mut self, cx: &mut TaskContext<'_>) -> Result<bool, Broken> {
        let before = self.written;
        while self.written < self.outgoing.len() {
            match Pin::new(&mut self.pipe).poll_write(cx, &self.outgoing[self.written..]) {
                Poll::Ready(Ok(count)) if count > 0 => self.written += count,
                Poll::Ready(_) => return Err(Broken),
                Poll::Pending => return Ok(self.written > before),
            }
        }
        self.outgoing.clear();
        if self.outgoing.capacity() > KEPT_BYTES {
            self.outgoing = Vec::new();
        }
        Ok(core::mem::take(&mut self.written) > before)
    }

    /// Reads once; whether anything came.
    pub(super) fn read(&mut self, cx: &mut TaskContext<'_>, scratch: &mut [u8]) -> Result<bool, Broken> {
        let mut buffer = ReadBuf::new(scratch);
        match Pin::new(&mut self.pipe).poll_read(cx, &mut buffer) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                let filled = buffer.filled();
                if self.incoming.capacity() - self.incoming.len() < filled.len() {
                    let missing = self.end.missing_bytes(self.incoming.len() - self.taken);
                    if missing > filled.len() {
                        // A large value comes in many pieces. Its buffer is as long as the value, and not up to twice that.
                        self.incoming.reserve_exact(missing);
                    }
                }
                self.incoming.extend_from_slice(filled);
                Ok(true)
            }
            Poll::Ready(_) => Err(Broken),
        }
    }

    /// Where the next reply lies in `incoming`, once it is whole.
    pub(super) fn next_reply(&mut self) -> Option<Range<usize>> {
        let len = self.end.find(&self.incoming[self.taken..])?;
        Some(self.taken..self.taken + len)
    }

    /// Whether it was sent unasked.
    pub(super) fn is_push(&self, reply: &Range<usize>) -> bool {
        self.incoming[reply.clone()].starts_with(b">")
    }

    /// Takes that reply: in the buffer itself, if nothing else is in it and it is large.
    pub(super) fn take(&mut self, reply: Range<usize>) -> Cow<'_, [u8]> {
        self.end = ReplyEnd::default();
        if reply == (0..self.incoming.len()) && reply.len() >= LARGE_BYTES {
            return Cow::Owned(core::mem::take(&mut self.incoming));
        }
        self.taken = reply.end;
        Cow::Borrowed(&self.incoming[reply])
    }

    /// Gives back the memory of what was dealt with.
    pub(super) fn compact(&mut self) {
        self.incoming.drain(..core::mem::take(&mut self.taken));
        if self.incoming.is_empty() && self.incoming.capacity() > KEPT_BYTES {
            self.incoming = Vec::new();
        }
    }
}
