//! Twitter's cache traces in the text form in which cluster 52 is passed around with libCacheSim.
//!
//! A header line that starts with `#`, then one request per line: `time, object, size, next_access_vtime`, that
//! is the second of the request, the key as a 64-bit number, the bytes of the value, and the request number of the
//! next access to the same key (`2^63 - 1` or `-1` for none). The next access is checked but not used: what
//! needs the future works it out itself. The traces: Yang, Yue, Rashmi, "A large scale analysis of hundreds of
//! in-memory cache clusters at Twitter", OSDI 2020.

use std::io::{self, BufRead};
use std::path::{Path, PathBuf};

use tiermem_base::Access;

use super::source::read_error;
use crate::{BadRecord, Place, TraceError};

/// The longest line that is read; four numbers need less than 100 bytes.
pub const LINE_BYTES_MAX: usize = 1024;
const FIELDS: usize = 4;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Reads the lines of one file.
pub struct Twitter<R> {
    path: PathBuf,
    input: R,
    line: Vec<u8>,
    line_number: u64,
    /// The time of the first request, from which the others are counted.
    start_s: Option<u64>,
    failed: bool,
}

enum Line {
    End,
    Whole,
    TooLong,
}

impl<R: BufRead> Twitter<R> {
    /// A reader of `input`; `path` names it in errors.
    pub fn new(path: &Path, input: R) -> Self {
        Twitter {
            path: path.to_owned(),
            input,
            line: Vec::with_capacity(LINE_BYTES_MAX),
            line_number: 0,
            start_s: None,
            failed: false,
        }
    }

    /// Reads the next line without its end into `self.line`. Of a line that is too long nothing is kept, so that
    /// a file without line ends costs time but no memory.
    fn read_line(&mut self) -> io::Result<Line> {
        self.line.clear();
        let (mut any, mut too_long) = (false, false);
        loop {
            let available = match self.input.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if available.is_empty() && !any {
                return Ok(Line::End);
            }
            any = true;
            let end = available.iter().position(|byte| *byte == b'\n');
            let part = &available[..end.unwrap_or(available.len())];
            too_long |= self.line.len() + part.len() > LINE_BYTES_MAX;
            if !too_long {
                self.line.extend_from_slice(part);
            }
            let (used, at_end) = (part.len() + usize::from(end.is_some()), available.is_empty());
            self.input.consume(used);
            if end.is_some() || at_end {
                return Ok(if too_long { Line::TooLong } else { Line::Whole });
            }
        }
    }

    fn parse(&mut self) -> Result<Access, BadRecord> {
        let mut fields = [&[][..]; FIELDS];
        let mut found = 0;
        for field in self.line.split(|byte| *byte == b',') {
            if let Some(slot) = fields.get_mut(found) {
                *slot = field.trim_ascii();
            }
            found += 1;
        }
        if found != FIELDS {
            return Err(BadRecord::Fields { found, wanted: FIELDS });
        }
        let time_s = number("time", fields[0])?;
        let key = number("object", fields[1])?;
        let size = number("size", fields[2])?;
        let size = u32::try_from(size).map_err(|_| out_of_range("size", fields[2]))?;
        if fields[3] != b"-1" {
            number("next_access", fields[3])?;
        }
        // A clock that steps back before the first request stays at the start.
        let since_start_s = time_s.saturating_sub(*self.start_s.get_or_insert(time_s));
        let time_ns =
            since_start_s.checked_mul(NANOS_PER_SECOND).ok_or_else(|| out_of_range("time", fields[0]))?;
        Ok(Access::get(time_ns, key, size))
    }
}

impl<R: BufRead> Iterator for Twitter<R> {
    type Item = Result<Access, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.failed {
                return None;
            }
            let line = match self.read_line() {
                Ok(line) => line,
                Err(error) => {
                    self.failed = true;
                    return Some(Err(read_error(&self.path, Place::Line(self.line_number), error)));
                }
            };
            if let Line::End = line {
                return None;
            }
            self.line_number += 1;
            if self.line_number == 1 && self.line.first() == Some(&b'#') {
                continue;
            }
            let parsed = match line {
                Line::TooLong => Err(BadRecord::LineTooLong { limit_bytes: LINE_BYTES_MAX }),
                _ => self.parse(),
            };
            let place = Place::Line(self.line_number);
            return Some(parsed.map_err(|reason| TraceError::Record {
                path: self.path.clone(),
                place,
                reason,
            }));
        }
    }
}

