//! Layout of text formats with columns: which column holds what, as data.

use std::borrow::Cow;

use tiermem_base::hash::trace_key;
use tiermem_base::{Access, Op};

use super::clock::Clock;
use super::fields::{
    hexadecimal, key_or_name, not_a_number, number, number_u32, operation, out_of_range, time_ns,
};
use super::lines::{LineFormat, LineOut};
use crate::BadRecord;

/// A text format whose lines are columns.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// The delimiter between two columns.
    pub delimiter: Delimiter,
    /// The meaning of each column.
    pub columns: Cow<'static, [Column]>,
    /// Whether lines may have more columns than these, of which nothing is read.
    pub more_columns: bool,
    /// Whether the first line may be a header.
    pub header: Header,
    /// The operation where no column says it.
    pub op: Op,
    /// The size where no column says it.
    pub size: u32,
    /// How far apart the keys of one line's accesses are, where a column is [`Column::Count`].
    pub key_step: u64,
}

impl Layout {
    /// The common part of most layouts; each gives its own `columns`.
    pub const PLAIN: Layout = Layout {
        delimiter: Delimiter::Byte(b','),
        columns: Cow::Borrowed(&[]),
        more_columns: false,
        header: Header::None,
        op: Op::Get,
        size: SIZE_UNKNOWN,
        key_step: 0,
    };
}

/// The size of every access in formats that have no sizes: bytes then count accesses, and a capacity in bytes is one
/// in keys.
pub(crate) const SIZE_UNKNOWN: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delimiter {
    /// Exactly this byte; blanks around fields do not count.
    Byte(u8),
    /// Any run of blanks and tabs.
    Blanks,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    None,
    /// The first line may start with `#`.
    Hash,
    /// The first line may start with this word, in any case.
    Word(&'static str),
    /// The first line is no record.
    Always,
}

/// The meaning of a column.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Column {
    /// Nothing that is used, whatever it is.
    Ignored,
    /// A number that is checked but not used.
    Checked(&'static str),
    /// A number or -1 that is checked but not used.
    CheckedOrNone(&'static str),
    /// The time, in units of this many nanoseconds; a fraction is legal.
    Time(u64),
    /// The key, a number, times so much.
    Key(u64),
    /// The key in hexadecimal.
    HexKey,
    /// The key, a number or a name.
    AnyKey,
    /// The key, a name.
    Name,
    /// Bytes of the value or request, times so much.
    Size(u64),
    /// Bytes of the key's name.
    KeySize,
    /// The tenant of the access.
    Tenant,
    /// Seconds to live; -1 is none.
    Ttl,
    /// When, in whole nanoseconds.
    TimeNs,
    /// When, in whole nanoseconds since the start of the trace, which may be another file's.
    TraceTime,
    /// Nanoseconds since the record above.
    Gap,
    /// How many accesses the line stands for.
    Count,
    /// The operation, by any word that traces use for it.
    AnyOp,
    /// The operation, by the words of this format.
    Op(&'static [(&'static str, Op)]),
}

/// Reads lines by their layout.
#[derive(Debug)]
pub(crate) struct Columns {
    layout: Layout,
    clock: Clock,
    /// The sum of the gaps, where the format has those.
    elapsed_ns: u64,
}

impl Columns {
    pub fn new(layout: Layout) -> Columns {
        Columns { layout, clock: Clock::default(), elapsed_ns: 0 }
    }

    pub fn boxed(layout: Layout) -> Box<dyn LineFormat> {
        Box::new(Columns::new(layout))
    }
}

/// The fields of one line as [`Access`], with the time as it stands in the file.
pub(crate) struct Parsed {
    pub access: Access,
    pub time_ns: Option<u64>,
    /// Whether that time counts from the start of the trace already.
    pub is_trace_time: bool,
    pub gap_ns: Option<u64>,
    pub count: u64,
}

