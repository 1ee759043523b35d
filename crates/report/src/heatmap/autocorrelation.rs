//! The autocorrelation of a region's accesses over space, with the names of its peaks (Fisher 2025, figure 4.6).

use tiermem_model::heat::period::{self, Peak};

use super::layout::{MARGIN, Plot, begin};
use super::scatter::WIDTH;
use super::scene::{Anchor, Item, Scene, Size};
use super::words::{bytes, several};
use super::{AccessClass, Field, Look};
use crate::chart::{Axis, Spread};
use crate::quantity::Quantity;

/// Lags that are shown at least, where there are as many.
const LAGS_MIN: usize = 256;
/// Lags that are shown at most.
const LAGS_MAX: usize = 4096;
/// The width of a letter of their names, in points.
const LETTER: f64 = 5.7;
/// Peaks that have their names in the picture.
const NAMED: usize = 5;

/// Autocorrelation of a field, as it is shown.
pub struct Likeness {
    /// By the lag, from 0.
    pub curve: Vec<f64>,
    /// The strongest first; the fundamental period before all others.
    pub peaks: Vec<Peak>,
}

impl Likeness {
    /// Of all slices of a field.
    pub fn of(field: &Field) -> Self {
        let totals = field.heat_of(AccessClass::Accesses).map(|heat| heat.totals()).unwrap_or_default();
        let totals = period::touched_part(&totals);
        let peaks = period::periods(totals);
        // Some periods beyond the first, and few enough to be distinguished.
        let wanted = peaks.first().map_or(LAGS_MIN, |peak| peak.lag.saturating_mul(5)).max(LAGS_MIN);
        let lags = wanted.min(totals.len() / 2).min(LAGS_MAX);
        Likeness { curve: period::autocorrelation(totals, lags), peaks }
    }
}

/// Name of a peak.
pub fn name(peak: &Peak, granule_bytes: u64) -> String {
    format!(
        "period {} = {}",
        several(peak.lag, "granule", "granules"),
        bytes(peak.lag as f64 * granule_bytes as f64)
    )
}

/// Height of a peak, the correlation of granules at its distance: of their
/// accesses, or of their ranks where few very hot granules hide the others.
fn height(peak: &Peak) -> String {
    if peak.height_of_ranks > 2.0 * peak.height {
        return format!("{:.2} among ranks, {:.2} among counts", peak.height_of_ranks, peak.height.max(0.0));
    }
    format!("{:.2}", peak.height)
}

/// The autocorrelation by lag.
pub fn autocorrelation(look: &Look, field: &Field) -> Scene {
    let Likeness { curve, peaks } = Likeness::of(field);
    let granule_bytes = field.window.granule_bytes;
    let finding = match peaks.first() {
        Some(peak) => {
            format!("Strongest: {}, with an autocorrelation of {}.", name(peak, granule_bytes), height(peak))
        }
        None => "No period stands out.".to_owned(),
    };
    let title = look.title(field, &format!("autocorrelation of {}", look.measure()));
    let (mut scene, top) = begin(look, &title, &[look.remark(field), finding], WIDTH);
    let lowest = curve.iter().copied().fold(0.0, f64::min);
    let y = Axis {
        title: "autocorrelation".to_owned(),
        quantity: Quantity::Count,
        spread: Spread::Linear,
        // Room for the names of high peaks.
        range: ((lowest * 5.0).floor() / 5.0, 1.15),
    };
    let last = curve.len().saturating_sub(1).max(1) as f64;
    let x = Axis::up_to("lag in granules", Quantity::Count, last);
    let plot = Plot { area: [92.0, top + 22.0, WIDTH - 92.0 - MARGIN - 16.0, 400.0], x, y };
    plot.axes(&mut scene, &look.theme, true);
    let zero = [plot.place(0.0, 0.0), plot.place(last, 0.0)];
    scene.rule(zero[0], zero[1], look.theme.line);
    let points = curve.iter().enumerate().map(|(lag, value)| plot.place(lag as f64, *value)).collect();
    scene.items.push(Item::Line { points, width: 1.5, colour: look.theme.first });
    let mut taken: Vec<(f64, f64, f64)> = Vec::new();
    let shown = peaks.iter().filter(|peak| (peak.lag as f64) <= last);
    for (number, peak) in shown.enumerate() {
        let at = plot.place(peak.lag as f64, peak.height);
        let text = if number == 0 {
            name(peak, granule_bytes)
        } else {
            bytes(peak.lag as f64 * granule_bytes as f64)
        };
        let long = text.chars().count() as f64 * LETTER;
        // Beside the right edge a name ends where it would begin.
        let left = (at.0 + 8.0).min(plot.area[0] + plot.area[2] - long - 6.0);
        let y = at.1 - 10.0;
        let free =
            |(from, to, line): &(f64, f64, f64)| left > *to || left + long < *from || (y - line).abs() > 14.0;
        if taken.len() < NAMED && taken.iter().all(free) {
            scene.items.push(Item::Dots { points: vec![at], width: 7.0, colour: look.theme.second });
            let size = if number == 0 { Size::Medium } else { Size::Small };
            scene.text((left, y), size, Anchor::Start, look.theme.second, text);
            taken.push((left, left + long, y));
        }
    }
    scene.height = plot.area[1] + plot.area[3] + 52.0 + MARGIN;
    scene
}
