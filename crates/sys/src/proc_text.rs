//! Text of the tables in `/proc`: how the kernel escapes names.

/// A field of a table: space, tab, line end and backslash of a name are written as a backslash and three octal digits.
pub(crate) fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, left @ ..] = rest {
        let octal = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok();
        match (first, left.get(..3).and_then(octal)) {
            (b'\\', Some(byte)) => {
                bytes.push(byte);
                rest = left.get(3..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = left;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_as_they_were() {
        assert_eq!(unescaped(b"/my\\040swap\\134x"), b"/my swap\\x");
        assert_eq!(unescaped(b"a\\04"), b"a\\04");
        assert_eq!(unescaped(b"\\999\\"), b"\\999\\");
        assert_eq!(unescaped(b""), b"");
    }
}
