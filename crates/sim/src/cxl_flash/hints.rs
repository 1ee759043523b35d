//! Hints of a host that knows the trace: the most accessed lines, which it tells the device (Yang 2023, Observation 7).

use tiermem_base::Access;
use tiermem_base::intern::Interner;

/// How often each line of a trace is accessed.
#[derive(Clone, Debug)]
pub struct Popularity {
    /// Lines with their accesses, the most accessed first.
    lines: Vec<(u64, u64)>,
}

impl Popularity {
    /// The hints of a trace, on a device of at most `lines_max` lines of `line_bytes`, into which addresses beyond it are folded.
    pub fn of(trace: &[Access], line_bytes: u32, lines_max: u64) -> Self {
        let mut numbers = Interner::new();
        let mut lines: Vec<(u64, u64)> = Vec::new();
        for access in trace {
            let line = access.key / u64::from(line_bytes) % lines_max;
            let (at, new) = numbers.intern(line);
            if new {
                lines.push((line, 0));
            }
            lines[at as usize].1 += 1;
        }
        // Of equally popular ones the lower first, so that the same trace always gives the same.
        lines.sort_unstable_by_key(|(line, accesses)| (std::cmp::Reverse(*accesses), *line));
        Popularity { lines }
    }

    /// The lines of the top `percent`, in ascending order.
    pub fn top(&self, percent: f64) -> Vec<u64> {
        let count = (self.lines.len() as f64 * percent / 100.0).ceil() as usize;
        let mut top: Vec<u64> = self.lines.iter().take(count).map(|(line, _)| *line).collect();
        top.sort_unstable();
        top
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_accessed_lines_come_first() {
        let trace: Vec<Access> =
            [1, 2, 2, 3, 3, 3, 4].iter().map(|line| Access::get(0, line * 4096 + 8, 64)).collect();
        let popularity = Popularity::of(&trace, 4096, 1 << 20);
        assert_eq!(popularity.top(25.0), [3]);
        assert_eq!(popularity.top(50.0), [2, 3]);
        assert_eq!(popularity.top(75.0), [1, 2, 3]);
        assert!(popularity.top(0.0).is_empty());
    }
}
