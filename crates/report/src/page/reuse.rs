//! Reuse times.

use super::histogram::{Words, chart as histogram};
use crate::chart::Chart;
use crate::gather::Report;
use crate::quantity::Quantity;

/// The chart; none if no key comes twice.
pub fn chart(report: &Report) -> Option<Chart> {
    let times = report.stat.reuse_time_requests.as_ref()?;
    let text = |requests: u64| Quantity::Count.tick(requests as f64);
    let finding = format!(
        "{} of the requests are for a key that was asked for before: half of these within {} requests, 90% within {}.",
        Quantity::Share.tick((1.0 - report.keys as f64 / report.stat.requests.max(1) as f64).max(0.0)),
        text(times.p50),
        text(times.p90)
    );
    let words = Words {
        id: "reuse",
        title: "Reuse time",
        axis: "requests since the last access to the key",
        counted: "of the requests that come again",
    };
    Some(histogram(&words, times, Quantity::Count, finding))
}
