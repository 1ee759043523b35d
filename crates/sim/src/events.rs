//! Event queue of the simulators of time: events in the order of their time.

/// Events in the order of their time; events of one time in the order in which they were entered.
///
/// A heap with four children a node: half as deep as one with two, and the four lie side by side. It allocates only when it holds
/// more events than ever before.
#[derive(Clone, Debug)]
pub struct EventQueue<E> {
    heap: Vec<Entry<E>>,
    entered: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    time_ns: u64,
    /// How many were entered before it.
    turn: u64,
    event: E,
}

impl<E> Entry<E> {
    fn order(&self) -> (u64, u64) {
        (self.time_ns, self.turn)
    }
}

const CHILDREN: usize = 4;

impl<E: Copy> Default for EventQueue<E> {
    fn default() -> Self {
        EventQueue { heap: Vec::new(), entered: 0 }
    }
}

impl<E: Copy> EventQueue<E> {
    /// Enters an event.
    #[inline]
    pub fn push(&mut self, time_ns: u64, event: E) {
        let entry = Entry { time_ns, turn: self.entered, event };
        self.entered += 1;
        let mut at = self.heap.len();
        self.heap.push(entry);
        while at > 0 {
            let parent = (at - 1) / CHILDREN;
            if self.heap[parent].order() < entry.order() {
                break;
            }
            self.heap[at] = self.heap[parent];
            at = parent;
        }
        self.heap[at] = entry;
    }

    /// When the next event happens.
    #[inline]
    pub fn next_ns(&self) -> Option<u64> {
        self.heap.first().map(|entry| entry.time_ns)
    }

    /// Takes the next event and its time.
    #[inline]
    pub fn pop(&mut self) -> Option<(u64, E)> {
        let first = *self.heap.first()?;
        let last = self.heap.pop()?;
        let len = self.heap.len();
        if len > 0 {
            let mut at = 0;
            loop {
                let child = at * CHILDREN + 1;
                let Some(mut least) = (child < len).then_some(child) else { break };
                for other in child + 1..len.min(child + CHILDREN) {
                    if self.heap[other].order() < self.heap[least].order() {
                        least = other;
                    }
                }
                if last.order() < self.heap[least].order() {
                    break;
                }
                self.heap[at] = self.heap[least];
                at = least;
            }
            self.heap[at] = last;
        }
        Some((first.time_ns, first.event))
    }

    /// Takes the next event if it happens at `until_ns` or before.
    #[inline]
    pub fn pop_until(&mut self, until_ns: u64) -> Option<(u64, E)> {
        (self.next_ns()? <= until_ns).then(|| self.pop())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The naive twin is a list that is sorted, stably, by time.
        #[test]
        fn events_come_in_order_of_time_and_then_of_entry(
            steps in prop::collection::vec(prop::option::weighted(0.6, 0u64..20), 0..400)
        ) {
            let mut queue = EventQueue::default();
            let mut naive: Vec<(u64, usize)> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Some(time_ns) => {
                        queue.push(time_ns, number);
                        naive.push((time_ns, number));
                        naive.sort_by_key(|(time_ns, _)| *time_ns);
                    }
                    None => {
                        prop_assert_eq!(queue.next_ns(), naive.first().map(|first| first.0));
                        let expected = (!naive.is_empty()).then(|| naive.remove(0));
                        prop_assert_eq!(queue.pop(), expected);
                    }
                }
            }
            while let Some(event) = queue.pop_until(u64::MAX) {
                prop_assert_eq!(event, naive.remove(0));
            }
            prop_assert!(naive.is_empty());
        }
    }
}
