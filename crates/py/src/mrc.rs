//! Miss-ratio curves.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tiermem_model::mrc::{Curve, Kind, Point, Survey, Unit, curves_in_parallel};

use crate::failure::Failure;
use crate::progress::Progress;
use crate::source::{Input, Reading};

/// Policy, K or None, window, sizes, miss ratios, errors.
type Row = (String, Option<f64>, usize, Vec<u64>, Vec<f64>, Vec<f64>);

/// Unit of sizes, by name.
fn unit(name: &str) -> Result<Unit, Failure> {
    match name {
        "objects" => Ok(Unit::Objects),
        "bytes" => Ok(Unit::Bytes),
        _ => Err(Failure::Value(format!("there is no unit {name:?}; the units are 'objects' and 'bytes'"))),
    }
}

/// Each policy with each K, or alone.
fn kinds(policies: &[String], ks: &[f64]) -> Result<Vec<Kind>, Failure> {
    let mut kinds: Vec<Kind> = Vec::new();
    for name in policies {
        let with_default: Kind = name.parse().map_err(Failure::Value)?;
        let takes_k = with_default.k().is_some() && !name.contains(':');
        let mut add = |kind| {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        };
        if !takes_k {
            add(with_default);
            continue;
        }
        for &k in ks {
            let wrong = || Failure::Value(format!("K is a number from 1 on, not {k}"));
            add(Kind::with_name(name, k).ok_or_else(wrong)?);
        }
    }
    Ok(kinds)
}

/// How a trace is surveyed.
#[derive(Clone, Copy, Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct Sampling {
    sample: f64,
    seed: u64,
    window: Option<u64>,
}

fn survey(
    source: Input,
    reading: &Reading,
    sampling: Sampling,
    progress: &Progress,
) -> Result<Survey, Failure> {
    let Sampling { sample, seed, window } = sampling;
    if !(sample > 0.0 && sample <= 1.0) {
        return Err(Failure::Value(format!("sample is above 0 and at most 1, not {sample}")));
    }
    if window == Some(0) {
        return Err(Failure::Value("a window has at least 1 request".to_owned()));
    }
    let mut survey = Survey::new(sample, seed);
    for access in source.open(reading)?.records(progress) {
        if !survey.access(&access?) {
            let text = "the sample has more than 2^30 keys; a smaller sample holds fewer";
            return Err(Failure::Value(text.to_owned()));
        }
        if window.is_some_and(|window| survey.requests().is_multiple_of(window)) {
            survey.end_window();
        }
    }
    if survey.requests() == 0 {
        return Err(Failure::Value("the trace has no look-ups or writes, so nothing can miss".to_owned()));
    }
    Ok(survey)
}

/// Curves, with the requests and distinct keys of the trace.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the Python side has one signature for people")]
pub fn mrc(
    py: Python<'_>,
    trace: Input,
    reading: Reading,
    policies: Vec<String>,
    ks: Vec<f64>,
    sizes: Vec<u64>,
    sizes_count: usize,
    unit_name: &str,
    sampling: Sampling,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Vec<Row>, u64, f64)> {
    let progress = Progress::new(progress);
    let result = py.detach(|| -> Result<_, Failure> {
        let (kinds, unit) = (kinds(&policies, &ks)?, unit(unit_name)?);
        let survey = survey(trace, &reading, sampling, &progress)?;
        let mut sizes = if sizes.is_empty() { survey.even_sizes(unit, sizes_count) } else { sizes };
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.first() == Some(&0) {
            let text = "a cache of size 0 misses everything; sizes start at 1";
            return Err(Failure::Value(text.to_owned()));
        }
        let total = Some(kinds.len() as f64);
        let report = |done| progress.report_later("curves", done as f64, total);
        let curves = curves_in_parallel(&survey, &kinds, unit, &sizes, &report);
        progress.raise()?;
        let mut rows = Vec::new();
        for (kind, windows) in kinds.iter().zip(&curves) {
            rows.extend(windows.iter().enumerate().map(|(window, curve)| row(*kind, window, curve)));
        }
        Ok((rows, survey.requests(), survey.keys()))
    });
    Ok(result?)
}

fn row(kind: Kind, window: usize, curve: &Curve) -> Row {
    let points = &curve.points;
    (
        kind.name(),
        kind.k(),
        window,
        points.iter().map(|point| point.size).collect(),
        points.iter().map(|point| point.miss_ratio).collect(),
        points.iter().map(|point| point.error).collect(),
    )
}

/// The mean of curves of parts of a trace that were told apart by a hash of the key, at the sizes of the whole: miss ratios, and
/// how far they may be off. Each part has its requests and miss ratios.
#[pyfunction]
pub fn mean_curve(sizes: Vec<u64>, parts: Vec<(f64, Vec<f64>)>) -> PyResult<(Vec<f64>, Vec<f64>)> {
    let curve = |(requests, ratios): (f64, Vec<f64>)| {
        let points =
            sizes.iter().zip(ratios).map(|(&size, miss_ratio)| Point { size, miss_ratio, error: 0.0 });
        Curve { unit: Unit::Objects, requests, points: points.collect() }
    };
    let parts: Vec<Curve> = parts.into_iter().map(curve).collect();
    let mean =
        Curve::mean(&parts).ok_or_else(|| PyValueError::new_err("there are no parts to take the mean of"))?;
    Ok(mean.points.iter().map(|point| (point.miss_ratio, point.error)).unzip())
}

/// The names of all policies that have a curve.
#[pyfunction]
pub fn policies() -> Vec<String> {
    let simulated = tiermem_policy::evict::Named::ALL.map(|policy| policy.name().to_owned());
    let models = Kind::MODELS.map(str::to_owned);
    let mut names: Vec<String> = models.into_iter().chain(simulated).collect();
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}
