//! Printing the records of a trace one after the other, however many they are.

use std::io::{self, Write};

use tiermem_base::Access;

use crate::output::Format;

/// The fields of a record, in the order of columns: those of the trace form.
pub const FIELDS: [&str; 7] = ["time_ns", "op", "key", "size", "tenant", "key_size", "ttl_s"];
/// Columns of a table, so wide that all but huge values line up without reading ahead.
const WIDTHS: [usize; FIELDS.len()] = [15, 5, 20, 10, 6, 8, 8];

/// Writes records in one of the formats.
#[derive(Debug)]
pub struct RecordWriter<W> {
    out: W,
    format: Format,
    written: u64,
}

impl<W: Write> RecordWriter<W> {
    /// Writes what stands before the records.
    pub fn new(out: W, format: Format) -> io::Result<Self> {
        let mut writer = RecordWriter { out, format, written: 0 };
        match format {
            Format::Table => writer.table_line(&FIELDS.map(str::to_owned))?,
            Format::Csv => writeln!(writer.out, "{}", FIELDS.join(","))?,
            Format::Json => write!(writer.out, "[")?,
        }
        Ok(writer)
    }

    /// Writes a record.
    pub fn write(&mut self, access: &Access) -> io::Result<()> {
        let Access { time_ns, key, size, tenant, ttl_s, key_size, op } = *access;
        match self.format {
            Format::Table => {
                let numbers = [u64::from(size), u64::from(tenant), u64::from(key_size), u64::from(ttl_s)];
                let [size, tenant, key_size, ttl_s] = numbers.map(|number| number.to_string());
                let line =
                    [time_ns.to_string(), op.to_string(), key.to_string(), size, tenant, key_size, ttl_s];
                self.table_line(&line)?;
            }
            Format::Csv => writeln!(self.out, "{time_ns},{op},{key},{size},{tenant},{key_size},{ttl_s}")?,
            Format::Json => {
                let before = if self.written == 0 { "" } else { "," };
                write!(
                    self.out,
                    "{before}\n{{\"time_ns\":{time_ns},\"op\":\"{op}\",\"key\":{key},\"size\":{size},\
                     \"tenant\":{tenant},\"key_size\":{key_size},\"ttl_s\":{ttl_s}}}"
                )?;
            }
        }
        self.written += 1;
        Ok(())
    }

    /// Writes what stands behind the records.
    pub fn finish(mut self) -> io::Result<()> {
        if self.format == Format::Json {
            writeln!(self.out, "\n]")?;
        }
        self.out.flush()
    }

    fn table_line(&mut self, cells: &[String; FIELDS.len()]) -> io::Result<()> {
        for ((cell, width), number) in cells.iter().zip(WIDTHS).zip(0..) {
            let gap = if number == 0 { "" } else { "  " };
            // The operation is text, everything else a number.
            match number {
                1 => write!(self.out, "{gap}{cell:<width$}")?,
                _ => write!(self.out, "{gap}{cell:>width$}")?,
            }
        }
        writeln!(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiermem_base::Op;

    fn written(format: Format, accesses: &[Access]) -> String {
        let mut out = Vec::new();
        let mut writer = RecordWriter::new(&mut out, format).unwrap();
        accesses.iter().for_each(|access| writer.write(access).unwrap());
        writer.finish().unwrap();
        String::from_utf8(out).unwrap()
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
