//! Ring of the log's batches: where the next one goes, which are still needed, and the records that wait to be written.
//!
//! Positions count on without end; a position on the device is the remainder. A batch
//! is contiguous: where it does not fit before the ring's end it begins at its start.

use std::collections::VecDeque;

use tiermem_tier::block::AlignedBuffer;

use super::batch::{self, HEADER_BYTES, Header};
use super::record::{RECORD_BYTES_MAX, Record};
use super::superblock::Tail;
use super::{Layout, Lsn};

/// A batch that the log still needs.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    /// Where it begins, counted on.
    pub at: u64,
    /// Its header.
    pub header: Header,
    /// The checksum of that.
    pub header_sum: u32,
}

/// Records of a batch in the making.
#[derive(Debug, Default)]
struct Body {
    bytes: Vec<u8>,
    records: u32,
}

/// The ring.
#[derive(Debug)]
pub struct Ring {
    log_bytes: u64,
    body_bytes_max: usize,
    /// Batches that are needed or not yet known to be needless, oldest first; never empty.
    live: VecDeque<Live>,
    /// Where the next one may begin.
    head: u64,
    /// The space before this place may be used again.
    tail: u64,
    /// Full bodies, oldest first.
    full: VecDeque<Body>,
    making: Body,
    /// The LSN of the first record of the oldest body.
    next_lsn: u64,
}

impl Ring {
    /// A ring with these batches in it, at least one.
    pub fn new(layout: &Layout, live: VecDeque<Live>) -> Self {
        let ends = |live: &Live| (live.at + live.header.batch_bytes(), live.header.last_lsn() + 1);
        let (head, next_lsn) = live.back().map_or((0, 1), ends);
        Ring {
            log_bytes: layout.log_bytes,
            body_bytes_max: batch::body_bytes_max(layout),
            tail: live.front().map_or(0, |live| live.at),
            live,
            head,
            full: VecDeque::new(),
            making: Body { bytes: Vec::with_capacity(batch::body_bytes_max(layout)), records: 0 },
            next_lsn,
        }
    }

    /// Adds a record to the batch in the making.
    #[inline]
    pub fn add(&mut self, record: &Record<'_>) {
        record.encode(&mut self.making.bytes);
        self.making.records += 1;
        if self.making.bytes.len() + RECORD_BYTES_MAX > self.body_bytes_max {
            let next = Body { bytes: Vec::with_capacity(self.body_bytes_max), records: 0 };
            self.full.push_back(std::mem::replace(&mut self.making, next));
        }
    }

    /// Bytes of records that no batch has taken yet.
    pub fn waiting_bytes(&self) -> usize {
        self.full.iter().map(|body| body.bytes.len()).sum::<usize>() + self.making.bytes.len()
    }

    /// Whether a batch is full.
    pub fn is_full(&self) -> bool {
        !self.full.is_empty()
    }

    /// Makes the next batch, with records or without: where on the log it goes, its bytes, its header. `None` where there is no room.
    pub fn build(
        &mut self,
        uuid: &[u8; 16],
        session: u64,
        sealed: Lsn,
    ) -> Option<(u64, AlignedBuffer, Header)> {
        let body = self.full.front().unwrap_or(&self.making);
        let (previous, previous_sum) =
            self.live.back().map_or((0, 0), |live| (live.header.sequence, live.header_sum));
        let header = Header {
            sequence: previous + 1,
            first_lsn: self.next_lsn,
            sealed: sealed.0,
            session,
            records: body.records,
            body_bytes: body.bytes.len() as u32,
            body_sum: batch::body_sum(uuid, &body.bytes),
            previous_sum,
        };
        let at = place(self.head, header.batch_bytes(), self.log_bytes);
        if at + header.batch_bytes() > self.tail + self.log_bytes {
            return None;
        }
        let mut buffer = AlignedBuffer::zeroed(header.batch_bytes() as usize);
        let header_sum = header.write(uuid, &mut buffer);
        buffer[HEADER_BYTES..HEADER_BYTES + body.bytes.len()].copy_from_slice(&body.bytes);
        if self.full.pop_front().is_none() {
            self.making.bytes.clear();
            self.making.records = 0;
        }
        self.next_lsn = header.last_lsn() + 1;
        self.head = at + header.batch_bytes();
        self.live.push_back(Live { at, header, header_sum });
        Some((at % self.log_bytes, buffer, header))
    }

    /// Where the log could begin if the records from `keep` on are needed, and no batch behind `synced` may be the first.
    pub fn tail_for(&self, keep: Lsn, synced: u64) -> Tail {
        let may_go = |next: &&Live| next.header.first_lsn <= keep.0 && next.header.sequence <= synced;
        let gone = self.live.iter().skip(1).take_while(may_go).count();
        let live = &self.live[gone];
        Tail { at: live.at % self.log_bytes, sequence: live.header.sequence, header_sum: live.header_sum }
    }

    /// The log begins here for good: what lies before may be overwritten.
    pub fn free_before(&mut self, tail: &Tail) {
        while self.live.len() > 1 && self.live.front().is_some_and(|it| it.header.sequence < tail.sequence) {
            self.live.pop_front();
        }
        self.tail = self.live.front().map_or(self.tail, |live| live.at);
    }

    /// Bytes in use, plus those that the waiting records will need.
    pub fn used_bytes(&self) -> u64 {
        let bodies = self.full.len() as u64 * (self.body_bytes_max + HEADER_BYTES) as u64;
        let making = (self.making.bytes.len() + HEADER_BYTES).next_multiple_of(batch::ALIGN_BYTES) as u64;
        self.head - self.tail + bodies + making
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        let bodies = self.full.iter().map(|body| body.bytes.capacity()).sum::<usize>();
        (bodies + self.making.bytes.capacity() + self.live.capacity() * size_of::<Live>()) as u64
    }
}

/// Where a batch goes that may begin at `head` or behind it.
pub fn place(head: u64, batch_bytes: u64, log_bytes: u64) -> u64 {
    let left = log_bytes - head % log_bytes;
    if batch_bytes <= left { head } else { head + left }
}
