//! Redis's glob patterns: `*`, `?`, `[a-z]`, `[^x]` and `\` before a byte that is meant literally.

/// Whether `text` as a whole matches `pattern`. Time grows with the product of both lengths at most.
pub(crate) fn matches(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    let (mut at, mut next) = (0, 0);
    // The last star and how much text it has swallowed: on a mismatch only that star needs another try.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at + 1, next));
            at += 1;
            continue;
        }
        match text.get(next) {
            None if at == pattern.len() => return true,
            None => return false,
            Some(byte) => {
                if let Some(after) = one(&pattern[at..], *byte, ignore_case) {
                    at += after;
                    next += 1;
                    continue;
                }
            }
        }
        let Some((after_star, swallowed)) = star else { return false };
        star = Some((after_star, swallowed + 1));
        (at, next) = (after_star, swallowed + 1);
    }
}

/// Matches one byte against the pattern's first element; that element's length.
fn one(pattern: &[u8], byte: u8, ignore_case: bool) -> Option<usize> {
    let fold = |byte: u8| if ignore_case { byte.to_ascii_lowercase() } else { byte };
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', literal, ..] => (fold(*literal) == fold(byte)).then_some(2),
        [b'[', ..] => class(pattern, byte, fold),
        [literal, ..] => (fold(*literal) == fold(byte)).then_some(1),
    }
}

/// Matches one byte against `[...]`; the class's length. A class that is not closed ends with the pattern.
fn class(pattern: &[u8], byte: u8, fold: impl Fn(u8) -> u8) -> Option<usize> {
    let inverted = pattern.get(1) == Some(&b'^');
    let mut at = if inverted { 2 } else { 1 };
    let mut found = false;
    loop {
        match pattern[at..] {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', literal, ..] => {
                found |= literal == byte;
                at += 2;
            }
            [from, b'-', to, ..] => {
                let (low, high) = (from.min(to), from.max(to));
                found |= (fold(low)..=fold(high)).contains(&fold(byte));
                at += 3;
            }
            [literal, ..] => {
                found |= fold(literal) == fold(byte);
                at += 1;
            }
        }
    }
    (found != inverted).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*c", "abbbc", true),
            ("a*c", "abbbd", false),
            ("*a*b*", "xxaxxbxx", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("h[a-b]llo", "hcllo", false),
            (r"a\*c", "a*c", true),
            (r"a\*c", "abc", false),
            (r"[\]]", "]", true),
            ("[a", "a", true),
            ("a**", "a", true),
            ("**a", "bca", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes(), false), expected, "{pattern} {text}");
        }
        assert!(matches(b"MAX*", b"maxclients", true));
        assert!(!matches(b"MAX*", b"maxclients", false));
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = b"a*".repeat(2000);
        let text = [b"a".repeat(20_000), b"b".to_vec()].concat();
        assert!(matches(&pattern, &text, false));
        assert!(!matches(&[pattern, b"c".to_vec()].concat(), &text, false));
    }
}
