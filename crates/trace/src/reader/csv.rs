//! Text in arbitrary columns, described by `--columns` or by a header line.
//!
//! The header of tiermem's own csv is `time_ns,op,key,size,tenant,key_size,ttl_s`. Other names that a header may use are
//! in [`meaning`]; columns by other names are not read.

use tiermem_base::Op;

use super::core::clock::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};
use super::core::fields::malformed;
use super::core::info::{FormatInfo, Open};
use super::core::layout::{Column, Columns, Delimiter, Layout, each_field};
use super::core::lines::{LineFormat, LineOut};
use super::csv_columns::size_without_column;
use crate::BadRecord;

pub(crate) const INFO: FormatInfo = FormatInfo {
    name: "csv",
    about: "any text in columns: by its header (key, size, time, op, ...) or by --columns",
    file_names: &[],
    open: Open::Text(|columns| {
        Box::new(match columns {
            Some(columns) => Csv { delimiter: columns.delimiter, columns: Some(columns.reader()) },
            None => Csv { delimiter: Delimiter::Byte(b','), columns: None },
        })
    }),
};

/// The meaning of a column of this name; `None` for names without one.
fn meaning(name: &[u8]) -> Option<Column> {
    let name = name.trim_ascii_start().strip_prefix(b"#").unwrap_or(name).trim_ascii();
    let name = name.strip_prefix(b"\"").and_then(|name| name.strip_suffix(b"\"")).unwrap_or(name);
    let name = name.to_ascii_lowercase();
    Some(match name.as_slice() {
        b"key" | b"obj_id" | b"object" | b"object_id" | b"obj" | b"id" | b"address" | b"addr" => {
            Column::AnyKey
        }
        b"time" | b"time_s" | b"timestamp" | b"op_time" => Column::Time(SECOND_NS),
        b"time_ms" => Column::Time(MILLISECOND_NS),
        b"time_us" => Column::Time(MICROSECOND_NS),
        b"time_ns" => Column::TraceTime,
        b"op" | b"operation" | b"opcode" | b"op_type" => Column::AnyOp,
        b"size" | b"obj_size" | b"object_size" | b"value_size" | b"length" => Column::Size(1),
        b"tenant" | b"tenant_id" | b"client" | b"client_id" | b"volume" | b"device" | b"device_id" => {
            Column::Tenant
        }
        b"key_size" => Column::KeySize,
        b"ttl" | b"ttl_s" => Column::Ttl,
        b"op_count" => Column::Count,
        _ => return None,
    })
}

/// The columns of a header line, if it names a key and nothing twice.
pub(super) fn from_header(line: &[u8], delimiter: Delimiter) -> Result<Columns, BadRecord> {
    const WANTED: &str =
        "a header that names a column `key`, and nothing twice; --columns says them otherwise";
    let mut columns = Vec::new();
    each_field(line, delimiter, |_, name| columns.push(meaning(name).unwrap_or(Column::Ignored)));
    let alike = |a: &Column, b: &Column| std::mem::discriminant(a) == std::mem::discriminant(b);
    let meant: Vec<&Column> = columns.iter().filter(|column| !matches!(column, Column::Ignored)).collect();
    let twice = (1..meant.len()).any(|at| meant[..at].iter().any(|other| alike(other, meant[at])));
    if twice || !meant.iter().any(|column| matches!(column, Column::AnyKey)) {
        return Err(malformed(WANTED, line));
    }
    let size = size_without_column(&columns);
    Ok(Columns::new(Layout { delimiter, columns: columns.into(), size, op: Op::Get, ..Layout::PLAIN }))
}

struct Csv {
    delimiter: Delimiter,
    /// Known from the start, or from the header on.
    columns: Option<Columns>,
}

impl LineFormat for Csv {
    fn line(&mut self, number: u64, line: &[u8], out: &mut LineOut<'_>) -> Result<(), BadRecord> {
        if let Some(columns) = &mut self.columns {
            return columns.line(number, line, out);
        }
        self.columns = Some(from_header(line, self.delimiter)?);
        out.note();
        Ok(())
    }

    fn line_bytes_max(&self) -> usize {
        64 << 10
    }

    fn steps_back(&self) -> u64 {
        self.columns.as_ref().map_or(0, LineFormat::steps_back)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::core::lines::tests::read_with;
    use crate::reader::csv_columns::CsvColumns;
    use tiermem_base::Access;
    use tiermem_base::hash::trace_key;

    fn read(columns: &str, text: &str) -> Vec<Result<Access, String>> {
        let columns: CsvColumns = columns.parse().unwrap();
        read_with(Box::new(columns.reader()), text.as_bytes())
    }

    #[test]
    fn columns_are_taken_where_they_are_said_to_be() {
        let wanted = [
            Ok(Access { tenant: 4, ..Access::new(0, Op::Set, 9, 7) }),
            Ok(Access { tenant: 5, ..Access::new(1_500_000, Op::Get, trace_key(b"x y"), 8) }),
        ];
        let columns = "key=3,size=2,time=1,op=5,tenant=4,unit=ms,delimiter=semicolon,header";
        assert_eq!(read(columns, "t;s;k;c;o\n10;7;9;4;SET;more\n11.5;8;x y;5;get\n"), wanted);
        // Without sizes every access counts 1.
        assert_eq!(read("key=1", "5\n"), [Ok(Access::get(0, 5, 1))]);
    }

    #[test]
    fn lines_without_the_columns_are_broken() {
        let records = read("key=2,size=3", "1,2\n1,2,x\n1,2,3\n");
        assert!(records[0].as_ref().unwrap_err().contains("2 fields where the format has 3"));
        assert!(records[1].as_ref().unwrap_err().contains("`size` is not a number: \"x\""));
        assert_eq!(records[2], Ok(Access::get(0, 2, 3)));
    }

    #[test]
    fn descriptions_that_say_nothing_or_too_much_are_refused() {
        for (text, wanted) in [
            ("", "there is no ``"),
            ("size=1", "which one is the key"),
            ("key=0", "from 1"),
            ("key=99999999999", "from 1"),
            ("key=1,size=1", "column 1 cannot say two things"),
            ("key=1,key=2", "only one column"),
            ("key=1,unit=h", "one of s, ms"),
            ("key=1,delimiter=x", "one of comma"),
            ("key=1,color=2", "there is no `color=2`"),
        ] {
            let error = text.parse::<CsvColumns>().unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }

    #[test]
    fn a_header_says_the_columns() {
        let file = Csv { delimiter: Delimiter::Byte(b','), columns: None };
        let text = b"# Time_us, colour, Obj_Size, obj_id\n3,red,5,7\n4,,6,a\n";
        let wanted = [Ok(Access::get(0, 7, 5)), Ok(Access::get(1000, trace_key(b"a"), 6))];
        assert_eq!(read_with(Box::new(file), text), wanted);

        for header in [&b"1,2,3\n"[..], b"key,id\n", b"size,time\n", b"\xff\n"] {
            let file = Csv { delimiter: Delimiter::Byte(b','), columns: None };
            let error = read_with(Box::new(file), header).remove(0).unwrap_err();
            assert!(error.contains("--columns"), "{error}");
        }
    }
}
