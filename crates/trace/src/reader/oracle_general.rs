//! libCacheSim's oracleGeneral form: packed little-endian records of 24 bytes.
//!
//! | offset | type | field |
//! | --- | --- | --- |
//! | 0 | u32 | time of the request in seconds |
//! | 4 | u64 | object |
//! | 12 | u32 | size in bytes |
//! | 16 | i64 | number of the next request for the object, -1 or `2^63 - 1` for none |
//!
//! The next access is checked but not used: what needs the future works it out itself. Any other bits are a
//! valid record, so this check is also what notices that a file is something else.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tiermem_base::Access;

use super::source::read_error;
use crate::{BadRecord, Place, TraceError};

/// Bytes of one record.
pub const RECORD_BYTES: usize = 24;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Reads the records of one file.
pub struct OracleGeneral<R> {
    path: PathBuf,
    input: R,
    record_number: u64,
    /// The time of the first request, from which the others are counted.
    start_s: Option<u32>,
    finished: bool,
}

impl<R: Read> OracleGeneral<R> {
    /// A reader of `input`, which should be buffered; `path` names it in errors.
    pub fn new(path: &Path, input: R) -> Self {
        OracleGeneral { path: path.to_owned(), input, record_number: 0, start_s: None, finished: false }
    }

    fn parse(&mut self, record: &[u8; RECORD_BYTES]) -> Result<Access, BadRecord> {
        let [time, key_low, key_high, size, next_low, next_high] =
            [0, 4, 8, 12, 16, 20].map(|at| u32::from_le_bytes([0, 1, 2, 3].map(|byte| record[at + byte])));
        let join = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        let next = join(next_low, next_high).cast_signed();
        if next < -1 {
            return Err(BadRecord::OutOfRange { field: "next_access", text: next.to_string() });
        }
        // A clock that steps back before the first request stays at the start.
        let since_start_s = time.saturating_sub(*self.start_s.get_or_insert(time));
        Ok(Access::get(u64::from(since_start_s) * NANOS_PER_SECOND, join(key_low, key_high), size))
    }
}

/// Reads until `buffer` is full or the input ends; how many bytes there were.
fn read_full(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

impl<R: Read> Iterator for OracleGeneral<R> {
    type Item = Result<Access, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.finished {
            return None;
        }
        let mut record = [0; RECORD_BYTES];
        let parsed = match read_full(&mut self.input, &mut record) {
            Ok(RECORD_BYTES) => self.parse(&record),
            Ok(found) => {
                self.finished = true;
                if found == 0 {
                    return None;
                }
                Err(BadRecord::Truncated { found, wanted: RECORD_BYTES })
            }
            Err(error) => {
                self.finished = true;
                return Some(Err(read_error(&self.path, Place::Record(self.record_number), error)));
            }
        };
        self.record_number += 1;
        let place = Place::Record(self.record_number);
        Some(parsed.map_err(|reason| TraceError::Record { path: self.path.clone(), place, reason }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(time: u32, key: u64, size: u32, next: i64) -> Vec<u8> {
        [&time.to_le_bytes()[..], &key.to_le_bytes(), &size.to_le_bytes(), &next.to_le_bytes()].concat()
    }

    fn read(bytes: &[u8]) -> Vec<Result<Access, String>> {
        let records = OracleGeneral::new(Path::new("t.bin"), bytes);
        records.map(|record| record.map_err(|error| error.to_string())).collect()
    }

    #[test]
    fn a_file_that_ends_within_a_record_says_so() {
        let mut bytes = record(5, u64::MAX, 0, -1);
        bytes.extend_from_slice(&[1; 7]);
        let records = read(&bytes);
        assert_eq!(records[0], Ok(Access::get(0, u64::MAX, 0)));
        let error = records[1].as_ref().unwrap_err();
        assert_eq!(error, "t.bin, record 2: the file ends within the record: 7 of 24 bytes");
        assert_eq!(records.len(), 2);
    }

    #[test]
    fn an_impossible_next_access_is_refused_and_the_next_record_read() {
        let records = read(&[record(0, 1, 1, -2), record(0, 2, 3, i64::MAX)].concat());
        assert_eq!(
            records,
            [
                Err("t.bin, record 1: the field `next_access` is out of range: -2".to_owned()),
                Ok(Access::get(0, 2, 3)),
            ]
        );
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
            prop_assert_eq!(read(&bytes).len(), bytes.len().div_ceil(RECORD_BYTES));
        }

        #[test]
        fn written_records_are_read_back(
            rows in prop::collection::vec((any::<u32>(), any::<u64>(), any::<u32>(), -1i64..), 1..50),
        ) {
            let bytes: Vec<u8> = rows.iter().flat_map(|row| record(row.0, row.1, row.2, row.3)).collect();
            let start = rows[0].0;
            let wanted: Vec<_> = rows
                .iter()
                .map(|row| {
                    let time_ns = u64::from(row.0.saturating_sub(start)) * NANOS_PER_SECOND;
                    Ok(Access::get(time_ns, row.1, row.2))
                })
                .collect();
            prop_assert_eq!(read(&bytes), wanted);
        }
    }
}
