//! Shape of the modelled caches: bytes and ways of each level.

use std::fmt;
use std::str::FromStr;

use tiermem_base::Bytes;

use super::LINE_BYTES;

/// The largest cache that is modelled: its table takes a quarter of its size.
const BYTES_MAX: u64 = 4 << 30;
/// Ways are searched one after the other.
const WAYS_MAX: u32 = 64;

/// The shape of one cache: its bytes, and the lines of 64 bytes in a set. Written `32KiB,8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes.
    pub bytes: u64,
    /// Lines of a set.
    pub ways: u32,
}

impl Shape {
    /// The sets, a power of two; an error says what is wrong.
    pub fn sets(self) -> Result<u64, String> {
        let Shape { bytes, ways } = self;
        if ways == 0 || ways > WAYS_MAX {
            return Err(format!("{self}: a cache has 1 to {WAYS_MAX} ways"));
        }
        let set_bytes = LINE_BYTES * u64::from(ways);
        let sets = bytes / set_bytes;
        if bytes > BYTES_MAX || sets == 0 || !bytes.is_multiple_of(set_bytes) || !sets.is_power_of_two() {
            return Err(format!(
                "{self}: the size must be a power of two times {set_bytes} (64 bytes in each way), and at most {}",
                Bytes(BYTES_MAX)
            ));
        }
        Ok(sets)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", Bytes(self.bytes), self.ways)
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || format!("{text:?} is not a cache; write its size and its ways, such as 32KiB,8");
        let (bytes, ways) = text.split_once(',').ok_or_else(wanted)?;
        let bytes = bytes.trim().parse::<Bytes>().map_err(|_| wanted())?.0;
        let shape = Shape { bytes, ways: ways.trim().parse().map_err(|_| wanted())? };
        shape.sets().map(|_| shape)
    }
}

/// The caches between a program and its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shapes {
    /// Of instructions, first level.
    pub l1i: Shape,
    /// Of data, first level.
    pub l1d: Shape,
    /// Second level, of both.
    pub l2: Shape,
    /// Last level.
    pub llc: Shape,
}

impl Default for Shapes {
    /// A core of a current server, and its part of a last-level cache.
    fn default() -> Self {
        Shapes {
            l1i: Shape { bytes: 32 << 10, ways: 8 },
            l1d: Shape { bytes: 32 << 10, ways: 8 },
            l2: Shape { bytes: 1 << 20, ways: 16 },
            llc: Shape { bytes: 32 << 20, ways: 16 },
        }
    }
}

impl Shapes {
    /// Whether each level can hold what those above it hold; an error says which cannot.
    pub(super) fn check(&self) -> Result<(), String> {
        let order = [
            ("L1I", self.l1i, "L2", self.l2),
            ("L1D", self.l1d, "L2", self.l2),
            ("L2", self.l2, "LLC", self.llc),
        ];
        for (above, inner, below, outer) in order {
            if inner.bytes > outer.bytes {
                return Err(format!(
                    "{below} of {} cannot hold all of {above} of {}: a level must be as large as the one above it",
                    Bytes(outer.bytes),
                    Bytes(inner.bytes)
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_written_as_size_and_ways() {
        assert_eq!("32KiB,8".parse(), Ok(Shape { bytes: 32 << 10, ways: 8 }));
        assert_eq!("30MiB, 15".parse::<Shape>().and_then(Shape::sets), Ok(32 << 10));
        assert_eq!(Shapes::default().llc.to_string().parse(), Ok(Shapes::default().llc));
        for wrong in
            ["", "32KiB", "32KiB,0", "32KiB,65", "33KiB,8", "0B,1", "48KiB,8", "8GiB,16", "a,b", "64,1,1"]
        {
            assert!(wrong.parse::<Shape>().is_err(), "{wrong}");
        }
    }
}
