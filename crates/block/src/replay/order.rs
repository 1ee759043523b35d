//! Order of requests: overlapping requests, at least one of which writes, keep the order of the trace.

use slab::Slab;

/// A request that was taken and is not done.
#[derive(Debug)]
struct Entry {
    export: usize,
    from: u64,
    to: u64,
    write: bool,
    /// Requests that must be done first.
    blockers: usize,
    /// Requests that wait for this one.
    dependents: Vec<usize>,
}

/// The requests that were taken from the trace and are not done, a worker for each.
#[derive(Debug, Default)]
pub struct Order {
    entries: Slab<Entry>,
}

impl Order {
    /// Number of requests.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes the trace's next request, about bytes `from..to` of an export. Returns its
    /// number, and whether it may be sent at once; otherwise [`Self::done`] returns it later.
    pub fn take(&mut self, export: usize, from: u64, to: u64, write: bool) -> (usize, bool) {
        let number = self.entries.vacant_key();
        let mut blockers = 0;
        // At most one entry per worker, so checking each is cheap beside sending one.
        for (_, entry) in &mut self.entries {
            let overlaps = entry.export == export && entry.from < to && from < entry.to;
            if overlaps && (write || entry.write) {
                entry.dependents.push(number);
                blockers += 1;
            }
        }
        self.entries.insert(Entry { export, from, to, write, blockers, dependents: Vec::new() });
        (number, blockers == 0)
    }

    /// Ends the request of this number; requests that may be sent now are appended to `ready`.
    pub fn done(&mut self, number: usize, ready: &mut Vec<usize>) {
        let Some(entry) = self.entries.try_remove(number) else { return };
        for dependent in entry.dependents {
            if let Some(waiting) = self.entries.get_mut(dependent) {
                waiting.blockers -= 1;
                if waiting.blockers == 0 {
                    ready.push(dependent);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_with_a_write_waits() {
        let mut order = Order::default();
        let (first, free) = order.take(0, 0, 4096, true);
        assert!(free);
        let (read, free) = order.take(0, 4095, 8192, false);
        assert!(!free);
        assert!(order.take(0, 8192, 9000, false).1, "it touches nothing");
        assert!(order.take(1, 0, 4096, true).1, "it is of another export");
        let (other, free) = order.take(0, 8191, 8192, false);
        assert!(free, "reads go side by side");
        // It waits for the read that waits, and for the one that does not.
        let (last, free) = order.take(0, 5000, 8192, true);
        assert!(!free);
        let mut ready = Vec::new();
        order.done(other, &mut ready);
        assert!(ready.is_empty());
        order.done(first, &mut ready);
        assert_eq!(ready, [read]);
        order.done(read, &mut ready);
        assert_eq!(ready, [read, last]);
        order.done(last, &mut ready);
        assert_eq!(order.len(), 2);
    }
}
