//! Eviction policies by the names that command lines and configurations use.

use std::fmt;
use std::str::FromStr;

/// A policy and its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Named {
    /// [`super::fifo`].
    Fifo,
    /// [`super::clock`] with one bit.
    Clock,
    /// [`super::clock`] with two bits.
    Clock2,
    /// [`super::lru`] with hits at once and the insertion point at the head: exact LRU.
    Lru,
    /// [`super::lru`] as the store uses it: marks at hits, new items enter at the store's insertion point.
    LruLazy,
    /// [`super::slru`] with 80% protected.
    Slru,
    /// [`super::slru`] with four equal segments.
    S4Lru,
    /// [`super::klru`] with this K.
    KLru(u32),
    /// [`super::redis`] with this K.
    Redis(u32),
    /// [`super::klru`] with K = 1.
    Random,
    /// [`super::lfu`] without ageing.
    Lfu,
    /// [`super::lfu`] with dynamic ageing.
    LfuDa,
    /// [`super::arc`].
    Arc,
    /// [`super::twoq`].
    TwoQ,
    /// [`super::s3fifo`].
    S3Fifo,
    /// [`super::sieve`].
    Sieve,
    /// [`super::lhd`].
    Lhd,
    /// [`super::hyperbolic`].
    Hyperbolic,
    /// [`super::cflru`] with this window, in 1/1024 of the items.
    Cflru(u32),
}

/// The K of Redis's default configuration, and ours where none is given.
pub const K_DEFAULT: u32 = 5;

/// The window of clean-first LRU where none is given, in 1/1024 of the items: the middle of the range that its paper tries.
pub const CFLRU_WINDOW_DEFAULT: u32 = 256;

impl Named {
    /// Each of them once, in the order of their names' table; those with a K have the default.
    pub const ALL: [Named; 19] = [
        Named::Fifo,
        Named::Clock,
        Named::Clock2,
        Named::Lru,
        Named::LruLazy,
        Named::Slru,
        Named::S4Lru,
        Named::KLru(K_DEFAULT),
        Named::Redis(K_DEFAULT),
        Named::Random,
        Named::Lfu,
        Named::LfuDa,
        Named::Arc,
        Named::TwoQ,
        Named::S3Fifo,
        Named::Sieve,
        Named::Lhd,
        Named::Hyperbolic,
        Named::Cflru(CFLRU_WINDOW_DEFAULT),
    ];

    /// Whether a hit puts an item before others in a list. Where many items are hit at once, as by a look at references, such a list would be in
    /// the order in which they are told, and no longer in that of their uses. The others count hits, mark items, or take their time.
    pub fn moves_at_hits(self) -> bool {
        match self {
            Named::Lru | Named::Slru | Named::S4Lru | Named::Arc | Named::TwoQ | Named::Cflru(_) => true,
            Named::Fifo
            | Named::Clock
            | Named::Clock2
            | Named::LruLazy
            | Named::KLru(_)
            | Named::Redis(_)
            | Named::Random
            | Named::Lfu
            | Named::LfuDa
            | Named::S3Fifo
            | Named::Sieve
            | Named::Lhd
            | Named::Hyperbolic => false,
        }
    }

    /// The name, without the parameters.
    pub fn name(self) -> &'static str {
        match self {
            Named::Fifo => "fifo",
            Named::Clock => "clock",
            Named::Clock2 => "clock2",
            Named::Lru => "lru",
            Named::LruLazy => "lru-lazy",
            Named::Slru => "slru",
            Named::S4Lru => "s4lru",
            Named::KLru(_) => "klru",
            Named::Redis(_) => "redis",
            Named::Random => "random",
            Named::Lfu => "lfu",
            Named::LfuDa => "lfu-da",
            Named::Arc => "arc",
            Named::TwoQ => "2q",
            Named::S3Fifo => "s3-fifo",
            Named::Sieve => "sieve",
            Named::Lhd => "lhd",
            Named::Hyperbolic => "hyperbolic",
            Named::Cflru(_) => "cflru",
        }
    }

    /// The K, where there is one.
    pub fn k(self) -> Option<u32> {
        match self {
            Named::KLru(k) | Named::Redis(k) => Some(k),
            _ => None,
        }
    }

    /// This policy with another K, where it has one.
    pub fn with_k(self, k: u32) -> Self {
        match self {
            Named::KLru(_) => Named::KLru(k),
            Named::Redis(_) => Named::Redis(k),
            other => other,
        }
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || Named::ALL.map(Named::name).join(", ");
        let found = Named::ALL.into_iter().find(|policy| policy.name() == text);
        found.ok_or_else(|| format!("there is no policy {text:?}; the policies are {}", names()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for policy in Named::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        assert!("belady".parse::<Named>().unwrap_err().contains("s3-fifo"));
        assert_eq!(Named::Redis(5).with_k(3).k(), Some(3));
        assert_eq!(Named::Lru.with_k(3), Named::Lru);
    }
}
