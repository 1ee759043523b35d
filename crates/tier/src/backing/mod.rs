//! Backing stores: where volumes live.
//!
//! The seam is [`Backing`]: requests for byte ranges that never make the caller wait. Every kind of store
//! (a file, a block device, another server, objects) offers the same: bytes, a flush, and whether earlier
//! answers still hold. Stores that are reached over a protocol of their own are beside that protocol.

mod aligning;
mod error;
mod faulty;
mod file;
mod label;
mod memory;
#[cfg(feature = "objects")]
mod objects;
mod simulated;
mod throttled;

use std::sync::Arc;

pub use crate::block::{AlignedBuffer, Backend};
pub use aligning::Aligning;
pub use error::OpenError;
pub use faulty::{FaultControl, Faults, Faulty};
pub use file::{FileBacking, FileOptions, FileUnits};
pub use label::{LABEL_BYTES_MAX, StoreLabel, label_file, read_label_file, write_label_file};
pub use memory::{MemoryBacking, MemoryStore};
#[cfg(feature = "objects")]
pub use objects::{ObjectsBacking, ObjectsOptions, ObjectsPlace};
pub use throttled::Throttled;

/// Called, on any thread, when something may have been completed. It must not block, nor call the store.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Fill the buffer.
    Read,
    /// Store the buffer.
    Write,
    /// Makes durable every write with a completion that was taken before this was submitted.
    Flush,
    /// What is there need not be kept: it may read as anything that it was, or as zeroes.
    Trim,
    /// What is there reads as zeroes.
    Zero,
    /// Say what is there: data, holes, zeroes. Answered with [`Completion::extents`].
    Describe,
}

/// Extents in one answer at most.
pub const EXTENTS_MAX: usize = 8192;

/// A part of a range, and what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its length.
    pub bytes: u64,
    /// Whether it takes no room.
    pub is_hole: bool,
    /// Whether it reads as zeroes.
    pub is_zero: bool,
}

impl Extent {
    /// One of which nothing is known: it counts as data.
    pub fn data(bytes: u64) -> Self {
        Extent { bytes, is_hole: false, is_zero: false }
    }

    /// One that takes no room and reads as zeroes.
    pub fn hole(bytes: u64) -> Self {
        Extent { bytes, is_hole: true, is_zero: true }
    }
}

/// One request. The buffer travels with it and comes back with the completion.
#[derive(Debug)]
pub struct Request {
    /// The caller's name for it, handed back unchanged.
    pub token: u64,
    /// The operation.
    pub op: Op,
    /// The first byte of the volume that it is about; 0 for a flush.
    pub offset: u64,
    /// Number of bytes; the range lies within the volume. 0 for a flush.
    pub bytes: u64,
    /// For reads and writes: at least `bytes` long, used from its begin. Otherwise empty.
    pub buffer: AlignedBuffer,
}

/// A request that is done.
#[derive(Debug)]
pub struct Completion {
    /// As in the request.
    pub token: u64,
    /// As in the request.
    pub op: Op,
    /// As in the request.
    pub offset: u64,
    /// As in the request.
    pub bytes: u64,
    /// The request's buffer. After a read that failed its contents are anything. It may be empty where the memory could not be had
    /// back.
    pub buffer: AlignedBuffer,
    /// Whether all of it was done. After a write that failed, any part of it may have been stored, now or later.
    pub result: Result<(), BackingError>,
    /// The answer to [`Op::Describe`]: what is there from the range's begin on, not always to its end, but something. A store that cannot
    /// tell has data.
    pub extents: Vec<Extent>,
    /// The store's session ([`Backing::session`]) in which it was done. Where the store cannot
    /// tell, it is an earlier one, never a later one: a write of a past session must be
    /// treated as lost, and a flush that succeeded covers the completed writes of its session.
    pub session: u64,
}

impl Request {
    /// Fills the first `bytes` of `buffer` from byte `offset` on.
    pub fn read(token: u64, offset: u64, bytes: u64, buffer: AlignedBuffer) -> Self {
        Request { token, op: Op::Read, offset, bytes, buffer }
    }

    /// Stores the first `bytes` of `buffer` from byte `offset` on.
    pub fn write(token: u64, offset: u64, bytes: u64, buffer: AlignedBuffer) -> Self {
        Request { token, op: Op::Write, offset, bytes, buffer }
    }

    /// Makes durable what was written.
    pub fn flush(token: u64) -> Self {
        Request { token, op: Op::Flush, offset: 0, bytes: 0, buffer: AlignedBuffer::empty() }
    }

