//! Percent-encoding (RFC 3986, sections 2.1 to 2.3).

/// The bytes that `text` encodes; `None` when a `%` lacks its two hexadecimal digits.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte == b'%' {
            let [high, low, after @ ..] = after else { return None };
            let digit = |byte: u8| char::from(byte).to_digit(16);
            bytes.push((digit(*high)? << 4 | digit(*low)?) as u8);
            rest = after;
        } else {
            bytes.push(*byte);
        }
    }
    Some(bytes)
}

/// Encodes `bytes` as text: unreserved characters and `/` stay, the rest is encoded.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                text.push(char::from(*byte));
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn digits_are_hexadecimal_and_two() {
        assert_eq!(decode("a%20b%2Fc+%c3%A4"), Some("a b/c+ä".into()));
        assert_eq!(decode("%00"), Some(vec![0]));
        for broken in ["%", "%2", "%2g", "a%", "%+1"] {
            assert_eq!(decode(broken), None, "{broken}");
        }
        assert_eq!(encode(b"a b/c?&=#%\0"), "a%20b/c%3F%26%3D%23%25%00");
    }

    proptest! {
        #[test]
        fn every_byte_reads_back(bytes: Vec<u8>) {
            prop_assert_eq!(decode(&encode(&bytes)), Some(bytes));
        }
    }
}
