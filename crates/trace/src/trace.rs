//! One trace to read from start to end, whichever source it has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tiermem_base::Access;

use crate::TraceError;

/// A stream of accesses, from a file or from a generator.
///
/// A broken record comes out as an error, once the number of them that [`crate::ReadOptions::skip_bad`] allows is used
/// up; that error is the last item.
pub struct Trace {
    records: Box<dyn Iterator<Item = Result<Access, TraceError>> + Send>,
    /// Broken records that may still be passed over.
    skips_left: u64,
    skipped: u64,
    finished: bool,
    extent: Extent,
}

/// What is known about how long a trace is before it has been read.
pub(crate) enum Extent {
    /// It has this many records.
    Records(u64),
    /// The file has `total` bytes, of which `read` have been taken so far.
    Bytes { total: u64, read: Arc<AtomicU64> },
}

impl Trace {
    pub(crate) fn new(
        records: Box<dyn Iterator<Item = Result<Access, TraceError>> + Send>,
        skip_bad: u64,
        extent: Extent,
    ) -> Self {
        Trace { records, skips_left: skip_bad, skipped: 0, finished: false, extent }
    }

    /// How many records the trace has in all, where that is known before reading: for generators and plain
    /// binary files. Text and compressed files tell only how far they are, see [`Self::share_read`].
    pub fn len_hint(&self) -> Option<u64> {
        match self.extent {
            Extent::Records(count) => Some(count),
            Extent::Bytes { .. } => None,
        }
    }

    /// The share of the file that has been read, from 0 to 1, for progress bars; `None` where
    /// [`Self::len_hint`] knows better. It runs ahead of the records by up to one buffer.
    pub fn share_read(&self) -> Option<f64> {
        match &self.extent {
            Extent::Records(_) => None,
            Extent::Bytes { total: 0, .. } => None,
            Extent::Bytes { total, read } => Some((read.load(Relaxed) as f64 / *total as f64).min(1.0)),
        }
    }

    /// Broken records passed over so far.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }
}

impl Iterator for Trace {
    type Item = Result<Access, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.finished {
            match self.records.next() {
                Some(Ok(access)) => return Some(Ok(access)),
                // Only a broken record can be passed over: after a failed read there is no next record.
                Some(Err(TraceError::Record { .. })) if self.skips_left > 0 => {
                    self.skips_left -= 1;
                    self.skipped += 1;
                }
                Some(Err(error)) => {
                    self.finished = true;
                    return Some(Err(error));
                }
                None => self.finished = true,
            }
        }
        None
    }
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace")
            .field("len_hint", &self.len_hint())
            .field("skipped", &self.skipped)
            .finish_non_exhaustive()
    }
}
