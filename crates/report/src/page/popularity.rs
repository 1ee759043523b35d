//! Requests by rank of popularity.

use crate::chart::{At, Axis, Chart, Colour, Mark};
use crate::gather::Report;
use crate::quantity::Quantity;

/// Accesses that a key must have to lie in the range of the fit; as in `tiermem_trace::stat`.
const FITTED_ACCESSES_MIN: f64 = 5.0;

/// The R² from which a line is called a fit.
const FITS_FROM: f64 = 0.9;

/// The chart; none without keys.
pub fn chart(report: &Report) -> Option<Chart> {
    let ranks = &report.stat.popularity;
    let (first, last) = (ranks.first()?, ranks.last()?);
    let points: Vec<At> =
        ranks.iter().map(|point| At::new(point.rank as f64, f64::from(point.accesses))).collect();
    let mut marks = Vec::new();
    let finding = match report.stat.zipf {
        Some(zipf) => {
            // A line through the middle of the points that were fitted, in logarithms.
            let fitted: Vec<(f64, f64)> = points
                .iter()
                .filter(|at| at.y >= FITTED_ACCESSES_MIN)
                .map(|at| (at.x.ln(), at.y.ln()))
                .collect();
            let mean =
                |of: fn(&(f64, f64)) -> f64| fitted.iter().map(of).sum::<f64>() / fitted.len().max(1) as f64;
            let (x, y) = (mean(|at| at.0), mean(|at| at.1));
            let alpha = zipf.alpha_least_squares;
            let fit = |rank: f64| At::new(rank, (y - alpha * (rank.ln() - x)).exp());
            // As far as the line stays within the axes.
            let reaches = if alpha > 0.0 { (x + y / alpha).exp() } else { f64::INFINITY };
            let end = (last.rank as f64).min(reaches);
            marks.push(Mark::Line {
                name: format!("Zipf {alpha:.2}"),
                colour: Colour::Quiet,
                dashed: true,
                told: false,
                points: vec![fit(first.rank as f64), fit(end.max(first.rank as f64))],
            });
            let likelihood = zipf
                .alpha_likelihood
                .map_or(String::new(), |alpha| format!("; {alpha:.2} by maximum likelihood"));
            if zipf.r_squared >= FITS_FROM {
                format!(
                    "A Zipf distribution with exponent {alpha:.2} fits the keys that have five accesses or more (R² {:.2}{likelihood}).",
                    zipf.r_squared
                )
            } else {
                format!(
                    "No Zipf distribution fits well: the nearest, for the keys that have five accesses or more, has exponent \
                     {alpha:.2} (R² {:.2}{likelihood}).",
                    zipf.r_squared
                )
            }
        }
        None => "Too few keys have five accesses or more to fit a Zipf distribution.".to_owned(),
    };
    marks.push(Mark::Line {
        name: "keys".to_owned(),
        colour: Colour::Distinct(0),
        dashed: false,
        told: true,
        points,
    });
    let largest = f64::from(first.accesses);
    Some(Chart {
        id: "popularity",
        title: "Popularity".to_owned(),
        finding,
        x: Axis::log("rank of the key", Quantity::Count, 1.0, (last.rank as f64).max(10.0)),
        y: Axis::log("accesses of the key", Quantity::Count, 1.0, (largest * 1.3).max(10.0)),
        marks,
    })
}
