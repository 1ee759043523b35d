//! The description of a format: the seam between the table of formats and the formats.

use std::path::Path;

use super::fixed::{Fixed, FixedFormat};
use super::lines::LineFormat;
use super::source::Source;
use crate::reader::csv_columns::CsvColumns;
use crate::trace::{Extent, Records};

/// The format of a trace file, apart from its compression: a row of the table.
#[derive(Clone, Copy)]
pub struct Format(pub(in crate::reader) &'static FormatInfo);

/// The description of a format in the table of formats.
pub(crate) struct FormatInfo {
    /// The name for `--trace-format`.
    pub name: &'static str,
    /// The description, in one line.
    pub about: &'static str,
    /// Parts of file names, in lower case and without a compression's ending, that no other format has.
    pub file_names: &'static [&'static str],
    /// How it is read.
    pub open: Open,
}

type MakeText = fn(Option<&CsvColumns>) -> Box<dyn LineFormat>;
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
        open: fn(&Path, &crate::ReadOptions) -> Result<Opened, crate::TraceError>,
        open_bytes: fn(&Path, Vec<u8>, &crate::ReadOptions) -> Result<Opened, crate::TraceError>,
    },
}

impl Format {
    /// The name, such as `oracle-general`.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The format in one line.
    pub fn about(self) -> &'static str {
        self.0.about
    }

    /// Whether it has room for [`crate::OptionalColumn`]s.
    pub fn has_optional_columns(self) -> bool {
        match self.0.open {
            #[cfg(feature = "parquet")]
            Open::Columnar { .. } => true,
            _ => false,
        }
    }

    pub(in crate::reader) fn opener(self) -> &'static Open {
        &self.0.open
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

/// An opened file.
pub(crate) struct Opened {
    pub records: Box<dyn Records>,
    pub extent: Extent,
}

/// Opens a file of records of `N` bytes, whose number follows from its length if it is plain.
pub(in crate::reader) fn open_fixed<F: FixedFormat<N> + 'static, const N: usize>(
    path: &Path,
    source: Source,
    format: F,
) -> Opened {
    let extent = match source.is_compressed() || source.file_bytes() == 0 {
        true => Extent::Bytes { total: source.file_bytes(), read: source.counter() },
        false => Extent::Records(source.file_bytes() / N as u64),
    };
    Opened { records: Box::new(Fixed::new(path, source, format)), extent }
}
