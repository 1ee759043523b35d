//! Output of `tiermem block status`.

use std::fmt::Write;
use std::io;

use tiermem_base::Bytes;
use tiermem_block::engine::{Counts, LogStatus};
use tiermem_block::http::view::{ExportView, View};

use crate::output::{self, Cell, Format, Rows};

fn maybe_count(count: Option<u64>) -> Cell {
    count.map_or(Cell::Number(f64::NAN, 0), Cell::Count)
}

fn maybe(number: Option<f64>, decimals: usize) -> Cell {
    Cell::Number(number.unwrap_or(f64::NAN), decimals)
}

/// A field's name, and its value.
type Field<T> = (&'static str, fn(&T) -> Cell);

const SERVER: [Field<View>; 25] = [
    ("version", |view| Cell::Text(view.version.clone())),
    ("uptime_s", |view| Cell::Number(view.uptime_s, 3)),
    ("connections", |view| Cell::Count(view.connections)),
    ("connections_accepted", |view| Cell::Count(view.connections_accepted)),
    ("connections_refused", |view| Cell::Count(view.connections_refused)),
    ("capacity_bytes", |view| Cell::Count(view.cache.capacity_bytes)),
    ("held_bytes", |view| Cell::Count(view.cache.held_bytes)),
    ("dirty_bytes", |view| Cell::Count(view.cache.dirty_bytes)),
    ("metadata_bytes", |view| Cell::Count(view.cache.metadata_bytes)),
    ("metadata_bytes_per_gib", |view| maybe(view.cache.metadata_bytes_per_gib, 0)),
    ("parked", |view| Cell::Count(view.cache.parked)),
    ("retired_bytes", |view| Cell::Count(view.cache.retired_bytes)),
    ("unstored_bytes", |view| Cell::Count(view.cache.unstored_bytes)),
    ("unchecked_bytes", |view| Cell::Count(view.cache.unchecked_bytes)),
    ("out_of_use", |view| Cell::Count(u64::from(view.cache.out_of_use))),
    ("log_capacity_bytes", |view| log(view, |log| log.capacity_bytes)),
    ("log_used_bytes", |view| log(view, |log| log.used_bytes)),
    ("log_written_bytes", |view| log(view, |log| log.written_bytes)),
    ("log_batches", |view| log(view, |log| log.batches)),
    ("log_syncs", |view| log(view, |log| log.syncs)),
    ("log_seals", |view| log(view, |log| log.seals)),
    ("log_checkpoints", |view| log(view, |log| log.checkpoints)),
    ("log_table_reads", |view| log(view, |log| log.table_reads)),
    ("log_refusals", |view| log(view, |log| log.refusals)),
    ("log_failure", |view| {
        Cell::Text(view.cache.log.as_ref().and_then(|log| log.failure.clone()).unwrap_or_default())
    }),
];

fn log(view: &View, figure: fn(&LogStatus) -> u64) -> Cell {
    maybe_count(view.cache.log.as_ref().map(figure))
}

const EXPORT: [Field<ExportView>; 65] = [
    ("export", |export| Cell::Text(export.status.name.clone())),
    ("mode", |export| Cell::Text(export.status.mode.to_string())),
    ("size_bytes", |export| Cell::Count(export.status.size_bytes)),
    ("store", |export| Cell::Text(export.status.store.clone())),
    ("clients", |export| Cell::Count(export.status.clients)),
    ("errors", |export| Cell::Count(export.status.errors)),
    ("reads", |export| Cell::Count(export.status.counts.reads)),
    ("read_bytes", |export| Cell::Count(export.status.counts.read_bytes)),
    ("read_hits", |export| Cell::Count(export.status.counts.read_hits)),
    ("read_hit_ratio", |export| maybe(export.status.read_hit_ratio, 4)),
    ("writes", |export| Cell::Count(export.status.counts.writes)),
    ("written_bytes", |export| Cell::Count(export.status.counts.written_bytes)),
    ("write_hits", |export| Cell::Count(export.status.counts.write_hits)),
    ("write_hit_ratio", |export| maybe(export.status.write_hit_ratio, 4)),
    ("trims", |export| Cell::Count(export.status.counts.trims)),
    ("prefetches", |export| Cell::Count(export.status.counts.prefetches)),
    ("flushes", |export| Cell::Count(export.status.counts.flushes)),
    ("describes", |export| Cell::Count(export.status.counts.describes)),
    ("missed_requests", |export| Cell::Count(export.status.counts.missed_requests)),
    ("missed_request_bytes", |export| Cell::Count(export.status.counts.missed_request_bytes)),
    ("missed_request_mean_bytes", |export| maybe(export.status.missed_request_mean_bytes, 0)),
    ("allocated_blocks", |export| Cell::Count(export.status.counts.allocated_blocks)),
    ("allocated_bytes", |export| Cell::Count(export.status.counts.allocated_bytes)),
    ("allocated_block_mean_bytes", |export| maybe(export.status.allocated_block_mean_bytes, 0)),
    ("core_reads", |export| Cell::Count(export.status.counts.core_reads)),
    ("core_read_bytes", |export| Cell::Count(export.status.counts.core_read_bytes)),
    ("core_writes", |export| Cell::Count(export.status.counts.core_writes)),
    ("core_written_bytes", |export| Cell::Count(export.status.counts.core_written_bytes)),
    ("cache_reads", |export| Cell::Count(export.status.counts.cache_reads)),
    ("cache_read_bytes", |export| Cell::Count(export.status.counts.cache_read_bytes)),
    ("cache_writes", |export| Cell::Count(export.status.counts.cache_writes)),
    ("cache_written_bytes", |export| Cell::Count(export.status.counts.cache_written_bytes)),
    ("dirty_bytes", |export| Cell::Count(export.status.dirty_bytes)),
    ("dirty_age_s", |export| maybe(export.status.dirty_age_s, 3)),
    ("epochs", |export| Cell::Count(export.status.epochs)),
    ("store_flushes", |export| Cell::Count(export.status.store_flushes)),
    ("epoch_merges", |export| Cell::Count(export.status.epoch_merges)),
    ("write_back_groups", |export| Cell::Count(export.status.write_back_groups)),
    ("write_back_groups_grown", |export| Cell::Count(export.status.write_back_groups_grown)),
    ("copies_out", |export| Cell::Count(export.status.copies_out)),
    ("copied_out_bytes", |export| Cell::Count(export.status.copied_out_bytes)),
    ("store_whole_s", |export| maybe(export.status.store_whole_s, 3)),
    ("store_full_s", |export| maybe(export.status.store_full_s, 3)),
    ("refuses_writes", |export| Cell::Count(u64::from(export.status.refuses_writes))),
    ("quota_bytes", |export| maybe_count(export.status.quota_bytes)),
    ("share", |export| Cell::Count(u64::from(export.status.share))),
    ("share_held_bytes", |export| Cell::Count(export.status.share_held_bytes)),
    ("bypassed_reads", |export| Cell::Count(export.status.counts.bypassed_reads)),
    ("parked", |export| Cell::Count(export.status.counts.parked)),
    ("cache_failures", |export| Cell::Count(export.status.counts.cache_failures)),
    ("poisoned_units", |export| Cell::Count(export.status.counts.poisoned_units)),
    ("write_back_failures", |export| Cell::Count(export.status.counts.write_back_failures)),
    ("full_refusals", |export| Cell::Count(export.status.counts.full_refusals)),
    ("processing_p50_ns", |export| maybe(export.times.processing_p50_ns, 0)),
    ("processing_p99_ns", |export| maybe(export.times.processing_p99_ns, 0)),
    ("processing_mean_ns", |export| maybe(export.times.processing_mean_ns, 0)),
    ("read_p50_us", |export| maybe(export.times.read_p50_us, 1)),
    ("read_p99_us", |export| maybe(export.times.read_p99_us, 1)),
    ("read_mean_us", |export| maybe(export.times.read_mean_us, 1)),
    ("write_p50_us", |export| maybe(export.times.write_p50_us, 1)),
    ("write_p99_us", |export| maybe(export.times.write_p99_us, 1)),
    ("write_mean_us", |export| maybe(export.times.write_mean_us, 1)),
    ("flush_p50_us", |export| maybe(export.times.flush_p50_us, 1)),
    ("flush_p99_us", |export| maybe(export.times.flush_p99_us, 1)),
    ("flush_mean_us", |export| maybe(export.times.flush_mean_us, 1)),
];

const fn names<T, const N: usize>(fields: &[Field<T>; N]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut at = 0;
    while at < N {
        names[at] = fields[at].0;
        at += 1;
    }
    names
}

const SERVER_NAMES: [&str; SERVER.len()] = names(&SERVER);
const EXPORT_NAMES: [&str; EXPORT.len()] = names(&EXPORT);

/// Prints all figures for machines.
pub fn print(format: Format, view: &View) -> io::Result<()> {
    let server =
        Rows { fields: &SERVER_NAMES, rows: vec![SERVER.iter().map(|(_, cell)| cell(view)).collect()] };
    let row = |export| EXPORT.iter().map(|(_, cell)| cell(export)).collect();
    let exports = Rows { fields: &EXPORT_NAMES, rows: view.exports.iter().map(row).collect() };
    let size = |size: &tiermem_block::engine::BlockSize| {
        vec![Cell::Count(size.block_bytes), Cell::Count(size.blocks)]
    };
    let blocks =
        Rows { fields: &["block_bytes", "blocks"], rows: view.cache.blocks.iter().map(size).collect() };
    output::print_record(format, &server, &[("exports", exports), ("blocks", blocks)])
}

/// Text for people: what is held, and what happened since `before`, or since the start.
pub fn table(now: &View, before: Option<&View>) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = summary(&mut text, now);
    let seconds = before.map_or(now.uptime_s, |before| now.uptime_s - before.uptime_s);
    let when = before.map_or("since the start".to_owned(), |_| format!("in the last {seconds:.1} s"));
    let sections = [
        ("held".to_owned(), &STATE[..]),
        (format!("requests {when}"), &TRAFFIC[..]),
        (format!("moved {when}"), &VOLUMES[..]),
        ("times since the start".to_owned(), &TIMES[..]),
    ];
    for (heading, columns) in sections {
        let _ = writeln!(text, "\n{heading}");
        let older =
            |export: &ExportView| before?.exports.iter().find(|old| old.status.name == export.status.name);
        let rows = now.exports.iter().map(|export| {
            let old = older(export).map(|old| old.status.counts).unwrap_or_default();
            let row = Row { export, old, seconds };
            columns.iter().map(|(_, cell)| cell(&row)).collect()
        });
        let heads: Vec<String> = columns.iter().map(|(head, _)| (*head).to_owned()).collect();
        aligned(&mut text, std::iter::once(heads).chain(rows).collect());
    }
    text
}

