//! Runs in less DRAM than the program needs.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use tiermem_base::tier::{Capacity, TierLocation};
use tiermem_base::{Bytes, Nanos, TierKind, TierSpec};
use tiermem_pager::cost;
use tiermem_pager::machine::{Flash, Limits};
use tiermem_pager::run::{self, How, Report, RunError, Slice};
use tiermem_place::capture::Stop;

use crate::destination::Destination;
use crate::failure::Failure;
use crate::output::{self, Cell, Format, Rows};
use crate::{interrupt, print_lines, record};

/// How it is used, and the fields of the report.
pub const HELP: &str = "\
With --dram the program runs in less DRAM than it needs: a control group limits it, and swap takes what does not fit. docs/pager.md
explains it. It needs root: a control group, and a swap file where no swap is on.

Fields of the report with --dram:
  how                    by what the program was paged
  required_bytes         peak of anonymous, shared and mapped memory, in DRAM and on flash: what it needs in all
  charged_peak_bytes     peak of what its group was charged, with the file cache
  overcommit             required_bytes over dram_bytes, at least 1
  dram_bytes, dram_peak_bytes, flash_bytes, flash_peak_bytes
                         limits and peaks
  foreign_bytes          the most that other programs had in the swap of this run; null if no swap was turned on for it
  real_s, user_s, system_s
                         time from start to end; processor time in the program, and in the kernel for it
  pager_cpu_s            processor time of tiermem meanwhile
  minor_faults, major_faults
                         page faults answered from memory; page faults that read from disk
  shared_bytes           peak of shared memory
  read_bytes, written_bytes
                         from and to swap; counted for the whole machine where the kernel does not count them by group
  tcm_saved              share of the cost of memory that is saved, with DRAM at 4.875 and flash at 0.16 dollars a GB; counts the flash
                         that was used
  ended                  how the program ended
  tiers: a row for each tier
    name, capacity_bytes, peak_bytes, read_bytes, written_bytes
  slices: equal parts of the time, at most 1000
    at_s                 end of the slice, since the program's start
    charged_bytes, flash_bytes
                         at its end
    minor_faults, major_faults, read_bytes, written_bytes
                         in it";

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
    "shared_bytes",
    "read_bytes",
    "written_bytes",
    "tcm_saved",
    "ended",
];
const TIERS: &[&str] = &["name", "capacity_bytes", "peak_bytes", "read_bytes", "written_bytes"];
const SLICES: &[&str] =
    &["at_s", "charged_bytes", "flash_bytes", "minor_faults", "major_faults", "read_bytes", "written_bytes"];

/// The flash of a run, as `[PATH=]SIZE`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FlashSize {
    place: Option<PathBuf>,
    bytes: u64,
}

impl FromStr for FlashSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A path may have equals signs; sizes have none.
        let (place, size) = match text.rsplit_once('=') {
            Some(("", _)) => return Err("there is no path before the equals sign".to_owned()),
            Some((place, size)) => (Some(place.into()), size),
            None => (None, text),
        };
        let bytes: Bytes = size.parse().map_err(|error| format!("{error}; write 8GiB, or /var/tmp=8GiB"))?;
        Ok(FlashSize { place, bytes: bytes.0 })
    }
}

/// By what the program is paged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum HowName {
    /// The kernel's swap alone.
    #[default]
    Swap,
}

fn overcommit(text: &str) -> Result<f64, String> {
    let ratio = text.parse::<f64>().ok().filter(|ratio| (1.0..=1000.0).contains(ratio));
    ratio.ok_or_else(|| format!("{text:?} is not a ratio from 1 to 1000, such as 2"))
}

