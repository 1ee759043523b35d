//! Output of results: as a table for people, as CSV or JSON for machines, with the same field names.

use std::io::{self, Write};

use serde_json::Value;
use tiermem_base::Bytes;

/// What `--format` chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Aligned columns.
    #[default]
    Table,
    /// A line of field names, then a line for each row.
    Csv,
    /// One JSON document.
    Json,
}

/// One field of one row.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Text, to the left.
    Text(String),
    /// A count, to the right.
    Count(u64),
    /// Bytes, to the right: with a unit in tables, as a count elsewhere.
    #[allow(dead_code)] // Benchmarks that include this file print no such cells.
    Bytes(u64),
    /// A measured number with this number of decimals, right-aligned.
    Number(f64, usize),
    /// A number that may be very small, with three digits and a power of ten, to the right.
    #[allow(dead_code)] // Benchmarks that include this file print no such cells.
    Power(f64),
}

impl Cell {
    /// What is not known: empty, and null in JSON.
    #[allow(dead_code)] // Benchmarks that include this file know all.
    pub const UNKNOWN: Cell = Cell::Number(f64::NAN, 0);

    /// For people.
    fn shown(&self) -> String {
        match self {
            Cell::Bytes(bytes) => Bytes(*bytes).to_string(),
            other => other.text(),
        }
    }

    fn text(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Count(count) | Cell::Bytes(count) => count.to_string(),
            // What is no number is left out.
            Cell::Number(number, _) if !number.is_finite() => String::new(),
            Cell::Number(number, decimals) => {
                let text = format!("{number:.decimals$}");
                // A little less than nothing is written as nothing.
                let digits =
                    text.strip_prefix('-').filter(|rest| rest.bytes().all(|it| matches!(it, b'0' | b'.')));
                digits.map_or_else(|| text.clone(), str::to_owned)
            }
            Cell::Power(number) if !number.is_finite() => String::new(),
            Cell::Power(number) => format!("{number:.2e}"),
        }
    }

    /// As JSON: a number has the decimals that the other formats show, and what is no number is null.
    fn json(&self) -> String {
        match self {
            Cell::Text(text) => Value::from(text.as_str()).to_string(),
            Cell::Number(number, _) | Cell::Power(number) if !number.is_finite() => Value::Null.to_string(),
            Cell::Count(_) | Cell::Bytes(_) | Cell::Number(..) | Cell::Power(_) => self.text(),
        }
    }
}

/// Rows with named fields.
#[derive(Clone, Debug)]
pub struct Rows {
    /// The field names: stable, documented, the same in every format.
    pub fields: &'static [&'static str],
    /// One cell for each field.
    pub rows: Vec<Vec<Cell>>,
}

impl Rows {
    fn texts(&self, text: fn(&Cell) -> String) -> Vec<Vec<String>> {
        let names = self.fields.iter().map(|name| (*name).to_owned()).collect();
        let rows = self.rows.iter().map(|row| row.iter().map(text).collect());
        std::iter::once(names).chain(rows).collect()
    }

    fn write_table(&self, out: &mut impl Write) -> io::Result<()> {
        let lines = self.texts(Cell::shown);
        let mut widths = vec![0; self.fields.len()];
        for line in &lines {
            for (width, text) in widths.iter_mut().zip(line) {
                *width = (*width).max(text.chars().count());
            }
        }
        let is_text = |column: usize| {
            self.rows.first().is_some_and(|row| matches!(row.get(column), Some(Cell::Text(_))))
        };
        for line in &lines {
            let mut padded = String::new();
            for (column, (text, width)) in line.iter().zip(&widths).enumerate() {
                if column > 0 {
                    padded.push_str("  ");
                }
                padded += &match is_text(column) {
                    true => format!("{text:<width$}"),
                    false => format!("{text:>width$}"),
                };
            }
            writeln!(out, "{}", padded.trim_end())?;
        }
        Ok(())
    }

    fn write_csv(&self, out: &mut impl Write) -> io::Result<()> {
        for line in self.texts(Cell::text) {
            let quoted: Vec<_> = line.iter().map(|text| quote_csv(text)).collect();
            writeln!(out, "{}", quoted.join(","))?;
        }
        Ok(())
    }

