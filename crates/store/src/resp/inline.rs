//! Inline commands: a line of words, with quoting as `redis-cli` and people at `telnet` use it.

use super::Span;

/// Splits `line` into words, appends their bytes to `bytes` and their places to `spans`. `false` when a quote is
/// not closed or is followed by anything but a blank.
///
/// In double quotes `\xHH`, `\n`, `\r`, `\t`, `\b`, `\a` and any other escaped byte are understood; in single
/// quotes only `\'`.
pub(super) fn split(line: &[u8], bytes: &mut Vec<u8>, spans: &mut Vec<Span>) -> bool {
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start_c();
        // A NUL ends the line, as it does for Redis.
        if matches!(rest.first(), None | Some(0)) {
            return true;
        }
        let start = bytes.len();
        let Some(after) = word(rest, bytes) else { return false };
        rest = after;
        spans.push(Span { start: start as u32, len: (bytes.len() - start) as u32 });
    }
}

/// Reads one word from the start of `rest` and returns what follows it.
fn word<'a>(mut rest: &'a [u8], bytes: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] | [0, ..] => return Some(rest),
            [b'"', after @ ..] => return ends_word(double_quoted(after, bytes)?),
            [b'\'', after @ ..] => return ends_word(single_quoted(after, bytes)?),
            [byte, after @ ..] if is_blank(*byte) => return Some(after),
            [byte, after @ ..] => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
}

/// A closing quote must be followed by a blank or the end.
fn ends_word(rest: &[u8]) -> Option<&[u8]> {
    matches!(rest.first(), None | Some(0))
        .then_some(rest)
        .or_else(|| is_blank(*rest.first()?).then_some(rest))
}

fn double_quoted<'a>(mut rest: &'a [u8], bytes: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] | [0, ..] => return None,
            [b'"', after @ ..] => return Some(after),
            [b'\\', b'x', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                bytes.push(hex(*high) << 4 | hex(*low));
                rest = after;
            }
            [b'\\', escaped, after @ ..] => {
                bytes.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                rest = after;
            }
            [byte, after @ ..] => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], bytes: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] | [0, ..] => return None,
            [b'\'', after @ ..] => return Some(after),
            [b'\\', b'\'', after @ ..] => {
                bytes.push(b'\'');
                rest = after;
            }
            [byte, after @ ..] => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit.wrapping_sub(b'A').wrapping_add(10),
    }
}

/// Blanks of the C locale: `isspace`, which counts the vertical tab that `is_ascii_whitespace` leaves out.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

trait TrimStart {
    fn trim_ascii_start_c(&self) -> &Self;
}

impl TrimStart for [u8] {
    fn trim_ascii_start_c(&self) -> &[u8] {
        let blanks = self.iter().take_while(|byte| is_blank(**byte)).count();
        &self[blanks..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<Vec<String>> {
        let (mut bytes, mut spans) = (Vec::new(), Vec::new());
        split(line.as_bytes(), &mut bytes, &mut spans).then(|| {
            spans
                .iter()
                .map(|span| {
                    let word = &bytes[span.start as usize..(span.start + span.len) as usize];
                    String::from_utf8_lossy(word).into_owned()
                })
                .collect()
        })
    }

    #[test]
    fn lines_split_at_blanks_and_honour_quotes() {
        for (line, expected) in [
            ("", Some(vec![])),
            ("  PING  ", Some(vec!["PING"])),
            ("SET a\tb", Some(vec!["SET", "a", "b"])),
            (r#"SET "a b" 'c d'"#, Some(vec!["SET", "a b", "c d"])),
            (r#"a"b c""#, Some(vec!["ab c"])),
            (r#""\x41\n\"" '\'\n'"#, Some(vec!["A\n\"", "'\\n"])),
            (r#""" ''"#, Some(vec!["", ""])),
            (r#""\xzz""#, Some(vec!["xzz"])),
            (r#""a"b"#, None),
            (r#"'a'b"#, None),
            (r#""a"#, None),
            (r#"'a"#, None),
            (r#""a\"#, None),
        ] {
            let expected = expected.map(|words| words.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(words(line), expected, "{line}");
        }
    }
}
