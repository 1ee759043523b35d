//! The table of formats, and the detection of a file's format.

use std::path::Path;
use std::str::FromStr;

use super::core::info::{Format, FormatInfo, Open};
use super::core::lines::lines_taken;
use super::{block, csv, kv, memory};

/// All formats. Where two take the same lines, the first is guessed.
static TABLE: &[FormatInfo] = &[
    #[cfg(feature = "parquet")]
    super::parquet::INFO,
    #[cfg(feature = "parquet")]
    super::recording_journal::INFO,
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

    /// The output of Valgrind's tool Lackey.
    pub const LACKEY: Format = Format(&memory::lackey::INFO);

    /// The trace form as Parquet.
    #[cfg(feature = "parquet")]
    pub const PARQUET: Format = Format(&super::parquet::INFO);

    /// All formats.
    pub fn all() -> impl Iterator<Item = Format> + Clone {
        TABLE.iter().map(Format)
    }

    /// The names that [`FromStr`] takes, with commas between them.
    pub fn names() -> String {
        Format::all().map(Format::name).collect::<Vec<_>>().join(", ")
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
        let mut best = (0, None);
        for format in Format::all() {
            let make = match format.0.open {
                Open::Text(make) => make,
                Open::TextIf(make, looks) if looks(lines) => make,
                _ => continue,
            };
            let (taken, refused) = lines_taken(&mut *make(None), lines);
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
