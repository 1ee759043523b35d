//! Packed numbers for the page: values become codes of one byte with a
//! table of their values, compressed (RFC 1950) and written as base64.

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use tiermem_base::Heat;

use super::base64;

/// Codes for values above 0; code 0 is no access.
const CODES: usize = 255;

/// A heat in codes.
pub struct Coded {
    /// Slice by slice, compressed, as base64.
    pub codes: String,
    /// Values of the codes, from code 0 on.
    pub levels: Vec<f32>,
    /// Whether each value is exact; otherwise it is the nearest of levels that are evenly spaced by their logarithms.
    pub is_exact: bool,
}

fn compressed(bytes: &[u8]) -> String {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    // Writing to memory does not fail.
    let done = encoder.write_all(bytes).and_then(|()| encoder.finish());
    base64::encode(&done.unwrap_or_default())
}

/// Numbers of four bytes, little-endian, compressed, as base64.
pub fn floats(values: impl Iterator<Item = f64>) -> String {
    compressed(&values.flat_map(|value| (value as f32).to_le_bytes()).collect::<Vec<u8>>())
}

/// A heat: exact where there are few different values.
pub fn heat(heat: &Heat) -> Coded {
    let rows = || (0..heat.slices()).flat_map(|slice| heat.row(slice)).copied();
    let mut distinct: Vec<f32> = Vec::new();
    for value in rows().filter(|value| *value > 0.0) {
        if let Err(at) = distinct.binary_search_by(|other| other.total_cmp(&value)) {
            distinct.insert(at, value);
        }
        if distinct.len() > CODES {
            break;
        }
    }
    let is_exact = distinct.len() <= CODES;
    if is_exact {
        let code = |value: f32| {
            distinct.binary_search_by(|other| other.total_cmp(&value)).map_or(0, |at| at as u8 + 1)
        };
        let codes: Vec<u8> = rows().map(code).collect();
        let levels = std::iter::once(0.0).chain(distinct.iter().copied()).collect();
        return Coded { codes: compressed(&codes), levels, is_exact };
    }
    let positive = || rows().filter(|value| *value > 0.0);
    let (least, most) = (positive().fold(f32::INFINITY, f32::min), positive().fold(0.0, f32::max));
    let step = ((most / least).ln() / (CODES - 1) as f32).max(f32::MIN_POSITIVE);
    let code = |value: f32| match value > 0.0 {
        true => ((value / least).ln() / step).round().clamp(0.0, (CODES - 1) as f32) as u8 + 1,
        false => 0,
    };
    let codes: Vec<u8> = rows().map(code).collect();
    let level = |code: usize| least * (step * code as f32).exp();
    Coded {
        codes: compressed(&codes),
        levels: std::iter::once(0.0).chain((0..CODES).map(level)).collect(),
        is_exact,
    }
}

/// The share of `part` in `part` and `others`: 0 is unknown, 1 to 255 are shares from none to all.
pub fn shares(part: &Heat, others: &[&Heat]) -> String {
    let mut codes = Vec::with_capacity(part.slices() * part.granules());
    for slice in 0..part.slices() {
        for (at, value) in part.row(slice).iter().enumerate() {
            let all = value + others.iter().map(|other| other.row(slice)[at]).sum::<f32>();
            codes.push(if all > 0.0 { (value / all * 254.0).round() as u8 + 1 } else { 0 });
        }
    }
    compressed(&codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_values_are_exact_and_many_are_near() {
        let few = heat(&Heat::of(1, 4, vec![0.0, 3.0, 7.0, 3.0]));
        assert!(few.is_exact);
        assert_eq!(few.levels, [0.0, 3.0, 7.0]);
        let many = heat(&Heat::of(1, 1000, (0..1000).map(|at| at as f32 + 0.5).collect()));
        assert!(!many.is_exact);
        assert_eq!(many.levels.len(), 256);
        assert!((many.levels[1] - 0.5).abs() < 1e-3 && (many.levels[255] - 999.5).abs() < 1.0);
        let near = many.levels[1..].windows(2).all(|two| two[1] / two[0] < 1.04);
        assert!(near);
    }
}