fn summary(text: &mut String, view: &View) -> std::fmt::Result {
    let cache = &view.cache;
    let (up, clients) = (duration(view.uptime_s), view.connections);
    writeln!(text, "tiermem {}, up {up}, {clients} connections", view.version)?;
    writeln!(text, "cache   {} of {} held", Bytes(cache.held_bytes), Bytes(cache.capacity_bytes))?;
    let blocks = cache.blocks.iter().map(|size| format!("{} of {}", size.blocks, Bytes(size.block_bytes)));
    writeln!(text, "blocks  {}", blocks.collect::<Vec<_>>().join(", "))?;
    writeln!(text, "dirty   {}", Bytes(cache.dirty_bytes))?;
    let per_gib = cache.metadata_bytes_per_gib.map(|bytes| format!(", {} per GiB held", Bytes(bytes as u64)));
    writeln!(text, "memory  {} of metadata{}", Bytes(cache.metadata_bytes), per_gib.unwrap_or_default())?;
    if cache.retired_bytes > 0 {
        let use_now =
            if cache.out_of_use { "OUT OF USE: the stores serve alone" } else { "not used before a restart" };
        writeln!(text, "device  failed in {}: {use_now}", Bytes(cache.retired_bytes))?;
    }
    if cache.unchecked_bytes > 0 {
        let bytes = Bytes(cache.unchecked_bytes);
        writeln!(
            text,
            "start   took {bytes} unchecked, which were being overwritten when the last process ended"
        )?;
    }
    for ExportView { status, .. } in &view.exports {
        if let Some(full_s) = status.store_full_s {
            let writes =
                if status.refuses_writes { "WRITES FAIL" } else { "writes go on while the cache has room" };
            writeln!(text, "store   of {} FULL for {}: {writes}", status.name, duration(full_s))?;
        }
    }
    match &cache.log {
        None => writeln!(text, "log     none: nothing outlives the process"),
        Some(LogStatus { failure: Some(failure), .. }) => writeln!(text, "log     FAILED: {failure}"),
        Some(log) => writeln!(
            text,
            "log     {} of {} in use, {} syncs, {} checkpoints",
            Bytes(log.used_bytes),
            Bytes(log.capacity_bytes),
            log.syncs,
            log.checkpoints
        ),
    }
}

