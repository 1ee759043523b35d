//! Queue of replies to a client.

use std::collections::VecDeque;
use std::io::IoSlice;

use tiermem_tier::block::AlignedBuffer;

use crate::disks::Piece;

/// Pieces that are sent with one call: a header and a payload for each of many small reads.
pub(super) const SLICES: usize = 128;
/// Sent headers are removed when they reach this number of bytes, even if more follow.
const SENT_HEADS_MAX: usize = 64 * 1024;
/// Room for headers that is kept when all are sent.
const KEPT_HEADS_MAX: usize = 16 * 1024;

#[derive(Debug)]
enum Item {
    /// The next bytes of the headers.
    Heads(usize),
    Payload(Piece),
}

/// Headers and payloads in order. Headers lie one behind the other; payloads stay in the buffers in which they came.
#[derive(Debug, Default)]
pub(super) struct ReplyQueue {
    heads: Vec<u8>,
    /// How much of `heads` was sent.
    heads_sent: usize,
    items: VecDeque<Item>,
    bytes: usize,
    /// Length of all buffers of payloads, sent parts included.
    buffer_bytes: usize,
}

impl ReplyQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Bytes that were not sent.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Memory that it takes, but for the little room that it keeps when all is sent.
    pub(super) fn memory_bytes(&self) -> usize {
        if self.is_empty() { 0 } else { self.buffer_bytes + self.heads.capacity() }
    }

    /// Appends what `write` appends, which is no payload.
    pub(super) fn head(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.heads.len();
        write(&mut self.heads);
        let added = self.heads.len() - before;
        self.bytes += added;
        match self.items.back_mut() {
            Some(Item::Heads(len)) => *len += added,
            _ => self.items.push_back(Item::Heads(added)),
        }
    }

    /// Appends payload.
    pub(super) fn payload(&mut self, piece: Piece) {
        if piece.bytes > 0 {
            self.bytes += piece.bytes;
            self.buffer_bytes += piece.buffer.len();
            self.items.push_back(Item::Payload(piece));
        }
    }

    /// Hands the next pieces to `send`.
    pub(super) fn with_slices<R>(&self, send: impl FnOnce(&[IoSlice<'_>]) -> R) -> R {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let (mut count, mut head) = (0, self.heads_sent);
        for (slice, item) in slices.iter_mut().zip(&self.items) {
            *slice = IoSlice::new(match item {
                Item::Heads(len) => {
                    head += len;
                    &self.heads[head - len..head]
                }
                Item::Payload(piece) => &piece.buffer[piece.from..piece.from + piece.bytes],
            });
            count += 1;
        }
        send(&slices[..count])
    }

    /// The first `sent` bytes are gone; hands over the buffers that are free now.
    pub(super) fn sent(&mut self, mut sent: usize, mut free: impl FnMut(AlignedBuffer)) {
        debug_assert!(sent <= self.bytes);
        self.bytes -= sent;
        while let Some(item) = self.items.front_mut() {
            let len = match item {
                Item::Heads(len) => {
                    self.heads_sent += sent.min(*len);
                    len
                }
                Item::Payload(piece) => {
                    piece.from += sent.min(piece.bytes);
                    &mut piece.bytes
                }
            };
            let taken = sent.min(*len);
            *len -= taken;
            sent -= taken;
            if *len > 0 {
                break;
            }
            if let Some(Item::Payload(piece)) = self.items.pop_front() {
                self.buffer_bytes -= piece.buffer.len();
                free(piece.buffer);
            }
        }
        if self.items.is_empty() {
            self.heads.clear();
            self.heads.shrink_to(KEPT_HEADS_MAX);
            self.heads_sent = 0;
        } else if self.heads_sent > SENT_HEADS_MAX {
            self.heads.drain(..self.heads_sent);
            self.heads_sent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(from: usize, bytes: usize, byte: u8) -> Piece {
        let mut buffer = AlignedBuffer::zeroed(8192);
        buffer[from..from + bytes].fill(byte);
        Piece { buffer, from, bytes }
    }

    /// Sends all replies, `step` bytes at a time; returns the bytes sent and the number of buffers freed.
    fn drain(reply_queue: &mut ReplyQueue, step: usize) -> (Vec<u8>, usize) {
        let (mut sent, mut freed) = (Vec::new(), 0);
        while !reply_queue.is_empty() {
            let bytes: Vec<u8> = reply_queue.with_slices(|slices| {
                assert!(slices.len() <= SLICES && slices.iter().all(|slice| !slice.is_empty()));
                slices.iter().flat_map(|slice| slice.to_vec()).take(step).collect()
            });
            assert!(!bytes.is_empty());
            reply_queue.sent(bytes.len(), |_| freed += 1);
            sent.extend(bytes);
        }
        (sent, freed)
    }

    #[test]
    fn bytes_leave_in_order_however_they_are_cut() {
        for step in [1, 3, 7, 100, 5000, 1 << 20] {
            let (mut reply_queue, mut expected) = (ReplyQueue::default(), Vec::new());
            for n in 0..20u8 {
                reply_queue.head(|out| out.extend([n; 5]));
                reply_queue.head(|out| out.extend([n; 3]));
                expected.extend([n; 8]);
                let (from, bytes) = (usize::from(n) * 7, usize::from(n) * 100);
                reply_queue.payload(piece(from, bytes, n | 0x80));
                expected.extend(vec![n | 0x80; bytes]);
            }
            assert_eq!(reply_queue.bytes(), expected.len());
            // The first piece is empty.
            assert_eq!(reply_queue.buffer_bytes, 19 * 8192);
            assert!(reply_queue.memory_bytes() >= 19 * 8192 + 20 * 8);
            let (sent, freed) = drain(&mut reply_queue, step);
            assert_eq!((sent == expected, freed), (true, 19), "step {step}");
            assert!(reply_queue.items.is_empty() && reply_queue.heads.is_empty());
            assert_eq!(reply_queue.buffer_bytes, 0);
        }
    }

    #[test]
    fn what_was_sent_takes_no_room() {
        let mut reply_queue = ReplyQueue::default();
        reply_queue.head(|out| out.extend([0; 100]));
        for _ in 0..10_000 {
            reply_queue.head(|out| out.extend([0; 100]));
            reply_queue.sent(100, |_| {});
        }
        assert!(reply_queue.heads.len() <= 2 * SENT_HEADS_MAX, "{}", reply_queue.heads.len());
        drain(&mut reply_queue, 1000);
        assert!(reply_queue.heads.capacity() <= KEPT_HEADS_MAX);
    }

    #[test]
    fn many_small_replies_leave_with_one_call() {
        let mut reply_queue = ReplyQueue::default();
        for _ in 0..SLICES / 2 {
            reply_queue.head(|out| out.extend([1; 16]));
            reply_queue.payload(piece(0, 4096, 2));
        }
        let bytes = reply_queue.bytes();
        reply_queue
            .with_slices(|slices| assert_eq!(slices.iter().map(|slice| slice.len()).sum::<usize>(), bytes));
    }
}
