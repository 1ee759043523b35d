//! Sizes of the requested values.

use super::histogram::{Words, chart as histogram};
use tiermem_model::mrc::Unit;

use crate::chart::Chart;
use crate::gather::Report;
use crate::quantity::Quantity;

/// The chart; none where the trace has no sizes.
pub fn chart(report: &Report) -> Option<Chart> {
    let sizes = report.stat.size_bytes.as_ref().filter(|_| report.unit == Unit::Bytes)?;
    let text = |bytes: u64| Quantity::Bytes.text(bytes as f64);
    let finding = if sizes.min == sizes.max {
        format!("Every request is for {}.", text(sizes.max))
    } else {
        format!(
            "Half of the requests are for {} or less, 99% for {} or less; the mean is {}.",
            text(sizes.p50),
            text(sizes.p99),
            Quantity::Bytes.text(sizes.mean)
        )
    };
    let words = Words {
        id: "sizes",
        title: "Sizes",
        axis: "size of the value, by powers of two",
        counted: "of all requests",
    };
    Some(histogram(&words, sizes, Quantity::Bytes, finding))
}
