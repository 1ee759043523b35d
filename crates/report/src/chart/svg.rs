//! SVG output of a chart. Text has its true size, so each chart is
//! drawn for several widths and the page shows the one that fits.

use std::fmt::Write;

use super::labels::spread;
use super::{At, Axis, Chart, Mark};
use crate::escape::escape;

/// Size of a chart in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// The class of the drawing.
    pub class: &'static str,
    /// Its width.
    pub width: f64,
    /// Its height.
    pub height: f64,
}

impl Shape {
    /// Over the whole page.
    pub const LARGE: Shape = Shape { class: "large", width: 1060.0, height: 400.0 };
    /// Over half of it.
    pub const MEDIUM: Shape = Shape { class: "medium", width: 512.0, height: 310.0 };
    /// On a telephone.
    pub const SMALL: Shape = Shape { class: "small", width: 328.0, height: 270.0 };
}

/// Space between two lines of labels.
const LINE: f64 = 16.0;
/// About the width of a character of a label.
const CHARACTER: f64 = 6.7;
/// About the width of a character of a name.
const BOLD_CHARACTER: f64 = 7.7;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 44.0;

/// The area within the axes, in pixels.
struct Area<'a> {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    x: &'a Axis,
    y: &'a Axis,
}

impl Area<'_> {
    fn x(&self, value: f64) -> f64 {
        self.left + self.x.place(value) * (self.right - self.left)
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom - self.y.place(value) * (self.bottom - self.top)
    }
}

/// A number of pixels to a tenth.
fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// The chart in this shape.
pub fn draw(chart: &Chart, shape: Shape) -> String {
    let y_ticks = chart.y.ticks(((shape.height - TOP - BOTTOM) / 44.0).clamp(3.0, 7.0));
    let widest = y_ticks.iter().map(|(_, label)| label.chars().count()).max().unwrap_or(0) as f64;
    let longest = names(chart).map(|name| name.chars().count()).max().unwrap_or(0) as f64;
    let beside = if longest > 0.0 { 26.0 + longest * BOLD_CHARACTER } else { 14.0 };
    let area = Area {
        left: (widest * CHARACTER + 12.0).max(36.0),
        right: shape.width - beside,
        top: TOP,
        bottom: shape.height - BOTTOM,
        x: &chart.x,
        y: &chart.y,
    };
    let mut out = String::with_capacity(16_000);
    let Shape { class, width, height } = shape;
    let id = chart.id;
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<svg class=\"chart {class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" tabindex=\"0\" \
         aria-labelledby=\"{id}-title {id}-finding\" data-chart=\"{id}\" data-area=\"{} {} {} {}\">",
        px(area.left),
        px(area.right),
        px(area.top),
        px(area.bottom),
    );
    axes(&mut out, &area, &y_ticks, shape);
    for mark in &chart.marks {
        draw_mark(&mut out, &area, mark);
    }
    line_names(&mut out, &area, chart);
    out += "<g class=\"hover\"></g></svg>";
    out
}

/// Names that stand beside lines.
fn names(chart: &Chart) -> impl Iterator<Item = &str> {
    chart.marks.iter().filter_map(|mark| match mark {
        Mark::Line { name, .. } => Some(name.as_str()),
        _ => None,
    })
}

