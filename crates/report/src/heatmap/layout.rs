//! Layout shared by all views: the lines above a picture, the colour bar, and axes.

use super::colour::{Map, Rgb};
use super::scene::{Anchor, Item, Scene, Size, wrap};
use super::{Look, ScaleChoice, Show, Theme};
use crate::chart::{Axis, Spread};
use crate::quantity::Quantity;

/// Between a picture's edge and what it shows.
pub const MARGIN: f64 = 24.0;
/// From one line of small text to the next.
pub const LINE: f64 = 17.0;
/// Room for a bar of colours, to the right of a map.
pub const BAR_ROOM: f64 = 150.0;
/// Values differ by more than this where their scale is logarithmic by itself.
const LOG_FROM: f32 = 20.0;

/// A picture with its title and remarks, and where what it shows may begin.
pub fn begin(look: &Look, title: &str, remarks: &[String], width: f64) -> (Scene, f64) {
    let theme = look.theme;
    let mut scene =
        Scene { width, height: 0.0, page: theme.page, title: title.to_owned(), items: Vec::new() };
    let room = width - 2.0 * MARGIN;
    let mut y = MARGIN + 14.0;
    for line in wrap(title, (room / Size::Large.letter()) as usize) {
        scene.text((MARGIN, y), Size::Large, Anchor::Start, theme.text, line);
        y += 22.0;
    }
    y += 2.0;
    for line in remarks.iter().flat_map(|remark| wrap(remark, (room / Size::Small.letter()) as usize)) {
        scene.text((MARGIN, y), Size::Small, Anchor::Start, theme.soft, line);
        y += LINE;
    }
    (scene, y + 6.0)
}

/// Colours of values.
#[derive(Clone, Debug)]
pub struct Colours {
    map: Map,
    axis: Axis,
    theme: Theme,
    title: String,
}

impl Colours {
    /// For all of these values; NaN means never accessed.
    pub fn of<'v>(look: &Look, title: String, values: impl Iterator<Item = &'v f32>) -> Self {
        let (map, axis) = match look.show {
            Show::Accesses => (Map::Viridis, count_axis(look.scale, "", values)),
            Show::ShareRemote => (Map::Cividis, Axis::up_to("", Quantity::Share, 1.0)),
            Show::Idle => (Map::Cividis, age_axis(look, "", values)),
        };
        Colours { map, axis, theme: look.theme, title }
    }

    /// The colour of a value.
    pub fn at(&self, value: f32) -> Rgb {
        if value.is_nan() { self.theme.never } else { self.map.at(self.axis.place(f64::from(value))) }
    }

    /// Whether the scale is logarithmic.
    pub fn is_log(&self) -> bool {
        self.axis.spread == Spread::Log
    }

    /// Draws the bar, `height` high, with its left edge and its top at a place.
    pub fn bar(&self, scene: &mut Scene, left: f64, top: f64, height: f64) {
        let theme = self.theme;
        let mut y = top + 8.0;
        for line in wrap(&self.title, (BAR_ROOM / Size::Small.letter()) as usize - 3) {
            scene.text((left, y), Size::Small, Anchor::Start, theme.text, line);
            y += LINE - 2.0;
        }
        if self.is_log() {
            scene.text((left, y), Size::Small, Anchor::Start, theme.soft, "log scale");
            y += LINE - 2.0;
        }
        // The swatch of what was never accessed keeps its room below.
        let bar = [left, y, 16.0, (top + height - y - 44.0).max(80.0)];
        let [_, bar_top, width, bar_height] = bar;
        let cells = (0..256).map(|at| self.map.at(1.0 - f64::from(at) / 255.0)).collect();
        scene.items.push(Item::Cells { area: bar, columns: 1, cells });
        scene.items.push(Item::Frame { area: bar, colour: theme.line });
        for (value, label) in self.axis.ticks((bar_height / 40.0).clamp(2.0, 8.0)) {
            let y = bar_top + bar_height * (1.0 - self.axis.place(value));
            scene.rule((left + width, y), (left + width + 5.0, y), theme.line);
            scene.text((left + width + 9.0, y + 4.0), Size::Small, Anchor::Start, theme.soft, label);
        }
        let swatch = [left, bar_top + bar_height + 16.0, 16.0, 16.0];
        scene.items.push(Item::Fill { area: swatch, colour: theme.never });
        scene.items.push(Item::Frame { area: swatch, colour: theme.line });
        let at = (left + 25.0, swatch[1] + 12.0);
        scene.text(at, Size::Small, Anchor::Start, theme.soft, "never accessed");
    }
}

