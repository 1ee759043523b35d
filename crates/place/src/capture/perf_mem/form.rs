//! Format detection of a text from its beginning.

use super::dump::{self, Columns};
use super::error::PRINT_COMMAND;
use super::line::{Parsed, Reason};
use super::script;

/// The form of a file's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Of `perf script`.
    Script,
    /// Of `perf mem -D report`.
    Dump(Columns),
}

impl Form {
    /// Reads one line, without its end.
    #[inline]
    pub fn parse(self, line: &[u8]) -> Result<Parsed, Reason> {
        match self {
            Form::Script => script::parse(line),
            Form::Dump(columns) => dump::parse(line, columns),
        }
    }
}

/// What is known of a file from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub form: Form,
    /// The time of the first sample in it; `None` if samples have none, or if there is none so early.
    pub time_ns: Option<u64>,
    /// Whether there is a sample so early.
    pub has_sample: bool,
}

/// Why a file is refused as a whole: what it is, and what to do about it.
pub(super) type Refusal = (&'static str, String);

/// Bytes of a file that tell its form.
pub(super) const HEAD_BYTES: usize = 256 << 10;

/// First bytes of files that are not text.
const MAGICS: [(&[u8], &str, &str); 5] = [
    (b"PERFILE2", "this is perf's own file, not its text", ""),
    (b"PERFFILE", "this is perf's own file, not its text", ""),
    (b"\x1f\x8b", "this is compressed with gzip", "zcat FILE"),
    (b"\x28\xb5\x2f\xfd", "this is compressed with zstd", "zstdcat FILE"),
    (b"\xfd7zXZ", "this is compressed with xz", "xzcat FILE"),
];

/// Looks at the beginning of a file. A file without a single line of samples is one of `perf script` without samples, since a
/// slice of time may have had none.
pub(super) fn look_at(head: &[u8]) -> Result<Head, Refusal> {
    if let Some((_, reason, unpack)) = MAGICS.iter().find(|(magic, ..)| head.starts_with(magic)) {
        let advice = match *unpack {
            "" => format!("print it with `{PRINT_COMMAND} -i FILE` and import what that prints"),
            unpack => {
                format!("unpack it on the way: `{unpack} | tiermem record --source perf-mem --import -`")
            }
        };
        return Err((reason, advice));
    }
    let mut form = None;
    for line in head.split(|byte| *byte == b'\n') {
        if let Some(columns) = dump::columns(line) {
            let columns = columns
                .map_err(|reason| (reason, "run `perf mem -D report` without further columns".to_owned()))?;
            form = Some(Form::Dump(columns));
            break;
        }
        if is_summary(line) {
            let advice = format!("it has no addresses; print the samples with `{PRINT_COMMAND}`");
            return Err(("this is a summary of `perf mem report`", advice));
        }
        if is_raw(line) {
            let advice = format!("print the samples with `{PRINT_COMMAND}`");
            return Err(("this is a raw dump of `perf script -D` or `perf report -D`", advice));
        }
        if !matches!(line, [] | [b'#' | b'\t', ..]) {
            let is_dump = matches!(dump::parse(line, Columns::default()), Ok(Parsed::Sample(_)));
            form = Some(if is_dump { Form::Dump(Columns::default()) } else { Form::Script });
            break;
        }
    }
    let form = form.unwrap_or(Form::Script);
    let samples = head.split(|byte| *byte == b'\n').filter_map(|line| match form.parse(line) {
        Ok(Parsed::Sample(seen)) => Some(seen),
        _ => None,
    });
    let first = samples.into_iter().next();
    Ok(Head { form, time_ns: first.and_then(|seen| seen.time_ns), has_sample: first.is_some() })
}

fn is_summary(line: &[u8]) -> bool {
    [&b"# Overhead"[..], b"# Samples: ", b"# Total Lost Samples", b"# To display the perf.data header info"]
        .iter()
        .any(|start| line.starts_with(start))
}

fn is_raw(line: &[u8]) -> bool {
    memchr::memmem::find(line, b"PERF_RECORD_SAMPLE(").is_some()
}
