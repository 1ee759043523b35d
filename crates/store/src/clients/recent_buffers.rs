//! The most that one client has held lately in its buffers, for `INFO`.

use super::Clients;

/// Looks, a second apart, that count as lately; as in Redis.
const LOOKS: usize = 8;

/// The largest buffers at each of the last looks, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecentBuffers {
    looks: [LargestBuffers; LOOKS],
    at: usize,
}

/// The largest buffers of a client, each perhaps of another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LargestBuffers {
    /// For requests, in bytes.
    pub input_bytes: usize,
    /// For replies and messages, in bytes.
    pub output_bytes: usize,
}

impl LargestBuffers {
    /// Those of the clients that are connected now.
    pub fn of(clients: &Clients) -> Self {
        let registry = clients.registry();
        let buffers = registry.connected().map(|slot| {
            let client_info = registry.client_info(slot);
            let (unsent, pushed) = clients.output().waiting_for(slot);
            let pending_bytes = client_info.pending_bytes + client_info.pending_free_bytes;
            LargestBuffers {
                input_bytes: pending_bytes + client_info.queued_bytes,
                output_bytes: unsent + pushed,
            }
        });
        buffers.fold(LargestBuffers::default(), LargestBuffers::max)
    }

    /// The larger of both, each.
    #[must_use]
    pub fn max(self, other: LargestBuffers) -> Self {
        LargestBuffers {
            input_bytes: self.input_bytes.max(other.input_bytes),
            output_bytes: self.output_bytes.max(other.output_bytes),
        }
    }
}

impl RecentBuffers {
    /// Notes a look.
    pub fn note(&mut self, largest: LargestBuffers) {
        self.looks[self.at] = largest;
        self.at = (self.at + 1) % LOOKS;
    }

    /// The largest of all that count.
    pub fn largest(&self) -> LargestBuffers {
        self.looks.into_iter().fold(LargestBuffers::default(), LargestBuffers::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_counts_for_as_long_as_it_is_recent() {
        let mut recent = RecentBuffers::default();
        let of = |input_bytes, output_bytes| LargestBuffers { input_bytes, output_bytes };
        recent.note(of(7, 1));
        recent.note(of(3, 9));
        (2..LOOKS).for_each(|_| recent.note(of(2, 2)));
        assert_eq!(recent.largest(), of(7, 9));
        recent.note(of(0, 0));
        assert_eq!(recent.largest(), of(3, 9));
        (0..LOOKS).for_each(|_| recent.note(of(0, 0)));
        assert_eq!(recent.largest(), of(0, 0));
    }
}
