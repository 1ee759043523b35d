//! Report on a run in less DRAM than the program needs: as a table for people, or with all its figures.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use tiermem_base::{Bytes, Nanos};
use tiermem_pager::cost;
use tiermem_pager::run::{MeasuredTimes, Report, Slice, TierUse};
use tiermem_pager::steer::Steered;
use tiermem_report::paged::{PagedRun, PagedSlice};

use super::{paged_more_dram, paged_policies};
use crate::destination::Destination;
use crate::output::{self, Cell, Format, Rows};
use crate::print_lines;

const FIELDS: &[&str] = &[
    "how",
    "required_bytes",
    "charged_peak_bytes",
    "overcommit",
    "dram_bytes",
    "dram_peak_bytes",
    "flash_bytes",
    "flash_peak_bytes",
    "foreign_bytes",
    "real_s",
    "user_s",
    "system_s",
    "pager_cpu_s",
    "minor_faults",
    "major_faults",
    "fault_p50_us",
    "fault_p99_us",
    "prefetched_pages",
    "prefetch_used_pages",
    "prefetch_late_pages",
    "kernel_evicted_pages",
    "dropped_behind_pages",
    "shared_bytes",
    "events_lost",
    "read_bytes",
    "written_bytes",
    "tcm_saved",
    "ended",
    "tenth_dram_bytes",
];
const TIERS: &[&str] = &["name", "capacity_bytes", "peak_bytes", "read_bytes", "written_bytes"];
const SLICES: &[&str] =
    &["at_s", "charged_bytes", "flash_bytes", "minor_faults", "major_faults", "read_bytes", "written_bytes"];

/// Writes it: as a page if the file is named so.
pub fn write(
    report: &Report,
    command: &[OsString],
    format: Format,
    destination: &Destination,
) -> io::Result<()> {
    let mut out = destination.open()?;
    if is_page(destination) {
        out.write_all(page(report, command).to_html().as_bytes())?;
        return out.flush();
    }
    match format_of(format, destination) {
        Format::Table => write_table(&mut out, report),
        format => {
            let lists = [
                ("tiers", tier_rows(report)),
                ("slices", slice_rows(&report.slices)),
                ("more_dram", paged_more_dram::rows(report)),
                ("policies", paged_policies::rows(report)),
            ];
            output::write_record(&mut out, format, &record_row(report), &lists)?;
            out.flush()
        }
    }
}

fn is_page(destination: &Destination) -> bool {
    matches!(destination, Destination::File(path) if path.extension().is_some_and(|suffix| suffix == "html"))
}

fn page(report: &Report, command: &[OsString]) -> PagedRun {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let slice = |slice: &Slice| PagedSlice {
        at_s: slice.at.as_secs_f64(),
        dram_bytes: slice.charged_bytes,
        flash_bytes: slice.flash_bytes,
        minor_faults: slice.minor_faults,
        major_faults: slice.major_faults,
        read_bytes: slice.read_bytes,
        written_bytes: slice.written_bytes,
    };
    PagedRun {
        command: words.join(" "),
        how: report.how.to_string(),
        required_bytes: report.required_bytes,
        dram_bytes: report.dram_bytes,
        flash_peak_bytes: report.flash_peak_bytes,
        real_s: report.real.as_secs_f64(),
        cpu_s: report.user().zip(report.system()).map(|(user, system)| (user + system).as_secs_f64()),
        major_faults: report.major_faults,
        fault_us: report.fault_times.map(|times| (times.p50_us, times.p99_us)),
        prefetched: report.steered.as_ref().map(|it| (it.counts.prefetched, it.counts.prefetch_used)),
        tcm_saved: report.tcm_saved(),
        more_dram: paged_more_dram::chart(report),
        ended: report.ended.to_string(),
        slices: report.slices.iter().map(slice).collect(),
    }
}

/// A file that is named after a format has that.
pub fn format_of(format: Format, destination: &Destination) -> Format {
    let is_json = |path: &Path| path.extension().is_some_and(|suffix| suffix == "json");
    match destination {
        Destination::File(path) if format == Format::Table && is_json(path) => Format::Json,
        _ => format,
    }
}

fn record_row(report: &Report) -> Rows {
    let seconds = |time: std::time::Duration| Cell::Number(time.as_secs_f64(), 4);
    let (dram, flash) = (report.dram(), report.flash());
    let time_us =
        |time: fn(&MeasuredTimes) -> f64| Cell::Number(report.fault_times.as_ref().map_or(f64::NAN, time), 1);
    let steered = |count: fn(&Steered) -> u64| {
        report.steered.as_ref().map_or(Cell::UNKNOWN, |it| Cell::Count(count(it)))
    };
    let row = vec![
        Cell::Text(report.how.to_string()),
        Cell::Bytes(report.required_bytes),
        Cell::Bytes(report.charged_peak_bytes),
        Cell::Number(report.overcommit(), 3),
        limit(dram.capacity_bytes),
        Cell::Bytes(dram.peak_bytes),
        limit(flash.capacity_bytes),
        Cell::Bytes(flash.peak_bytes),
        report.foreign_bytes.map_or(Cell::UNKNOWN, Cell::Bytes),
        seconds(report.real),
        report.user().map_or(Cell::UNKNOWN, seconds),
        report.system().map_or(Cell::UNKNOWN, seconds),
        seconds(report.pager_cpu),
        Cell::Count(report.minor_faults),
        Cell::Count(report.major_faults),
        time_us(|it| it.p50_us),
        time_us(|it| it.p99_us),
        steered(|it| it.counts.prefetched),
        steered(|it| it.counts.prefetch_used),
        steered(|it| it.counts.prefetch_late),
        steered(|it| it.counts.kernel_evicted),
        steered(|it| it.counts.dropped_behind),
        Cell::Bytes(report.shared_bytes),
        steered(|it| it.events_lost),
        Cell::Bytes(report.read_bytes),
        Cell::Bytes(report.written_bytes),
        report.tcm_saved().map_or(Cell::UNKNOWN, |share| Cell::Number(share, 4)),
        Cell::Text(report.ended.to_string()),
        limit(report.tenth_dram_bytes()),
    ];
    Rows { fields: FIELDS, rows: vec![row] }
}

