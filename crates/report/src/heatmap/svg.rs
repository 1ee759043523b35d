//! SVG output of pictures.

use std::fmt::Write;

use super::base64;
use super::colour::Rgb;
use super::png;
use super::scene::{Anchor, Item, Scene};
use crate::escape::escape;

/// Cells up to which each run of one colour is a rectangle; more become a picture within the picture.
const RUNS_MAX: usize = 4000;

fn hex([red, green, blue]: Rgb) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// A length to a hundredth.
fn length(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The picture as a document of its own.
pub fn svg(scene: &Scene) -> String {
    element(scene, " xmlns=\"http://www.w3.org/2000/svg\"")
}

/// The picture as a part of a page.
pub(super) fn inline(scene: &Scene) -> String {
    element(scene, "")
}

fn element(scene: &Scene, namespace: &str) -> String {
    let mut out = String::new();
    let (width, height) = (length(scene.width), length(scene.height));
    let _ = writeln!(
        out,
        "<svg{namespace} width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         role=\"img\" font-family=\"Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif\"><title>{}</title>\
         <rect width=\"{width}\" height=\"{height}\" fill=\"{}\"/>",
        escape(&scene.title),
        hex(scene.page)
    );
    for item in &scene.items {
        draw(&mut out, item);
        out.push('\n');
    }
    out += "</svg>\n";
    out
}

fn area_of([x, y, width, height]: [f64; 4]) -> String {
    format!(
        "x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"",
        length(x),
        length(y),
        length(width),
        length(height)
    )
}

fn draw(out: &mut String, item: &Item) {
    let _ = match item {
        Item::Fill { area, colour } => {
            write!(out, "<rect {} fill=\"{}\"/>", area_of(*area), hex(*colour))
        }
        Item::Frame { area: [x, y, width, height], colour } => write!(
            out,
            "<rect {} fill=\"none\" stroke=\"{}\"/>",
            area_of([x - 0.5, y - 0.5, width + 1.0, height + 1.0]),
            hex(*colour)
        ),
        Item::Cells { area, columns, cells } => {
            draw_cells(out, *area, (*columns).max(1), cells);
            Ok(())
        }
        Item::Line { points, width, colour } => write!(
            out,
            "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-linejoin=\"round\"/>",
            path(points),
            hex(*colour),
            length(*width)
        ),
        Item::Dots { points, width, colour } => {
            let dots: String =
                points.iter().map(|(x, y)| format!("M{} {}h0", length(*x), length(*y))).collect();
            write!(
                out,
                "<path d=\"{dots}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-linecap=\"round\" stroke-opacity=\"0.6\"/>",
                hex(*colour),
                length(*width)
            )
        }
        Item::Text { at: (x, y), size, anchor, colour, text } => {
            let anchor = match anchor {
                Anchor::Start => "",
                Anchor::Middle => " text-anchor=\"middle\"",
                Anchor::End => " text-anchor=\"end\"",
            };
            let weight = if size.is_bold() { " font-weight=\"bold\"" } else { "" };
            write!(
                out,
                "<text x=\"{}\" y=\"{}\" font-size=\"{}\"{weight}{anchor} fill=\"{}\">{}</text>",
                length(*x),
                length(*y),
                length(size.points()),
                hex(*colour),
                escape(text)
            )
        }
    };
}

fn path(points: &[(f64, f64)]) -> String {
    let mut path = String::new();
    let mut is_down = false;
    for (x, y) in points {
        if !x.is_finite() || !y.is_finite() {
            is_down = false;
            continue;
        }
        let _ = write!(path, "{}{} {}", if is_down { 'L' } else { 'M' }, length(*x), length(*y));
        is_down = true;
    }
    path
}

fn draw_cells(out: &mut String, area: [f64; 4], columns: usize, cells: &[Rgb]) {
    let rows = cells.len() / columns;
    if rows == 0 {
        return;
    }
    let runs: usize =
        cells.chunks(columns).map(|row| 1 + row.windows(2).filter(|two| two[0] != two[1]).count()).sum();
    let [left, top, width, height] = area;
    if runs > RUNS_MAX {
        let picture = png::cells_png(columns, cells, 4096);
        let _ = write!(
            out,
            "<image {} preserveAspectRatio=\"none\" style=\"image-rendering:pixelated\" href=\"data:image/png;base64,{}\"/>",
            area_of(area),
            base64::encode(&picture)
        );
        return;
    }
    // Without smoothing, which would let the page shine through between neighbours.
    *out += "<g shape-rendering=\"crispEdges\">";
    let (cell_width, cell_height) = (width / columns as f64, height / rows as f64);
    for (row, cells) in cells.chunks(columns).enumerate() {
        let mut column = 0;
        for run in cells.chunk_by(|one, next| one == next) {
            let place = [
                left + column as f64 * cell_width,
                top + row as f64 * cell_height,
                run.len() as f64 * cell_width,
                cell_height,
            ];
            let _ = write!(out, "<rect {} fill=\"{}\"/>", area_of(place), hex(run[0]));
            column += run.len();
        }
    }
    *out += "</g>";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_cells_become_a_picture_and_few_do_not() {
        let mut out = String::new();
        draw_cells(&mut out, [0.0, 0.0, 4.0, 2.0], 2, &[[1, 2, 3]; 4]);
        assert_eq!(out.matches("<rect").count(), 2);
        let noise: Vec<Rgb> = (0..10_000).map(|at| [(at % 251) as u8, 0, 0]).collect();
        out.clear();
        draw_cells(&mut out, [0.0, 0.0, 100.0, 100.0], 100, &noise);
        assert!(out.starts_with("<image") && out.len() < 60_000, "{}", out.len());
        assert_eq!(path(&[(0.0, 1.0), (f64::NAN, 0.0), (2.0, 3.5), (4.0, 5.0)]), "M0 1M2 3.5L4 5");
    }
}
