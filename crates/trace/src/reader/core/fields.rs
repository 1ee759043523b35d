//! Fields of text lines as numbers, times, keys and operations.

use tiermem_base::Op;
use tiermem_base::hash::trace_key;

use crate::BadRecord;

/// Reads an unsigned decimal number; no sign, no blanks within, nothing left over.
#[inline]
pub(crate) fn number(field: &'static str, text: &[u8]) -> Result<u64, BadRecord> {
    // Nineteen digits always fit, so that nearly every number is read without checks for overflow.
    if text.len() <= 19 && !text.is_empty() {
        let mut value = 0u64;
        for byte in text {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return Err(not_a_number(field, text));
            }
            value = value * 10 + u64::from(digit);
        }
        return Ok(value);
    }
    long_number(field, text)
}

#[cold]
fn long_number(field: &'static str, text: &[u8]) -> Result<u64, BadRecord> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return Err(not_a_number(field, text));
    }
    text.iter()
        .try_fold(0u64, |value, digit| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
        .ok_or_else(|| out_of_range(field, text))
}

/// [`number`] for a column of 32 bits.
#[inline]
pub(crate) fn number_u32(field: &'static str, text: &[u8]) -> Result<u32, BadRecord> {
    u32::try_from(number(field, text)?).map_err(|_| out_of_range(field, text))
}

/// Reads hexadecimal digits, with or without `0x`.
#[inline]
pub(crate) fn hexadecimal(field: &'static str, text: &[u8]) -> Result<u64, BadRecord> {
    let digits = text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X")).unwrap_or(text);
    let (mut value, mut high) = (0u64, 0);
    for byte in digits {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            _ => return Err(not_a_number(field, text)),
        };
        // The bits that the next shift pushes out.
        high |= value >> 60;
        value = value << 4 | u64::from(digit);
    }
    match (digits.is_empty(), high) {
        (true, _) => Err(not_a_number(field, text)),
        (false, 0) => Ok(value),
        (false, _) => Err(out_of_range(field, text)),
    }
}

/// Reads a decimal number of units of `unit_ns` nanoseconds, with or without a fraction, as nanoseconds. What is
/// finer than a billionth of the unit is cut off.
#[inline]
pub(crate) fn time_ns(field: &'static str, text: &[u8], unit_ns: u64) -> Result<u64, BadRecord> {
    let (whole, fraction) = match memchr::memchr(b'.', text) {
        Some(point) => (&text[..point], &text[point + 1..]),
        None => (text, &b"0"[..]),
    };
    let failed = |error| match error {
        BadRecord::OutOfRange { .. } => out_of_range(field, text),
        _ => not_a_number(field, text),
    };
    let units = number(field, whole).map_err(failed)?;
    let kept = &fraction[..fraction.len().min(9)];
    let part = number(field, kept).map_err(failed)?;
    if !fraction[kept.len()..].iter().all(u8::is_ascii_digit) {
        return Err(not_a_number(field, text));
    }
    let part_ns = part * unit_ns / 10u64.pow(kept.len() as u32);
    units.checked_mul(unit_ns).and_then(|ns| ns.checked_add(part_ns)).ok_or_else(|| out_of_range(field, text))
}

/// A key column that may hold numbers or names: a decimal number of 64 bits without leading zeros is the key itself,
/// anything else becomes its hash.
#[inline]
pub(crate) fn key_or_name(text: &[u8]) -> u64 {
    let canonical = text.len() == 1 || text.first() != Some(&b'0');
    match number("key", text) {
        Ok(key) if canonical => key,
        _ => trace_key(text),
    }
}

/// An operation by any of the words that traces use for it, in upper or lower case.
pub(crate) fn operation(text: &[u8]) -> Result<Op, BadRecord> {
    const WORDS: [(Op, &[&str]); 9] = [
        (Op::Get, &["get", "gets", "get_lease", "head", "exists", "touch"]),
        (
            Op::Set,
            &[
                "set",
                "put",
                "add",
                "replace",
                "cas",
                "append",
                "prepend",
                "incr",
                "decr",
                "set_lease",
                "update",
                "insert",
            ],
        ),
        (Op::Del, &["del", "delete", "remove"]),
        (Op::Read, &["read", "r", "rs"]),
        (Op::Write, &["write", "w", "ws"]),
        (Op::Load, &["load", "l"]),
        (Op::Store, &["store", "s"]),
        (Op::Scan, &["scan"]),
        (Op::Unknown, &["unknown"]),
    ];
    let is = |word: &&str| text.eq_ignore_ascii_case(word.as_bytes());
    let known = WORDS.iter().find(|(_, words)| words.iter().any(&is));
    known.map(|(op, _)| *op).ok_or_else(|| BadRecord::UnknownOp { text: excerpt(text) })
}

