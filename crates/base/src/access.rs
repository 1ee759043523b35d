//! One record of an access trace, the form that every reader yields and every simulator consumes.

use std::fmt;
use std::str::FromStr;

/// The operation of an access on its key. Key-value traces say get, set and del; block traces read and write; memory traces load
/// and store, or unknown; scan is a range read, of which `size` is the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Op {
    /// Look the key up; in a look-aside cache a miss is followed by a set.
    #[default]
    Get = 0,
    /// Write the key's value.
    Set = 1,
    /// Remove the key.
    Del = 2,
    /// Read bytes of a device, from the offset that is the key.
    Read = 3,
    /// Write bytes of a device.
    Write = 4,
    /// Read memory at the address that is the key.
    Load = 5,
    /// Write memory.
    Store = 6,
    /// Read a range of keys from this key on.
    Scan = 7,
    /// Read memory or write it: the source cannot tell.
    Unknown = 8,
}

impl Op {
    /// All of them, at the index of their code.
    pub const ALL: [Op; 9] =
        [Op::Get, Op::Set, Op::Del, Op::Read, Op::Write, Op::Load, Op::Store, Op::Scan, Op::Unknown];

    /// The name in trace files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Get => "get",
            Op::Set => "set",
            Op::Del => "del",
            Op::Read => "read",
            Op::Write => "write",
            Op::Load => "load",
            Op::Store => "store",
            Op::Scan => "scan",
            Op::Unknown => "unknown",
        }
    }

    /// The number that stands for it in files; see [`Self::from_code`].
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The operation of that code, if there is one.
    pub fn from_code(code: u8) -> Option<Op> {
        Op::ALL.get(usize::from(code)).copied()
    }

    /// Whether it brings new bytes: set, write, store.
    pub const fn is_write(self) -> bool {
        matches!(self, Op::Set | Op::Write | Op::Store)
    }

    /// Whether it asks for bytes, so that a cache can hit or miss: get, read, load, scan, and what is not known.
    pub const fn is_lookup(self) -> bool {
        matches!(self, Op::Get | Op::Read | Op::Load | Op::Scan | Op::Unknown)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Op {
    type Err = String;

    /// Reads a name as [`Op::name`] writes it.
    fn from_str(text: &str) -> Result<Self, String> {
        let known = |op: &Op| op.name() == text;
        Op::ALL.into_iter().find(known).ok_or_else(|| {
            format!("there is no operation `{text}`; the operations are {}", Op::ALL.map(Op::name).join(", "))
        })
    }
}

/// An access, 32 bytes. Field names and units are those of the trace form in `docs/traces.md`: they do not change with the format
/// a record was read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Time since the start of the trace, in nanoseconds; formats that count seconds are scaled.
    pub time_ns: u64,
    /// The key, or its 64-bit hash where the trace has names; a byte offset (block traces); an address.
    pub key: u64,
    /// Bytes of the value (key-value traces) or of the request (block and memory traces).
    pub size: u32,
    /// The tenant of the access: a client, a database, a volume; 0 where the trace has none.
    pub tenant: u32,
    /// Seconds the value may live; 0 where there is no limit or none is known.
    pub ttl_s: u32,
    /// Bytes of the key's name; 0 where that is not known.
    pub key_size: u16,
    /// The operation.
    pub op: Op,
}

const _: () = assert!(size_of::<Access>() == 32, "batches of records are sized for this");

impl Access {
    /// An access of `key`, whose value has `size` bytes, with nothing more known.
    pub const fn new(time_ns: u64, op: Op, key: u64, size: u32) -> Self {
        Access { time_ns, key, size, tenant: 0, ttl_s: 0, key_size: 0, op }
    }

    /// A look-up of `key`, whose value has `size` bytes.
    pub const fn get(time_ns: u64, key: u64, size: u32) -> Self {
        Access::new(time_ns, Op::Get, key, size)
    }

    /// The name under which a trace's key is stored in a key-value server: 16 hexadecimal digits.
    #[inline]
    pub fn key_name(key: u64) -> [u8; 16] {
        // All digits at once: a simulator names a key for each request.
        let (high, low) = (eight_digits((key >> 32) as u32), eight_digits(key as u32));
        (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
    }
}

/// The hexadecimal digits of a number in ASCII, a byte each, the first in the highest byte.
#[inline]
const fn eight_digits(number: u32) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    // Halves move apart, then quarters, then digits, until each digit has a byte.
    let mut digits = number as u64;
    digits = (digits | digits << 16) & 0x0000_FFFF_0000_FFFF;
    digits = (digits | digits << 8) & 0x00FF_00FF_00FF_00FF;
    digits = (digits | digits << 4) & 0x0F0F_0F0F_0F0F_0F0F;
    // Digits from ten on carry into the fifth bit when six is added. Their letters stand 39 places behind where '0' + 10 is.
    let letters = (digits + 6 * ONES) >> 4 & ONES;
    digits + b'0' as u64 * ONES + letters * (b'a' - b'0' - 10) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_names_are_hexadecimal() {
        assert_eq!(&Access::key_name(0xAB), b"00000000000000ab");
        assert_eq!(&Access::key_name(u64::MAX), b"ffffffffffffffff");
        let keys = (0..64).map(|shift| 0x0123_4567_89AB_CDEF_u64.rotate_left(shift));
        for key in keys.chain((0..4096).map(|key| key | key << 52)) {
            assert_eq!(&Access::key_name(key), format!("{key:016x}").as_bytes());
        }
    }

    #[test]
    fn operations_survive_their_names_and_codes() {
        for op in Op::ALL {
            assert_eq!((op.name().parse(), Op::from_code(op.code())), (Ok(op), Some(op)));
            assert!(!(op.is_write() && op.is_lookup()));
        }
        assert_eq!(Op::from_code(9), None);
        assert!("GET".parse::<Op>().unwrap_err().contains("get, set, del"));
        // Written down once: codes stand in files.
        assert_eq!((Op::Get.code(), Op::Del.code(), Op::Scan.code(), Op::Unknown.code()), (0, 2, 7, 8));
    }
}
