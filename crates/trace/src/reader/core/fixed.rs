//! Reader of binary records of one length.

use std::io::{self, BufRead};
use std::path::{Path, PathBuf};

use tiermem_base::Access;

use super::source::read_error;
use crate::trace::{Notes, Records};
use crate::{BadRecord, RecordPosition, TraceError};

/// How a binary format lays out its records of `N` bytes.
pub(crate) trait FixedFormat<const N: usize>: Send {
    /// The access that the record says; `None` if it belongs to the format but is no access.
    fn record(&mut self, record: &[u8; N]) -> Result<Option<Access>, BadRecord>;

    /// Records so far whose time lies before that of the record before them.
    fn steps_back(&self) -> u64 {
        0
    }
}

/// Reads the records of one file.
pub(crate) struct Fixed<R, F, const N: usize> {
    path: PathBuf,
    input: R,
    format: F,
    record_number: u64,
    not_accesses: u64,
    finished: bool,
}

impl<R: BufRead, F: FixedFormat<N>, const N: usize> Fixed<R, F, N> {
    /// A reader of `input`; `path` names it in errors.
    pub fn new(path: &Path, input: R, format: F) -> Self {
        Fixed { path: path.to_owned(), input, format, record_number: 0, not_accesses: 0, finished: false }
    }

    fn broken(&self, reason: BadRecord) -> TraceError {
        TraceError::Record {
            path: self.path.clone(),
            place: RecordPosition::Record(self.record_number),
            reason,
        }
    }

    fn failed(&mut self, error: io::Error) -> TraceError {
        self.finished = true;
        read_error(&self.path, RecordPosition::Record(self.record_number), error)
    }

    /// Reads the one record that lies across two buffers, or the rest of the file that is none. Returns how many bytes there
    /// were.
    fn read_across(&mut self, record: &mut [u8; N]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < N {
            match self.input.read(&mut record[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

impl<R: BufRead + Send, F: FixedFormat<N>, const N: usize> Records for Fixed<R, F, N> {
    fn read(&mut self, out: &mut Vec<Access>, max: usize) -> Result<(), TraceError> {
        let limit = out.len().saturating_add(max);
        while out.len() < limit && !self.finished {
            let available = match self.input.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.failed(error)),
            };
            let mut used = 0;
            let mut result = Ok(());
            let (records, _) = available.as_chunks::<N>();
            for record in records.iter().take(limit - out.len()) {
                used += N;
                self.record_number += 1;
                match self.format.record(record) {
                    Ok(Some(access)) => out.push(access),
                    Ok(None) => self.not_accesses += 1,
                    Err(reason) => {
                        result = Err(reason);
                        break;
                    }
                }
            }
            self.input.consume(used);
            if used == 0 {
                let mut record = [0; N];
                let found = match self.read_across(&mut record) {
                    Ok(found) => found,
                    Err(error) => return Err(self.failed(error)),
                };
                self.finished = found < N;
                if found == 0 {
                    break;
                }
                self.record_number += 1;
                result = match found {
                    found if found == N => self.format.record(&record).map(|access| out.extend(access)),
                    found => Err(BadRecord::Truncated { found, wanted: N }),
                };
            }
            result.map_err(|reason| self.broken(reason))?;
        }
        Ok(())
    }

    fn notes(&self) -> Notes {
        Notes { not_accesses: self.not_accesses, steps_back: self.format.steps_back() }
    }
}
