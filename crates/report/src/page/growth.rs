//! Growth of the working set over time.

use tiermem_model::mrc::Unit;
use tiermem_trace::stat::GrowthPoint;

use crate::chart::{At, Axis, Chart, Colour, Mark};
use crate::gather::Report;
use crate::quantity::Quantity;

/// The chart; none of an empty trace.
pub fn chart(report: &Report) -> Option<Chart> {
    let points = &report.stat.growth;
    let (first, last) = (points.first()?, points.last()?);
    let in_bytes = report.unit == Unit::Bytes;
    let total = |at: &GrowthPoint| if in_bytes { at.bytes_total } else { at.keys_total };
    let in_use = |at: &GrowthPoint| if in_bytes { at.bytes_in_use } else { at.keys_in_use };
    // Time that stands still or goes back is no axis; the number of requests always is.
    let by_time = report.stat.duration_ns > 0 && points.windows(2).all(|two| two[0].time_ns < two[1].time_ns);
    let start = if by_time { last.time_ns.saturating_sub(report.stat.duration_ns) } else { 0 };
    let x = |at: &GrowthPoint| if by_time { at.time_ns.saturating_sub(start) } else { at.requests } as f64;
    // The last stretch may have been cut short, and uses less for that alone.
    let is_cut = points.len() > 1 && last.requests % first.requests.max(1) != 0;
    let full = &points[..points.len() - usize::from(is_cut)];
    let line = |name: &str, colour, points: &[GrowthPoint], of: &dyn Fn(&GrowthPoint) -> u64| Mark::Line {
        name: name.to_owned(),
        colour,
        dashed: false,
        told: true,
        points: points.iter().map(|at| At::new(x(at), of(at) as f64)).collect(),
    };
    let half = points.iter().find(|at| total(at) * 2 >= total(last)).unwrap_or(first);
    let latest = &points[points.len() - points.len().div_ceil(10)..];
    let new: u64 = latest.iter().map(|at| at.keys_new).sum();
    let quantity = report.size_quantity();
    let finding = format!(
        "Half of all keys that will ever come had come after {} of the trace; its last tenth brought {} new keys. A stretch is \
         {} requests long.",
        Quantity::Share.tick(half.requests as f64 / last.requests.max(1) as f64),
        Quantity::Count.tick(new as f64),
        Quantity::Count.tick(first.requests as f64),
    );
    let what = if in_bytes { "bytes of values" } else { "keys" };
    Some(Chart {
        id: "growth",
        title: "Working set over time".to_owned(),
        finding,
        x: if by_time {
            Axis::up_to("time since the first request", Quantity::Time, x(last))
        } else {
            Axis::up_to("requests", Quantity::Count, x(last))
        },
        y: Axis::from_zero(what, quantity, total(last) as f64),
        marks: vec![
            line("seen so far", Colour::Distinct(0), points, &total),
            line("in a stretch", Colour::Distinct(1), full, &in_use),
        ],
    })
}
