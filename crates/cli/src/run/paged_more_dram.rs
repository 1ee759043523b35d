//! What more DRAM would have saved a paged program: rows, a sentence, and the points of a chart.

use tiermem_base::{Bytes, Nanos};
use tiermem_pager::run::{DramSize, Report};
use tiermem_report::paged_dram::PagedDram;

use crate::output::{Cell, Rows};

const MORE_DRAM: &[&str] = &["dram_bytes", "faults", "fetched_pages", "wait_s"];
/// Points of the chart, which reaches to four times the DRAM at most.
const POINTS: u64 = 96;
const REACH: u64 = 4;

/// Rows of the report.
pub fn rows(report: &Report) -> Rows {
    let row = |size: DramSize| {
        vec![
            Cell::Bytes(size.dram_bytes),
            Cell::Count(size.faults),
            Cell::Count(size.fetched_pages),
            size.wait.map_or(Cell::UNKNOWN, |wait| Cell::Number(wait.as_secs_f64(), 4)),
        ]
    };
    Rows { fields: MORE_DRAM, rows: report.more_dram().into_iter().map(row).collect() }
}

/// How much more, and what is to be said of it; `None` where nothing is known, or there is nothing to save.
pub fn sentence(report: &Report) -> Option<(String, String)> {
    let now = report.with_more(0).filter(|now| now.faults > 0 || now.fetched_pages > 0)?;
    let more_bytes = report.next_bytes();
    let more = report.with_more(more_bytes)?;
    let percent = 100.0 * (now.faults - more.faults) as f64 / now.faults.max(1) as f64;
    let mut remark = if percent < 1.0 {
        "would save less than 1% of these page faults".to_owned()
    } else {
        let wait = now.wait.zip(more.wait).map(|(before, after)| Nanos((before - after).as_nanos() as u64));
        let wait = wait.map_or_else(String::new, |wait| format!(", about {wait} of waiting"));
        format!("would save about {percent:.0}% of these page faults{wait}")
    };
    if now.fetched_pages > more.fetched_pages {
        let fetched = now.fetched_pages - more.fetched_pages;
        remark += &format!(", and {fetched} of {} pages fetched ahead", now.fetched_pages);
    }
    if let Some(bytes) = report.tenth_dram_bytes() {
        remark += &format!("; with {} in all a tenth would be left", Bytes(bytes));
    }
    Some((format!("+{}", Bytes(more_bytes)), remark))
}

/// The chart of the page.
pub fn chart(report: &Report) -> Option<PagedDram> {
    let (more, remark) = sentence(report)?;
    let point = |step: u64| report.with_more(report.dram_bytes * (REACH - 1) * step / POINTS);
    let mut sizes: Vec<DramSize> = (0..=POINTS).filter_map(point).collect();
    // Beyond the size from which on nothing changes there is nothing to see.
    let is_flat = |pair: &[DramSize]| {
        (pair[0].faults, pair[0].fetched_pages) == (pair[1].faults, pair[1].fetched_pages)
    };
    let flat = sizes.windows(2).rev().take_while(|pair| is_flat(pair)).count();
    let seen = sizes.len() - flat + sizes.len() / 8;
    sizes.truncate(seen);
    Some(PagedDram {
        dram_bytes: report.dram_bytes,
        finding: format!("{} more DRAM {remark}.", more.trim_start_matches('+')),
        sizes: sizes.iter().map(|size| (size.dram_bytes, size.faults, size.fetched_pages)).collect(),
    })
}
