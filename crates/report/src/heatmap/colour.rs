//! Colours of values: maps that are even to the eye and that colour-blind people can read.

/// Red, green, blue.
pub type Rgb = [u8; 3];

/// A scale of colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Map {
    /// Viridis (van der Walt and Smith 2015), for counts: from violet over green to yellow.
    Viridis,
    /// Cividis (Nuñez, Anderton and Renslow 2018), for shares and ages: from blue over grey to yellow.
    Cividis,
}

/// Viridis as a polynomial of the sixth degree, coefficient by coefficient; it is within two steps of 255 of the table.
const VIRIDIS: [[f64; 3]; 7] = [
    [0.277_727_3, 0.005_407_3, 0.334_099_8],
    [0.105_093_0, 1.404_613_5, 1.384_590_2],
    [-0.330_861_8, 0.214_847_6, 0.095_095_2],
    [-4.634_230_5, -5.799_101_0, -19.332_441_0],
    [6.228_269_9, 14.179_933_4, 56.690_552_6],
    [4.776_385_0, -13.745_145_4, -65.353_032_6],
    [-5.435_455_9, 4.645_852_6, 26.312_435_2],
];
/// Cividis at even places.
const CIVIDIS: [Rgb; 10] = [
    [0, 34, 78],
    [18, 53, 112],
    [59, 73, 108],
    [87, 93, 109],
    [112, 113, 115],
    [138, 134, 120],
    [165, 156, 116],
    [195, 179, 105],
    [225, 204, 85],
    [254, 232, 56],
];

impl Map {
    /// The colour at a place from 0 to 1.
    pub fn at(self, place: f64) -> Rgb {
        let place = if place.is_nan() { 0.0 } else { place.clamp(0.0, 1.0) };
        match self {
            Map::Viridis => std::array::from_fn(|channel| {
                let value = VIRIDIS.iter().rev().fold(0.0, |sum, step| sum * place + step[channel]);
                (value.clamp(0.0, 1.0) * 255.0).round() as u8
            }),
            Map::Cividis => {
                let last = CIVIDIS.len() - 1;
                let at = ((place * last as f64) as usize).min(last - 1);
                mix(CIVIDIS[at], CIVIDIS[at + 1], place * last as f64 - at as f64)
            }
        }
    }

    /// Colours at 256 even places.
    pub fn table(self) -> [Rgb; 256] {
        std::array::from_fn(|at| self.at(at as f64 / 255.0))
    }
}

/// A colour between two, `share` of the way to the second.
pub fn mix(one: Rgb, other: Rgb, share: f64) -> Rgb {
    std::array::from_fn(|channel| {
        let (from, to) = (f64::from(one[channel]), f64::from(other[channel]));
        (from + (to - from) * share).round() as u8
    })
}

/// Colours of what is drawn around values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theme {
    /// Behind everything.
    pub page: Rgb,
    /// Of titles.
    pub text: Rgb,
    /// Of remarks and of the numbers at axes.
    pub soft: Rgb,
    /// Of ticks and frames.
    pub line: Rgb,
    /// Of lines across a chart.
    pub grid: Rgb,
    /// Of granules that were never accessed.
    pub never: Rgb,
    /// Name of [`Self::never`].
    pub never_name: &'static str,
    /// Of lines and points.
    pub first: Rgb,
    /// Of a second line.
    pub second: Rgb,
    /// Of a line over a heatmap.
    pub over: Rgb,
}

impl Theme {
    /// For paper.
    pub const LIGHT: Theme = Theme {
        page: [255, 255, 255],
        text: [25, 26, 28],
        soft: [82, 87, 94],
        line: [139, 144, 151],
        grid: [232, 232, 228],
        never: [255, 255, 255],
        never_name: "white",
        first: [11, 98, 164],
        second: [196, 80, 11],
        over: [220, 38, 38],
    };
    /// For dark screens.
    pub const DARK: Theme = Theme {
        page: [18, 20, 23],
        text: [236, 238, 240],
        soft: [167, 174, 182],
        line: [115, 123, 132],
        grid: [44, 49, 55],
        never: [56, 60, 66],
        never_name: "grey",
        first: [98, 178, 243],
        second: [255, 147, 84],
        over: [255, 92, 92],
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance (WCAG 2).
    fn luminance(colour: Rgb) -> f64 {
        let linear = |value: u8| (f64::from(value) / 255.0).powf(2.2);
        0.2126 * linear(colour[0]) + 0.7152 * linear(colour[1]) + 0.0722 * linear(colour[2])
    }

    #[test]
    fn more_is_lighter_everywhere() {
        for map in [Map::Viridis, Map::Cividis] {
            let lights: Vec<f64> = (0..=64).map(|at| luminance(map.at(f64::from(at) / 64.0))).collect();
            assert!(lights.windows(2).all(|two| two[1] > two[0] - 1e-3), "{map:?} {lights:?}");
        }
        assert_eq!(Map::Viridis.at(0.0), [71, 1, 85]);
        assert_eq!(Map::Cividis.at(1.0), [254, 232, 56]);
        assert_eq!(Map::Viridis.at(f64::NAN), Map::Viridis.at(0.0));
    }
}
