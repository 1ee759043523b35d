//! Heatmap of a region: its granules in rows, in reading order, coloured by the number of accesses.

use tiermem_model::heat::period;

use super::compared::seconds;
use super::layout::{BAR_ROOM, Colours, LINE, MARGIN, begin};
use super::scene::{Anchor, Item, Scene, Size};
use super::words::{bytes, several, time};
use super::{AccessClass, Columns, Field, Look, Show};
use crate::chart::Axis;
use crate::quantity::Quantity;

/// Pixels of a map at most, each way; a point has two.
const PIXELS_MAX: usize = 1640;
/// Pixels of the higher of a map's ways where it is no square.
const HEIGHT_MAX: usize = 1300;
/// Pixels of a cell at most.
const CELL_MAX: usize = 96;
/// Room to the left of a map, for the offsets of its rows.
const LEFT: f64 = 92.0;

/// Layout of granules on pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fit {
    columns: usize,
    rows: usize,
    /// Granules that share a cell, along a row and from row to row.
    together: (usize, usize),
    /// Pixels of a cell.
    cell: (usize, usize),
}

impl Fit {
    /// For `granules` in rows of `columns`, within `width` by `height` pixels.
    fn of(granules: usize, columns: usize, width: usize, height: usize) -> Self {
        let columns = columns.max(1);
        let rows = granules.div_ceil(columns).max(1);
        let together = (columns.div_ceil(width), rows.div_ceil(height));
        let (cells, lines) = (columns.div_ceil(together.0), rows.div_ceil(together.1));
        let mut cell = ((width / cells).min(CELL_MAX), (height / lines).min(CELL_MAX));
        if columns == rows || columns == rows + 1 {
            let side = cell.0.min(cell.1);
            cell = (side, side);
        }
        // Rows may be higher than columns are wide, that few long rows be seen; not much wider.
        cell.0 = cell.0.min(4 * cell.1);
        cell.1 = cell.1.min(12 * cell.0);
        Fit { columns, rows, together, cell }
    }

    fn cells(&self) -> (usize, usize) {
        (self.columns.div_ceil(self.together.0), self.rows.div_ceil(self.together.1))
    }

    /// Width and height in points.
    fn points(&self) -> (f64, f64) {
        let (cells, lines) = self.cells();
        ((cells * self.cell.0) as f64 / 2.0, (lines * self.cell.1) as f64 / 2.0)
    }

    /// Remark where granules share cells.
    fn remark(&self) -> Option<String> {
        let count = self.together.0 * self.together.1;
        (count > 1).then(|| format!("each cell shows the highest of {count} granules"))
    }

    /// Remark where the last row is not full.
    fn end_remark(&self, granules: usize) -> Option<String> {
        let is_full = granules.is_multiple_of(self.columns) || granules < self.columns;
        (!is_full).then(|| "the last row ends where the region does".to_owned())
    }

    /// The cells of some values; a cell of several values has the highest.
    fn values(&self, values: &[f32]) -> Vec<f32> {
        let (cells, lines) = self.cells();
        let mut highest = vec![f32::NAN; cells * lines];
        for (at, value) in values.iter().enumerate() {
            let (row, column) = (at / self.columns, at % self.columns);
            let cell = &mut highest[row / self.together.1 * cells + column / self.together.0];
            *cell = cell.max(*value);
        }
        highest
    }

    /// Draws values; what lies behind the last one is left empty.
    fn draw(&self, scene: &mut Scene, look: &Look, colours: &Colours, values: &[f32], at: (f64, f64)) {
        let (width, height) = self.points();
        let (cells, lines) = self.cells();
        let mut drawn: Vec<_> = self.values(values).iter().map(|value| colours.at(*value)).collect();
        // Behind the region's end there is nothing that could have been accessed.
        let last = values.len().saturating_sub(1);
        let end = last / self.columns / self.together.1 * cells + last % self.columns / self.together.0 + 1;
        if self.together.1 == 1 {
            drawn[end.min(cells * lines)..].fill(look.theme.grid);
        }
        let area = [at.0, at.1, width, height];
        scene.items.push(Item::Cells { area, columns: cells, cells: drawn });
        scene.items.push(Item::Frame { area, colour: look.theme.line });
    }
}