fn axes(out: &mut String, area: &Area<'_>, y_ticks: &[(f64, String)], shape: Shape) {
    let (left, right, bottom) = (px(area.left), px(area.right), px(area.bottom));
    *out += "<g class=\"grid\">";
    for (value, _) in y_ticks {
        let y = px(area.y(*value));
        let _ = write!(out, "<line x1=\"{left}\" x2=\"{right}\" y1=\"{y}\" y2=\"{y}\"/>");
    }
    let x_ticks = area.x.ticks(((area.right - area.left) / 78.0).clamp(2.0, 9.0));
    for (value, _) in &x_ticks {
        let x = px(area.x(*value));
        let _ = write!(out, "<line x1=\"{x}\" x2=\"{x}\" y1=\"{bottom}\" y2=\"{}\"/>", px(area.bottom + 5.0));
    }
    let _ = write!(
        out,
        "</g><line class=\"base\" x1=\"{left}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/><g class=\"ticks\">"
    );
    for (value, label) in y_ticks {
        let (x, y) = (px(area.left - 8.0), px(area.y(*value) + 4.0));
        let _ = write!(out, "<text class=\"end\" x=\"{x}\" y=\"{y}\">{}</text>", escape(label));
    }
    let mut free_from = f64::NEG_INFINITY;
    for (value, label) in &x_ticks {
        // The last label may come close to the one before it, and is left out then.
        let (at, half) = (area.x(*value), label.chars().count() as f64 * CHARACTER / 2.0);
        if at - half < free_from {
            continue;
        }
        free_from = at + half + 8.0;
        let y = px(area.bottom + 19.0);
        let _ = write!(out, "<text class=\"middle\" x=\"{}\" y=\"{y}\">{}</text>", px(at), escape(label));
    }
    let (title_x, title_y) = (px((area.left + area.right) / 2.0), px(shape.height - 6.0));
    let _ = write!(
        out,
        "</g><g class=\"titles\"><text x=\"0\" y=\"13\">{}</text>\
         <text class=\"middle\" x=\"{title_x}\" y=\"{title_y}\">{}</text></g>",
        escape(&area.y.title),
        escape(&area.x.title)
    );
}

fn draw_mark(out: &mut String, area: &Area<'_>, mark: &Mark) {
    match mark {
        Mark::Line { colour, dashed, points, .. } => {
            band(out, area, points, &colour.class());
            let dash = if *dashed { " dashed" } else { "" };
            let path = path(area, points.iter().map(|at| (at.x, at.y)));
            let _ = write!(out, "<path class=\"line {}{dash}\" d=\"{path}\"/>", colour.class());
        }
        Mark::Bars { colour, bars, labelled, .. } => {
            let _ = write!(out, "<g class=\"bars {}\">", colour.class());
            for &(from, to, height) in bars {
                let (x0, x1, y) = (area.x(from) + 0.75, area.x(to) - 0.75, area.y(height));
                let width = (x1 - x0).max(1.0);
                // What is there at all is seen.
                let tall = if height > 0.0 { (area.bottom - y).max(1.0) } else { 0.0 };
                let _ = write!(
                    out,
                    "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"1.5\"/>",
                    px(x0),
                    px(area.bottom - tall),
                    px(width),
                    px(tall)
                );
                if *labelled {
                    let _ = write!(
                        out,
                        "<text class=\"middle\" x=\"{}\" y=\"{}\">{}</text>",
                        px((x0 + x1) / 2.0),
                        px(area.bottom - tall - 5.0),
                        escape(&short(area, height))
                    );
                }
            }
            *out += "</g>";
        }
        Mark::Rule { x, name } => {
            let at = area.x(*x);
            // The word stands where there is more room.
            let (class, word_at) =
                if area.x.place(*x) > 0.6 { ("end", at - 6.0) } else { ("start", at + 6.0) };
            let _ = write!(
                out,
                "<g class=\"rule\"><line x1=\"{0}\" x2=\"{0}\" y1=\"{1}\" y2=\"{2}\"/>\
                 <text class=\"{class}\" x=\"{3}\" y=\"{4}\">{5}</text></g>",
                px(at),
                px(area.top - 6.0),
                px(area.bottom),
                px(word_at),
                px(area.top - 7.0),
                escape(name)
            );
        }
    }
}

/// A value as text short enough to fit above a bar.
fn short(area: &Area<'_>, value: f64) -> String {
    match area.y.quantity {
        crate::quantity::Quantity::Share if value < 0.000_5 => "<0.1".to_owned(),
        crate::quantity::Quantity::Share if value < 0.1 => format!("{:.1}", value * 100.0),
        crate::quantity::Quantity::Share => format!("{:.0}", value * 100.0),
        other => other.tick(value),
    }
}