    /// Each row as the members of a JSON object, without its braces, in the order of the fields.
    fn json(&self) -> Vec<String> {
        let member = |(name, cell): (&&str, &Cell)| format!("{}:{}", Value::from(*name), cell.json());
        let members = |row: &Vec<Cell>| self.fields.iter().zip(row).map(member).collect::<Vec<_>>().join(",");
        self.rows.iter().map(members).collect()
    }
}

/// Quotes a field that holds what separates fields (RFC 4180).
pub fn quote_csv(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// Prints rows that are the whole result; JSON is an array.
pub fn print_rows(format: Format, rows: &Rows) -> io::Result<()> {
    write_rows(&mut io::stdout().lock(), format, rows)
}

/// Writes rows that are the whole result; JSON is an array.
pub fn write_rows(out: &mut impl Write, format: Format, rows: &Rows) -> io::Result<()> {
    match format {
        Format::Table => rows.write_table(out)?,
        Format::Csv => rows.write_csv(out)?,
        Format::Json => {
            let objects: Vec<_> = rows.json().iter().map(|members| format!("{{{members}}}")).collect();
            writeln!(out, "[{}]", objects.join(","))?;
        }
    }
    out.flush()
}

/// Prints one result: a record, and lists that belong to it, each with its name.
///
/// Table and CSV put an empty line between the record and each list. JSON is one object with the record's
/// fields and a member for each list.
pub fn print_record(format: Format, record: &Rows, lists: &[(&str, Rows)]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    write_record(&mut out, format, record, lists)?;
    out.flush()
}

/// Writes it, as [`print_record`] prints it.
pub fn write_record(
    out: &mut impl Write,
    format: Format,
    record: &Rows,
    lists: &[(&str, Rows)],
) -> io::Result<()> {
    match format {
        Format::Table => {
            record.write_table(out)?;
            for (_, rows) in lists {
                writeln!(out)?;
                rows.write_table(out)?;
            }
        }
        Format::Csv => {
            record.write_csv(out)?;
            for (_, rows) in lists {
                writeln!(out)?;
                rows.write_csv(out)?;
            }
        }
        Format::Json => {
            let mut members = record.json();
            members.truncate(1);
            for (name, rows) in lists {
                let objects: Vec<_> = rows.json().iter().map(|row| format!("{{{row}}}")).collect();
                members.push(format!("{}:[{}]", Value::from(*name), objects.join(",")));
            }
            writeln!(out, "{{{}}}", members.join(","))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: Format) -> String {
        let record = Rows {
            fields: &["requests", "hit_ratio"],
            rows: vec![vec![Cell::Count(12), Cell::Number(0.5, 4)]],
        };
        let tiers = Rows {
            fields: &["name", "hits"],
            rows: vec![
                vec![Cell::Text("dram".into()), Cell::Count(1234567)],
                vec![Cell::Text("a,\"b\"".into()), Cell::Count(1)],
            ],
        };
        let mut out = Vec::new();
        write_record(&mut out, format, &record, &[("tiers", tiers)]).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn tables_line_up() {
        assert_eq!(
            written(Format::Table),
            "requests  hit_ratio\n      12     0.5000\n\nname      hits\ndram   1234567\na,\"b\"        1\n"
        );
    }

    #[test]
    fn csv_quotes_what_needs_it() {
        assert_eq!(
            written(Format::Csv),
            "requests,hit_ratio\n12,0.5000\n\nname,hits\ndram,1234567\n\"a,\"\"b\"\"\",1\n"
        );
    }

    #[test]
    fn json_is_one_object_with_the_fields_in_their_order() {
        assert!(
            written(Format::Json).starts_with("{\"requests\":12,\"hit_ratio\":0.5000,\"tiers\":[{\"name\"")
        );
        let value: Value = serde_json::from_str(&written(Format::Json)).unwrap();
        assert_eq!(value["requests"], 12);
        assert_eq!(value["hit_ratio"], 0.5);
        assert_eq!(value["tiers"][1]["name"], "a,\"b\"");
    }

    #[test]
    fn numbers_that_are_none_are_null_in_json() {
        assert_eq!(Cell::Number(-0.001, 2).json(), "0.00");
        assert_eq!(Cell::Number(-0.006, 2).json(), "-0.01");
        assert_eq!(Cell::Number(f64::NAN, 2).json(), "null");
        assert_eq!(Cell::Number(f64::INFINITY, 2).json(), "null");
        assert_eq!(
            (Cell::Power(f64::NAN).json(), Cell::Power(3.484e-21).json()),
            ("null".into(), "3.48e-21".into())
        );
    }
}
