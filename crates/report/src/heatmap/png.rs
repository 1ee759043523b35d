//! PNG output of pictures: two pixels to the point, with letters of Noto Sans Mono.

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};

use super::colour::{Rgb, mix};
use super::scene::{Anchor, Item, Scene, Size};

/// Pixels to the point.
const PIXELS: f64 = 2.0;
/// Replaces a letter that the font lacks.
const UNKNOWN: char = '?';

/// The picture as a file.
pub fn png(scene: &Scene) -> Vec<u8> {
    let mut canvas = Canvas::new(
        (scene.width * PIXELS).ceil().max(1.0) as usize,
        (scene.height * PIXELS).ceil().max(1.0) as usize,
        scene.page,
    );
    scene.items.iter().for_each(|item| canvas.draw(item));
    encode(canvas.width, &canvas.pixels)
}

/// A grid of cells as a picture of its own, each of several pixels as long as the picture stays within `longest`: what smooths
/// pictures when it enlarges them then does little harm.
pub fn cells_png(columns: usize, cells: &[Rgb], longest: usize) -> Vec<u8> {
    let columns = columns.max(1);
    let rows = (cells.len() / columns).max(1);
    let times = (longest / columns.max(rows)).clamp(1, 4);
    let mut pixels = Vec::with_capacity(cells.len() * times * times);
    for row in cells.chunks(columns) {
        for _ in 0..times {
            pixels.extend(row.iter().flat_map(|cell| std::iter::repeat_n(*cell, times)));
        }
    }
    encode(columns * times, &pixels)
}

/// RGB pixels as a PNG; of a palette where there are at most 256 colours, which is a third of the size.
fn encode(width: usize, pixels: &[Rgb]) -> Vec<u8> {
    let height = pixels.len() / width.max(1);
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width as u32, height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Balanced);
    // 144 dots to the inch: a point of the picture is a point of paper.
    encoder.set_pixel_dims(Some(png::PixelDimensions { xppu: 5669, yppu: 5669, unit: png::Unit::Meter }));
    // Writing to memory fails only for pictures without pixels, and there are none of these.
    let written =
        encoder.write_header().and_then(|mut writer| writer.write_image_data(pixels.as_flattened()));
    debug_assert!(written.is_ok(), "{written:?}");
    file
}

struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<Rgb>,
}

impl Canvas {
    fn new(width: usize, height: usize, colour: Rgb) -> Self {
        Canvas { width, height, pixels: vec![colour; width * height] }
    }

    fn blend(&mut self, x: i64, y: i64, colour: Rgb, share: f64) {
        if x >= 0 && y >= 0 && (x as usize) < self.width && (y as usize) < self.height {
            let pixel = &mut self.pixels[y as usize * self.width + x as usize];
            *pixel = mix(*pixel, colour, share.min(1.0));
        }
    }

    /// Fills pixels from left and top up to right and bottom.
    fn fill(&mut self, [left, top, right, bottom]: [i64; 4], colour: Rgb) {
        let within = |at: i64, end: usize| at.clamp(0, end as i64) as usize;
        let (left, right) = (within(left, self.width), within(right, self.width));
        for y in within(top, self.height)..within(bottom, self.height) {
            if left < right {
                self.pixels[y * self.width + left..y * self.width + right].fill(colour);
            }
        }
    }

    fn draw(&mut self, item: &Item) {
        match item {
            Item::Fill { area, colour } => self.fill(pixel_area(*area), *colour),
            Item::Frame { area, colour } => {
                let [left, top, right, bottom] = pixel_area(*area);
                self.fill([left - 2, top - 2, right + 2, top], *colour);
                self.fill([left - 2, bottom, right + 2, bottom + 2], *colour);
                self.fill([left - 2, top, left, bottom], *colour);
                self.fill([right, top, right + 2, bottom], *colour);
            }
            Item::Cells { area, columns, cells } => self.cells(*area, (*columns).max(1), cells),
            Item::Line { points, width, colour } => {
                for two in points.windows(2) {
                    self.segment(two[0], two[1], *width, *colour);
                }
            }
            Item::Dots { points, width, colour } => {
                for &(x, y) in points {
                    self.dot(x * PIXELS, y * PIXELS, width * PIXELS / 2.0, *colour);
                }
            }
            Item::Text { at, size, anchor, colour, text } => self.text(*at, *size, *anchor, *colour, text),
        }
    }

    fn cells(&mut self, area: [f64; 4], columns: usize, cells: &[Rgb]) {
        let rows = cells.len() / columns;
        let [left, top, right, bottom] = pixel_area(area);
        let edge =
            |from: i64, to: i64, at: usize, count: usize| from + (to - from) * at as i64 / count as i64;
        for row in 0..rows {
            let (y, y_end) = (edge(top, bottom, row, rows), edge(top, bottom, row + 1, rows));
            for column in 0..columns {
                let (x, x_end) = (edge(left, right, column, columns), edge(left, right, column + 1, columns));
                self.fill([x, y, x_end, y_end], cells[row * columns + column]);
            }
        }
    }

