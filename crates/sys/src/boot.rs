//! Boot identity: which boot of the machine this is.

/// The identity of this boot, other for each; `None` where the kernel does not tell.
pub fn id() -> Option<[u8; 16]> {
    parse(&std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?)
}

fn parse(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text
        .trim()
        .chars()
        .filter(|&it| it != '-')
        .map(|it| Some(it.to_digit(16)? as u8))
        .collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_sixteen_bytes_in_hexadecimal() {
        let parsed = parse("0c9b1f6e-1a2b-4c3d-8e9f-001122334455\n").unwrap();
        assert_eq!((parsed[0], parsed[15]), (0x0c, 0x55));
        assert_eq!(parse("0c9b"), None);
        assert_eq!(parse("xyz"), None);
        assert_eq!(id(), id());
    }
}