/// What concerns runs in less DRAM.
#[derive(Debug, Args)]
#[command(next_help_heading = "In less DRAM than the program needs")]
pub struct PagedArgs {
    /// DRAM for the program: all that it is charged, with its file cache.
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["place", "compare", "plan", "trials", "cold", "cpus", "bandwidth"])]
    dram: Option<Bytes>,
    /// Flash for what does not fit: how much, and in which folder or file, or on which swap device [default: swap that is on; without a
    /// path a file in /var/lib/tiermem if none is on].
    #[arg(long, value_name = "[PATH=]SIZE")]
    flash: Option<FlashSize>,
    /// The same as --dram and --flash, as other commands have it: dram=2GiB, flash:/var/tmp=8GiB.
    #[arg(long, value_name = "KIND=SIZE", conflicts_with_all = ["dram", "flash", "place", "compare", "plan"])]
    tier: Vec<TierSpec>,
    /// DRAM by the overcommit ratio: --required over R.
    #[arg(long, value_name = "R", value_parser = overcommit, requires = "required", conflicts_with_all = ["dram", "tier", "place", "compare", "plan"])]
    overcommit: Option<f64>,
    /// Memory that the program needs, as required_bytes of a report at R = 1 tells it.
    #[arg(long, value_name = "SIZE", requires = "overcommit")]
    required: Option<Bytes>,
    /// By what the program is paged.
    #[arg(long, value_enum)]
    how: Option<HowName>,
}

impl PagedArgs {
    /// Whether the program is to have less DRAM.
    pub fn is_asked(&self) -> bool {
        self.dram.is_some() || self.overcommit.is_some() || !self.tier.is_empty()
    }

    /// An option that says nothing without a limit of DRAM, if one was given.
    pub fn without_limit(&self) -> Option<&'static str> {
        let given = [("--flash", self.flash.is_some()), ("--how", self.how.is_some())];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name)
    }

    fn limits(&self) -> Result<Limits, Failure> {
        let limits = |dram_bytes, flash: Option<FlashSize>| Limits {
            dram_bytes,
            flash: flash
                .map_or(Flash::AlreadyOn, |FlashSize { place, bytes }| Flash::Limited { bytes, place }),
        };
        if !self.tier.is_empty() {
            let (dram, flash) = tiers(&self.tier)?;
            return Ok(limits(dram, flash));
        }
        let by_ratio = self.overcommit.zip(self.required);
        let by_ratio = by_ratio.map(|(ratio, required)| cost::dram_bytes(required.0, ratio));
        let dram_bytes = self.dram.map(|bytes| bytes.0).or(by_ratio);
        let dram_bytes = dram_bytes.ok_or_else(|| Failure::usage(anyhow!("how much DRAM? --dram 2GiB")))?;
        Ok(limits(dram_bytes, self.flash.clone()))
    }
}

/// DRAM and flash of tiers that were given as such.
fn tiers(specs: &[TierSpec]) -> Result<(u64, Option<FlashSize>), Failure> {
    let bytes = |spec: &TierSpec| match spec.capacity {
        Some(Capacity::Bytes(Bytes(bytes))) => Ok(bytes),
        _ => Err(Failure::usage(spec.error("capacity", "is bytes here, such as 2GiB"))),
    };
    match specs {
        [dram] if dram.kind == TierKind::Dram => Ok((bytes(dram)?, None)),
        [dram, flash] if dram.kind == TierKind::Dram && flash.kind == TierKind::Flash => {
            let place = match &flash.place {
                Some(TierLocation::Path(path)) => Some(path.clone()),
                _ => None,
            };
            Ok((bytes(dram)?, Some(FlashSize { place, bytes: bytes(flash)? })))
        }
        _ => Err(Failure::usage(anyhow!(
            "the tiers of a program are dram=SIZE and flash=SIZE or flash:PATH=SIZE"
        ))),
    }
}

/// Runs the program and reports.
pub fn run(
    args: &PagedArgs,
    command: Vec<OsString>,
    format: Format,
    destination: &Destination,
) -> Result<(), Failure> {
    let limits = args.limits()?;
    let options = run::Options { command, limits, how: How::Swap, keeper: keeper() };
    let stop = Stop::default();
    // A signal is the program's; the run ends with it.
    interrupt::pass_on(&stop, |_| {}, interrupt::Second::EndsProgram);
    let (report, notes) = run::run(&options, &stop).map_err(|error| match error {
        RunError::Program(error) => record::advise(error),
        RunError::Machine(error) => Failure::failed(error),
    })?;
    for note in &notes {
        eprintln!("tiermem: {note}");
    }
    if let Some(full) = &report.ended.full {
        eprintln!("tiermem: {full}");
    }
    let written = destination.open().and_then(|mut out| match format_of(format, destination) {
        Format::Table => write_table(&mut out, &report),
        format => {
            let lists = [("tiers", tier_rows(&report)), ("slices", slice_rows(&report.slices))];
            output::write_record(&mut out, format, &record_row(&report), &lists)?;
            out.flush()
        }
    });
    written.map_err(|error| Failure::writing("the report", error))?;
    Failure::of_program(report.ended.status)
}

