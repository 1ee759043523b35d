//! Times within a slice in which the rate was another one: heat that comes or goes in the middle of a slice.
//!
//! Windows see another share of pages touched the longer they are, and where some pages are hotter than others no single rate explains
//! them all. But whatever the pages' rates are, as long as they stay the same a longer window sees no smaller share than a shorter one.
//! So where one clearly does, the rate has changed in between.

use std::ops::Range;

use super::rate::{CLEARLY, Rate, SampleWindow, log_likelihood, log_likelihood_of, rate_of};

/// The windows of a slice, which are in the order of time, in pieces of one rate each.
pub(super) fn pieces(windows: &[SampleWindow]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    divide(windows, 0..windows.len(), &mut found);
    found
}

fn divide(windows: &[SampleWindow], all: Range<usize>, found: &mut Vec<Range<usize>>) {
    match changes_at(&windows[all.clone()]) {
        Some(at) => {
            divide(windows, all.start..all.start + at, found);
            divide(windows, all.start + at..all.end, found);
        }
        None => found.push(all),
    }
}

/// Where the rate changes most clearly, if it does.
fn changes_at(windows: &[SampleWindow]) -> Option<usize> {
    if !has_changed(windows) {
        return None;
    }
    let likelihood = |of: &[SampleWindow]| {
        let Rate { active, per_s, .. } = rate_of(of);
        log_likelihood(of, active, per_s)
    };
    let of_two = |at: &usize| likelihood(&windows[..*at]) + likelihood(&windows[*at..]);
    let (likeliest, at) =
        (1..windows.len()).map(|at| (of_two(&at), at)).max_by(|one, other| one.0.total_cmp(&other.0))?;
    (likeliest > likelihood(windows) + CLEARLY).then_some(at)
}

/// Whether a longer window clearly saw a smaller share than a shorter one.
fn has_changed(windows: &[SampleWindow]) -> bool {
    // Pages that had stayed untouched until then are the colder ones.
    let first = || windows.iter().filter(|window| window.before_s == 0.0);
    first().any(|shorter| first().any(|longer| shorter.seconds <= longer.seconds && is_more(shorter, longer)))
}

/// Whether a window clearly saw a larger share than another one.
fn is_more(one: &SampleWindow, other: &SampleWindow) -> bool {
    let share = |window: &SampleWindow| window.touched / window.pages;
    if share(one) <= share(other) {
        return false;
    }
    let both = (one.touched + other.touched) / (one.pages + other.pages);
    let gain = |window: &SampleWindow| {
        log_likelihood_of(window, 1.0 - share(window)) - log_likelihood_of(window, 1.0 - both)
    };
    gain(one) + gain(other) > CLEARLY
}
