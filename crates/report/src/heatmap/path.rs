//! Path of a hotspot: its position slice by slice, over a map of space and time.

use tiermem_base::Heat;
use tiermem_model::heat::hotspot;

use super::layout::{BAR_ROOM, Colours, MARGIN, Plot, begin};
use super::scene::{Item, Scene};
use super::{AccessClass, Field, Look, Show};
use crate::chart::{Axis, Spread};
use crate::quantity::Quantity;

/// Pixels of the map at most.
const WIDTH: usize = 1560;
const HEIGHT: usize = 900;

/// Slices from left to right, offsets from top to bottom, and the hotspot's way as a line.
pub fn path(look: &Look, field: &Field) -> Scene {
    let look = &Look { show: Show::Accesses, ..look.clone() };
    let Some(heat) = field.heat_of(AccessClass::Accesses) else { return begin(look, "", &[], 0.0).0 };
    let (slices, granules) = (heat.slices().max(1), heat.granules().max(1));
    let together = (slices.div_ceil(WIDTH), granules.div_ceil(HEIGHT));
    let (columns, rows) = (slices.div_ceil(together.0), granules.div_ceil(together.1));
    let values = cells_of(heat, together, (columns, rows));
    let colours = Colours::of(look, format!("{} and slice", look.measure()), values.iter());
    let (width, height) =
        ((columns * (WIDTH / columns)) as f64 / 2.0, (rows * (HEIGHT / rows).max(1)) as f64 / 2.0);
    let total_width = 92.0 + width + 28.0 + BAR_ROOM + MARGIN;
    let title = look.title(field, "path of the hotspot");
    let (mut scene, top) = begin(look, &title, &remarks(look, field, together), total_width);
    let (x, y) = axes(look, field, together, (columns, rows));
    let area = [92.0, top + 22.0, width, height];
    let cells = values.iter().map(|value| colours.at(*value)).collect();
    scene.items.push(Item::Cells { area, columns, cells });
    // Offsets grow downward, as in a map.
    let plot = Plot { area, x, y };
    plot.axes_downward(&mut scene, &look.theme);
    let spots = hotspot::path(heat);
    // Where it starts again at the region's other end there is no way between.
    let is_jump = |slice: usize| {
        let before = slice.checked_sub(1).and_then(|before| spots[before]);
        let middles = before.zip(spots[slice]).map(|(one, other)| (one.granule - other.granule).abs());
        middles.is_some_and(|way| way > granules as f64 / 2.0)
    };
    let line = |shift: f64| -> Vec<(f64, f64)> {
        spots
            .iter()
            .enumerate()
            .flat_map(|(slice, spot)| {
                let gap = (f64::NAN, f64::NAN);
                let place = match spot {
                    Some(spot) => {
                        let granule =
                            (spot.granule + shift * spot.spread_granules).clamp(0.0, granules as f64);
                        let x = area[0] + width * (slice as f64 + 0.5) / (columns * together.0) as f64;
                        (x, area[1] + height * granule / (rows * together.1) as f64)
                    }
                    None => gap,
                };
                if is_jump(slice) { vec![gap, place] } else { vec![place] }
            })
            .collect()
    };
    for (shift, wide) in [(-1.0, 0.75), (1.0, 0.75), (0.0, 2.5)] {
        scene.items.push(Item::Line { points: line(shift), width: wide, colour: look.theme.over });
    }
    colours.bar(&mut scene, 92.0 + width + 28.0, area[1], height.clamp(200.0, 420.0));
    scene.height = area[1] + height.max(220.0) + 52.0 + MARGIN;
    scene
}

/// What stands above the map. `together` are slices and granules of a cell.
fn remarks(look: &Look, field: &Field, together: (usize, usize)) -> [String; 2] {
    let mean = match together.0 * together.1 {
        1 => String::new(),
        count if together.0 == 1 => format!("; a cell is the mean of {count} granules"),
        count => format!("; a cell is the mean of {count} granules and slices"),
    };
    let line = format!(
        "The line is the middle of what a slice accesses more than others do, thin lines are how far it reaches; {}{mean}.",
        look.never()
    );
    [look.remark(field), line]
}

/// The axes of a map of so many columns and rows: time, or slices by number, and offsets.
fn axes(
    look: &Look,
    field: &Field,
    together: (usize, usize),
    (columns, rows): (usize, usize),
) -> (Axis, Axis) {
    let slice = |at: Option<&usize>| at.and_then(|slice| look.recording.head.slices.get(*slice));
    let from = slice(field.slices.first()).map_or(0.0, |slice| slice.start_ns as f64);
    let to = slice(field.slices.last()).map_or(0.0, |slice| slice.end_ns as f64);
    // Lists of slices with gaps have no even time; they are numbered.
    let is_even = field.slices.windows(2).all(|two| two[1] == two[0] + 1) && to > from && together.0 == 1;
    let x = if is_even {
        Axis { title: "time".to_owned(), quantity: Quantity::Time, spread: Spread::Linear, range: (from, to) }
    } else {
        Axis::up_to("slices", Quantity::Count, (columns * together.0) as f64)
    };
    let start = field.offset(0) as f64;
    let end = start + (rows * together.1) as f64 * field.window.granule_bytes as f64;
    let y = Axis {
        title: "offset in the region, from top to bottom".to_owned(),
        quantity: Quantity::Bytes,
        spread: Spread::Linear,
        range: (start, end),
    };
    (x, y)
}

/// The heat of each cell, row by row: the mean over its slices and granules, so that a cell of many granules is as hot as they are; NaN where
/// there is none. `together` are slices and granules of a cell.
fn cells_of(heat: &Heat, together: (usize, usize), (columns, rows): (usize, usize)) -> Vec<f32> {
    let mut sums = vec![0f32; columns * rows];
    for slice in 0..heat.slices() {
        for (granule, value) in heat.row(slice).iter().enumerate() {
            sums[granule / together.1 * columns + slice / together.0] += value;
        }
    }
    let size = (together.0 * together.1) as f32;
    sums.iter().map(|sum| if *sum > 0.0 { sum / size } else { f32::NAN }).collect()
}
