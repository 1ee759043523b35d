//! Times between requests.

use super::histogram::{Words, chart as histogram};
use crate::chart::Chart;
use crate::gather::Report;
use crate::quantity::Quantity;

/// The chart; none where the trace has no times.
pub fn chart(report: &Report) -> Option<Chart> {
    let times = report.stat.inter_arrival_ns.as_ref().filter(|times| times.max > 0)?;
    let text = |ns: u64| match ns {
        0 => "at the same time as the one before".to_owned(),
        ns => format!("within {} of the one before", Quantity::Time.text(ns as f64)),
    };
    let finding = if times.min == times.max {
        format!("Each request comes {} after the one before.", Quantity::Time.text(times.max as f64))
    } else {
        format!("Half of the requests come {}, and 99% {}.", text(times.p50), text(times.p99))
    };
    let words = Words {
        id: "arrival",
        title: "Inter-arrival time",
        axis: "time since the request before",
        counted: "of all requests",
    };
    Some(histogram(&words, times, Quantity::Time, finding))
}