/// A limit, if there is one.
fn limit(bytes: Option<u64>) -> Cell {
    bytes.map_or(Cell::UNKNOWN, Cell::Bytes)
}

fn tier_rows(report: &Report) -> Rows {
    let row = |tier: TierUse| {
        vec![
            Cell::Text(tier.name.to_owned()),
            limit(tier.capacity_bytes),
            Cell::Bytes(tier.peak_bytes),
            Cell::Bytes(tier.read_bytes),
            Cell::Bytes(tier.written_bytes),
        ]
    };
    Rows { fields: TIERS, rows: report.tiers().into_iter().map(row).collect() }
}

fn slice_rows(slices: &[Slice]) -> Rows {
    let row = |slice: &Slice| {
        vec![
            Cell::Number(slice.at.as_secs_f64(), 3),
            Cell::Bytes(slice.charged_bytes),
            Cell::Bytes(slice.flash_bytes),
            Cell::Count(slice.minor_faults),
            Cell::Count(slice.major_faults),
            Cell::Bytes(slice.read_bytes),
            Cell::Bytes(slice.written_bytes),
        ]
    };
    Rows { fields: SLICES, rows: slices.iter().map(row).collect() }
}

fn write_table(mut out: &mut impl Write, report: &Report) -> io::Result<()> {
    let mut line =
        |name: &str, value: String, remark: String| print_lines::line(&mut out, name, value, remark);
    let (dram, flash) = (report.dram(), report.flash());
    let remark = format!("anonymous, shared and mapped memory at its peak; R = {:.2}", report.overcommit());
    line("needed", Bytes(report.required_bytes).to_string(), remark)?;
    line("DRAM", Bytes(dram.peak_bytes).to_string(), format!("at most, of {}", Bytes(report.dram_bytes)))?;
    if report.pool.is_some() {
        let memory = report.tiers();
        for (tier, name) in memory.iter().zip(["local", "remote"]) {
            let capacity =
                tier.capacity_bytes.map_or_else(String::new, |bytes| format!("at most, of {}", Bytes(bytes)));
            let moved = match name {
                "remote" => format!(
                    "; {} went up from there and {} came down",
                    Bytes(tier.read_bytes),
                    Bytes(tier.written_bytes)
                ),
                _ => String::new(),
            };
            line(name, Bytes(tier.peak_bytes).to_string(), capacity + &moved)?;
        }
    }
    let of = flash.capacity_bytes.map_or("the machine's swap".to_owned(), |bytes| Bytes(bytes).to_string());
    let traffic = match report.is_of_machine {
        true => "by all programs of the machine",
        false => "by this program",
    };
    let remark = format!(
        "at most, of {of}; {} read and {} written {traffic}",
        Bytes(flash.read_bytes),
        Bytes(flash.written_bytes)
    );
    line("flash", Bytes(flash.peak_bytes).to_string(), remark)?;
    if let Some(bytes) = report.foreign_bytes.filter(|bytes| *bytes > 0) {
        line("foreign", Bytes(bytes).to_string(), "of other programs in the swap of this run".to_owned())?;
    }
    let seconds = |time: std::time::Duration| Nanos(time.as_nanos() as u64).to_string();
    let remark = report.user().zip(report.system()).map_or_else(String::new, |(user, system)| {
        format!("{} in the program, {} in the kernel for it", seconds(user), seconds(system))
    });
    line("took", seconds(report.real), remark)?;
    let times = report.fault_times.map_or_else(String::new, |it| {
        format!(" (p50 {:.0} us, p99 {:.0} us, of {})", it.p50_us, it.p99_us, it.count)
    });
    let remark = format!("that read from disk{times}; {} answered from memory", report.minor_faults);
    line("faults", report.major_faults.to_string(), remark)?;
    if let Some((more, remark)) = paged_more_dram::sentence(report) {
        line("more DRAM", more, remark)?;
    }
    if let Some(share) = report.tcm_saved() {
        let remark = format!(
            "of the cost of memory, with DRAM at {} and flash at {} dollars a GB",
            cost::DRAM_PER_GB,
            cost::FLASH_PER_GB
        );
        line("saved", format!("{:.1}%", share * 100.0), remark)?;
    }
    line("ended by", report.ended.to_string(), String::new())?;
    out.flush()
}
