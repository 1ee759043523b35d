//! What a terminal shows while a recording goes on: how long it has been, and how much is written.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tiermem_base::{Bytes, Nanos};
use tiermem_trace::recording::Journal;

/// So often the time is drawn anew.
const TICK: Duration = Duration::from_millis(500);

/// A line on standard error, if that is a terminal.
pub struct Shown(ProgressBar);

impl Shown {
    /// Of a recording that begins after `delay`, and takes so long if that is known.
    pub fn new(delay: Duration, duration: Option<Duration>) -> Self {
        let line = ProgressBar::new_spinner();
        let time = |time: Duration| Nanos(time.as_nanos().min(u128::from(u64::MAX)) as u64);
        let of = duration.map_or(String::new(), |duration| format!(" of {}", time(duration)));
        let template = format!("{{spinner}} {{elapsed}}{of}  {{msg}}");
        line.set_style(
            ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        if !delay.is_zero() {
            line.set_message(format!("the recording begins after {}", time(delay)));
        }
        line.enable_steady_tick(TICK);
        Shown(line)
    }

    /// After a slice.
    pub fn set(&self, journal: &Journal) {
        if journal.slices() == 1 {
            // What passed before was the delay.
            self.0.reset_elapsed();
        }
        self.0.set_message(words(journal.slices(), journal.bytes()));
    }

    /// Takes the line away.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}

fn words(slices: usize, bytes: u64) -> String {
    let ending = if slices == 1 { "" } else { "s" };
    format!("{slices} slice{ending}, {} written", Bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_slices_and_bytes() {
        assert_eq!(words(1, 2048), "1 slice, 2KiB written");
        assert_eq!(words(30, 3 << 20), "30 slices, 3MiB written");
    }
}
