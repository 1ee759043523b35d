//! Rows of keys and values, as input of an import.

use std::time::Instant;

use super::window::{InputPosition, Note, PipelinedSender, Stores};
use super::{LoadError, Report, Target, request};

/// One row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Its number in the input, for messages.
    pub number: u64,
    /// The key.
    pub key: Vec<u8>,
    /// The field of a hash; `None` for a string.
    pub field: Option<Vec<u8>>,
    /// The value.
    pub value: Vec<u8>,
    /// Seconds to live: of the key or, with a field, of the field.
    pub ttl_s: Option<u64>,
}

/// A row that could not be read.
#[derive(Debug)]
pub enum RowFault {
    /// This one alone.
    Bad {
        /// Its number in the input.
        number: u64,
        /// What is wrong.
        text: String,
    },
    /// Nothing can be read any more.
    End(std::io::Error),
}

/// How often `progress` is called, in rows.
const PROGRESS_ROWS: u64 = 4096;

/// Stores rows in their order: `SET`, or `HSET` and `HEXPIRE`. With `if_absent` existing
/// keys and fields stay unchanged. `progress` gets the number of rows answered.
pub fn load_rows(
    target: &Target,
    rows: impl Iterator<Item = Result<Row, RowFault>>,
    if_absent: bool,
    progress: &mut dyn FnMut(u64),
) -> Result<Report, LoadError> {
    let start = Instant::now();
    let mut window = PipelinedSender::open(target)?;
    let mut out = Vec::new();
    let mut taken = 0u64;
    for row in rows {
        match row {
            Ok(row) => send(&mut window, &row, if_absent, &mut out)?,
            Err(RowFault::Bad { number, text }) => window.complain(InputPosition::Row(number), &text),
            Err(RowFault::End(error)) => return Err(LoadError::Input(error)),
        }
        taken += 1;
        if taken.is_multiple_of(PROGRESS_ROWS) {
            progress(window.answered());
        }
    }
    let mut report = window.finish()?;
    progress(report.items);
    report.elapsed = start.elapsed();
    Ok(report)
}

fn send(
    window: &mut PipelinedSender,
    row: &Row,
    if_absent: bool,
    out: &mut Vec<u8>,
) -> Result<(), LoadError> {
    let ttl = row.ttl_s.map(|ttl_s| ttl_s.to_string());
    let place = InputPosition::Row(row.number);
    out.clear();
    let Some(field) = &row.field else {
        let mut words: Vec<&[u8]> = vec![b"SET", &row.key, &row.value];
        if let Some(ttl) = &ttl {
            words.extend([b"EX".as_slice(), ttl.as_bytes()]);
        }
        if if_absent {
            words.push(b"NX");
        }
        request::append(out, words.into_iter());
        return window.send(out, Note { place, stores: Stores::String });
    };
    let (command, stores): (&[u8], _) = match if_absent {
        true => (b"HSETNX", Stores::NewField),
        false => (b"HSET", Stores::Field),
    };
    if if_absent && ttl.is_some() {
        // Whether the field was there is known only when it would be too late not to give it an expiry.
        window.complain(place, "a field with ttl_s cannot be stored only if it is absent");
        return Ok(());
    }
    request::append(out, [command, &row.key, field, &row.value].into_iter());
    window.send(out, Note { place, stores })?;
    if let Some(ttl) = &ttl {
        out.clear();
        let words: [&[u8]; 6] = [b"HEXPIRE", &row.key, ttl.as_bytes(), b"FIELDS", b"1", field];
        request::append(out, words.into_iter());
        window.send(out, Note { place, stores: Stores::Nothing })?;
    }
    Ok(())
}
