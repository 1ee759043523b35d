//! Scatter plot: accesses over granules (Fisher 2025, figure 4.5).

use super::layout::{MARGIN, Plot, age_axis, begin, count_axis};
use super::scene::{Item, Scene};
use super::{Field, Look, Show};
use crate::chart::{Axis, Spread};
use crate::quantity::Quantity;

/// Points of the picture's width.
pub const WIDTH: f64 = 1000.0;

/// A dot for each granule that was accessed.
pub fn scatter(look: &Look, field: &Field) -> Scene {
    let values = field.values(look.show, 0..field.slices.len());
    let measure = look.measure();
    let remarks = [look.remark(field), "A dot is a granule; those never accessed have none.".to_owned()];
    let (mut scene, top) = begin(look, &look.title(field, &measure), &remarks, WIDTH);
    let mut y = match look.show {
        Show::Accesses => count_axis(look.scale, &measure, values.iter()),
        Show::ShareRemote => Axis::up_to(&measure, Quantity::Share, 1.0),
        Show::Idle => age_axis(look, &measure, values.iter()),
    };
    if y.spread == Spread::Log {
        y.title += ", log scale";
    } else if look.show == Show::Accesses {
        y = Axis::from_zero(&y.title, Quantity::Count, y.range.1);
    }
    let (from, to) = (field.offset(0) as f64, field.offset(field.granules()) as f64);
    let x = Axis {
        title: "offset in the region".to_owned(),
        quantity: Quantity::Bytes,
        spread: Spread::Linear,
        range: (from, to),
    };
    let plot = Plot { area: [92.0, top + 22.0, WIDTH - 92.0 - MARGIN - 16.0, 420.0], x, y };
    plot.axes(&mut scene, &look.theme, true);
    let granule_bytes = field.window.granule_bytes as f64;
    let dot = |(at, value): (usize, &f32)| {
        (*value >= 0.0).then(|| plot.place(from + (at as f64 + 0.5) * granule_bytes, f64::from(*value)))
    };
    let points: Vec<_> = values.iter().enumerate().filter_map(dot).collect();
    let width = if points.len() > 5_000 { 2.0 } else { 4.0 };
    scene.items.push(Item::Dots { points, width, colour: look.theme.first });
    scene.height = plot.area[1] + plot.area[3] + 52.0 + MARGIN;
    scene
}
