//! Distributions by powers of two.

use tiermem_trace::stat::{Bucket, DistributionStat};

use crate::chart::{Axis, Chart, Colour, Mark};
use crate::quantity::Quantity;

/// Words for a distribution.
pub struct Words {
    /// Unique on the page.
    pub id: &'static str,
    /// The title of the chart.
    pub title: &'static str,
    /// Title of the horizontal axis.
    pub axis: &'static str,
    /// The things counted.
    pub counted: &'static str,
}

/// The axis spans at least such a factor.
const SPAN_MIN: f64 = 256.0;

/// Bars of the shares of values in each power of two, with a rule at the median. Values of 0 stand left of 1.
pub fn chart(words: &Words, distribution: &DistributionStat, quantity: Quantity, finding: String) -> Chart {
    let total = distribution.histogram.iter().map(|bucket| bucket.count).sum::<u64>().max(1) as f64;
    let from = |bucket: &Bucket| if bucket.from == 0 { 0.5 } else { bucket.from as f64 };
    let to = |bucket: &Bucket| bucket.to as f64 + 1.0;
    let share = |bucket: &Bucket| bucket.count as f64 / total;
    let bars: Vec<(f64, f64, f64)> =
        distribution.histogram.iter().map(|bucket| (from(bucket), to(bucket), share(bucket))).collect();
    let name = |bucket: &Bucket| match bucket.to {
        to if to == bucket.from => quantity.text(to as f64),
        to => format!("{} to {}", quantity.text(bucket.from as f64), quantity.text(to as f64)),
    };
    let names = distribution.histogram.iter().map(name).collect();
    let mut first = bars.first().map_or(0.5, |bar| bar.0);
    let mut last = bars.last().map_or(2.0, |bar| bar.1);
    // A bar or two do not fill the chart.
    while last / first < SPAN_MIN {
        (first, last) = ((first / 2.0).max(0.5), last * 2.0);
    }
    let largest = bars.iter().map(|bar| bar.2).fold(0.0, f64::max);
    Chart {
        id: words.id,
        title: words.title.to_owned(),
        finding,
        x: Axis::log(words.axis, quantity, first, last),
        y: Axis::from_zero(words.counted, Quantity::Share, largest),
        marks: vec![
            Mark::Bars {
                name: words.counted.to_owned(),
                colour: Colour::Distinct(0),
                bars,
                names,
                labelled: false,
            },
            Mark::Rule {
                x: (distribution.p50 as f64).max(first),
                name: format!("median {}", quantity.text(distribution.p50 as f64)),
            },
        ],
    }
}
