//! Miss ratios by policy.

use super::policy_name;
use crate::chart::{At, Axis, Chart, Colour, Mark};
use crate::gather::{PolicyCurve, Report};
use crate::quantity::Quantity;

/// A line for each curve.
pub fn lines(curves: &[PolicyCurve], colour: impl Fn(usize) -> Colour) -> Vec<Mark> {
    let line = |(at, one): (usize, &PolicyCurve)| {
        let points = one.curve.points.iter();
        let points = points.map(|p| At { x: p.size as f64, y: p.miss_ratio, error: p.error });
        Mark::Line {
            name: policy_name(one.kind),
            colour: colour(at),
            dashed: false,
            told: true,
            points: points.collect(),
        }
    };
    curves.iter().enumerate().map(line).collect()
}

/// Sizes by their logarithms: small caches are where curves fall and differ.
pub fn size_axis(report: &Report) -> Axis {
    let sizes = || report.by_policy.iter().chain(&report.by_k).flat_map(|one| &one.curve.points);
    let smallest = sizes().map(|point| point.size).min().unwrap_or(1);
    Axis::log(report.size_title(), report.size_quantity(), smallest as f64, report.working_set as f64)
}

/// Miss ratios from 0 on.
pub fn ratio_axis(curves: &[PolicyCurve]) -> Axis {
    let points = curves.iter().flat_map(|one| &one.curve.points);
    let largest = points.map(|point| point.miss_ratio + point.error).fold(0.0, f64::max);
    Axis::from_zero("misses of all requests", Quantity::Share, largest.clamp(0.01, 1.0))
}

/// The chart.
pub fn chart(report: &Report) -> Chart {
    // What everything is drawn over comes last: LRU.
    let mut marks = lines(&report.by_policy, Colour::Distinct);
    marks.reverse();
    Chart {
        id: "policies",
        title: "Miss ratio by policy".to_owned(),
        finding: finding(report),
        x: size_axis(report),
        y: ratio_axis(&report.by_policy),
        marks,
    }
}

/// The policy with the lowest miss ratio averaged over all sizes, and its lead.
fn finding(report: &Report) -> String {
    let mean = |one: &PolicyCurve| {
        one.curve.points.iter().map(|point| point.miss_ratio).sum::<f64>()
            / one.curve.points.len().max(1) as f64
    };
    let Some(first) = report.by_policy.first() else { return String::new() };
    let best = report.by_policy.iter().min_by(|a, b| mean(a).total_cmp(&mean(b))).unwrap_or(first);
    let ahead = mean(first) - mean(best);
    let name = policy_name(first.kind);
    if best.kind == first.kind {
        return format!("No other of these policies misses less than {name}, averaged over the sizes shown.");
    }
    // Where the best is farthest ahead of the first.
    let pairs = best.curve.points.iter().zip(&first.curve.points);
    let widest =
        pairs.max_by(|a, b| (a.1.miss_ratio - a.0.miss_ratio).total_cmp(&(b.1.miss_ratio - b.0.miss_ratio)));
    let at = widest.map_or(String::new(), |(low, high)| {
        format!(
            ", and {} less at {}",
            points(high.miss_ratio - low.miss_ratio),
            report.size_text(low.size as f64)
        )
    });
    format!(
        "Averaged over the sizes shown, {} misses {} less than {name}{at}.",
        policy_name(best.kind),
        points(ahead)
    )
}

/// A difference of shares in words.
pub fn points(difference: f64) -> String {
    format!("{} percentage points", crate::quantity::trimmed(difference * 100.0, 2))
}
