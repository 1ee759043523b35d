//! The traces on which the published simulator was measured; they can be generated again.

use tiermem_base::{Access, Op};

const FOOTPRINT_BYTES: u64 = 1 << 30;

/// How addresses follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// A line of 64 bytes anywhere.
    Random,
    /// Every kibibyte.
    Stride,
    /// Four lines in a row of pages whose popularity follows Zipf's law with 0.99.
    Zipf,
}

/// splitmix64, by which the traces are made.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// `requests` requests, 30% of them writes, 200 ns apart on average.
pub fn trace(pattern: Pattern, requests: usize) -> Vec<Access> {
    let mut draws = Draws(1);
    let pages = FOOTPRINT_BYTES / 4096;
    let mut sum = 0.0;
    let cdf: Vec<f64> = (1..=pages)
        .map(|rank| {
            sum += (rank as f64).powf(-0.99);
            sum
        })
        .collect();
    let (mut time_ns, mut left, mut page, mut line) = (0, 0, 0, 0);
    let mut one = |number: u64| {
        let address = match pattern {
            Pattern::Random => draws.next() % (FOOTPRINT_BYTES / 64) * 64,
            Pattern::Stride => number * 1024 % FOOTPRINT_BYTES,
            Pattern::Zipf => {
                if left == 0 {
                    let draw = (draws.next() >> 11) as f64 * 2f64.powi(-53) * sum;
                    page = cdf.partition_point(|share| *share < draw) as u64 * 2_654_435_761 % pages;
                    line = draws.next() % 64;
                    left = 4;
                }
                left -= 1;
                let address = page * 4096 + line * 64;
                line = (line + 1) % 64;
                address
            }
        };
        time_ns += 100 + draws.next() % 201;
        let op = if draws.next() % 100 < 30 { Op::Store } else { Op::Load };
        Access::new(time_ns, op, address, 8)
    };
    (0..requests as u64).map(&mut one).collect()
}
