//! Integers as Redis reads them: no sign `+`, no blanks, no leading zeros, no `-0`.

/// Reads a whole text as an `i64`; `None` when it is anything but the number's one canonical form.
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    if digits == b"0" {
        return (!negative).then_some(0);
    }
    if digits.first() == Some(&b'0') {
        return None;
    }
    let magnitude = parse_u64_digits(digits)?;
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// Reads a text of decimal digits only, leading zeros allowed.
pub fn parse_u64_digits(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        sum.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_canonical_form_is_a_number() {
        for (text, value) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("+1", None),
            (" 1", None),
            ("1 ", None),
            ("01", None),
            ("-0", None),
            ("-", None),
            ("", None),
            ("1x", None),
        ] {
            assert_eq!(parse_i64(text.as_bytes()), value, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn every_integer_reads_back(value: i64) {
            prop_assert_eq!(parse_i64(value.to_string().as_bytes()), Some(value));
        }
    }
}
