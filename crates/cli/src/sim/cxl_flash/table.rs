//! Table for people: one device in words, several by the fields that are compared most.

use std::io::{self, Write};

use tiermem_base::Nanos;
use tiermem_report::grouped;

use super::fields::FIELDS;
use crate::output::{self, Cell, Format, Rows};
use crate::print_lines::{self, percent};

/// The fields of several rows; the first only where there are windows.
const COMPARED: &[&str] = &[
    "window",
    "setting",
    "sub_us_percent",
    "mean_latency_ns",
    "p99_ns",
    "hits",
    "hits_under_miss",
    "misses",
    "prefetch_accuracy",
    "flash_reads",
    "flash_writes",
    "lifetime_years",
];

/// Prints rows of all fields; of the fields in a file, those of whole traces.
pub fn print(rows: &[Vec<Cell>], in_file: bool) -> io::Result<()> {
    let is_whole = |row: &&Vec<Cell>| matches!(cell(row, "window"), Cell::Text(text) if text == "all");
    let rows: Vec<_> = rows.iter().filter(|row| !in_file || is_whole(row)).collect();
    if let [row] = rows[..] {
        let mut out = io::stdout().lock();
        one(&mut out, row)?;
        return out.flush();
    }
    let has_windows = !rows.iter().all(is_whole);
    let fields = &COMPARED[usize::from(!has_windows)..];
    let few = |row: &&Vec<Cell>| fields.iter().map(|name| cell(row, name)).collect();
    output::print_rows(Format::Table, &Rows { fields, rows: rows.iter().map(few).collect() })
}

fn cell(row: &[Cell], name: &str) -> Cell {
    let found = FIELDS.iter().zip(row).find(|(field, _)| **field == name);
    found.map_or(Cell::Number(f64::NAN, 0), |(_, cell)| cell.clone())
}

/// One row's cells by their fields' names.
#[derive(Clone, Copy)]
struct Row<'a>(&'a [Cell]);

impl Row<'_> {
    fn number(self, name: &str) -> f64 {
        match cell(self.0, name) {
            Cell::Text(_) => f64::NAN,
            Cell::Count(count) | Cell::Bytes(count) => count as f64,
            Cell::Number(number, _) | Cell::Power(number) => number,
        }
    }

    fn count(self, name: &str) -> u64 {
        self.number(name) as u64
    }

    fn time(self, name: &str) -> Nanos {
        Nanos(self.number(name).round() as u64)
    }

    fn share(self, name: &str) -> String {
        percent(self.number(name))
    }

    fn of_requests(self, name: &str) -> String {
        percent(self.number(name) / self.number("requests").max(1.0))
    }
}

/// A device, a line for each thing that is asked of it.
fn one(out: &mut impl Write, row: &[Cell]) -> io::Result<()> {
    let row = Row(row);
    latencies(out, row)?;
    cache(out, row)?;
    flash(out, row)?;
    let mut line = |name: &str, value: String, remark: String| print_lines::line(out, name, value, remark);
    line(
        "per dollar",
        format!("{:.1} x DRAM", row.number("performance_per_dollar")),
        format!("{:.1} x with the device's own DRAM in the price", row.number("performance_per_dollar_all")),
    )?;
    line(
        "simulated",
        row.time("duration_ns").to_string(),
        format!(
            "{} requests a second of this program's time",
            grouped(row.count("simulated_requests_per_second"))
        ),
    )
}

/// Latency of requests, and where they wait.
fn latencies(out: &mut impl Write, row: Row<'_>) -> io::Result<()> {
    let mut line = |name: &str, value: String, remark: String| print_lines::line(out, name, value, remark);
    line("requests", grouped(row.count("requests")), String::new())?;
    line(
        "below 1us",
        percent(row.number("sub_us_percent") / 100.0),
        format!(
            "mean {}, p50 {}, p99 {}, p99.99 {}",
            row.time("mean_latency_ns"),
            row.time("p50_ns"),
            row.time("p99_ns"),
            row.time("p9999_ns")
        ),
    )?;
    // The published simulator does not tell them.
    if row.number("flash_ns").is_finite() {
        let parts = format!(
            "for a place {}, on the link {}, for DRAM {}, for flash {}",
            row.time("queue_ns"),
            row.time("link_ns"),
            row.time("dram_ns"),
            row.time("flash_ns")
        );
        line("a request waits", row.time("mean_latency_ns").to_string(), parts)?;
    }
    Ok(())
}

