//! Comparison of ways of paging a program.

use std::io::{self, Write};

use tiermem_pager::run::{AskedHow, Compared, Report, Series};
use tiermem_place::run::welch::Sample;

use super::comparisons::{self, Times};
use super::paged_report::format_of;
use crate::destination::Destination;
use crate::output::{self, Cell, Format, Rows};

/// The fields of the report.
pub const HELP: &str = "\
Fields of the report with --dram and --compare:
  trials                 of each
  ended                  how the last run ended
  hows: a row for each, means and standard deviations (sd) over its trials
    how, trials, required_bytes, flash_peak_bytes
    real_s, real_sd_s, user_s, user_sd_s, system_s, system_sd_s, pager_cpu_s
    minor_faults, major_faults, read_bytes, written_bytes, prefetched_pages, prefetch_used_pages
  comparisons: a row for each pair and each of real, user and system
    figure, how, against, difference_s, ratio, t, freedom, p
                         as without --dram";

const RECORD: &[&str] = &["trials", "ended"];
const HOWS: &[&str] = &[
    "how",
    "trials",
    "required_bytes",
    "flash_peak_bytes",
    "real_s",
    "real_sd_s",
    "user_s",
    "user_sd_s",
    "system_s",
    "system_sd_s",
    "pager_cpu_s",
    "minor_faults",
    "major_faults",
    "read_bytes",
    "written_bytes",
    "prefetched_pages",
    "prefetch_used_pages",
];
const COMPARISONS: &[&str] = &["figure", "how", "against", "difference_s", "ratio", "t", "freedom", "p"];

/// Writes it.
pub fn write(compared: &Compared, trials: u32, format: Format, destination: &Destination) -> io::Result<()> {
    let last = compared.series.iter().filter_map(|series| series.reports.last()).next_back();
    let ended = compared.cut_short.as_ref().map(|(_, ended)| ended).or(last.map(|report| &report.ended));
    let ended = ended.map_or_else(String::new, ToString::to_string);
    let record = Rows { fields: RECORD, rows: vec![vec![Cell::Count(trials.into()), Cell::Text(ended)]] };
    let hows = Rows { fields: HOWS, rows: compared.series.iter().map(row).collect() };
    let times: Vec<Times> = compared.series.iter().map(times_of).collect();
    let lists = [("hows", hows), ("comparisons", comparisons::rows(&times, COMPARISONS))];
    let mut out = destination.open()?;
    output::write_record(&mut out, format_of(format, destination), &record, &lists)?;
    out.flush()
}

/// The name of a way, as the command line has it.
pub fn name(how: AskedHow) -> &'static str {
    match how {
        AskedHow::Auto => "auto",
        AskedHow::Swap => "swap",
        AskedHow::Kernel => "kernel",
    }
}

fn times_of(series: &Series) -> Times {
    Times {
        name: name(series.how).to_owned(),
        real: series.seconds(|it| it.real),
        user: series.seconds(|it| it.user().unwrap_or_default()),
        system: series.seconds(|it| it.system().unwrap_or_default()),
    }
}

fn row(series: &Series) -> Vec<Cell> {
    let Times { name, real, user, system } = times_of(series);
    let mean = |figure: &dyn Fn(&Report) -> f64| Cell::Number(series.of(figure).mean, 0);
    let steered = |count: fn(&tiermem_pager::steer::Steered) -> u64| {
        mean(&|report| report.steered.as_ref().map_or(f64::NAN, |steered| count(steered) as f64))
    };
    let seconds = |sample: Sample| [Cell::Number(sample.mean, 4), Cell::Number(sample.deviation, 4)];
    let mut row = vec![
        Cell::Text(name),
        Cell::Count(series.reports.len() as u64),
        mean(&|it| it.required_bytes as f64),
        mean(&|it| it.flash_peak_bytes as f64),
    ];
    row.extend([real, user, system].into_iter().flat_map(seconds));
    row.push(Cell::Number(series.seconds(|it| it.pager_cpu).mean, 4));
    row.extend([
        mean(&|it| it.minor_faults as f64),
        mean(&|it| it.major_faults as f64),
        mean(&|it| it.read_bytes as f64),
        mean(&|it| it.written_bytes as f64),
    ]);
    row.extend([steered(|it| it.counts.prefetched), steered(|it| it.counts.prefetch_used)]);
    row
}