/// An export, what it had done before, and how long ago that was.
struct Row<'a> {
    export: &'a ExportView,
    old: Counts,
    seconds: f64,
}

impl Row<'_> {
    fn grown(&self, count: fn(&Counts) -> u64) -> u64 {
        count(&self.export.status.counts).saturating_sub(count(&self.old))
    }

    fn share(&self, part: fn(&Counts) -> u64, whole: fn(&Counts) -> u64) -> String {
        let whole = self.grown(whole);
        if whole == 0 {
            "-".to_owned()
        } else {
            format!("{:.1}%", 100.0 * self.grown(part) as f64 / whole as f64)
        }
    }

    fn mean(&self, bytes: fn(&Counts) -> u64, count: fn(&Counts) -> u64) -> String {
        self.grown(bytes)
            .checked_div(self.grown(count))
            .map_or("-".to_owned(), |mean| Bytes(mean).to_string())
    }

    fn bytes(&self, count: fn(&Counts) -> u64) -> String {
        Bytes(self.grown(count)).to_string()
    }
}

/// A column's heading, and its values.
type Column = (&'static str, fn(&Row<'_>) -> String);

const NAME: Column = ("export", |row| row.export.status.name.clone());
const STATE: [Column; 9] = [
    NAME,
    ("mode", |row| row.export.status.mode.to_string()),
    ("size", |row| Bytes(row.export.status.size_bytes).to_string()),
    ("clients", |row| row.export.status.clients.to_string()),
    ("quota", |row| row.export.status.quota_bytes.map_or("-".to_owned(), |quota| Bytes(quota).to_string())),
    ("held", |row| {
        // Those without a quota hold what they hold together.
        let shared = if row.export.status.share == 0 { " shared" } else { "" };
        format!("{}{shared}", Bytes(row.export.status.share_held_bytes))
    }),
    ("dirty", |row| Bytes(row.export.status.dirty_bytes).to_string()),
    ("oldest", |row| row.export.status.dirty_age_s.map_or("-".to_owned(), |age| format!("{age:.1} s"))),
    ("waiting", |row| row.export.status.parked_now.to_string()),
];
const TRAFFIC: [Column; 9] = [
    NAME,
    ("reads", |row| row.grown(|counts| counts.reads).to_string()),
    ("read hits", |row| row.share(|counts| counts.read_hits, |counts| counts.reads)),
    ("writes", |row| row.grown(|counts| counts.writes).to_string()),
    ("write hits", |row| row.share(|counts| counts.write_hits, |counts| counts.writes)),
    ("requests/s", |row| {
        format!("{:.0}", row.grown(|counts| counts.reads + counts.writes) as f64 / row.seconds.max(1e-3))
    }),
    ("mean miss", |row| row.mean(|counts| counts.missed_request_bytes, |counts| counts.missed_requests)),
    ("mean block", |row| row.mean(|counts| counts.allocated_bytes, |counts| counts.allocated_blocks)),
    ("errors so far", |row| row.export.status.errors.to_string()),
];
const VOLUMES: [Column; 7] = [
    NAME,
    ("read by clients", |row| row.bytes(|counts| counts.read_bytes)),
    ("written", |row| row.bytes(|counts| counts.written_bytes)),
    ("from core", |row| row.bytes(|counts| counts.core_read_bytes)),
    ("to core", |row| row.bytes(|counts| counts.core_written_bytes)),
    ("from cache", |row| row.bytes(|counts| counts.cache_read_bytes)),
    ("to cache", |row| row.bytes(|counts| counts.cache_written_bytes)),
];
const TIMES: [Column; 7] = [
    NAME,
    ("read p50", |row| us(row.export.times.read_p50_us)),
    ("p99", |row| us(row.export.times.read_p99_us)),
    ("write p50", |row| us(row.export.times.write_p50_us)),
    ("p99", |row| us(row.export.times.write_p99_us)),
    ("flush p50", |row| us(row.export.times.flush_p50_us)),
    ("processing p50", |row| us(row.export.times.processing_p50_ns.map(|ns| ns / 1e3))),
];

