//! One trace to read from start to end, whichever source it has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tiermem_base::Access;

use crate::TraceError;
use crate::optional::{OptionalColumns, OptionalRow, OptionalSet};

/// Records that [`Trace`] takes from its source at once when it is used as an iterator.
const BATCH_RECORDS: usize = 1024;

/// A stream of accesses, from a file or from a generator.
///
/// It is an iterator, and for callers that count nanoseconds it hands out batches ([`Self::next_batch`]). A broken record comes
/// out as an error, once the number of them that [`crate::ReadOptions::skip_bad`] allows is used up; that error is the last item.
pub struct Trace {
    records: Box<dyn Records>,
    /// Records read ahead for the iterator, from `batch_at` on.
    batch: Vec<Access>,
    batch_at: usize,
    /// The optional columns of `batch`, or of the last batch that was handed out.
    optional: OptionalColumns,
    /// The error that comes once the records before it are taken.
    error: Option<TraceError>,
    /// Broken records that may still be passed over.
    skips_left: u64,
    skipped: u64,
    finished: bool,
    extent: Extent,
}

/// Where records come from: the seam between [`Trace`] and the readers of all formats.
pub(crate) trait Records: Send {
    /// Appends up to `max` records to `out`; none at the end of the trace only.
    ///
    /// At an error, the records before it have been appended. After [`TraceError::Record`] the next call goes on
    /// behind the broken record; after any other error there is nothing to go on with.
    fn read(&mut self, out: &mut Vec<Access>, max: usize) -> Result<(), TraceError>;

    /// Lines and records read so far that are no access, or are strange but legal.
    fn notes(&self) -> Notes {
        Notes::default()
    }

    /// The optional columns of the records that the last call of [`Records::read`] has appended, as many; of the requested
    /// columns those that are there.
    fn optional(&self) -> Option<&OptionalColumns> {
        None
    }
}

/// Facts about a trace in addition to its accesses. None of it is an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Lines or records that belong to the format but access no key: headers, comments, PING, statistics.
    pub not_accesses: u64,
    /// Accesses whose time lies before that of the access before them.
    pub steps_back: u64,
}

/// What is known about the length of a trace before it has been read.
pub(crate) enum Extent {
    /// It has this many records.
    Records(u64),
    /// The file has `total` bytes, of which `read` have been taken so far.
    Bytes { total: u64, read: Arc<AtomicU64> },
}

/// Records of an iterator, such as a generator.
struct Iterated<I>(I);

impl<I: Iterator<Item = Result<Access, TraceError>> + Send> Records for Iterated<I> {
    fn read(&mut self, out: &mut Vec<Access>, max: usize) -> Result<(), TraceError> {
        for record in self.0.by_ref().take(max) {
            out.push(record?);
        }
        Ok(())
    }
}

impl Trace {
    /// A trace of what an iterator yields.
    pub(crate) fn new(
        records: impl Iterator<Item = Result<Access, TraceError>> + Send + 'static,
        skip_bad: u64,
        extent: Extent,
    ) -> Self {
        Trace::of(Box::new(Iterated(records)), skip_bad, extent)
    }

    pub(crate) fn of(records: Box<dyn Records>, skip_bad: u64, extent: Extent) -> Self {
        let optional =
            OptionalColumns::with(records.optional().map_or(OptionalSet::NONE, OptionalColumns::set));
        Trace {
            records,
            batch: Vec::new(),
            batch_at: 0,
            optional,
            error: None,
            skips_left: skip_bad,
            skipped: 0,
            finished: false,
            extent,
        }
    }

    /// Appends the next records, at most `max`, to `records`, and says how many: 0 at the end (or if `max` is 0).
    ///
    /// An error comes after the records before it, and is the last thing that comes. This costs no virtual call per
    /// record; a batch of a few thousand records stays in the processor's cache.
    pub fn next_batch(&mut self, records: &mut Vec<Access>, max: usize) -> Result<usize, TraceError> {
        // Records that the iterator has read ahead go first.
        if self.batch_at < self.batch.len() {
            let end = self.batch.len().min(self.batch_at.saturating_add(max));
            records.extend_from_slice(&self.batch[self.batch_at..end]);
            let count = end - self.batch_at;
            self.batch_at = end;
            return Ok(count);
        }
        let count = self.fill(records, max);
        match self.error.take() {
            Some(error) if count == 0 => Err(error),
            error => {
                self.error = error;
                Ok(count)
            }
        }
    }

    /// The optional columns that come with the records: the requested ones ([`crate::ReadOptions::optional`]) that the trace has.
    pub fn optional(&self) -> OptionalSet {
        self.optional.set()
    }

    /// Like [`Self::next_batch`], and appends the optional columns of the same records to `columns`, those that it has.
    pub fn next_batch_with(
        &mut self,
        records: &mut Vec<Access>,
        columns: &mut OptionalColumns,
        max: usize,
    ) -> Result<usize, TraceError> {
        // What the iterator has read ahead lies in front.
        let first = if self.batch_at < self.batch.len() { self.batch_at } else { 0 };
        let count = self.next_batch(records, max)?;
        columns.extend_from(&self.optional, first..first + count);
        Ok(count)
    }

    /// The optional columns of the record that the iterator has yielded last.
    pub fn optional_row(&self) -> OptionalRow {
        self.batch_at.checked_sub(1).map_or_else(OptionalRow::default, |at| self.optional.row(at))
    }

    /// Appends records until there are `max`, an error stands in `self.error`, or the trace ends.
    fn fill(&mut self, records: &mut Vec<Access>, max: usize) -> usize {
        let start = records.len();
        self.optional.clear();
        while !self.finished && records.len() - start < max {
            let before = records.len();
            let read = self.records.read(records, max - (before - start));
            let count = records.len() - before;
            if let Some(columns) = self.records.optional() {
                debug_assert!(columns.are_of(count), "columns are as long as the records: {count}");
                self.optional.extend_from(columns, 0..count);
            }
            match read {
                Ok(()) if records.len() == before => self.finished = true,
                Ok(()) => break,
                // Only a broken record can be passed over: after a failed read there is no next record.
                Err(TraceError::Record { .. }) if self.skips_left > 0 => {
                    self.skips_left -= 1;
                    self.skipped += 1;
                }
                Err(error) => {
                    self.finished = true;
                    self.error = Some(error);
                }
            }
        }
        records.len() - start
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

    /// Lines and records read so far that are no access, or are strange but legal. It runs ahead of the records by one batch.
    pub fn notes(&self) -> Notes {
        self.records.notes()
    }
}

impl Iterator for Trace {
    type Item = Result<Access, TraceError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.batch_at == self.batch.len() {
            let mut batch = std::mem::take(&mut self.batch);
            batch.clear();
            self.batch_at = 0;
            self.fill(&mut batch, BATCH_RECORDS);
            self.batch = batch;
        }
        match self.batch.get(self.batch_at) {
            Some(access) => {
                self.batch_at += 1;
                Some(Ok(*access))
            }
            None => self.error.take().map(Err),
        }
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