    /// Gives `bytes` bytes from byte `offset` on back.
    pub fn trim(token: u64, offset: u64, bytes: u64) -> Self {
        Request { token, op: Op::Trim, offset, bytes, buffer: AlignedBuffer::empty() }
    }

    /// Makes `bytes` bytes from byte `offset` on zeroes.
    pub fn zero(token: u64, offset: u64, bytes: u64) -> Self {
        Request { token, op: Op::Zero, offset, bytes, buffer: AlignedBuffer::empty() }
    }

    /// Asks what `bytes` bytes from byte `offset` on are.
    pub fn describe(token: u64, offset: u64, bytes: u64) -> Self {
        Request { token, op: Op::Describe, offset, bytes, buffer: AlignedBuffer::empty() }
    }

    /// The byte behind the last; ends at the largest number there is.
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }

    /// Its completion.
    pub fn done(self, result: Result<(), BackingError>, session: u64) -> Completion {
        let Request { token, op, offset, bytes, buffer } = self;
        let extents = if op == Op::Describe { vec![Extent::data(bytes)] } else { Vec::new() };
        Completion { token, op, offset, bytes, buffer, result, extents, session }
    }

    /// Its completion, where these are known.
    pub fn described(self, extents: Vec<Extent>, session: u64) -> Completion {
        let mut done = self.done(Ok(()), session);
        if !extents.is_empty() {
            done.extents = extents;
        }
        done
    }

    /// The answer, where there is nothing to do: the request cannot be, or is about no bytes.
    pub(crate) fn answer(&self, size_bytes: u64, read_only: bool) -> Option<Result<(), BackingError>> {
        if self.op == Op::Flush {
            return None;
        }
        if !matches!(self.op, Op::Read | Op::Describe) && read_only {
            return Some(Err(BackingError::ReadOnly));
        }
        if self.offset.checked_add(self.bytes).is_none_or(|end| end > size_bytes) {
            return Some(Err(BackingError::OutOfRange { offset: self.offset, end: self.end(), size_bytes }));
        }
        if matches!(self.op, Op::Read | Op::Write) && (self.buffer.len() as u64) < self.bytes {
            let words = format!("a buffer of {} bytes for {} bytes", self.buffer.len(), self.bytes);
            return Some(Err(BackingError::Failed(words)));
        }
        (self.bytes == 0).then_some(Ok(()))
    }
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackingError {
    /// The range does not lie within the volume.
    #[error("bytes {offset} to {end} are beyond the volume's end at {size_bytes}")]
    OutOfRange {
        /// The first byte asked for.
        offset: u64,
        /// The byte behind the last.
        end: u64,
        /// The volume's size.
        size_bytes: u64,
    },
    /// The store does not take writes.
    #[error("the store is read-only")]
    ReadOnly,
    /// The store has no room.
    #[error("the store is full")]
    Full,
    /// The store said no, or could not be asked.
    #[error("{0}")]
    Failed(String),
}

/// Identity and version of a store's content. `None`: the store cannot say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Identity of the store: the same as long as it is the same file, device or set of objects.
    pub which: Option<String>,
    /// Changes whenever any writer may have changed its content.
    pub version: Option<String>,
}

impl Identity {
    /// The kind of a store, its place, and what of it stays over a restart of the machine. The number of a file's device may change (of a
    /// network file system with each mount), that of the file does not.
    fn parts(which: &str) -> (&str, &str, Option<&str>) {
        for (kind, mark) in [("file ", ", born "), ("device ", ", serial ")] {
            if let Some(rest) = which.strip_prefix(kind) {
                let (place, lasting) = rest.split_once(mark).map_or((rest, None), |it| (it.0, Some(it.1)));
                return (kind, place.split_once(':').map_or(place, |it| it.1), lasting);
            }
        }
        ("", which, None)
    }

    /// What of a text stays over a restart of the machine, or all of it.
    pub fn lasting(which: &str) -> &str {
        Self::parts(which).2.unwrap_or(which)
    }

    /// Whether two texts may name the same store, over a restart of the machine too.
    pub fn may_be_same(one: &str, other: &str) -> bool {
        let ((kind, place, lasting), (other_kind, other_place, other_lasting)) =
            (Self::parts(one), Self::parts(other));
        let is_same = match (lasting, other_lasting) {
            // A device may be found elsewhere; a file has its number and its birth.
            (Some(lasting), Some(other)) => lasting == other && (kind == "device " || place == other_place),
            _ => place == other_place,
        };
        kind == other_kind && is_same
    }
}

