//! Rate limit of moves: how many granules may be moved in each slice within the bandwidth given to moving, and for how long.

/// Granules of the smallest useful exchange where fast memory is full: one moves out and one comes in.
const EXCHANGE: f64 = 2.0;

/// Granules that may be moved, slice by slice.
///
/// Unused allowance lapses and is not saved up: bandwidth that has passed cannot be used later. The driver makes moves between
/// two slices, no faster than the rate (which `--move-bandwidth measured` takes from that very loop). So a second's moves at once
/// would take that second: the next slice would come late, moves ahead of a hotspot would come too late, and a replay, which
/// makes all moves of a slice before the next one, would promise what no driver can do. Allowance that is too small for an
/// exchange is kept all the same: otherwise a rate below one exchange in a slice would never move anything.
///
/// Moves may be slower than the rate says. Nothing is seen of the program meanwhile, and what moves were decided on grows old: after a
/// slice no further move begins once those before have taken as long as the slice.
#[derive(Clone, Copy, Debug)]
pub struct RateLimit {
    granules_per_s: f64,
    /// Granules that may be moved now.
    left: f64,
    /// For how long; below 0 what the last move took too much.
    left_ns: f64,
    /// What a move took of late.
    move_ns: f64,
}

impl RateLimit {
    /// At most `granules_per_s` granules in a second, out of and into fast memory together; infinite for no limit.
    pub fn new(granules_per_s: f64) -> Self {
        let granules_per_s = granules_per_s.max(0.0);
        RateLimit { granules_per_s, left: 0.0, left_ns: 0.0, move_ns: 1e9 / granules_per_s }
    }

    /// A slice of `slice_ns` has passed.
    pub fn slice(&mut self, slice_ns: u64) {
        let kept = if self.left < EXCHANGE { self.left } else { 0.0 };
        // Nothing at no limit is no number: nothing has passed then.
        let fresh = (self.granules_per_s * slice_ns as f64 / 1e9).max(0.0);
        self.left = kept + fresh;
        let slice_ns = slice_ns as f64;
        self.left_ns = (self.left_ns + slice_ns).min(slice_ns);
    }

    /// Granules that may be moved now.
    pub fn left(&self) -> usize {
        if self.left_ns > 0.0 { self.left as usize } else { 0 }
    }

    /// A granule was moved, or its move was tried: a move that the kernel refuses has cost its time as well.
    pub fn spend(&mut self) {
        debug_assert!(self.left >= 1.0, "a move that is not allowed");
        self.left -= 1.0;
    }

    /// A move has taken so long.
    pub fn took(&mut self, took_ns: u64) {
        self.left_ns -= took_ns as f64;
        self.move_ns += (took_ns as f64 - self.move_ns) / 8.0;
    }

    /// How long a move takes: by the rate, and of late.
    pub fn move_ns(&self) -> f64 {
        self.move_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn what_was_not_used_lapses() {
        let mut allowance = RateLimit::new(50.0);
        (0..10).for_each(|_| allowance.slice(SECOND / 10));
        assert_eq!(allowance.left(), 5);
        (0..5).for_each(|_| allowance.spend());
        assert_eq!(allowance.left(), 0);
        allowance.slice(3 * SECOND);
        assert_eq!(allowance.left(), 150);
    }

    #[test]
    fn less_than_an_exchange_is_kept_so_that_a_low_rate_moves_something() {
        let mut allowance = RateLimit::new(3.0);
        let mut moved = 0;
        for _ in 0..100 {
            allowance.slice(SECOND / 10);
            if allowance.left() >= 2 {
                (0..2).for_each(|_| allowance.spend());
                moved += 2;
            }
        }
        assert!((28..=30).contains(&moved), "{moved}");
    }

    #[test]
    fn moves_take_no_longer_than_what_is_seen_of_the_program() {
        let mut allowance = RateLimit::new(f64::INFINITY);
        let mut in_slice = |took_ns: u64| {
            allowance.slice(SECOND / 10);
            let mut moved = 0;
            while allowance.left() > 0 {
                allowance.spend();
                allowance.took(took_ns);
                moved += 1;
            }
            moved
        };
        assert_eq!(in_slice(SECOND / 100), 10);
        // The last one may take longer, and the next slice has less for it.
        assert_eq!((0..4).map(|_| in_slice(SECOND / 8)).collect::<Vec<_>>(), [1, 1, 1, 1]);
        assert_eq!((0..7).map(|_| in_slice(SECOND / 4)).collect::<Vec<_>>(), [0, 1, 0, 1, 0, 0, 1]);
    }

    #[test]
    fn there_may_be_no_limit_and_no_allowance() {
        let mut unlimited = RateLimit::new(f64::INFINITY);
        unlimited.slice(0);
        assert_eq!(unlimited.left(), 0);
        unlimited.slice(1);
        unlimited.spend();
        assert_eq!(unlimited.left(), usize::MAX);
        for none in [0.0, -1.0, f64::NAN] {
            let mut allowance = RateLimit::new(none);
            allowance.slice(SECOND);
            assert_eq!(allowance.left(), 0);
        }
    }
}