impl Parsed {
    /// Reads `text`, the field of `column`.
    #[inline]
    pub fn take(&mut self, column: Column, text: &[u8]) -> Result<(), BadRecord> {
        let access = &mut self.access;
        match column {
            Column::Ignored => {}
            Column::Checked(field) => {
                number(field, text)?;
            }
            Column::CheckedOrNone(field) => {
                if text != b"-1" {
                    number(field, text)?;
                }
            }
            Column::Time(unit_ns) => self.time_ns = Some(time_ns("time", text, unit_ns)?),
            Column::Key(scale) => {
                let key = number("key", text)?;
                access.key = key.checked_mul(scale).ok_or_else(|| out_of_range("key", text))?;
            }
            Column::HexKey => access.key = hexadecimal("key", text)?,
            Column::AnyKey => {
                access.key = key_or_name(text);
                if text.is_empty() {
                    return Err(not_a_number("key", text));
                }
            }
            Column::Name => access.key = trace_key(text),
            Column::Size(scale) => {
                let size = number("size", text)?.checked_mul(scale);
                let size = size.and_then(|size| u32::try_from(size).ok());
                access.size = size.ok_or_else(|| out_of_range("size", text))?;
            }
            Column::KeySize => {
                let size = number("key_size", text)?;
                access.key_size = u16::try_from(size).map_err(|_| out_of_range("key_size", text))?;
            }
            Column::Tenant => access.tenant = number_u32("tenant", text)?,
            Column::Ttl => access.ttl_s = if text == b"-1" { 0 } else { number_u32("ttl", text)? },
            Column::TimeNs => self.time_ns = Some(number("time", text)?),
            Column::TraceTime => {
                self.time_ns = Some(number("time_ns", text)?);
                self.is_trace_time = true;
            }
            Column::Gap => self.gap_ns = Some(number("gap", text)?),
            Column::Count => self.count = number("count", text)?,
            Column::AnyOp => access.op = operation(text)?,
            Column::Op(words) => {
                let word = words.iter().find(|(word, _)| text.eq_ignore_ascii_case(word.as_bytes()));
                let unknown = || BadRecord::UnknownOp { text: super::fields::excerpt(text) };
                access.op = word.ok_or_else(unknown)?.1;
            }
        }
        Ok(())
    }
}

/// Cuts `line` and gives each field to `visit` with its number from 0. Returns how many there were.
#[inline]
pub(crate) fn each_field(line: &[u8], delimiter: Delimiter, mut visit: impl FnMut(usize, &[u8])) -> usize {
    let mut found = 0;
    match delimiter {
        Delimiter::Byte(byte) => {
            let mut rest = line;
            loop {
                let end = rest.iter().position(|at| *at == byte);
                visit(found, rest[..end.unwrap_or(rest.len())].trim_ascii());
                found += 1;
                match end {
                    Some(end) => rest = &rest[end + 1..],
                    None => break,
                }
            }
        }
        Delimiter::Blanks => {
            let fields = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|field| !field.is_empty());
            for field in fields {
                visit(found, field);
                found += 1;
            }
        }
    }
    found
}

impl LineFormat for Columns {
    fn line(&mut self, number: u64, line: &[u8], out: &mut LineOut<'_>) -> Result<(), BadRecord> {
        let layout = &self.layout;
        if number == 1 && layout.header.is(line) {
            out.note();
            return Ok(());
        }
        let access = Access::new(0, layout.op, 0, layout.size);
        let mut parsed = Parsed { access, time_ns: None, is_trace_time: false, gap_ns: None, count: 1 };
        let mut first_error = None;
        let found = each_field(line, layout.delimiter, |at, text| {
            if let Some(column) = layout.columns.get(at)
                && first_error.is_none()
            {
                first_error = parsed.take(*column, text).err();
            }
        });
        // The wrong number of fields says more about a line than what stands in the wrong field.
        let wanted = layout.columns.len();
        if found < wanted || (found > wanted && !layout.more_columns) {
            return Err(BadRecord::Fields { found, wanted });
        }
        if let Some(error) = first_error {
            return Err(error);
        }
        if let Some(gap_ns) = parsed.gap_ns {
            self.elapsed_ns = self.elapsed_ns.saturating_add(gap_ns);
            parsed.access.time_ns = self.elapsed_ns;
        }
        if let Some(at_ns) = parsed.time_ns {
            let since_start = self.clock.since_start(at_ns);
            parsed.access.time_ns = if parsed.is_trace_time { at_ns } else { since_start };
        }
        out.push_run(parsed.access, parsed.count, layout.key_step);
        Ok(())
    }

    fn steps_back(&self) -> u64 {
        self.clock.steps_back
    }
}

impl Header {
    fn is(self, line: &[u8]) -> bool {
        match self {
            Header::None => false,
            Header::Always => true,
            Header::Hash => line.first() == Some(&b'#'),
            Header::Word(word) => {
                line.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()))
            }
        }
    }
}
