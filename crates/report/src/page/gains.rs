//! Gains of memory: the hit ratio that each tenth of the memory adds.

use super::by_policy::points;
use super::policy_name;
use crate::chart::{Axis, Chart, Colour, Mark};
use crate::gather::Report;
use crate::quantity::{Quantity, trimmed};
use tiermem_model::mrc::Unit;

/// The chart.
pub fn chart(report: &Report) -> Chart {
    let whole = report.working_set as f64;
    let parts = report.gains.len().max(1);
    let end = |at: usize| whole * at as f64 / parts as f64;
    let bars = report.gains.iter().enumerate().map(|(at, gain)| (end(at), end(at + 1), gain.max(0.0)));
    let name = |at: usize| format!("{} to {}", report.size_text(end(at)), report.size_text(end(at + 1)));
    let largest = report.gains.iter().copied().fold(0.0, f64::max);
    let (first, last) = (report.gains.first().copied(), report.gains.last().copied());
    let per_gb = match (report.unit, last) {
        (Unit::Bytes, Some(last)) => {
            let gigabytes = whole / parts as f64 / 1e9;
            format!(" ({} points a GB)", trimmed(last * 100.0 / gigabytes, 2))
        }
        _ => String::new(),
    };
    Chart {
        id: "gains",
        title: "What each tenth of the memory buys".to_owned(),
        finding: format!(
            "Under {}, the first 10% of the memory buys {} of hit ratio, the last 10% {}{per_gb}.",
            policy_name(report.bought),
            points(first.unwrap_or(0.0)),
            points(last.unwrap_or(0.0).max(0.0)),
        ),
        x: Axis::up_to(report.size_title(), report.size_quantity(), whole),
        y: Axis::from_zero("hit ratio added, percentage points", Quantity::Share, largest.max(0.01)),
        marks: vec![Mark::Bars {
            name: "hit ratio added".to_owned(),
            colour: Colour::Distinct(0),
            bars: bars.collect(),
            names: (0..parts).map(name).collect(),
            labelled: true,
        }],
    }
}
