//! Errors of traces: of the file, of one of its records, or of the description of a generator.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a trace could not be opened or read on.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file could not be opened.
    #[error("cannot open the trace {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file could be opened, but reading or decompressing it failed. Nothing after this can be read.
    #[error("{}: cannot read on after {place}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The last record that was read; 0 when there was none.
        place: RecordPosition,
        /// The error of the system or the decompressor.
        source: io::Error,
    },
    /// The file has no bytes, or its compressed stream holds none.
    #[error("{}: the trace is empty", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Neither the name nor the content tells which format the file has.
    #[error("{}: cannot tell the format of this trace; the formats are {}", path.display(), formats)]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// The names of the formats that can be read.
        formats: String,
    },
    /// The file is not of the format that it was taken for, or uses a part of it that is not understood.
    #[error("{}: {reason}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// A trace could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system or the encoder.
        source: io::Error,
    },
    /// One record is broken. A reader that yields this can go on with the next record.
    #[error("{}, {place}: {reason}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The record.
        place: RecordPosition,
        /// The problem.
        reason: BadRecord,
    },
    /// The description of a generator is wrong.
    #[error(transparent)]
    Spec(#[from] SpecError),
}

/// Where in a file a record stands. Lines and records are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordPosition {
    /// A line of a text file.
    Line(u64),
    /// A record of a binary file.
    Record(u64),
}

impl fmt::Display for RecordPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordPosition::Line(number) => write!(f, "line {number}"),
            RecordPosition::Record(number) => write!(f, "record {number}"),
        }
    }
}

/// The error of a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRecord {
    /// The line has another number of fields than the format.
    #[error("{found} fields where the format has {wanted}")]
    Fields {
        /// Fields in the line.
        found: usize,
        /// Fields in the format.
        wanted: usize,
    },
    /// A field is not a whole number in decimal digits.
    #[error("the field `{field}` is not a number: \"{text}\"")]
    NotANumber {
        /// The field's name.
        field: &'static str,
        /// The field's bytes, escaped and cut short.
        text: String,
    },
    /// A field is a number that its column cannot hold.
    #[error("the field `{field}` is out of range: {text}")]
    OutOfRange {
        /// The field's name.
        field: &'static str,
        /// The number as it stands in the file.
        text: String,
    },
    /// The line is longer than any line of the format can be.
    #[error("the line is longer than {limit_bytes} bytes")]
    LineTooLong {
        /// The limit.
        limit_bytes: usize,
    },
    /// The word names no operation.
    #[error("there is no operation \"{text}\"")]
    UnknownOp {
        /// The word, escaped and cut short.
        text: String,
    },
    /// The line is not what the format's lines look like.
    #[error("this is not {wanted}: \"{text}\"")]
    Malformed {
        /// The expected form.
        wanted: &'static str,
        /// The part that is not, escaped and cut short.
        text: String,
    },
    /// The file ends within the record.
    #[error("the file ends within the record: {found} of {wanted} bytes")]
    Truncated {
        /// Bytes that are there.
        found: usize,
        /// Bytes that a record has.
        wanted: usize,
    },
}

/// Why the description of a generator was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The word before the colon names no generator.
    #[error("there is no generator `{kind}`; the generators are {known}")]
    Kind {
        /// The word.
        kind: String,
        /// The words that would do.
        known: &'static str,
    },
    /// A setting that the generator does not have.
    #[error("`{kind}` has no setting `{key}`; its settings are {known}")]
    Key {
        /// The generator.
        kind: &'static str,
        /// The unknown setting.
        key: String,
        /// The settings it has.
        known: &'static str,
    },
    /// A part between commas that is not `key=value`, or the same key twice.
    #[error("`{part}` in the description of `{kind}` {problem}; its settings are {known}")]
    Part {
        /// The generator.
        kind: &'static str,
        /// The part.
        part: String,
        /// The problem.
        problem: &'static str,
        /// The settings the generator has.
        known: &'static str,
    },
    /// A value outside of what the setting can be.
    #[error("`{key}={value}` must be {wanted}")]
    Value {
        /// The setting.
        key: &'static str,
        /// The value that was given.
        value: String,
        /// The allowed values.
        wanted: &'static str,
    },
}
