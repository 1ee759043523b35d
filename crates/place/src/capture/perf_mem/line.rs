//! Line of perf's text: its meaning, and parsing the numbers in it.

use tiermem_base::Op;
use tiermem_trace::recording::Mode;

use super::data_src::Answer;
use crate::capture::layout::KERNEL_START;
use crate::capture::mappings::maps::MapLine;

/// A sampled access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// The process; `None` where the text has one number that may be a thread's as well.
    pub pid: Option<u32>,
    pub time_ns: Option<u64>,
    pub address: u64,
    pub op: Op,
    pub answer: Answer,
    pub mode: Mode,
    /// 0 if it is not known.
    pub cycles: u64,
}

/// A mapping that perf reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapped {
    /// `None` for the kernel.
    pub pid: Option<u32>,
    pub time_ns: Option<u64>,
    pub line: MapLine,
}

/// What a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    Sample(Seen),
    Mapping(Box<Mapped>),
    /// A comment, an empty line, or another event of perf.
    Nothing,
}

/// Why a line is not understood.
pub(super) type Reason = &'static str;

/// The value of each hexadecimal digit, 16 or more for other bytes.
const DIGITS: [u8; 256] = {
    let mut digits = [u8::MAX; 256];
    let mut at = 0;
    while at < 10 {
        digits[b'0' as usize + at] = at as u8;
        at += 1;
    }
    let mut at = 0;
    while at < 6 {
        digits[b'a' as usize + at] = 10 + at as u8;
        digits[b'A' as usize + at] = 10 + at as u8;
        at += 1;
    }
    digits
};

/// A number of at most 16 hexadecimal digits, without `0x`.
pub(super) fn hexadecimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 16 {
        return None;
    }
    let mut number = 0;
    for byte in text {
        let digit = DIGITS[usize::from(*byte)];
        if digit > 15 {
            return None;
        }
        number = number << 4 | u64::from(digit);
    }
    Some(number)
}

/// A number of at most 18 decimal digits, which no 64 bits are too small for.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 18 {
        return None;
    }
    let mut number = 0;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + u64::from(digit);
    }
    Some(number)
}

/// `4268.624641` in nanoseconds; perf prints six digits of a second, or nine with `--ns`.
pub(super) fn time_ns(text: &[u8]) -> Option<u64> {
    let (seconds, fraction) = text.split_at(memchr::memchr(b'.', text)?);
    let fraction = &fraction[1..];
    let scale = 10u64.checked_pow(9u32.checked_sub(u32::try_from(fraction.len()).ok()?)?)?;
    decimal(seconds)?.checked_mul(1_000_000_000)?.checked_add(decimal(fraction)? * scale)
}

/// The largest number of a process that the kernel gives.
const PID_MAX: u64 = 1 << 22;

/// A process's number.
pub(super) fn process(text: &[u8]) -> Option<u32> {
    decimal(text).filter(|pid| *pid <= PID_MAX).map(|pid| pid as u32)
}

/// The last word of the text, and the text before it; blanks between and behind are skipped. No word at the start.
pub(super) fn last_word(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().rposition(|byte| *byte != b' ').map_or(0, |at| at + 1);
    let text = &text[..end];
    let start = memchr::memrchr(b' ', text).map_or(0, |at| at + 1);
    (&text[..start], &text[start..])
}

/// The first word of the text, and the text behind it.
pub(super) fn first_word(text: &[u8]) -> (&[u8], &[u8]) {
    let start = text.iter().position(|byte| *byte != b' ').unwrap_or(text.len());
    let text = &text[start..];
    text.split_at(memchr::memchr(b' ', text).unwrap_or(text.len()))
}

/// The mode that runs the instruction at this address.
pub(super) fn mode_of(ip: u64) -> Mode {
    if ip >= KERNEL_START { Mode::Kernel } else { Mode::User }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_have_six_digits_or_nine() {
        assert_eq!(time_ns(b"4268.624641"), Some(4_268_624_641_000));
        assert_eq!(time_ns(b"0.000000001"), Some(1));
        assert_eq!(time_ns(b"1.5"), Some(1_500_000_000));
        for text in ["", ".", "1.", ".5", "1", "1.0000000001", "-1.0", "99999999999999999.0", "1.2.3"] {
            assert_eq!(time_ns(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn words_stand_between_blanks() {
        assert_eq!(last_word(b"  a  bc  "), (&b"  a  "[..], &b"bc"[..]));
        assert_eq!(last_word(b"  "), (&b""[..], &b""[..]));
        assert_eq!(first_word(b"  a  bc"), (&b"a"[..], &b"  bc"[..]));
        assert_eq!(first_word(b"  "), (&b""[..], &b""[..]));
    }

    proptest! {
        #[test]
        fn numbers_are_what_the_standard_library_says(text in "[0-9a-fA-F+x-]{0,20}") {
            let plain = text.bytes().all(|byte| byte.is_ascii_hexdigit()) && text.len() <= 16;
            prop_assert_eq!(hexadecimal(text.as_bytes()), u64::from_str_radix(&text, 16).ok().filter(|_| plain));
            let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && text.len() <= 18;
            prop_assert_eq!(decimal(text.as_bytes()), text.parse::<u64>().ok().filter(|_| plain));
        }
    }
}
