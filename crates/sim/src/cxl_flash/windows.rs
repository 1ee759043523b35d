//! Windows of a run: a fixed number of requests each, with what the device did in that time and how the requests were answered.
//!
//! An answer belongs to the window of its request, however late it comes. Events of flash belong to the window in which they
//! happen, and events after the last request to the last window.

use super::outcome::{Answers, Counts, TraceWindow};

/// Counts of windows, kept until the end.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    /// Requests of each; 0: there are none.
    length: u64,
    /// When each began, and what had been counted by then.
    begun: Vec<(u64, Counts)>,
    answers: Vec<Answers>,
}

impl Windows {
    /// Windows of `length` requests.
    pub fn new(length: u64) -> Self {
        Windows { length, ..Windows::default() }
    }

    /// Whether the next request, after `requests` of them, begins a window.
    #[inline]
    pub fn is_due(&self, requests: u64) -> bool {
        self.length > 0 && requests.is_multiple_of(self.length)
    }

    /// The next request, which comes at `start_ns`, begins a window.
    pub fn begin(&mut self, start_ns: u64, counts: Counts) {
        self.begun.push((start_ns, counts));
        self.answers.push(Answers::default());
    }

    /// The window that requests are in now; any number if there are none.
    #[inline]
    pub fn current(&self) -> u32 {
        self.begun.len().wrapping_sub(1) as u32
    }

    /// The answers of a window, if there are windows.
    #[inline]
    pub fn answers(&mut self, window: u32) -> Option<&mut Answers> {
        self.answers.get_mut(window as usize)
    }

    /// All of them, when everything has happened.
    pub fn finish(self, all: &Counts) -> Vec<TraceWindow> {
        let ends = self.begun.iter().skip(1).map(|(_, counts)| counts).chain([all]);
        let parts = self.begun.iter().zip(ends).zip(self.answers);
        parts
            .map(|(((start_ns, before), end), answers)| TraceWindow {
                start_ns: *start_ns,
                counts: Counts { answers, ..end.since(before) },
            })
            .collect()
    }
}
