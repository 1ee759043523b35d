//! Charts: their content, independent of the size at which they are drawn.

mod labels;
mod scale;
mod svg;

pub use scale::{Axis, Spread};
pub use svg::{Shape, draw};

/// The colour of a mark, by its role; the page's style sheet knows what it looks like in light and dark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// The n-th of things that have no order.
    Distinct(usize),
    /// The n-th of things that have one: from pale to strong.
    Ordered(usize),
    /// In the background.
    Quiet,
}

impl Colour {
    /// The name of its class.
    pub fn class(self) -> String {
        match self {
            Colour::Distinct(number) => format!("c{}", number % 6),
            Colour::Ordered(number) => format!("k{}", number.min(4)),
            Colour::Quiet => "quiet".to_owned(),
        }
    }
}

/// A point of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct At {
    /// Along the horizontal axis.
    pub x: f64,
    /// Along the vertical axis.
    pub y: f64,
    /// The truth lies within this of `y`; 0 where it is known.
    pub error: f64,
}

impl At {
    /// A point that is known.
    pub fn new(x: f64, y: f64) -> Self {
        At { x, y, error: 0.0 }
    }
}

/// Something that is drawn over the axes.
#[derive(Clone, Debug, PartialEq)]
pub enum Mark {
    /// A line through points, with a band where they have errors.
    Line {
        /// Its name, which stands beside it.
        name: String,
        /// How it looks.
        colour: Colour,
        /// Whether it is broken.
        dashed: bool,
        /// Whether its values are shown under the pointer and in the table.
        told: bool,
        /// Ascending in x.
        points: Vec<At>,
    },
    /// Bars between two places of the horizontal axis, up to a height.
    Bars {
        /// What they show.
        name: String,
        /// How they look.
        colour: Colour,
        /// From, to, height.
        bars: Vec<(f64, f64, f64)>,
        /// What each is called, in the order of `bars`.
        names: Vec<String>,
        /// Whether each has its value above it.
        labelled: bool,
    },
    /// A vertical line with a word.
    Rule {
        /// Along the horizontal axis.
        x: f64,
        /// The word.
        name: String,
    },
}

/// A chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Unique on the page, letters and hyphens.
    pub id: &'static str,
    /// Title of the chart.
    pub title: String,
    /// Finding that the chart shows, in a sentence.
    pub finding: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// From back to front.
    pub marks: Vec<Mark>,
}

/// The values at one place of the horizontal axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Stop {
    /// The place.
    pub x: f64,
    /// Name of the series.
    pub name: String,
    /// The number of the series, the height, and the value in words.
    pub values: Vec<(usize, f64, String)>,
}

impl Chart {
    /// Names and colours of the series with labelled values.
    pub fn series(&self) -> Vec<(&str, Colour)> {
        fn series(mark: &Mark) -> Option<(&str, Colour)> {
            match mark {
                Mark::Line { told: false, .. } | Mark::Rule { .. } => None,
                Mark::Line { name, colour, .. } | Mark::Bars { name, colour, .. } => Some((name, *colour)),
            }
        }
        self.marks.iter().filter_map(series).collect()
    }

    /// All values, by place.
    pub fn stops(&self) -> Vec<Stop> {
        let mut stops: Vec<Stop> = Vec::new();
        let mut number = 0;
        for mark in &self.marks {
            match mark {
                Mark::Line { told: true, points, .. } => {
                    for at in points {
                        let mut text = self.y.quantity.text(at.y);
                        if at.error > 0.0 {
                            text += &format!(" ± {}", self.y.quantity.text(at.error));
                        }
                        add(&mut stops, at.x, || self.x.quantity.text(at.x), (number, at.y, text));
                    }
                    number += 1;
                }
                Mark::Bars { bars, names, .. } => {
                    for (&(from, to, height), name) in bars.iter().zip(names) {
                        let text = self.y.quantity.text(height);
                        let middle = match self.x.spread {
                            Spread::Linear => (from + to) / 2.0,
                            Spread::Log => (from * to).sqrt(),
                        };
                        add(&mut stops, middle, || name.clone(), (number, height, text));
                    }
                    number += 1;
                }
                Mark::Line { .. } | Mark::Rule { .. } => (),
            }
        }
        stops.sort_by(|a, b| a.x.total_cmp(&b.x));
        stops
    }
}

fn add(stops: &mut Vec<Stop>, x: f64, name: impl FnOnce() -> String, value: (usize, f64, String)) {
    // Series of a chart mostly have the same places, in the same order.
    match stops.iter_mut().find(|stop| stop.x == x) {
        Some(stop) => stop.values.push(value),
        None => stops.push(Stop { x, name: name(), values: vec![value] }),
    }
}
