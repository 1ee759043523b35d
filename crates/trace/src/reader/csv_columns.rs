//! The columns of a text file, as `--columns` describes them.

use std::str::FromStr;

use super::core::clock::{FILETIME_NS, MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};
use super::core::layout::{Column, Columns, Delimiter, Header, Layout, SIZE_UNKNOWN};

/// The columns of a text file and their meanings: `key=2,size=3,time=1`, counted from 1.
///
/// Words: `key` (needed), `time`, `op`, `size`, `tenant`, `key-size`, `ttl`, each with its column; `unit` (`s`, `ms`, `us`, `ns`,
/// `filetime`; `s` if not said) of the time; `delimiter` (`comma`, `semicolon`, `tab`, `space`, `pipe`, `blanks` for any run of
/// blanks and tabs; `comma` if not said); `header`, if the first line is not a record.
#[derive(Clone, Debug)]
pub struct CsvColumns {
    columns: Vec<Column>,
    /// The delimiter between two columns.
    pub(super) delimiter: Delimiter,
    header: bool,
}

const WORDS: &str = "key, time, op, size, tenant, key-size, ttl, unit, delimiter, header";
/// No table has more columns than this, and a slip of the finger should not take memory for a billion of them.
const COLUMNS_MAX: usize = 1000;

impl CsvColumns {
    /// A reader of such lines.
    pub(super) fn reader(&self) -> Columns {
        Columns::new(Layout {
            delimiter: self.delimiter,
            columns: self.columns.clone().into(),
            header: if self.header { Header::Always } else { Header::None },
            more_columns: true,
            size: size_without_column(&self.columns),
            ..Layout::PLAIN
        })
    }
}

/// The size of records where no column says it.
pub(super) fn size_without_column(columns: &[Column]) -> u32 {
    let has_size = columns.iter().any(|column| matches!(column, Column::Size(_)));
    if has_size { 0 } else { SIZE_UNKNOWN }
}

impl FromStr for CsvColumns {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut places: Vec<(usize, Column)> = Vec::new();
        let mut time_at = None;
        let mut unit_ns = SECOND_NS;
        let (mut delimiter, mut header) = (Delimiter::Byte(b','), false);
        for part in text.split(',') {
            let (word, value) = part.trim().split_once('=').unwrap_or((part.trim(), ""));
            let place = || match value.parse::<usize>() {
                Ok(place @ 1..=COLUMNS_MAX) => Ok(place - 1),
                _ => Err(format!("`{part}` needs the number of a column, from 1 to {COLUMNS_MAX}")),
            };
            match word {
                "key" => places.push((place()?, Column::AnyKey)),
                "time" => time_at = Some(place()?),
                "op" => places.push((place()?, Column::AnyOp)),
                "size" => places.push((place()?, Column::Size(1))),
                "tenant" => places.push((place()?, Column::Tenant)),
                "key-size" => places.push((place()?, Column::KeySize)),
                "ttl" => places.push((place()?, Column::Ttl)),
                "unit" => {
                    unit_ns = match value {
                        "s" => SECOND_NS,
                        "ms" => MILLISECOND_NS,
                        "us" => MICROSECOND_NS,
                        "filetime" => FILETIME_NS,
                        "ns" => 1,
                        _ => return Err(format!("`{part}` must be one of s, ms, us, ns, filetime")),
                    }
                }
                "delimiter" => {
                    delimiter = match value {
                        "comma" => Delimiter::Byte(b','),
                        "semicolon" => Delimiter::Byte(b';'),
                        "tab" => Delimiter::Byte(b'\t'),
                        "space" => Delimiter::Byte(b' '),
                        "pipe" => Delimiter::Byte(b'|'),
                        "blanks" => Delimiter::Blanks,
                        _ => {
                            return Err(format!(
                                "`{part}` must be one of comma, semicolon, tab, space, pipe, blanks"
                            ));
                        }
                    }
                }
                "header" if value.is_empty() => header = true,
                _ => return Err(format!("there is no `{part}` in a description of columns; it has {WORDS}")),
            }
        }
        places.extend(time_at.map(|at| (at, Column::Time(unit_ns))));
        let mut columns = vec![Column::Ignored; places.iter().map(|(at, _)| at + 1).max().unwrap_or(0)];
        for (at, column) in places {
            if !matches!(columns[at], Column::Ignored) {
                return Err(format!("column {} cannot say two things", at + 1));
            }
            columns[at] = column;
        }
        match columns.iter().filter(|column| matches!(column, Column::AnyKey)).count() {
            0 => Err("the columns must say which one is the key, such as key=2".to_owned()),
            1 => Ok(CsvColumns { columns, delimiter, header }),
            _ => Err("only one column can be the key".to_owned()),
        }
    }
}
