//! One record of an access trace, the form that every reader yields and every simulator consumes.

/// What an access does to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Look the key up; in a look-aside cache a miss is followed by a set.
    Get,
    /// Write the key's value.
    Set,
    /// Remove the key.
    Del,
}

/// One access. Field names and units are those of the trace form in `docs/`: they do not change with the
/// format a record was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Time since the start of the trace, in nanoseconds; formats that count seconds are scaled.
    pub time_ns: u64,
    /// What is done.
    pub op: Op,
    /// The key, or its 64-bit hash where the trace has names.
    pub key: u64,
    /// Bytes of the value (key-value traces) or of the request (block traces).
    pub size: u32,
}

impl Access {
    /// A look-up of `key`, whose value has `size` bytes.
    pub fn get(time_ns: u64, key: u64, size: u32) -> Self {
        Access { time_ns, op: Op::Get, key, size }
    }

    /// The name under which a trace's key is stored in a key-value server: 16 hexadecimal digits.
    pub fn key_name(key: u64) -> [u8; 16] {
        let digit = |at: usize| b"0123456789abcdef"[(key >> (60 - 4 * at)) as usize & 15];
        std::array::from_fn(digit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_names_are_hexadecimal() {
        assert_eq!(&Access::key_name(0xAB), b"00000000000000ab");
        assert_eq!(&Access::key_name(u64::MAX), b"ffffffffffffffff");
    }
}