fn us(us: Option<f64>) -> String {
    us.map_or("-".to_owned(), |us| format!("{us:.1} us"))
}

/// Time since the start: 42 s, 3 min, 5 h 12 min, 3 d 4 h.
fn duration(seconds: f64) -> String {
    let s = seconds as u64;
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min", s / 60),
        3600..86400 => format!("{} h {} min", s / 3600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86400, s / 3600 % 24),
    }
}

/// Lines with their columns aligned: names to the left, what follows to the right.
fn aligned(text: &mut String, lines: Vec<Vec<String>>) {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..lines.first().map_or(0, Vec::len)).map(width).collect();
    for line in &lines {
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            let _ = if column == 0 {
                write!(text, "{cell:<width$}")
            } else {
                write!(text, "{gap}{cell:>width$}")
            };
        }
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use tiermem_block::engine::ExportStatus;

    use super::*;

    fn view(reads: u64, uptime_s: f64) -> View {
        let counts =
            Counts { reads, read_hits: reads / 2, core_read_bytes: reads << 12, ..Counts::default() };
        let status = ExportStatus { name: "disk".to_owned(), counts, ..ExportStatus::default() };
        View { uptime_s, exports: vec![ExportView { status, ..ExportView::default() }], ..View::default() }
    }

    #[test]
    fn field_names_are_told_apart() {
        let mut names = EXPORT_NAMES.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), EXPORT.len());
    }

    #[test]
    fn a_table_tells_of_all_time_or_of_lately() {
        let text = table(&view(10, 4.0), None);
        assert!(
            text.contains("since the start") && text.contains("50.0%") && text.contains("40KiB"),
            "{text}"
        );
        let text = table(&view(10, 4.0), Some(&view(8, 2.0)));
        assert!(text.contains("in the last 2.0 s") && text.contains("8KiB"), "{text}");
        // A server that was started anew counts from 0.
        assert!(table(&view(1, 4.0), Some(&view(8, 2.0))).contains("0B"));
    }
}