/// Hits of the device's cache, and prefetches into it.
fn cache(out: &mut impl Write, row: Row<'_>) -> io::Result<()> {
    let mut line = |name: &str, value: String, remark: String| print_lines::line(out, name, value, remark);
    line("hits", grouped(row.count("hits")), row.of_requests("hits"))?;
    line(
        "hits under miss",
        grouped(row.count("hits_under_miss")),
        format!("{} found their line on its way", row.of_requests("hits_under_miss")),
    )?;
    line(
        "misses",
        grouped(row.count("misses")),
        format!(
            "{}; with those under miss {} on average",
            row.of_requests("misses"),
            row.time("mean_miss_latency_ns")
        ),
    )?;
    if row.count("prefetches") > 0 {
        let measures = format!(
            "accuracy {}, coverage {}, lateness {}, pollution {}",
            row.share("prefetch_accuracy"),
            row.share("prefetch_coverage"),
            row.share("prefetch_lateness"),
            row.share("prefetch_pollution")
        );
        line("prefetches", grouped(row.count("prefetches")), measures)?;
    }
    if row.count("hints") > 0 {
        line("hints", grouped(row.count("hints")), "lines fetched for them".to_owned())?;
    }
    Ok(())
}

/// Activity of the flash, and its lifetime at this rate.
fn flash(out: &mut impl Write, row: Row<'_>) -> io::Result<()> {
    let mut line = |name: &str, value: String, remark: String| print_lines::line(out, name, value, remark);
    let repeated = match row.count("repeated_reads") {
        0 => String::new(),
        repeated => format!("{} of a line that was on its way", grouped(repeated)),
    };
    line("flash reads", grouped(row.count("flash_reads")), repeated)?;
    let amplified = match row.count("flash_writes") {
        0 => String::new(),
        _ => format!(
            "amplified {:.2} times: {} lines moved, {} blocks erased",
            row.number("write_amplification"),
            grouped(row.count("gc_moves")),
            grouped(row.count("erases"))
        ),
    };
    line("flash writes", grouped(row.count("flash_writes")), amplified)?;
    let years = row.number("lifetime_years");
    match years.is_finite() {
        true => line("lifetime", format!("{years:.1} years"), String::new()),
        false => line("lifetime", "-".to_owned(), "nothing was written".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(changes: &[(&str, Cell)]) -> Vec<Cell> {
        let plain = |name: &&str| match *name {
            "window" => Cell::Text("all".into()),
            "requests" => Cell::Count(2000),
            "lifetime_years" => Cell::Number(f64::INFINITY, 3),
            _ => Cell::Count(0),
        };
        let changed =
            |name: &&str| changes.iter().find(|(field, _)| field == name).map(|(_, cell)| cell.clone());
        FIELDS.iter().map(|name| changed(name).unwrap_or_else(|| plain(name))).collect()
    }

    fn said(changes: &[(&str, Cell)]) -> String {
        let mut out = Vec::new();
        one(&mut out, &row(changes)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn one_device_is_told_in_words() {
        let text = said(&[
            ("hits", Cell::Count(1500)),
            ("mean_latency_ns", Cell::Number(2176.3, 1)),
            ("sub_us_percent", Cell::Number(52.0152, 4)),
        ]);
        assert!(text.contains("below 1us                    52.02%   mean 2.18us"), "{text}");
        assert!(text.contains("hits                          1,500   75.00%"), "{text}");
        assert!(text.contains("nothing was written") && !text.contains("prefetches"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn what_there_is_not_has_no_line() {
        let none = || Cell::Number(f64::NAN, 0);
        let text = said(&[("flash_ns", none()), ("queue_ns", none()), ("prefetches", Cell::Count(7))]);
        assert!(!text.contains("a request waits") && text.contains("prefetches"), "{text}");
    }
}