#[cold]
pub(crate) fn not_a_number(field: &'static str, text: &[u8]) -> BadRecord {
    BadRecord::NotANumber { field, text: excerpt(text) }
}

#[cold]
pub(crate) fn out_of_range(field: &'static str, text: &[u8]) -> BadRecord {
    BadRecord::OutOfRange { field, text: excerpt(text) }
}

#[cold]
pub(crate) fn malformed(wanted: &'static str, text: &[u8]) -> BadRecord {
    BadRecord::Malformed { wanted, text: excerpt(text) }
}

/// The start of a field as printable text: traces may hold any bytes, terminals should not get them.
pub(crate) fn excerpt(text: &[u8]) -> String {
    const SHOWN_BYTES: usize = 40;
    let shown = text[..text.len().min(SHOWN_BYTES)].escape_ascii().to_string();
    if text.len() > SHOWN_BYTES { shown + "..." } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_read_to_their_last_digit() {
        assert_eq!(number("n", b"18446744073709551615"), Ok(u64::MAX));
        assert_eq!(number("n", b"00000000000000000000000001"), Ok(1));
        assert!(matches!(number("n", b"18446744073709551616"), Err(BadRecord::OutOfRange { .. })));
        for text in [&b""[..], b"-1", b"+1", b" 1", b"1 ", b"1e3", b"\xff", b"1234567890123456789012x"] {
            assert!(matches!(number("n", text), Err(BadRecord::NotANumber { .. })), "{text:?}");
        }
        assert_eq!(hexadecimal("n", b"0xFFffFFffFFffFFff"), Ok(u64::MAX));
        assert!(hexadecimal("n", b"10000000000000000").is_err() && hexadecimal("n", b"0x").is_err());
        assert!(hexadecimal("n", b"+1").is_err());
    }

    #[test]
    fn times_keep_nanoseconds() {
        assert_eq!(time_ns("t", b"1456095145.133076000", 1_000_000_000), Ok(1_456_095_145_133_076_000));
        assert_eq!(time_ns("t", b"223.412", 1_000_000), Ok(223_412_000));
        assert_eq!(time_ns("t", b"1.9999999999999", 1_000_000_000), Ok(1_999_999_999));
        assert_eq!(time_ns("t", b"128166372003061629", 100), Ok(12_816_637_200_306_162_900));
        for text in [&b"."[..], b"1.", b".5", b"1.2.3", b"1.0000000000x", b""] {
            assert!(matches!(time_ns("t", text, 1), Err(BadRecord::NotANumber { .. })), "{text:?}");
        }
        assert!(matches!(time_ns("t", b"18446744074", 1_000_000_000), Err(BadRecord::OutOfRange { .. })));
    }

    #[test]
    fn keys_that_look_alike_stay_apart() {
        assert_eq!((key_or_name(b"7"), key_or_name(b"0")), (7, 0));
        assert_eq!(key_or_name(b"07"), trace_key(b"07"));
        assert_eq!(key_or_name(b"18446744073709551616"), trace_key(b"18446744073709551616"));
        assert_eq!(operation(b"GET_LEASE"), Ok(Op::Get));
        assert!(operation(b"0").is_err());
    }

    proptest! {
        #[test]
        fn any_number_is_read_back(value in any::<u64>()) {
            prop_assert_eq!(number("n", value.to_string().as_bytes()), Ok(value));
            prop_assert_eq!(hexadecimal("n", format!("{value:#x}").as_bytes()), Ok(value));
            let text = format!("{}.{:09}", value / 1_000_000_000, value % 1_000_000_000);
            prop_assert_eq!(time_ns("t", text.as_bytes(), 1_000_000_000), Ok(value));
        }
    }
}
