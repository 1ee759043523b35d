//! Pacing of a slice: how many windows it has, and how long each is.
//!
//! Windows become longer from one to the next: short ones tell hot granules apart, long ones cold ones. Each costs a look at all of the
//! process, so a process that takes long to look at has fewer.

/// The shortest window is such a part of a slice, or as long as looking takes.
const SHORTEST_PART: f64 = 64.0;
/// Each is so many times as long as the one before, up to such a part of a slice: what stays untouched is not cleared again, so that it
/// has a longer one all the same.
const LONGER: f64 = 2.0;
const LONGEST_PART: f64 = 8.0;
/// Looking again, for another window, takes such a part of a slice at most: the kernel goes through all page tables for it, and what
/// that drives out of the processor's caches the process has to fetch again.
const LOOKING_PART: f64 = 25.0;

/// Looking once takes such a part at most, or the slice becomes longer.
const LOOKING_ONCE_PART: f64 = 2.0;

/// A process that does not run is asked so many times in a slice whether it does, and within such times.
const REST_PART: f64 = 16.0;
const REST_S: (f64, f64) = (0.02, 0.1);
/// A process that has run is known to have after such a time: the kernel counts with each tick, a hundred times a second at least.
const QUIET_S: f64 = 0.02;

/// A window that is to be opened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Its length, until the pass that reads it begins.
    pub seconds: f64,
    /// Whether the slice ends with it.
    pub is_last: bool,
}

/// The windows of one slice.
#[derive(Clone, Copy, Debug)]
pub struct Pacing {
    slice_s: f64,
    most: u32,
    number: u32,
    length_s: f64,
}

impl Pacing {
    /// Of a slice of this length that has `most` windows at most, at least one. `look_s` is what a look took last.
    pub fn new(slice_s: f64, most: u32, look_s: f64) -> Self {
        Pacing { slice_s, most, number: 0, length_s: (slice_s / SHORTEST_PART).max(look_s) }
    }

    /// The shortest slice of a process that takes so long to look at.
    pub fn least_slice_s(look_s: f64) -> f64 {
        look_s * LOOKING_ONCE_PART
    }

    /// The next window, when `left_s` seconds of the slice are left and a look takes `look_s`. None is asked for after the last.
    pub fn next(&mut self, left_s: f64, look_s: f64) -> Window {
        let looks_s = f64::from(self.number + 2) * LOOKING_PART * look_s;
        let is_last =
            self.number + 1 >= self.most || looks_s > self.slice_s || left_s < (self.length_s + look_s) * 2.0;
        let seconds = if is_last { (left_s - look_s).max(0.0) } else { self.length_s };
        self.number += 1;
        self.length_s = (self.length_s * LONGER).min((self.slice_s / LONGEST_PART).max(self.length_s));
        Window { seconds, is_last }
    }

    /// For how much longer a window goes on whose time is over, before this is asked again: nothing is accessed while the process does not
    /// run, which it has not done for `quiet_s` seconds. `left_s` seconds are left until the slice's last look. `None`: it ends.
    pub fn goes_on_s(&self, quiet_s: f64, left_s: f64) -> Option<f64> {
        let step_s = (self.slice_s / REST_PART).clamp(REST_S.0, REST_S.1);
        (quiet_s >= QUIET_S && left_s > 0.0).then_some(step_s.min(left_s))
    }

    /// Whether a window that was to be so long was much longer: its observer had to wait for a processor.
    pub fn is_late(&self, window: Window, waited_s: f64) -> bool {
        waited_s > window.seconds * 2.0 + self.slice_s / SHORTEST_PART
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(slice_s: f64, most: u32, look_s: f64) -> Vec<Window> {
        let mut pacing = Pacing::new(slice_s, most, look_s);
        let mut left_s = slice_s;
        let mut all = Vec::new();
        while all.last().is_none_or(|last: &Window| !last.is_last) {
            let window = pacing.next(left_s, look_s);
            left_s -= window.seconds + look_s;
            all.push(window);
        }
        all
    }

    #[test]
    fn windows_grow_and_fill_the_slice() {
        let all = windows(1.0, 6, 1e-4);
        let lengths: Vec<f64> = all.iter().map(|it| it.seconds).collect();
        assert_eq!(lengths[..5], [1.0 / 64.0, 1.0 / 32.0, 1.0 / 16.0, 1.0 / 8.0, 1.0 / 8.0]);
        let all_s: f64 = lengths.iter().sum();
        assert!((all_s - (1.0 - 6e-4)).abs() < 1e-9, "{all_s}");
    }

    #[test]
    fn a_process_that_takes_long_to_look_at_has_fewer() {
        let counts = [1e-4, 0.01, 0.02, 0.03].map(|look_s| windows(1.0, 6, look_s).len());
        assert_eq!(counts, [6, 4, 2, 1]);
        assert_eq!(windows(1.0, 2, 1e-4).len(), 2);
        // Not even one look has room: the window is none, and the slice longer.
        assert_eq!(windows(0.1, 6, 0.2), [Window { seconds: 0.0, is_last: true }]);
    }

    #[test]
    fn a_window_goes_on_while_the_process_certainly_does_not_run() {
        let goes_on_s = |slice_s, quiet_s, left_s| Pacing::new(slice_s, 6, 0.0).goes_on_s(quiet_s, left_s);
        assert_eq!([goes_on_s(1.0, 0.01, 0.5), goes_on_s(1.0, 9.0, 0.0)], [None, None]);
        assert_eq!([goes_on_s(1.0, 0.02, 0.5), goes_on_s(9.0, 9.0, 0.5)], [Some(0.0625), Some(0.1)]);
        assert_eq!([goes_on_s(0.1, 9.0, 0.09), goes_on_s(0.01, 9.0, 0.005)], [Some(0.02), Some(0.005)]);
    }

    #[test]
    fn a_window_that_waited_for_a_processor_is_late() {
        let pacing = Pacing::new(1.0, 6, 0.0);
        let window = Window { seconds: 0.1, is_last: false };
        assert!(!pacing.is_late(window, 0.15) && pacing.is_late(window, 0.3));
    }
}
