//! Locks of an agent: the memory that it has locked on request, and how much more the program may lock.
//!
//! A program may have locked memory itself. That stays locked whatever is requested: the agent unlocks only what it has locked.

use std::io;
use std::ops::Range;

use super::error::AgentError;
use super::traced::Call;
use crate::own_memory::may_lock_without_limit;

/// Why memory was not locked: the error, and how much may still be locked.
#[derive(Debug)]
pub(super) struct Refused {
    pub error: AgentError,
    pub left_bytes: u64,
}

/// Has the agent make a call.
pub(super) type Make<'a> = &'a mut dyn FnMut(Call) -> Result<(), AgentError>;

/// Ranges that the agent has locked, in order, apart from each other.
#[derive(Debug, Default)]
pub(super) struct Locks {
    held: Vec<Range<u64>>,
}

impl Locks {
    /// Has the agent `pid` lock the parts of a range that are not locked yet, and bring them into memory. Returns their bytes.
    pub fn lock(&mut self, pid: u32, range: Range<u64>, make: Make<'_>) -> Result<u64, Refused> {
        let budget = Budget::read(pid);
        let refused = |error| Refused { error, left_bytes: budget.left_bytes() };
        let mut free = without(&[range], &self.held);
        // Where all that is locked is the agent's, the program has locked nothing, and need not be asked mapping by mapping.
        if budget.locked_bytes != self.bytes() {
            let locked = locked_mappings(pid).map_err(|error| refused(AgentError::Refused(error)))?;
            free = without(&free, &locked);
        }
        let wanted: u64 = free.iter().map(|part| part.end - part.start).sum();
        if wanted > budget.left_bytes() {
            return Err(refused(AgentError::Refused(io::Error::from_raw_os_error(libc::ENOMEM))));
        }
        for (number, part) in free.iter().enumerate() {
            if let Err(error) = make(call(libc::SYS_mlock, part)) {
                // All or nothing; and a part of what failed may be locked.
                for done in free.iter().take(number + 1) {
                    let _ = make(call(libc::SYS_munlock, done));
                }
                return Err(refused(error));
            }
        }
        self.held.extend(free);
        self.held.sort_by_key(|part| part.start);
        Ok(wanted)
    }

    /// Unlocks what the agent has locked of a range. Returns how many bytes that were.
    pub fn unlock(&mut self, range: Range<u64>, make: Make<'_>) -> Result<u64, AgentError> {
        let left = without(&self.held, std::slice::from_ref(&range));
        let mut unlocked = 0;
        for part in without(&self.held, &left) {
            match make(call(libc::SYS_munlock, &part)) {
                // The program has unmapped a part of it, which unlocks that.
                Err(AgentError::Refused(error)) if error.raw_os_error() == Some(libc::ENOMEM) => {}
                other => other?,
            }
            unlocked += part.end - part.start;
        }
        self.held = left;
        Ok(unlocked)
    }

    fn bytes(&self) -> u64 {
        self.held.iter().map(|part| part.end - part.start).sum()
    }
}

fn call(number: libc::c_long, part: &Range<u64>) -> Call {
    Call::of(number, [part.start, part.end - part.start])
}

/// The parts of `ranges` that lie in none of `others`; all are in order.
fn without(ranges: &[Range<u64>], others: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = Vec::new();
    for range in ranges {
        let mut start = range.start;
        for other in others.iter().filter(|other| other.start < range.end && other.end > range.start) {
            if other.start > start {
                left.push(start..other.start);
            }
            start = start.max(other.end);
        }
        if start < range.end {
            left.push(start..range.end);
        }
    }
    left
}

/// The memory that the program may lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Budget {
    locked_bytes: u64,
    /// None: without a limit.
    limit_bytes: Option<u64>,
}

