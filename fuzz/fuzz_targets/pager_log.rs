//! A log of steering, which anybody may have written: it is replayed to its end or to the first line that cannot be, and whatever it tells keeps
//! the core's accounts whole, which replaying checks.
#![no_main]

use libfuzzer_sys::fuzz_target;

/// Digits of a number: a line may tell of so many pages that they take seconds, and gibibytes.
const DIGITS_MAX: usize = 4;
/// Events whose numbers are no pages of a range.
const FREE: [&str; 3] = ["charged", "step", "capacity"];

fuzz_target!(|data: &[u8]| {
    let is_short = |line: &str| {
        let is_free = line.split(' ').nth(1).is_some_and(|kind| FREE.contains(&kind));
        let is_number = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'+');
        is_free || line.split(' ').filter(is_number).all(|word| word.len() <= DIGITS_MAX)
    };
    if String::from_utf8_lossy(data).lines().all(is_short) {
        // What cannot be replayed is an error.
        let _ = tiermem_pager::steer::replay(data);
    }
});