/// The command that stays behind where processes outlive the program.
fn keeper() -> Vec<OsString> {
    ["/proc/self/exe", "pager", "keep"].map(OsString::from).into()
}

/// A file that is named after a format has that.
fn format_of(format: Format, destination: &Destination) -> Format {
    let is_json = |path: &Path| path.extension().is_some_and(|suffix| suffix == "json");
    match destination {
        Destination::File(path) if format == Format::Table && is_json(path) => Format::Json,
        _ => format,
    }
}

fn record_row(report: &Report) -> Rows {
    let seconds = |time: std::time::Duration| Cell::Number(time.as_secs_f64(), 4);
    let [dram, flash] = report.tiers();
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
        seconds(report.usage.user),
        seconds(report.usage.system),
        seconds(report.pager_cpu),
        Cell::Count(report.minor_faults),
        Cell::Count(report.major_faults),
        Cell::Bytes(report.shared_bytes),
        Cell::Bytes(report.read_bytes),
        Cell::Bytes(report.written_bytes),
        report.tcm_saved().map_or(Cell::UNKNOWN, |share| Cell::Number(share, 4)),
        Cell::Text(report.ended.to_string()),
    ];
    Rows { fields: FIELDS, rows: vec![row] }
}

/// A limit, if there is one.
fn limit(bytes: Option<u64>) -> Cell {
    bytes.map_or(Cell::UNKNOWN, Cell::Bytes)
}

fn tier_rows(report: &Report) -> Rows {
    let row = |tier: run::TierUse| {
        vec![
            Cell::Text(tier.name.to_owned()),
            limit(tier.capacity_bytes),
            Cell::Bytes(tier.peak_bytes),
            Cell::Bytes(tier.read_bytes),
            Cell::Bytes(tier.written_bytes),
        ]
    };
    Rows { fields: TIERS, rows: report.tiers().map(row).into() }
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
    let [dram, flash] = report.tiers();
    let remark = format!("anonymous, shared and mapped memory at its peak; R = {:.2}", report.overcommit());
    line("needed", Bytes(report.required_bytes).to_string(), remark)?;
    line("DRAM", Bytes(dram.peak_bytes).to_string(), format!("at most, of {}", Bytes(report.dram_bytes)))?;
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
    let remark = format!(
        "{} in the program, {} in the kernel for it",
        seconds(report.usage.user),
        seconds(report.usage.system)
    );
    line("took", seconds(report.real), remark)?;
    let remark = format!("that read from disk; {} answered from memory", report.minor_faults);
    line("faults", report.major_faults.to_string(), remark)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flash_has_a_size_and_perhaps_a_place() {
        let flash = |text: &str| text.parse::<FlashSize>();
        assert_eq!(flash("8GiB"), Ok(FlashSize { place: None, bytes: 8 << 30 }));
        assert_eq!(flash("/a=b=8GiB"), Ok(FlashSize { place: Some("/a=b".into()), bytes: 8 << 30 }));
        assert!(flash("=8GiB").unwrap_err().contains("no path"));
        assert!(flash("/var/tmp").unwrap_err().contains("/var/tmp=8GiB"));
    }

    #[test]
    fn tiers_are_dram_and_flash() {
        let specs =
            |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<TierSpec>>();
        let (dram, flash) = tiers(&specs(&["dram=1GiB", "flash:/x=2GiB"])).unwrap();
        assert_eq!((dram, flash), (1 << 30, Some(FlashSize { place: Some("/x".into()), bytes: 2 << 30 })));
        for wrong in [&["flash=1GiB"][..], &["dram=1GiB", "dram=1GiB"], &["dram=50%"]] {
            assert!(tiers(&specs(wrong)).is_err(), "{wrong:?}");
        }
    }
}