/// Reads an unsigned decimal number; no sign, no blanks within, nothing left over.
fn number(field: &'static str, text: &[u8]) -> Result<u64, BadRecord> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return Err(BadRecord::NotANumber { field, text: excerpt(text) });
    }
    text.iter()
        .try_fold(0u64, |value, digit| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
        .ok_or_else(|| out_of_range(field, text))
}

fn out_of_range(field: &'static str, text: &[u8]) -> BadRecord {
    BadRecord::OutOfRange { field, text: excerpt(text) }
}

/// The start of a field as printable text: traces may hold any bytes, terminals should not get them.
fn excerpt(text: &[u8]) -> String {
    const SHOWN_BYTES: usize = 40;
    let shown = text[..text.len().min(SHOWN_BYTES)].escape_ascii().to_string();
    if text.len() > SHOWN_BYTES { shown + "..." } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &[u8]) -> Vec<Result<Access, String>> {
        let records = Twitter::new(Path::new("t.csv"), text);
        records.map(|record| record.map_err(|error| error.to_string())).collect()
    }

    #[test]
    fn lines_become_accesses_with_times_from_the_first() {
        let text =
            b"# time, object, size, next_access_vtime\n7, 18446744073709551615, 0, 12\r\n9,0,4294967295,-1";
        assert_eq!(
            read(text),
            [Ok(Access::get(0, u64::MAX, 0)), Ok(Access::get(2_000_000_000, 0, u32::MAX))]
        );
    }

    #[test]
    fn what_is_broken_is_named_with_its_line_and_the_next_line_is_read() {
        let long = "1".repeat(LINE_BYTES_MAX + 1);
        let cases: [(&[u8], &str); 9] = [
            (b"0,1,2", "line 1: 3 fields where the format has 4"),
            (b"0,1,2,3,4", "line 1: 5 fields"),
            (b"", "line 1: 1 fields"),
            (b"0,x y,2,3", "`object` is not a number: \"x y\""),
            (b"0,\xff\xfe,2,3", "`object` is not a number: \"\\xff\\xfe\""),
            (b"0,18446744073709551616,2,3", "`object` is out of range"),
            (b"0,1,4294967296,3", "`size` is out of range: 4294967296"),
            (b"0,1,-2,3", "`size` is not a number"),
            (long.as_bytes(), "line 1: the line is longer than 1024 bytes"),
        ];
        for (line, wanted) in cases {
            let records = read(&[line, b"\n0,5,6,-1\n"].concat());
            let error = records[0].as_ref().unwrap_err();
            assert!(error.contains(wanted) && error.starts_with("t.csv, line 1"), "{error}");
            assert_eq!(records[1..], [Ok(Access::get(0, 5, 6))]);
        }
    }

    #[test]
    fn times_that_do_not_fit_nanoseconds_are_refused() {
        let records = read(b"0,1,1,1\n18446744073709551615,1,1,1\n");
        assert!(records[1].as_ref().unwrap_err().contains("`time` is out of range"));
    }

    #[test]
    fn a_header_is_only_a_header_in_the_first_line() {
        assert!(read(b"0,1,1,1\n# no\n")[1].is_err());
        assert_eq!(read(b"# only a header"), []);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
            read(&bytes);
        }

        #[test]
        fn nearly_good_lines_do_not_make_it_panic(text in "[0-9,#\n -]{0,400}") {
            // One item for each line at most: none is lost, none is made up.
            prop_assert!(read(text.as_bytes()).len() <= text.split('\n').count());
        }

        #[test]
        fn written_requests_are_read_back(
            rows in prop::collection::vec((0u64..1 << 33, any::<u64>(), any::<u32>(), any::<i32>()), 1..50),
        ) {
            let text: String = rows
                .iter()
                .map(|(time, key, size, next)| format!("{time}, {key}, {size}, {}\n", next.unsigned_abs()))
                .collect();
            let start = rows[0].0;
            let wanted: Vec<_> = rows
                .iter()
                .map(|row| Ok(Access::get(row.0.saturating_sub(start) * 1_000_000_000, row.1, row.2)))
                .collect();
            prop_assert_eq!(read(text.as_bytes()), wanted);
        }
    }
}