fn path(area: &Area<'_>, points: impl Iterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (x, y) in points {
        let _ =
            write!(path, "{}{} {}", if path.is_empty() { 'M' } else { 'L' }, px(area.x(x)), px(area.y(y)));
    }
    path
}

/// The band of a line, where it has one.
fn band(out: &mut String, area: &Area<'_>, points: &[At], class: &str) {
    if points.iter().all(|at| at.error <= 0.0) {
        return;
    }
    let upper = points.iter().map(|at| (at.x, at.y + at.error));
    let lower = points.iter().rev().map(|at| (at.x, at.y - at.error));
    let _ = write!(out, "<path class=\"band {class}\" d=\"{}Z\"/>", path(area, upper.chain(lower)));
}

/// Names beside the ends of the lines. Where lines meet at their ends, the
/// names are in the order that the lines have where they are farthest apart.
fn line_names(out: &mut String, area: &Area<'_>, chart: &Chart) {
    let lines: Vec<(&str, String, &[At])> = chart
        .marks
        .iter()
        .filter_map(|mark| match mark {
            Mark::Line { name, colour, points, .. } if !points.is_empty() => {
                Some((name.as_str(), colour.class(), points.as_slice()))
            }
            _ => None,
        })
        .collect();
    let Some(apart) = farthest_apart(area, &lines) else { return };
    let ends: Vec<(f64, f64)> = lines
        .iter()
        .map(|line| line.2.last().map_or((0.0, 0.0), |at| (area.x(at.x), area.y(at.y))))
        .collect();
    // A hair of the order where they are apart decides between ends that are as good as equal.
    let nudged: Vec<f64> =
        ends.iter().zip(&apart).map(|(end, apart)| (end.1 / 6.0).round() * 6.0 + apart / 1e4).collect();
    let places = spread(&nudged, LINE, (area.top, area.bottom));
    *out += "<g class=\"names\">";
    for (((name, class, _), (x, y)), place) in lines.iter().zip(&ends).zip(&places) {
        let (start, bend, end) = (px(x + 2.0), px(area.right + 7.0), px(area.right + 15.0));
        let _ = write!(
            out,
            "<path class=\"leader {class}\" d=\"M{start} {0}L{bend} {1}L{end} {1}\"/>\
             <text class=\"{class}\" x=\"{2}\" y=\"{3}\">{4}</text>",
            px(*y),
            px(*place),
            px(area.right + 19.0),
            px(place + 4.0),
            escape(name)
        );
    }
    *out += "</g>";
}

/// The heights of the lines, in pixels, at the place where they differ most.
fn farthest_apart(area: &Area<'_>, lines: &[(&str, String, &[At])]) -> Option<Vec<f64>> {
    let first = lines.first()?.2;
    let heights = |x: f64| -> Vec<f64> { lines.iter().map(|line| height_at(area, line.2, x)).collect() };
    let width = |heights: &[f64]| {
        heights.iter().copied().fold(f64::MIN, f64::max) - heights.iter().copied().fold(f64::MAX, f64::min)
    };
    first.iter().map(|at| heights(at.x)).max_by(|a, b| width(a).total_cmp(&width(b)))
}

/// The height of a line at a place, straight between its points.
fn height_at(area: &Area<'_>, points: &[At], x: f64) -> f64 {
    let right = points.partition_point(|at| at.x < x);
    match (right.checked_sub(1).and_then(|left| points.get(left)), points.get(right)) {
        (Some(left), Some(right)) => {
            let share = (x - left.x) / (right.x - left.x);
            area.y(left.y) + share * (area.y(right.y) - area.y(left.y))
        }
        (None, Some(only)) | (Some(only), None) => area.y(only.y),
        (None, None) => area.bottom,
    }
}