/// The period of a field's accesses, in granules: the strongest, if there is one.
pub fn period_of(field: &Field) -> Option<usize> {
    let heat = field.heat_of(AccessClass::Accesses)?;
    period::periods(&heat.totals()).first().map(|peak| peak.lag)
}

/// All slices of a field as one map.
pub fn map(look: &Look, field: &Field) -> Scene {
    let values = field.values(look.show, 0..field.slices.len());
    let columns = look.columns.of(values.len());
    // A square is as high as it is wide; other shapes fit on a page.
    let is_square = columns == Columns::Square.of(values.len());
    let fit = Fit::of(values.len(), columns, PIXELS_MAX, if is_square { PIXELS_MAX } else { HEIGHT_MAX });
    let colours = Colours::of(look, look.measure(), values.iter());
    let (width, height) = fit.points();
    let row_bytes = (fit.columns as u64).saturating_mul(field.window.granule_bytes);
    let reading = format!(
        "Rows from left to right and from top to bottom, as text is read: a row is {} = {}; {}{}.",
        several(fit.columns, "granule", "granules"),
        bytes(row_bytes as f64),
        look.never(),
        fit.remark().or(fit.end_remark(values.len())).map_or(String::new(), |remark| format!(", {remark}"))
    );
    let sum = format!("{} {} in all", super::words::count(field.sum.round()), look.noun());
    let remarks = [format!("{}; {sum}", look.remark(field)), reading];
    let total_width = (LEFT + width + 28.0 + BAR_ROOM + MARGIN).max(700.0);
    let (mut scene, top) = begin(look, &look.title(field, &look.measure()), &remarks, total_width);
    let top = top + 4.0 + LINE;
    scene.text(
        (LEFT, top - 8.0),
        Size::Small,
        Anchor::Start,
        look.theme.text,
        "offset of the row in the region",
    );
    fit.draw(&mut scene, look, &colours, &values, (LEFT, top));
    row_ticks(&mut scene, look, field, &fit, (LEFT, top));
    let across = Axis::up_to("", Quantity::Bytes, row_bytes as f64);
    for (value, label) in across.ticks((width / 110.0).max(1.0)) {
        let x = LEFT + width * across.place(value);
        scene.rule((x, top + height + 1.0), (x, top + height + 6.0), look.theme.line);
        let at = (x, top + height + 20.0);
        scene.text(at, Size::Small, Anchor::Middle, look.theme.soft, label);
    }
    let title = (LEFT + width / 2.0, top + height + 40.0);
    scene.text(title, Size::Small, Anchor::Middle, look.theme.text, "offset within the row");
    let bar_height = height.clamp(200.0, 420.0);
    colours.bar(&mut scene, LEFT + width + 28.0, top, bar_height);
    scene.height = top + (height + 44.0).max(bar_height) + MARGIN;
    scene
}

/// Where rows start: some of them, evenly spaced.
fn row_ticks(scene: &mut Scene, look: &Look, field: &Field, fit: &Fit, (left, top): (f64, f64)) {
    let (_, height) = fit.points();
    let row_bytes = (fit.columns as u64).saturating_mul(field.window.granule_bytes) as f64;
    let start = field.offset(0) as f64;
    // The last row may hang over.
    let rows = fit.rows.div_ceil(fit.together.1) * fit.together.1;
    let step = Quantity::Count.step(rows as f64, (height / 60.0).clamp(1.0, 10.0)).max(1.0) as usize;
    for row in (0..rows).step_by(step) {
        let y = top + height * row as f64 / rows as f64;
        scene.rule((left - 6.0, y), (left - 1.0, y), look.theme.line);
        let label = bytes(start + row as f64 * row_bytes);
        scene.text((left - 10.0, y + 4.0), Size::Small, Anchor::End, look.theme.soft, label);
    }
}

/// A small map of several.
struct Panel {
    /// Lines above it.
    titles: [String; 2],
    values: Vec<f32>,
    fit: Fit,
}