impl Budget {
    fn read(pid: u32) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        Budget::of(&status, memlock(pid))
    }

    fn of(status: &str, limit_bytes: Option<u64>) -> Self {
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let kib = field("VmLck:").and_then(|text| text.strip_suffix("kB")?.trim().parse::<u64>().ok());
        let is_free = may_lock_without_limit(status);
        Budget {
            locked_bytes: kib.unwrap_or(0).saturating_mul(1024),
            limit_bytes: limit_bytes.filter(|_| !is_free),
        }
    }

    fn left_bytes(self) -> u64 {
        // The kernel counts whole pages.
        self.limit_bytes.map_or(u64::MAX, |limit| (limit / 4096 * 4096).saturating_sub(self.locked_bytes))
    }
}

/// The limit of a process (`RLIMIT_MEMLOCK`); `None` if there is none.
fn memlock(pid: u32) -> Option<u64> {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let pid = libc::pid_t::try_from(pid).ok()?;
    // SAFETY: the limit is as large as the call fills and outlives it; no limit is set.
    let done = unsafe { libc::prlimit64(pid, libc::RLIMIT_MEMLOCK, std::ptr::null(), &raw mut limit) };
    (done != 0 || limit.rlim_cur != libc::RLIM64_INFINITY).then_some(limit.rlim_cur)
}

/// Mappings of a process that are locked.
fn locked_mappings(pid: u32) -> io::Result<Vec<Range<u64>>> {
    Ok(locked_in(&std::fs::read_to_string(format!("/proc/{pid}/smaps"))?))
}

fn locked_in(smaps: &str) -> Vec<Range<u64>> {
    let mut mapping = None;
    let mut locked = Vec::new();
    for line in smaps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            if flags.split_whitespace().any(|flag| flag == "lo") {
                locked.extend(mapping.take());
            }
        } else if line.starts_with(|first: char| matches!(first, '0'..='9' | 'a'..='f')) {
            mapping = range_of(line);
        }
    }
    locked
}

fn range_of(line: &str) -> Option<Range<u64>> {
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_without_others_are_the_pages_that_only_they_have(
            ones in prop::collection::btree_set(0..60_u64, 0..40), others in prop::collection::btree_set(0..60_u64, 0..40),
        ) {
            let ranges = |pages: &std::collections::BTreeSet<u64>| -> Vec<Range<u64>> {
                pages.iter().map(|page| *page..page + 1).collect()
            };
            // Long ranges, too: neighbours are joined.
            let joined = |pages: &std::collections::BTreeSet<u64>| {
                let mut all: Vec<Range<u64>> = Vec::new();
                for page in pages {
                    match all.last_mut() {
                        Some(last) if last.end == *page => last.end += 1,
                        _ => all.push(*page..page + 1),
                    }
                }
                all
            };
            let expected: Vec<u64> = ones.difference(&others).copied().collect();
            for (ones, others) in [(ranges(&ones), joined(&others)), (joined(&ones), ranges(&others)), (joined(&ones), joined(&others))] {
                let left: Vec<u64> = without(&ones, &others).into_iter().flatten().collect();
                prop_assert_eq!(&left, &expected);
            }
        }
    }

    #[test]
    fn the_budget_is_the_limit_less_what_is_locked() {
        let status = |capabilities| format!("VmLck:\t      12 kB\nCapEff:\t{capabilities:016x}\n");
        let plain = Budget::of(&status(0), Some(65_537));
        assert_eq!((plain.locked_bytes, plain.left_bytes()), (12 << 10, (64 << 10) - (12 << 10)));
        assert_eq!(Budget::of(&status(0), Some(4096)).left_bytes(), 0);
        assert_eq!(Budget::of(&status(1 << 14), Some(4096)).left_bytes(), u64::MAX);
        assert_eq!(Budget::of(&status(0), None).left_bytes(), u64::MAX);
    }

    #[test]
    fn locked_mappings_are_told_by_their_flags() {
        let text = "1000-3000 rw-p 0 0 0\nRss: 4 kB\nVmFlags: rd wr lo ac\n3000-4000 rw-p 0 0 0\nVmFlags: rd wr\n\
                    ff00-ffff r--p 0 0 0 /lo\nVmFlags: rd lo\n";
        assert_eq!(locked_in(text), [0x1000..0x3000, 0xff00..0xffff]);
    }
}
