//! The table of formats, and which one a file has.

use std::path::Path;
use std::str::FromStr;

use super::core::lines::{LineFormat, lines_taken};
use super::core::source::Source;
use super::{Opened, ReadOptions, block, csv, kv, memory};

/// The format of a trace file, apart from its compression: a row of the table.
#[derive(Clone, Copy)]
pub struct Format(&'static FormatInfo);

/// What the table says of a format.
pub(crate) struct FormatInfo {
    /// The name for `--trace-format`.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// Parts of file names, in lower case and without a compression's ending, that no other format has.
    pub file_names: &'static [&'static str],
    /// How it is read.
    pub open: Open,
}

type MakeText = fn(&ReadOptions) -> Box<dyn LineFormat>;
type Binary = fn(&Path, Source) -> Opened;

pub(crate) enum Open {
    /// Lines; the format can also be told by trying it on the first of them.
    Text(MakeText),
    /// Lines that other formats have too, so that trying is not enough to guess it: what else the lines must be.
    TextIf(MakeText, fn(&[&[u8]]) -> bool),
    /// Records of one length. `looks` tells whether the first bytes of a file can be it.
    Binary { looks: fn(&[u8]) -> bool, open: Binary },
    /// Columns that lie apart, so that the file is needed and not its stream.
    #[cfg(feature = "parquet")]
    Columnar {
        looks: fn(&[u8]) -> bool,
        open: fn(&Path, &ReadOptions) -> Result<Opened, crate::TraceError>,
        open_bytes: fn(&Path, Vec<u8>, &ReadOptions) -> Result<Opened, crate::TraceError>,
    },
}

/// All formats. Where two take the same lines, the first is guessed.
static TABLE: &[FormatInfo] = &[
    #[cfg(feature = "parquet")]
    super::parquet::INFO,
    block::vscsi::INFO,
    kv::oracle_general::INFO,
    kv::twitter::INFO,
    kv::twitter_text::INFO,
    kv::cachelib::INFO,
    kv::redis_monitor::INFO,
    kv::memcached_watch::INFO,
    block::msr::INFO,
    block::alibaba::INFO,
    block::systor::INFO,
    block::tencent::INFO,
    memory::mqsim_cxl::INFO,
    block::mqsim::INFO,
    block::msr_slice::INFO,
    block::arc::INFO,
    kv::adaptsize::INFO,
    memory::lackey::INFO,
    memory::perf_faults::INFO,
    memory::spec::INFO,
    block::lirs::INFO,
    csv::INFO,
    kv::keys::INFO,
    kv::libcachesim_csv::INFO,
    kv::scarab::INFO,
    block::cloudphysics::INFO,
];

impl Format {
    /// Text whose header or `--columns` says what its columns are.
    pub const CSV: Format = Format(&csv::INFO);
    /// libCacheSim's packed binary records.
    pub const ORACLE_GENERAL: Format = Format(&kv::oracle_general::INFO);

    /// The trace form as Parquet.
    #[cfg(feature = "parquet")]
    pub const PARQUET: Format = Format(&super::parquet::INFO);

    /// All formats.
    pub fn all() -> impl Iterator<Item = Format> {
        TABLE.iter().map(Format)
    }

    /// The names that [`FromStr`] takes, with commas between them.
    pub fn names() -> String {
        Format::all().map(Format::name).collect::<Vec<_>>().join(", ")
    }

    /// The name, such as `oracle-general`.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// What it is, in one line.
    pub fn about(self) -> &'static str {
        self.0.about
    }

    pub(super) fn opener(self) -> &'static Open {
        &self.0.open
    }

    /// The format that a file's name speaks of, or else the one that its first bytes look like.
    pub(super) fn guess(path: &Path, start: &[u8]) -> Option<Format> {
        #[cfg(feature = "parquet")]
        if let Some(format) =
            Format::all().find(|format| matches!(format.0.open, Open::Columnar { looks, .. } if looks(start)))
        {
            return Some(format);
        }
        Format::from_name(path).or_else(|| Format::from_content(start))
    }

    fn from_name(path: &Path) -> Option<Format> {
        let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
        let name =
            [".zst", ".gz", ".xz", ".bz2"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
        // An ending is a part of the name too, but only at its end.
        let speaks =
            |part: &&str| if part.starts_with('.') { name.ends_with(*part) } else { name.contains(*part) };
        Format::all().find(|format| format.0.file_names.iter().any(&speaks))
    }

    fn from_content(start: &[u8]) -> Option<Format> {
        const LINES: usize = 32;
        let is_text = |byte: &u8| *byte >= b' ' || matches!(byte, b'\t' | b'\r' | b'\n');
        let mut lines: Vec<&[u8]> = start.split(|byte| *byte == b'\n').take(LINES + 1).collect();
        // The last line may be cut, or be the nothing behind the last line's end.
        if lines.len() > 1 {
            lines.pop();
        }
        if !lines[0].is_empty() && lines.iter().all(|line| line.iter().all(is_text)) {
            return Format::from_lines(&lines);
        }
        Format::all().find(|format| matches!(format.0.open, Open::Binary { looks, .. } if looks(start)))
    }

    /// The format that takes most of the lines and refuses fewest.
    fn from_lines(lines: &[&[u8]]) -> Option<Format> {
        let options = ReadOptions::default();
        let mut best = (0, None);
        for format in Format::all() {
            let make = match format.0.open {
                Open::Text(make) => make,
                Open::TextIf(make, looks) if looks(lines) => make,
                _ => continue,
            };
            let (taken, refused) = lines_taken(&mut *make(&options), lines);
            if taken > refused && taken - refused > best.0 {
                best = (taken - refused, Some(format));
            }
        }
        best.1
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Format::all()
            .find(|format| format.name() == text)
            .ok_or_else(|| format!("there is no trace format `{text}`; the formats are {}", Format::names()))
    }
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Format {}

impl std::fmt::Debug for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Format").field(&self.name()).finish()
    }
}
