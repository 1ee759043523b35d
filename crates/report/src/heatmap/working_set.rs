//! Working set of a region: in each slice, and since the start.

use tiermem_base::Heat;
use tiermem_model::heat::working_set as model;

use super::layout::{MARGIN, Plot, begin};
use super::scatter::WIDTH;
use super::scene::{Anchor, Item, Scene, Size};
use super::words::{bytes, slices};
use super::{AccessClass, Field, Look};
use crate::chart::{Axis, Spread};
use crate::quantity::Quantity;

/// The bytes that each slice touched in some fields of one recording together, and those since the start.
pub fn together<'a>(fields: impl IntoIterator<Item = &'a Field>) -> (Vec<u64>, Vec<u64>) {
    let (mut each, mut curve) = (Vec::new(), Vec::new());
    for Field { touched, .. } in fields {
        for (sums, more) in [(&mut each, &touched.per_slice), (&mut curve, &touched.since_start)] {
            sums.resize(more.len().max(sums.len()), 0);
            sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
    }
    (each, curve)
}

/// The touched bytes of the hottest granules that have a share of all accesses.
pub fn bytes_for_share<'a>(fields: impl IntoIterator<Item = &'a Field>, share: f64) -> u64 {
    let of =
        |field: &'a Field| Some((field.heat_of(AccessClass::Accesses)?, field.touched.granules.as_slice()));
    let regions: Vec<(&Heat, &[u64])> = fields.into_iter().filter_map(of).collect();
    model::bytes_for_share(&regions, share)
}

/// The working set of each slice as bars, and its curve since the start as a line, of several regions together.
pub fn working_set(look: &Look, fields: &[Field]) -> Scene {
    let (each, curve) = together(fields);
    let name = match fields {
        [field] => look.region_name(field),
        fields => format!("{} regions together", fields.len()),
    };
    let chosen = fields.first().map_or(&[][..], |field| &field.slices);
    let for_share =
        |share: f64| format!("{:.0}% in {}", share * 100.0, bytes(bytes_for_share(fields, share) as f64));
    let granule = fields.iter().map(|field| field.window.granule_bytes);
    let granules = match (granule.clone().min(), granule.max()) {
        (Some(least), Some(most)) if least != most => {
            format!("granules of {} to {}", bytes(least as f64), bytes(most as f64))
        }
        (Some(one), _) => format!("granules of {}", bytes(one as f64)),
        _ => String::new(),
    };
    let remarks = [
        format!("{granules}; {}; {}", slices(look.recording, chosen), look.what()),
        format!(
            "The hottest granules have of all {}: {}, {}, {}; all in {}.",
            look.noun(),
            for_share(0.5),
            for_share(0.9),
            for_share(0.99),
            bytes(curve.last().copied().unwrap_or(0) as f64)
        ),
    ];
    let (mut scene, top) = begin(look, &format!("{name}: working set"), &remarks, WIDTH);
    let time = |at: usize, end: bool| {
        let slice = chosen.get(at).and_then(|slice| look.recording.head.slices.get(*slice));
        slice.map_or(0.0, |slice| if end { slice.end_ns } else { slice.start_ns } as f64)
    };
    let count = each.len();
    let (from, to) = (time(0, false), time(count.saturating_sub(1), true));
    let largest = curve.last().copied().unwrap_or(0) as f64;
    let x = match to > from {
        true => Axis {
            title: "time".to_owned(),
            quantity: Quantity::Time,
            spread: Spread::Linear,
            range: (from, to),
        },
        false => Axis::up_to("slices", Quantity::Count, count as f64),
    };
    // Room above a curve that has reached its end.
    let y = Axis::from_zero("bytes touched", Quantity::Bytes, largest * 1.04);
    let plot = Plot { area: [92.0, top + 22.0, WIDTH - 92.0 - MARGIN - 150.0, 400.0], x, y };
    plot.axes(&mut scene, &look.theme, true);
    let [left, area_top, width, height] = plot.area;
    let bottom = area_top + height;
    let place = |at: usize, end: bool| match to > from {
        true => plot.place(time(at, end), 0.0).0,
        false => left + width * (at + usize::from(end)) as f64 / count.max(1) as f64,
    };
    for (at, bytes) in each.iter().enumerate() {
        let (start, y) = (place(at, false), plot.place(from, *bytes as f64).1);
        let wide = place(at, true) - start;
        // Between bars that are wide enough stays a gap.
        let gap = if wide > 4.0 { 1.0 } else { 0.0 };
        let area = [start, y, (wide - gap).max(0.5), bottom - y];
        scene.items.push(Item::Fill { area, colour: look.theme.first });
    }
    let mut points = vec![(left, bottom)];
    points.extend(
        curve.iter().enumerate().map(|(at, bytes)| (place(at, true), plot.place(from, *bytes as f64).1)),
    );
    scene.items.push(Item::Line { points: points.clone(), width: 2.5, colour: look.theme.second });
    let beside = left + width + 10.0;
    let curve_y = points.last().map_or(bottom, |point| point.1);
    let bar_y = each.last().map_or(bottom, |bytes| plot.place(from, *bytes as f64).1);
    // Names stand beside the ends of what they name, apart from each other.
    let bar_y = bar_y.clamp(curve_y + 36.0, bottom.max(curve_y + 36.0));
    scene.text((beside, curve_y + 4.0), Size::Medium, Anchor::Start, look.theme.second, "since the start");
    scene.text((beside, bar_y + 4.0), Size::Medium, Anchor::Start, look.theme.first, "in each slice");
    scene.height = bottom + 52.0 + MARGIN;
    scene
}