/// A volume's store.
///
/// The caller guarantees: bytes that a write in flight covers are not covered by another request in flight. The store guarantees: what
/// was written is read back until overwritten; a flush that succeeds makes durable all writes that were completed before it *in
/// the same session*.
pub trait Backing: Send {
    /// Never blocks (queues without bound; callers bound what they have in flight). No order is promised between requests in
    /// flight. A request that cannot be is completed with an error.
    fn submit(&mut self, request: Request);
    /// Appends what is done; never blocks. It may also carry work on that needs this thread, so it is to be called whenever the
    /// waker was.
    fn completed(&mut self, out: &mut Vec<Completion>);
    /// Requests submitted with completions that were not taken yet.
    fn in_flight(&self) -> usize;
    /// Sets the waker to call whenever something may have completed
    /// since the last `completed`. It replaces the one set before.
    fn notify(&mut self, waker: Waker);
    /// The volume's size in bytes, of any value. It may change while the store is open.
    fn size_bytes(&self) -> u64;
    /// Whether writes are refused.
    fn is_read_only(&self) -> bool;
    /// Grows whenever what was completed but not flushed before may be lost: the connection to the store broke, or a flush failed. A
    /// flush of a later session says nothing of writes of an earlier one. It has grown before any completion of the new
    /// session can be taken, and it never becomes smaller.
    fn session(&self) -> u64;
    /// Identity and state of the store. It may block; for start, stop and idle times.
    fn identity(&mut self) -> Identity;
    /// What the store keeps of the cache that wrote it last. It may block, as [`Self::identity`] may.
    ///
    /// # Errors
    /// When that cannot be read.
    fn label(&mut self) -> Result<StoreLabel, BackingError>;
    /// Makes the store keep another text, of at most [`LABEL_BYTES_MAX`] bytes. It is durable when this returns; it may block.
    ///
    /// # Errors
    /// When the store cannot keep it. Then it may have either.
    fn set_label(&mut self, text: &str) -> Result<(), BackingError>;
    /// The implementation, for the log: a few words.
    fn describe(&self) -> String;
}

impl<B: Backing + ?Sized> Backing for Box<B> {
    fn submit(&mut self, request: Request) {
        (**self).submit(request);
    }
    fn completed(&mut self, out: &mut Vec<Completion>) {
        (**self).completed(out);
    }
    fn in_flight(&self) -> usize {
        (**self).in_flight()
    }
    fn notify(&mut self, waker: Waker) {
        (**self).notify(waker);
    }
    fn size_bytes(&self) -> u64 {
        (**self).size_bytes()
    }
    fn is_read_only(&self) -> bool {
        (**self).is_read_only()
    }
    fn session(&self) -> u64 {
        (**self).session()
    }
    fn identity(&mut self) -> Identity {
        (**self).identity()
    }
    fn label(&mut self) -> Result<StoreLabel, BackingError> {
        (**self).label()
    }
    fn set_label(&mut self, text: &str) -> Result<(), BackingError> {
        (**self).set_label(text)
    }
    fn describe(&self) -> String {
        (**self).describe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_the_same_by_what_stays_over_a_restart_of_the_machine() {
        for (one, other, is_same) in [
            ("file 8:12, born 5.000", "file 9:12, born 5.000", true),
            ("file 8:12, born 5.000", "file 8:12, born 6.000", false),
            ("file 8:12, born 5.000", "file 8:13, born 5.000", false),
            // As versions wrote it that knew of no birth, and on file systems that do not.
            ("file 8:12", "file 8:12, born 5.000", true),
            ("file 45:12", "file 46:12", true),
            ("file 8:12", "file 8:13", false),
            ("device 2049, serial x", "device 2065, serial x", true),
            ("device 2049, serial x", "device 2049, serial y", false),
            ("device 2049", "device 2049, serial y", true),
            ("device 2049", "device 2065", false),
            ("nbd://a/b, 4096 bytes", "nbd://a/c, 4096 bytes", false),
            ("nbd://a/b, 4096 bytes", "nbd://a/b, 4096 bytes", true),
            ("objects of volume 7", "objects of volume 8", false),
            ("file 8:12", "12", false),
        ] {
            assert_eq!(
                (Identity::may_be_same(one, other), Identity::may_be_same(other, one)),
                (is_same, is_same),
                "{one} {other}"
            );
        }
    }
}
