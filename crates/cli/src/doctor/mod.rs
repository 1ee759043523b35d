//! `tiermem doctor`: what this machine offers, and what each missing feature needs.

mod damon;
mod facts;
mod memory;
mod paging;
mod sources;
mod watching;

use std::io::{self, Write};

use clap::Args;

use self::facts::Facts;
use crate::failure::Failure;
use crate::output::{self, Cell, Format, Rows};

const FIELDS: &[&str] = &["item", "state", "purpose", "found", "advice"];

const HELP: &str = "\
Example:
  tiermem doctor
  tiermem doctor --format json

Nothing on the machine is changed: doctor reads kernel files, tries features on itself, and leaves other users' monitors alone.
The result depends on the user: run it as the user who will record.

Rows, one for each item:
  source NAME          whether `tiermem record --source NAME` works here; start with refs
  record --physical    whether traces with physical addresses can be made
  others               what these and other commands depend on

Fields:
  item                 name of the item
  state                yes, limited (works in part), no, or unknown (cannot be checked from here)
  purpose              what it is for
  found                what was found, or why it does not work; may be empty
  advice               how to get it; empty if nothing is missing";

/// Options of `tiermem doctor`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Whether something is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Yes,
    Limited,
    No,
    Unknown,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            State::Yes => "yes",
            State::Limited => "limited",
            State::No => "no",
            State::Unknown => "unknown",
        }
    }
}

/// One thing that a machine may offer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    item: &'static str,
    state: State,
    purpose: &'static str,
    found: String,
    advice: &'static str,
}

impl Row {
    /// Something that is there.
    fn yes(item: &'static str, purpose: &'static str, found: impl Into<String>) -> Self {
        Row { item, state: State::Yes, purpose, found: found.into(), advice: "" }
    }

    /// Something that is not there, or only in part.
    fn lacking(
        item: &'static str,
        state: State,
        purpose: &'static str,
        found: impl Into<String>,
        advice: &'static str,
    ) -> Self {
        Row { item, state, purpose, found: found.into(), advice }
    }

    /// Something that was tried: there if that went well.
    fn tried<T>(
        item: &'static str,
        purpose: &'static str,
        tried: Result<T, &String>,
        advice: &'static str,
    ) -> Self {
        match tried {
            Ok(_) => Row::yes(item, purpose, ""),
            Err(error) => Row::lacking(item, State::No, purpose, error, advice),
        }
    }
}

/// Looks and prints.
pub fn run(options: &Options) -> Result<(), Failure> {
    let rows = all();
    let printed = match options.format {
        Format::Table => write_table(&mut io::stdout().lock(), &rows),
        format => output::print_rows(format, &cells(&rows)),
    };
    printed.map_err(|error| Failure::writing("the result", error))
}

fn all() -> Vec<Row> {
    let facts = Facts::gather();
    let mut rows = sources::rows(&facts);
    rows.extend(watching::rows(&facts));
    rows.extend(memory::rows(&facts));
    rows.extend(paging::rows(&facts));
    rows
}

fn cells(rows: &[Row]) -> Rows {
    let cells = |row: &Row| {
        let texts = [row.item, row.state.name(), row.purpose, row.found.as_str(), row.advice];
        texts.map(|text| Cell::Text(text.to_owned())).to_vec()
    };
    Rows { fields: FIELDS, rows: rows.iter().map(cells).collect() }
}

/// A line for each item with its purpose, then what was found and what to do, where there is something to say.
fn write_table(out: &mut impl Write, rows: &[Row]) -> io::Result<()> {
    let width = rows.iter().map(|row| row.item.len()).max().unwrap_or_default();
    for row in rows {
        writeln!(out, "{:<width$}  {:<7}  {}", row.item, row.state.name(), row.purpose)?;
        for (mark, text) in [("", row.found.as_str()), ("-> ", row.advice)] {
            if !text.is_empty() {
                writeln!(out, "{:<width$}           {mark}{text}", "")?;
            }
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_says_what_it_is_for_and_what_would_help() {
        let rows = all();
        let items: BTreeSet<_> = rows.iter().map(|row| row.item).collect();
        assert_eq!(items.len(), rows.len(), "an item has one row");
        for row in &rows {
            assert!(!row.purpose.is_empty() && !row.found.contains('\n'), "{row:?}");
            assert_eq!(row.advice.is_empty(), row.state == State::Yes, "{row:?}");
        }
        for source in ["refs", "writes", "faults", "damon", "perf-mem", "lackey"] {
            assert!(items.contains(format!("source {source}").as_str()), "{source}");
        }
    }

    #[test]
    fn tables_have_lines_for_what_there_is_to_say() {
        let rows = [
            Row::yes("io_uring", "disks", ""),
            Row::lacking("perf", State::No, "samples", "not in PATH", "install it"),
        ];
        let mut out = Vec::new();
        write_table(&mut out, &rows).unwrap();
        let lines = [
            "io_uring  yes      disks",
            "perf      no       samples",
            "                   not in PATH",
            "                   -> install it",
        ];
        assert_eq!(String::from_utf8(out).unwrap(), lines.join("\n") + "\n");
        assert_eq!(cells(&rows).rows[1].len(), FIELDS.len());
    }
}
