//! Scene: a picture as a list of shapes, in points; PNG and SVG draw the same scene.

use super::colour::Rgb;

/// Where a text stands against its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// It begins there.
    Start,
    /// Its middle is there.
    Middle,
    /// It ends there.
    End,
}

/// The size of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Of numbers and remarks.
    Small,
    /// Of titles within a picture.
    Medium,
    /// Of the picture's title.
    Large,
}

impl Size {
    /// Its height in points.
    pub fn points(self) -> f64 {
        match self {
            Size::Small => 12.0,
            Size::Medium => 12.0,
            Size::Large => 16.0,
        }
    }

    /// The width of a letter in points, at most.
    pub fn letter(self) -> f64 {
        match self {
            Size::Small | Size::Medium => 6.4,
            Size::Large => 8.4,
        }
    }

    /// Whether it is bold.
    pub fn is_bold(self) -> bool {
        self != Size::Small
    }
}

/// Something that is drawn. Lengths are points, half a point is a pixel of a PNG.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A filled rectangle.
    Fill {
        /// Left, top, width, height.
        area: [f64; 4],
        /// Its colour.
        colour: Rgb,
    },
    /// The outline of a rectangle, outside of it.
    Frame {
        /// Left, top, width, height.
        area: [f64; 4],
        /// Its colour.
        colour: Rgb,
    },
    /// A grid of cells, row by row.
    Cells {
        /// Left, top, width, height.
        area: [f64; 4],
        /// Cells of a row; the number of cells is a multiple.
        columns: usize,
        /// Their colours.
        cells: Vec<Rgb>,
    },
    /// A line through points; it is broken at points that are no numbers.
    Line {
        /// Where it goes.
        points: Vec<(f64, f64)>,
        /// Its width.
        width: f64,
        /// Its colour.
        colour: Rgb,
    },
    /// Dots.
    Dots {
        /// Their middles.
        points: Vec<(f64, f64)>,
        /// Their width.
        width: f64,
        /// Their colour.
        colour: Rgb,
    },
    /// A text.
    Text {
        /// Where it stands, and where its letters' feet are.
        at: (f64, f64),
        /// Its size.
        size: Size,
        /// Where it stands against its place.
        anchor: Anchor,
        /// Its colour.
        colour: Rgb,
        /// The text.
        text: String,
    },
}

/// A picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Scene {
    /// Its width in points.
    pub width: f64,
    /// Its height in points.
    pub height: f64,
    /// Behind everything.
    pub page: Rgb,
    /// Its content as text, for screen readers.
    pub title: String,
    /// From back to front.
    pub items: Vec<Item>,
}

impl Scene {
    /// Puts a text.
    pub fn text(&mut self, at: (f64, f64), size: Size, anchor: Anchor, colour: Rgb, text: impl Into<String>) {
        self.items.push(Item::Text { at, size, anchor, colour, text: text.into() });
    }

    /// Puts a straight line of a point's width.
    pub fn rule(&mut self, from: (f64, f64), to: (f64, f64), colour: Rgb) {
        self.items.push(Item::Line { points: vec![from, to], width: 1.0, colour });
    }
}

/// A text in lines of at most `letters`, broken at spaces where possible.
pub fn wrap(text: &str, letters: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        let line_letters = lines.last().map_or(0, |line| line.chars().count());
        if line_letters > 0 && line_letters + 1 + word.len() > letters {
            lines.push(String::new());
        } else if line_letters > 0 {
            word.insert(0, ' ');
        }
        for part in word.chunks(letters.max(1)) {
            match lines.last_mut() {
                Some(line) if line.chars().count() + part.len() <= letters.max(1) => line.extend(part),
                _ => lines.push(part.iter().collect()),
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_not_too_long() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh ij", 3), ["abc", "def", "gh", "ij"]);
        assert_eq!(wrap("", 3), [""]);
    }
}