/// The slices of a field side by side, on one scale of colours.
pub fn map_of_slices(look: &Look, field: &Field) -> Scene {
    let columns = look.columns.of(field.granules());
    let count = field.slices.len();
    let (width, height) = panel_pixels(count);
    let panel = |row: usize| {
        let slice = field.slices[row];
        let times = look.recording.head.slices.get(slice).copied().unwrap_or_default();
        let values = field.values(look.show, row..row + 1);
        Panel {
            titles: [format!("slice {slice}"), format!("{} to {}", time(times.start_ns), time(times.end_ns))],
            fit: Fit::of(values.len(), columns, width, height),
            values,
        }
    };
    let panels: Vec<Panel> = (0..count).map(panel).collect();
    let row_bytes = columns as f64 * field.window.granule_bytes as f64;
    let reading = format!(
        "One map for each slice, on one scale of colours. A row is {} = {}; {}{}.",
        several(columns, "granule", "granules"),
        bytes(row_bytes),
        look.never(),
        panels.first().and_then(|panel| panel.fit.remark()).map_or(String::new(), |it| format!(", {it}"))
    );
    let title = look.title(field, &format!("{} and slice", look.measure()));
    let measure = format!("{} and slice", look.measure());
    draw_panels(look, &panels, &title, &[look.remark(field), reading], measure)
}

/// Several regions side by side, on one scale of colours.
pub fn map_of_regions(look: &Look, fields: &[Field]) -> Scene {
    let (width, height) = panel_pixels(fields.len());
    let panels: Vec<Panel> = fields
        .iter()
        .map(|field| {
            let values = field.values(look.show, 0..field.slices.len());
            Panel {
                titles: [
                    look.region_name(field),
                    format!(
                        "{}, granule {}",
                        bytes(field.window.bytes as f64),
                        bytes(field.window.granule_bytes as f64)
                    ),
                ],
                fit: Fit::of(values.len(), look.columns.of(values.len()), width, height),
                values,
            }
        })
        .collect();
    let slices = fields.first().map_or(&[][..], |field| &field.slices);
    let shared = panels.iter().any(|panel| panel.fit.remark().is_some());
    let remarks = [
        format!("{}; {}", super::words::slices(look.recording, slices), look.what()),
        format!(
            "On one scale of colours; {}{}.",
            look.never(),
            if shared {
                "; where granules outnumber pixels a cell shows the highest of its granules"
            } else {
                ""
            }
        ),
    ];
    let title = format!("{}: {}", several(fields.len(), "region", "regions"), look.measure());
    draw_panels(look, &panels, &title, &remarks, look.measure())
}

/// One of two recordings that are compared.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// How it is drawn.
    pub look: &'a Look<'a>,
    /// A region of it.
    pub field: &'a Field,
    /// The recording's name.
    pub name: &'a str,
}

/// A region of two recordings side by side, as rates on one scale of colours.
pub fn map_against(one: Side, other: Side) -> Scene {
    let sides = [one, other];
    let granules = sides.map(|side| side.field.granules()).into_iter().max().unwrap_or(0);
    let columns = one.look.columns.of(granules);
    let (width, height) = panel_pixels(sides.len());
    let panel = |side: &Side| {
        // Without any time a rate has to be a number all the same.
        let seconds = seconds(side.look, &side.field.slices).max(1e-6) as f32;
        let values = side.field.values(Show::Accesses, 0..side.field.slices.len());
        Panel {
            titles: [side.name.to_owned(), bytes(side.field.window.bytes as f64)],
            fit: Fit::of(values.len(), columns, width, height),
            values: values.into_iter().map(|value| value / seconds).collect(),
        }
    };
    let panels = sides.each_ref().map(panel);
    let measure = format!("{} per granule and second", one.look.noun());
    let reading = format!(
        "On one scale of colours. A row is {} = {}; {}{}.",
        several(columns, "granule", "granules"),
        bytes(columns as f64 * one.field.window.granule_bytes as f64),
        one.look.never(),
        panels.iter().find_map(|panel| panel.fit.remark()).map_or(String::new(), |it| format!(", {it}"))
    );
    let remarks = sides.each_ref().map(|side| format!("{}: {}", side.name, side.look.remark(side.field)));
    let [first, second] = remarks;
    draw_panels(one.look, &panels, &one.look.title(one.field, &measure), &[first, second, reading], measure)
}