    /// A straight line: each pixel by its distance from it.
    fn segment(&mut self, from: (f64, f64), to: (f64, f64), width: f64, colour: Rgb) {
        let ((x0, y0), (x1, y1)) = ((from.0 * PIXELS, from.1 * PIXELS), (to.0 * PIXELS, to.1 * PIXELS));
        if ![x0, y0, x1, y1].iter().all(|value| value.is_finite()) {
            return;
        }
        let reach = width * PIXELS / 2.0;
        let (dx, dy) = (x1 - x0, y1 - y0);
        let long = dx * dx + dy * dy;
        let (top, bottom) = (y0.min(y1) - reach - 1.0, y0.max(y1) + reach + 1.0);
        let (left, right) = (x0.min(x1) - reach - 1.0, x0.max(x1) + reach + 1.0);
        let rows = (top.max(0.0) as i64)..=(bottom.min(self.height as f64) as i64);
        for y in rows {
            for x in (left.max(0.0) as i64)..=(right.min(self.width as f64) as i64) {
                let (px, py) = (x as f64 + 0.5, y as f64 + 0.5);
                let along =
                    if long > 0.0 { (((px - x0) * dx + (py - y0) * dy) / long).clamp(0.0, 1.0) } else { 0.0 };
                let distance = (px - x0 - along * dx).hypot(py - y0 - along * dy);
                let share = reach + 0.5 - distance;
                if share > 0.0 {
                    self.blend(x, y, colour, share);
                }
            }
        }
    }

    fn dot(&mut self, x: f64, y: f64, reach: f64, colour: Rgb) {
        if !x.is_finite() || !y.is_finite() {
            return;
        }
        for py in (y - reach - 1.0) as i64..=(y + reach + 1.0) as i64 {
            for px in (x - reach - 1.0) as i64..=(x + reach + 1.0) as i64 {
                let distance = (px as f64 + 0.5 - x).hypot(py as f64 + 0.5 - y);
                let share = (reach + 0.5 - distance).clamp(0.0, 1.0);
                if share > 0.0 {
                    self.blend(px, py, colour, 0.6 * share);
                }
            }
        }
    }

    fn text(&mut self, at: (f64, f64), size: Size, anchor: Anchor, colour: Rgb, text: &str) {
        let height = match size {
            Size::Small | Size::Medium => RasterHeight::Size24,
            Size::Large => RasterHeight::Size32,
        };
        let weight = if size.is_bold() { FontWeight::Bold } else { FontWeight::Regular };
        let advance = get_raster_width(weight, height) as i64;
        let long = advance * text.chars().count() as i64;
        let left = (at.0 * PIXELS).round() as i64
            - match anchor {
                Anchor::Start => 0,
                Anchor::Middle => long / 2,
                Anchor::End => long,
            };
        // The baseline of a glyph is at about four fifths of its height.
        let top = (at.1 * PIXELS - 0.78 * height.val() as f64).round() as i64;
        for (number, letter) in text.chars().enumerate() {
            let letter = match letter {
                '\u{202f}' | '\u{a0}' => ' ',
                '–' | '−' => '-',
                '’' => '\'',
                other => other,
            };
            let glyph = get_raster(letter, weight, height).or_else(|| get_raster(UNKNOWN, weight, height));
            let Some(glyph) = glyph else { continue };
            for (y, row) in glyph.rows().enumerate() {
                for (x, ink) in row.iter().enumerate().filter(|(_, ink)| **ink > 0) {
                    let place = (left + number as i64 * advance + x as i64, top + y as i64);
                    self.blend(place.0, place.1, colour, f64::from(*ink) / 255.0);
                }
            }
        }
    }
}

/// Left, top, right, bottom in pixels.
fn pixel_area([left, top, width, height]: [f64; 4]) -> [i64; 4] {
    [left, top, left + width, top + height].map(|value| (value * PIXELS).round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_read_back_as_it_was_drawn() {
        let mut scene = Scene {
            width: 20.0,
            height: 10.0,
            page: [255; 3],
            title: String::new(),
            items: vec![Item::Cells {
                area: [1.0, 1.0, 2.0, 1.0],
                columns: 2,
                cells: vec![[9, 8, 7], [1, 2, 3]],
            }],
        };
        scene.text((10.0, 9.0), Size::Small, Anchor::Middle, [0; 3], "1 ≠ ü");
        // What sticks out is cut off.
        scene.rule((-5.0, 5.0), (500.0, 5.0), [0; 3]);
        let file = png(&scene);
        let mut reader = png::Decoder::new(std::io::Cursor::new(&file)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        assert_eq!((reader.info().width, reader.info().height), (40, 20));
        let at = |x: usize, y: usize| &pixels[(y * 40 + x) * 3..][..3];
        assert_eq!((at(2, 2), at(5, 3), at(1, 2)), (&[9, 8, 7][..], &[1, 2, 3][..], &[255; 3][..]));
        assert_eq!(at(39, 10), [0; 3]);
    }
}