/// An axis for ages, which are as exact as slices are long.
pub fn age_axis<'v>(look: &Look, title: &str, values: impl Iterator<Item = &'v f32>) -> Axis {
    let first = look.recording.head.slices.first();
    let slice_ns = first.map_or(0, |slice| slice.end_ns.saturating_sub(slice.start_ns));
    let most = f64::from(values.copied().fold(0.0, f32::max));
    Axis::up_to(title, Quantity::Time, most.max(slice_ns as f64))
}

/// An axis for counts of accesses.
pub fn count_axis<'v>(scale: ScaleChoice, title: &str, values: impl Iterator<Item = &'v f32>) -> Axis {
    let mut values: Vec<f32> = values.copied().filter(|value| *value > 0.0).collect();
    let largest = values.iter().copied().fold(0.0, f32::max);
    let smallest = values.iter().copied().fold(f32::INFINITY, f32::min);
    // A few that are colder than all others, at a region's end say, ask for nothing.
    let low = match values.is_empty() {
        true => 1.0,
        false => {
            let at = values.len() / 50;
            *values.select_nth_unstable_by(at, f32::total_cmp).1
        }
    };
    let is_log = match scale {
        ScaleChoice::Auto => largest > LOG_FROM * low,
        ScaleChoice::Linear => false,
        ScaleChoice::Log => largest > smallest,
    };
    let (smallest, largest) = (f64::from(smallest), f64::from(largest));
    match is_log {
        true => Axis::log(title, Quantity::Count, smallest.max(largest / 1e6), largest),
        false => Axis::up_to(title, Quantity::Count, largest),
    }
}

/// A chart's frame, in which lines and dots stand.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Left, top, width, height.
    pub area: [f64; 4],
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis; its title stands above it.
    pub y: Axis,
}

impl Plot {
    /// Where a point stands.
    pub fn place(&self, x: f64, y: f64) -> (f64, f64) {
        let [left, top, width, height] = self.area;
        (left + width * self.x.place(x), top + height * (1.0 - self.y.place(y)))
    }

    /// Draws axes and their titles; lines across the chart where `has_grid`.
    pub fn axes(&self, scene: &mut Scene, theme: &Theme, has_grid: bool) {
        self.draw_axes(scene, theme, has_grid, |share| 1.0 - share);
    }

    /// Draws axes and their titles, the vertical one growing downward, as in a map.
    pub fn axes_downward(&self, scene: &mut Scene, theme: &Theme) {
        self.draw_axes(scene, theme, false, |share| share);
    }

    fn draw_axes(&self, scene: &mut Scene, theme: &Theme, has_grid: bool, from_top: fn(f64) -> f64) {
        let [left, top, width, height] = self.area;
        let (right, bottom) = (left + width, top + height);
        let title = (left, top - 10.0);
        scene.text(title, Size::Small, Anchor::Start, theme.text, self.y.title.clone());
        for (value, label) in self.y.ticks((height / 45.0).max(2.0)) {
            let y = top + height * from_top(self.y.place(value));
            if has_grid {
                scene.rule((left, y), (right, y), theme.grid);
            }
            scene.rule((left - 5.0, y), (left, y), theme.line);
            scene.text((left - 9.0, y + 4.0), Size::Small, Anchor::End, theme.soft, label);
        }
        for (value, label) in self.x.ticks((width / 100.0).max(2.0)) {
            let x = left + width * self.x.place(value);
            scene.rule((x, bottom), (x, bottom + 5.0), theme.line);
            scene.text((x, bottom + 19.0), Size::Small, Anchor::Middle, theme.soft, label);
        }
        let title = (left + width / 2.0, bottom + 40.0);
        scene.text(title, Size::Small, Anchor::Middle, theme.text, self.x.title.clone());
        scene.items.push(Item::Frame { area: self.area, colour: theme.line });
    }
}