/// Number of panels in a row.
fn per_row(count: usize) -> usize {
    match count {
        0..=4 => count.max(1),
        5..=6 => 3,
        7..=8 => 4,
        9..=10 => 5,
        count => {
            // About three to two, with as few places empty as can be.
            let wanted = (count as f64 * 1.5).sqrt();
            let range = (wanted * 0.8).floor() as usize..=(wanted * 1.5).ceil() as usize;
            let cost = |columns: &usize| {
                let is_far = (*columns as f64 - wanted).abs() * 10.0;
                (count.next_multiple_of(*columns) - count, is_far as usize)
            };
            range.min_by_key(cost).unwrap_or(6).min(10)
        }
    }
}

/// Pixels of each of `count` panels.
fn panel_pixels(count: usize) -> (usize, usize) {
    let each = (2000 / per_row(count)).saturating_sub(32).clamp(120, 900);
    (each, each)
}

fn draw_panels(look: &Look, panels: &[Panel], title: &str, remarks: &[String], measure: String) -> Scene {
    const GAP: f64 = 18.0;
    const HEAD: f64 = 40.0;
    let columns = per_row(panels.len());
    let most = |size: fn((f64, f64)) -> f64| {
        panels.iter().map(|panel| size(panel.fit.points())).fold(60.0, f64::max)
    };
    let width = most(|points| points.0).max((panel_pixels(panels.len()).0 / 2) as f64 * 0.8);
    let colours = Colours::of(look, measure, panels.iter().flat_map(|panel| &panel.values));
    let bar_left = MARGIN + columns as f64 * (width + GAP) + 8.0;
    let total_width = (bar_left + BAR_ROOM + MARGIN).max(700.0);
    let (mut scene, top) = begin(look, title, remarks, total_width);
    let letters = (width / Size::Small.letter()) as usize;
    let mut y = top;
    for row in panels.chunks(columns) {
        let height = row.iter().map(|panel| panel.fit.points().1).fold(0.0, f64::max);
        for (column, panel) in row.iter().enumerate() {
            let x = MARGIN + column as f64 * (width + GAP);
            let [first, second] = &panel.titles;
            let at = (x, y + 14.0);
            scene.text(at, Size::Medium, Anchor::Start, look.theme.text, shortened(first, letters));
            let at = (x, y + 30.0);
            scene.text(at, Size::Small, Anchor::Start, look.theme.soft, shortened(second, letters));
            panel.fit.draw(&mut scene, look, &colours, &panel.values, (x, y + HEAD));
        }
        y += HEAD + height + GAP;
    }
    let bar_height = (y - top - GAP).clamp(220.0, 420.0);
    colours.bar(&mut scene, bar_left, top, bar_height);
    scene.height = y.max(top + bar_height) + MARGIN - 4.0;
    scene
}

/// A text cut to this number of letters.
fn shortened(text: &str, letters: usize) -> String {
    match text.chars().count() > letters.max(3) {
        true => text.chars().take(letters.max(3) - 2).chain("..".chars()).collect(),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granules_lie_on_whole_pixels_and_share_them_where_they_must() {
        let square = Fit::of(25_600, 160, PIXELS_MAX, PIXELS_MAX);
        assert_eq!((square.together, square.cell, square.rows), ((1, 1), (10, 10), 160));
        let wide = Fit::of(25_600, 540, PIXELS_MAX, HEIGHT_MAX);
        assert_eq!((wide.together, wide.cell), ((1, 1), (3, 27)));
        let many = Fit::of(4_000_000, 2000, 1000, 1000);
        assert_eq!((many.together, many.cell), ((2, 2), (1, 1)));
        let values = Fit { columns: 3, rows: 2, together: (2, 2), cell: (1, 1) };
        let highest = values.values(&[1.0, f32::NAN, f32::NAN, 3.0, 2.0]);
        assert!(highest[0] == 3.0 && highest[1].is_nan());
    }
}
