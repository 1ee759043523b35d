//! Output of `tiermem block replay`.

use std::io;
use std::time::Duration;

use tiermem_block::replay::{Complaint, Figures, Outcome, Side, Target, Times, Wrong};

use crate::output::{self, Cell, Format, Rows};

/// The fields of all exports together and, behind the first two, of each.
const FIELDS: [&str; 27] = [
    "requests",
    "reads",
    "writes",
    "read_bytes",
    "written_bytes",
    "seconds",
    "requests_per_second",
    "mb_per_second",
    "read_mean_us",
    "read_p50_us",
    "read_p99_us",
    "read_p999_us",
    "read_max_us",
    "write_mean_us",
    "write_p50_us",
    "write_p99_us",
    "write_p999_us",
    "write_max_us",
    "late_mean_us",
    "late_p99_us",
    "late_max_us",
    "widened",
    "wrapped",
    "errors",
    "mismatches",
    "connections",
    "skipped",
];
const EXPORT_FIELDS: [&str; 28] = {
    let mut fields = ["export"; 28];
    // Records that send nothing belong to no export; all other figures are given for each.
    let mut at = 0;
    while at < FIELDS.len() - 1 {
        fields[at + 2] = FIELDS[at];
        at += 1;
    }
    fields[1] = "volumes";
    fields
};
const COMPLAINT_FIELDS: &[&str] = &["export", "volume", "op", "offset", "bytes", "expected", "found"];
/// What people see of them; of lateness only where there is any.
const LATE: &str = "late_p99_us";
const SHOWN: &[&str] = &[
    "export",
    "requests",
    "requests_per_second",
    "mb_per_second",
    "read_p50_us",
    "read_p99_us",
    "read_max_us",
    "write_p50_us",
    "write_p99_us",
    "write_max_us",
    "errors",
    "mismatches",
    LATE,
];

/// Prints the results of the replay: the total, then each export, then the first
/// few errors. A server's own figures follow, as a list with a name of its own.
pub fn print(format: Format, targets: &[Target], outcome: &Outcome) -> io::Result<()> {
    let elapsed = outcome.elapsed;
    let mut total = cells(&outcome.total(), elapsed);
    total.push(Cell::Count(outcome.connections.iter().sum::<usize>() as u64));
    total.push(Cell::Count(outcome.skipped));
    let export = |((target, figures), connections): ((&Target, &Figures), &usize)| {
        let volumes: Vec<_> = target.volumes.iter().map(u32::to_string).collect();
        let mut row = vec![Cell::Text(target.uri.to_string()), Cell::Text(volumes.join(" "))];
        row.extend(cells(figures, elapsed));
        row.push(Cell::Count(*connections as u64));
        row
    };
    let exports: Vec<_> =
        targets.iter().zip(&outcome.exports).zip(&outcome.connections).map(export).collect();
    let complaints = outcome.complaints.iter().map(|it| complaint(targets, it)).collect();
    let complaints = ("complaints", Rows { fields: COMPLAINT_FIELDS, rows: complaints });
    if format == Format::Table {
        let several = exports.len() > 1;
        let mut rows = exports;
        if several {
            rows.push(
                [Cell::Text("all".to_owned()), Cell::Text(String::new())].into_iter().chain(total).collect(),
            );
        }
        let timed = outcome.exports.iter().any(|export| export.lateness.count() > 0);
        let fields = &SHOWN[..SHOWN.len() - usize::from(!timed)];
        let few = Rows { fields, rows: rows.iter().map(|row| shown(row, fields)).collect() };
        let lists = [complaints].into_iter().filter(|(_, list)| !list.rows.is_empty());
        return output::print_record(format, &few, &lists.collect::<Vec<_>>());
    }
    let record = Rows { fields: &FIELDS, rows: vec![total] };
    let exports = ("exports", Rows { fields: &EXPORT_FIELDS, rows: exports });
    output::print_record(format, &record, &[exports, complaints])
}

/// The columns that people see, of an export's row.
fn shown(row: &[Cell], fields: &[&str]) -> Vec<Cell> {
    let cell = |name: &&str| {
        let at = EXPORT_FIELDS.iter().position(|field| field == name);
        at.and_then(|at| row.get(at).cloned()).unwrap_or(Cell::Number(f64::NAN, 0))
    };
    fields.iter().map(cell).collect()
}

fn cells(figures: &Figures, elapsed: Duration) -> Vec<Cell> {
    let seconds = elapsed.as_secs_f64();
    let us = |time: f64| Cell::Number(time, 1);
    let latency = |side: &Side| {
        let times = &side.latency;
        [
            us(times.mean_us()),
            us(times.quantile_us(0.5)),
            us(times.quantile_us(0.99)),
            us(times.quantile_us(0.999)),
            us(times.quantile_us(1.0)),
        ]
    };
    let late = |times: &Times| [us(times.mean_us()), us(times.quantile_us(0.99)), us(times.quantile_us(1.0))];
    let mut cells = vec![
        Cell::Count(figures.requests()),
        Cell::Count(figures.reads.requests),
        Cell::Count(figures.writes.requests),
        Cell::Count(figures.reads.bytes),
        Cell::Count(figures.writes.bytes),
        Cell::Number(seconds, 3),
        Cell::Number(figures.requests() as f64 / seconds, 0),
        Cell::Number(figures.bytes() as f64 / 1e6 / seconds, 2),
    ];
    cells.extend(latency(&figures.reads));
    cells.extend(latency(&figures.writes));
    cells.extend(late(&figures.lateness));
    cells.extend([figures.widened, figures.wrapped, figures.errors, figures.mismatches].map(Cell::Count));
    cells
}

fn complaint(targets: &[Target], complaint: &Complaint) -> Vec<Cell> {
    let uri = targets.get(complaint.export).map(|target| target.uri.to_string());
    let (offset, expected, found) = match &complaint.what {
        Wrong::Refused(words) => (complaint.offset, "success".to_owned(), words.clone()),
        Wrong::Differs(it) => (it.offset, it.expected.to_string(), it.found.to_string()),
    };
    vec![
        Cell::Text(uri.unwrap_or_default()),
        Cell::Count(u64::from(complaint.volume)),
        Cell::Text(complaint.op.to_owned()),
        Cell::Count(offset),
        Cell::Count(complaint.bytes),
        Cell::Text(expected),
        Cell::Text(found),
    ]
}

/// A complaint in words.
pub fn in_words(complaint: &Complaint) -> String {
    let Complaint { volume, op, offset, bytes, .. } = complaint;
    let request = format!("volume {volume}, {op} of {bytes} bytes at offset {offset}");
    match &complaint.what {
        Wrong::Refused(words) => format!("{request}: {words}"),
        Wrong::Differs(it) => {
            format!("{request}: at offset {} stands not {}, but {}", it.offset, it.expected, it.found)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_cell() {
        let cells = cells(&Figures::default(), Duration::ZERO);
        assert_eq!(cells.len() + 2, FIELDS.len());
        assert_eq!(EXPORT_FIELDS[..4], ["export", "volumes", "requests", "reads"]);
        assert_eq!(EXPORT_FIELDS[27], "connections");
        assert!(SHOWN.iter().all(|name| EXPORT_FIELDS.contains(name)));
        assert_eq!(SHOWN.last(), Some(&LATE));
    }
}
