//! Printing of a trace's records one after another, in constant memory.

use std::io::{self, Write};

use tiermem_base::Access;
use tiermem_trace::{OptionalColumn, OptionalRow, OptionalSet};

use crate::output::Format;

/// The fields of a record, in the order of columns: those of the trace form.
pub const FIELDS: [&str; 7] = ["time_ns", "op", "key", "size", "tenant", "key_size", "ttl_s"];
/// Columns of a table, so wide that all but huge values line up without reading ahead.
const WIDTHS: [usize; FIELDS.len()] = [15, 5, 20, 10, 6, 8, 8];

/// Width of an optional column.
const fn optional_width(column: OptionalColumn) -> usize {
    match column {
        OptionalColumn::Frame => 12,
        OptionalColumn::Node | OptionalColumn::Level => 5,
        OptionalColumn::Pc => 20,
    }
}

/// Writes records in one of the formats.
#[derive(Debug)]
pub struct RecordWriter<W> {
    out: W,
    format: Format,
    /// The columns beside the fields.
    optional: OptionalSet,
    written: u64,
}

impl<W: Write> RecordWriter<W> {
    /// Writes the text before the records.
    pub fn new(out: W, format: Format, optional: OptionalSet) -> io::Result<Self> {
        let mut writer = RecordWriter { out, format, optional, written: 0 };
        match format {
            Format::Table => {
                writer.table_line(&FIELDS.map(str::to_owned), |column| column.name().to_owned())?;
            }
            Format::Csv => {
                let names = FIELDS.into_iter().chain(optional.columns().map(OptionalColumn::name));
                writeln!(writer.out, "{}", names.collect::<Vec<_>>().join(","))?;
            }
            Format::Json => write!(writer.out, "[")?,
        }
        Ok(writer)
    }

    /// Writes a record, and of `row` the columns that this was begun with.
    pub fn write(&mut self, access: &Access, row: &OptionalRow) -> io::Result<()> {
        let value = |column| row.get(column).unwrap_or_default();
        let Access { time_ns, key, size, tenant, ttl_s, key_size, op } = *access;
        match self.format {
            Format::Table => {
                let numbers = [u64::from(size), u64::from(tenant), u64::from(key_size), u64::from(ttl_s)];
                let [size, tenant, key_size, ttl_s] = numbers.map(|number| number.to_string());
                let line =
                    [time_ns.to_string(), op.to_string(), key.to_string(), size, tenant, key_size, ttl_s];
                self.table_line(&line, |column| value(column).to_string())?;
            }
            Format::Csv => {
                write!(self.out, "{time_ns},{op},{key},{size},{tenant},{key_size},{ttl_s}")?;
                self.optional.columns().try_for_each(|column| write!(self.out, ",{}", value(column)))?;
                writeln!(self.out)?;
            }
            Format::Json => {
                let before = if self.written == 0 { "" } else { "," };
                write!(
                    self.out,
                    "{before}\n{{\"time_ns\":{time_ns},\"op\":\"{op}\",\"key\":{key},\"size\":{size},\
                     \"tenant\":{tenant},\"key_size\":{key_size},\"ttl_s\":{ttl_s}"
                )?;
                for column in self.optional.columns() {
                    write!(self.out, ",\"{}\":{}", column.name(), value(column))?;
                }
                write!(self.out, "}}")?;
            }
        }
        self.written += 1;
        Ok(())
    }

    /// Writes the text behind the records.
    pub fn finish(mut self) -> io::Result<()> {
        if self.format == Format::Json {
            writeln!(self.out, "\n]")?;
        }
        self.out.flush()
    }

    fn table_line(
        &mut self,
        cells: &[String; FIELDS.len()],
        optional: impl Fn(OptionalColumn) -> String,
    ) -> io::Result<()> {
        for ((cell, width), number) in cells.iter().zip(WIDTHS).zip(0..) {
            let gap = if number == 0 { "" } else { "  " };
            // The operation is text, everything else a number.
            match number {
                1 => write!(self.out, "{gap}{cell:<width$}")?,
                _ => write!(self.out, "{gap}{cell:>width$}")?,
            }
        }
        for column in self.optional.columns() {
            write!(self.out, "  {:>1$}", optional(column), optional_width(column))?;
        }
        writeln!(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiermem_base::Op;
    use tiermem_trace::OptionalColumns;

    fn written(format: Format, accesses: &[Access]) -> String {
        written_with(format, accesses, &OptionalColumns::default())
    }

    fn written_with(format: Format, accesses: &[Access], columns: &OptionalColumns) -> String {
        let mut out = Vec::new();
        let mut writer = RecordWriter::new(&mut out, format, columns.set()).unwrap();
        (0..).zip(accesses).for_each(|(at, access)| writer.write(access, &columns.row(at)).unwrap());
        writer.finish().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn optional_columns_stand_behind_the_fields() {
        let access = Access::new(5, Op::Load, 64, 8);
        let mut columns =
            OptionalColumns::with([OptionalColumn::Pc, OptionalColumn::Level].into_iter().collect());
        columns.get_mut(OptionalColumn::Level).unwrap().push(3);
        columns.get_mut(OptionalColumn::Pc).unwrap().push(u64::MAX);
        let written = |format| written_with(format, &[access], &columns);
        let csv =
            "time_ns,op,key,size,tenant,key_size,ttl_s,level,pc\n5,load,64,8,0,0,0,3,18446744073709551615\n";
        assert_eq!(written(Format::Csv), csv);
        let json: serde_json::Value = serde_json::from_str(&written(Format::Json)).unwrap();
        assert_eq!((&json[0]["level"], &json[0]["pc"]), (&3.into(), &u64::MAX.into()));
        assert!(json[0].get("node").is_none());
        let table = written(Format::Table);
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[0].ends_with("pc") && lines[0].len() == lines[1].len(), "{table}");
    }

    #[test]
    fn every_format_names_the_same_fields() {
        let access = Access { tenant: 3, ttl_s: 60, key_size: 9, ..Access::new(5, Op::Set, u64::MAX, 7) };
        assert_eq!(
            written(Format::Csv, &[access]),
            "time_ns,op,key,size,tenant,key_size,ttl_s\n5,set,18446744073709551615,7,3,9,60\n"
        );
        let json: serde_json::Value =
            serde_json::from_str(&written(Format::Json, &[access, access])).unwrap();
        assert_eq!(json[1]["key"], u64::MAX);
        assert_eq!(json[0].as_object().unwrap().len(), FIELDS.len());
        assert!(FIELDS.iter().all(|field| json[0].get(field).is_some()));
        let table = written(Format::Table, &[access]);
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[0].contains("time_ns") && lines[0].len() == lines[1].len());
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&written(Format::Json, &[])).unwrap(),
            serde_json::json!([])
        );
    }
}
