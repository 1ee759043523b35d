//! Miss ratios of K-LRU by K.

use super::by_policy::{lines, points, ratio_axis, size_axis};
use super::policy_name;
use crate::chart::{Chart, Colour};
use crate::gather::Report;

/// The chart; none if no K was asked for.
pub fn chart(report: &Report) -> Option<Chart> {
    let (first, last) = (report.by_k.first()?, report.by_k.last()?);
    let pairs = first.curve.points.iter().zip(&last.curve.points);
    let widest = pairs
        .map(|(one, other)| (one.miss_ratio - other.miss_ratio, one.size))
        .max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()))?;
    let (low, high) = match widest.0 >= 0.0 {
        true => (policy_name(last.kind), policy_name(first.kind)),
        false => (policy_name(first.kind), policy_name(last.kind)),
    };
    let finding = if report.by_k.len() < 2 {
        String::new()
    } else {
        format!(
            "K objects are drawn at random and the one unused longest goes. The choice of K matters most at {}, where {low} \
             misses {} less than {high}.",
            report.size_text(widest.1 as f64),
            points(widest.0.abs())
        )
    };
    // Few values of K take the strong colours.
    let pale = 5usize.saturating_sub(report.by_k.len());
    Some(Chart {
        id: "ks",
        title: "Miss ratio of K-LRU by K".to_owned(),
        finding,
        x: size_axis(report),
        y: ratio_axis(&report.by_k),
        marks: lines(&report.by_k, |at| Colour::Ordered(at + pale)),
    })
}
