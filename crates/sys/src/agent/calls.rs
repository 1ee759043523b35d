//! The calls that are made of programs and agents.

use std::io;

use super::batch::Batch;
use super::traced::Call;

/// `close_range` of all descriptors; with others that share them, the caller first has a table of its own.
const CLOSE_RANGE_UNSHARE: u64 = 2;
const CLONE_PARENT: i32 = libc::CLONE_PARENT;

/// For faults of the program alone, which takes no right: protection that the kernel lifts by itself stops no thread, so it does not
/// matter which mode the faults come from.
const USER_MODE_ONLY: libc::c_int = 1;
pub(super) const USERFAULT_FLAGS: libc::c_int = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;

fn invalid() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

/// Descriptors are not even copied: a close may have effects.
pub(super) fn close_all() -> Call {
    Call::of(libc::SYS_close_range, [0, u64::from(u32::MAX), CLOSE_RANGE_UNSHARE])
}

/// A process with the caller's memory, and with its descriptors until it gives them up: a child of the caller's parent.
pub(super) fn clone_sibling() -> Call {
    clone(CLONE_PARENT)
}

/// The same as a child of the caller, of whose end `signal` tells.
pub(super) fn clone_child(signal: i32) -> Call {
    clone(signal)
}

fn clone(flags: i32) -> Call {
    Call::of(libc::SYS_clone, [(libc::CLONE_VM | libc::CLONE_FILES | flags) as u64])
}

/// Waits for a child, of whatever kind.
pub(super) fn wait_for(child: i64) -> Call {
    Call::of(libc::SYS_wait4, [child.cast_unsigned(), 0, libc::__WALL as u64, 0])
}

pub(super) fn advise(address: u64, bytes: u64, advice: i32) -> Call {
    Call::of(libc::SYS_madvise, [address, bytes, advice as u64])
}

pub(super) fn close(descriptor: i64) -> Call {
    Call::of(libc::SYS_close, [descriptor.cast_unsigned()])
}

/// Leaves every second granule out of core dumps: a mapping has one set of such flags, so the kernel makes one of each granule.
pub(super) fn split(address: u64, bytes: u64, granule_bytes: u64, origin: u64) -> io::Result<Batch> {
    let end = address.checked_add(bytes).ok_or_else(invalid)?;
    if granule_bytes < 4096 || !granule_bytes.is_multiple_of(4096) || !origin.is_multiple_of(4096) {
        return Err(invalid());
    }
    let mut batch = Batch::default();
    // Which granules are the odd ones depends on the address and the origin alone, so that splitting twice, or a part,
    // changes nothing. The origin may lie behind the range, which has grown downward since.
    let pair = granule_bytes.checked_mul(2).ok_or_else(invalid)?;
    let from_odd = i128::from(address) - i128::from(origin) - i128::from(granule_bytes);
    let behind = from_odd.rem_euclid(i128::from(pair)) as u64;
    let first = if behind < granule_bytes { address } else { address.saturating_add(pair - behind) };
    let mut next = first.saturating_sub(if behind < granule_bytes { behind } else { 0 });
    while next < end {
        let (start, until) = (next.max(address), next.saturating_add(granule_bytes).min(end));
        next = next.saturating_add(pair);
        batch.push(advise(start, until - start, libc::MADV_DONTDUMP), true);
    }
    Ok(batch)
}

/// Undoes it.
pub(super) fn join(address: u64, bytes: u64) -> Batch {
    let mut batch = Batch::default();
    batch.push(advise(address, bytes, libc::MADV_DODUMP), true);
    batch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_granule_is_set_apart_wherever_a_range_begins() {
        let starts = |address, bytes, origin| {
            let batch = split(address, bytes, 0x1000_0000, origin).unwrap();
            batch.calls().map(|(call, _)| call.arguments[0]).collect::<Vec<_>>()
        };
        assert_eq!(starts(0x1_0000_0000, 0x4000_0000, 0x1_0000_0000), [0x1_1000_0000, 0x1_3000_0000]);
        // From within an odd granule, and with the origin behind the range.
        assert_eq!(starts(0x1_1800_0000, 0x1000_0000, 0x1_0000_0000), [0x1_1800_0000]);
        assert_eq!(starts(0x1_0000_0000, 0x2000_0000, 0x2_0000_0000), [0x1_1000_0000]);
        assert!(split(0, 1 << 20, 100, 0).is_err() && split(u64::MAX - 10, 1 << 20, 4096, 0).is_err());
    }
}
