//! Features of a kernel's `userfaultfd`, one bit each.

use std::fmt;
use std::ops::{BitOr, Sub};

/// A set of features, as `UFFDIO_API` has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(u64);

impl Features {
    /// No features: missing faults of anonymous memory need none.
    pub const NONE: Features = Features(0);
    /// Write-protect faults are told from others.
    pub const WRITE_PROTECT: Features = Features(1 << 0);
    /// A child's memory is told, with a descriptor for it. Needs CAP_SYS_PTRACE.
    pub const EVENT_FORK: Features = Features(1 << 1);
    /// `mremap` is told.
    pub const EVENT_REMAP: Features = Features(1 << 2);
    /// `MADV_DONTNEED`, `MADV_FREE` and the like are told.
    pub const EVENT_REMOVE: Features = Features(1 << 3);
    /// Missing faults of memory of explicit huge pages.
    pub const MISSING_HUGETLBFS: Features = Features(1 << 4);
    /// Missing faults of shared memory.
    pub const MISSING_SHMEM: Features = Features(1 << 5);
    /// `munmap` is told.
    pub const EVENT_UNMAP: Features = Features(1 << 6);
    /// A thread that faults gets SIGBUS, and no message is sent.
    pub const SIGBUS: Features = Features(1 << 7);
    /// Messages of faults name the thread.
    pub const THREAD_ID: Features = Features(1 << 8);
    /// Minor faults of explicit huge pages.
    pub const MINOR_HUGETLBFS: Features = Features(1 << 9);
    /// Minor faults of shared memory.
    pub const MINOR_SHMEM: Features = Features(1 << 10);
    /// Messages of faults have the address itself, not its page's.
    pub const EXACT_ADDRESS: Features = Features(1 << 11);
    /// Write protection of shared memory and of explicit huge pages.
    pub const WRITE_PROTECT_SHARED: Features = Features(1 << 12);
    /// Write protection holds for pages that are not there yet.
    pub const WRITE_PROTECT_UNPOPULATED: Features = Features(1 << 13);
    /// Pages can be poisoned.
    pub const POISON: Features = Features(1 << 14);
    /// Write protection that the kernel lifts by itself and remembers ([`crate::page_scan`]).
    pub const WRITE_PROTECT_ASYNC: Features = Features(1 << 15);
    /// Pages can be moved.
    pub const MOVE: Features = Features(1 << 16);

    /// The features that watching writes needs ([`crate::page_scan`]): also of pages that are not there yet, and of files' and
    /// shared memory.
    pub const WATCH_WRITES: Features = Features(
        Features::WRITE_PROTECT.0
            | Features::WRITE_PROTECT_SHARED.0
            | Features::WRITE_PROTECT_UNPOPULATED.0
            | Features::WRITE_PROTECT_ASYNC.0,
    );

    /// Each with its name and the first kernel that has it.
    const ALL: [(Features, &'static str, &'static str); 17] = [
        (Features::WRITE_PROTECT, "write protection", "5.7"),
        (Features::EVENT_FORK, "fork events", "4.11"),
        (Features::EVENT_REMAP, "remap events", "4.11"),
        (Features::EVENT_REMOVE, "remove events", "4.11"),
        (Features::MISSING_HUGETLBFS, "missing faults of explicit huge pages", "4.11"),
        (Features::MISSING_SHMEM, "missing faults of shared memory", "4.11"),
        (Features::EVENT_UNMAP, "unmap events", "4.11"),
        (Features::SIGBUS, "SIGBUS instead of messages", "4.14"),
        (Features::THREAD_ID, "thread ids", "4.14"),
        (Features::MINOR_HUGETLBFS, "minor faults of explicit huge pages", "5.13"),
        (Features::MINOR_SHMEM, "minor faults of shared memory", "5.14"),
        (Features::EXACT_ADDRESS, "exact addresses", "5.18"),
        (Features::WRITE_PROTECT_SHARED, "write protection of shared memory", "5.19"),
        (Features::WRITE_PROTECT_UNPOPULATED, "write protection of absent pages", "6.4"),
        (Features::POISON, "poison", "6.6"),
        (Features::WRITE_PROTECT_ASYNC, "asynchronous write protection", "6.7"),
        (Features::MOVE, "move", "6.8"),
    ];

    pub(super) const fn from_bits(bits: u64) -> Features {
        Features(bits)
    }

    pub(super) const fn bits(self) -> u64 {
        self.0
    }

    /// Both together, where no operator can be called.
    pub const fn and(self, others: Features) -> Features {
        Features(self.0 | others.0)
    }

    /// Whether all of `others` are among these.
    pub const fn contains(self, others: Features) -> bool {
        self.0 & others.0 == others.0
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The first kernel that has all of these, for messages.
    pub fn kernel(self) -> &'static str {
        let versions =
            Features::ALL.iter().filter(|(feature, ..)| self.contains(*feature)).map(|each| each.2);
        versions.max_by_key(|version| number(version)).unwrap_or("4.11")
    }
}

/// `5.14` as 5014, to compare.
fn number(version: &str) -> u32 {
    let mut parts = version.split('.').filter_map(|part| part.parse::<u32>().ok());
    parts.next().unwrap_or(0) * 1000 + parts.next().unwrap_or(0)
}

impl BitOr for Features {
    type Output = Features;

    fn bitor(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }
}

impl Sub for Features {
    type Output = Features;

    /// The features that are not in `other`.
    fn sub(self, other: Features) -> Features {
        Features(self.0 & !other.0)
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = Features::ALL.iter().filter(|(feature, ..)| self.contains(*feature));
        match names.next() {
            None => f.write_str("none")?,
            Some((_, first, _)) => f.write_str(first)?,
        }
        names.try_for_each(|(_, name, _)| write!(f, ", {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_named_with_the_kernel_that_has_them() {
        let some = Features::MOVE | Features::EVENT_FORK;
        assert_eq!((some.to_string().as_str(), some.kernel()), ("fork events, move", "6.8"));
        let minor = Features::MINOR_SHMEM | Features::WRITE_PROTECT;
        assert_eq!(minor.kernel(), "5.14");
        assert_eq!(
            (some - Features::MOVE, Features::NONE.to_string().as_str()),
            (Features::EVENT_FORK, "none")
        );
        assert!(some.contains(Features::MOVE) && !some.contains(Features::POISON | Features::MOVE));
        // Each bit is named once.
        let all = Features::ALL.iter().fold(Features::NONE, |all, (feature, ..)| all | *feature);
        assert_eq!(all.bits(), (1 << 17) - 1);
    }
}
