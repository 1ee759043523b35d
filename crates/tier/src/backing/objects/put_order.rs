//! Order of changes to chunks: one put of a chunk at a time, with everything that arrived for the chunk by then.

use std::collections::{HashMap, VecDeque};

use super::access::Expected;
use super::layout::HEADER_BYTES;

/// Most chunks with a known stored version: bounded, since a forgotten one is only queried again.
const KNOWN_MAX: usize = 1 << 16;

/// A piece of a request that changes a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub job: usize,
    /// Bytes of the chunk.
    pub from: usize,
    pub to: usize,
    /// Where the bytes are in the job's buffer; `None`: they are zeroes.
    pub source: Option<usize>,
}

/// Whether changes leave nothing of what a chunk of `chunk_bytes` bytes had.
pub(super) fn cover(changes: &[Change], chunk_bytes: usize) -> bool {
    let mut ranges: Vec<_> = changes.iter().map(|change| (change.from, change.to)).collect();
    ranges.sort_unstable();
    let mut covered = 0;
    for (from, to) in ranges {
        if from > covered {
            return false;
        }
        covered = covered.max(to);
    }
    covered >= chunk_bytes
}

/// Carries changes out on a chunk's object, with room for its header: zeroes at its end are left away.
pub(super) fn apply<'a>(
    mut object: Vec<u8>,
    changes: &[Change],
    buffer_of: impl Fn(usize) -> &'a [u8],
) -> Vec<u8> {
    let end = changes.iter().map(|change| HEADER_BYTES + change.to).max().unwrap_or(0);
    object.resize(object.len().max(end).max(HEADER_BYTES), 0);
    for Change { job, from, to, source } in changes {
        let place = &mut object[HEADER_BYTES + from..HEADER_BYTES + to];
        match source {
            Some(at) => place.copy_from_slice(&buffer_of(*job)[*at..*at + (to - from)]),
            None => place.fill(0),
        }
    }
    let payload = &object[HEADER_BYTES..];
    let kept = payload.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    object.truncate(HEADER_BYTES + kept);
    object
}

/// Changes that wait for each chunk, and the chunks that are being changed.
pub(super) struct PutOrder {
    lines: HashMap<u64, Line>,
    /// Chunks with changes and no turn, in the order in which they came.
    ready: VecDeque<u64>,
    under_way: usize,
    under_way_max: usize,
}

#[derive(Default)]
struct Line {
    waiting: Vec<Change>,
    has_turn: bool,
}

impl PutOrder {
    pub fn new(under_way_max: usize) -> Self {
        PutOrder { lines: HashMap::new(), ready: VecDeque::new(), under_way: 0, under_way_max }
    }

    /// Queues a change.
    pub fn push(&mut self, chunk: u64, change: Change) {
        let line = self.lines.entry(chunk).or_default();
        if line.waiting.is_empty() && !line.has_turn {
            self.ready.push_back(chunk);
        }
        line.waiting.push(change);
    }

    /// The next chunk that has its turn; [`PutOrder::end`] ends that.
    pub fn begin(&mut self) -> Option<u64> {
        if self.under_way >= self.under_way_max {
            return None;
        }
        let chunk = self.ready.pop_front()?;
        if let Some(line) = self.lines.get_mut(&chunk) {
            line.has_turn = true;
            self.under_way += 1;
        }
        Some(chunk)
    }

    /// The changes that wait for a chunk.
    pub fn waiting(&self, chunk: u64) -> &[Change] {
        self.lines.get(&chunk).map_or(&[], |line| &line.waiting)
    }

    /// Takes what waits for a chunk; what comes from now on waits for the next put.
    pub fn take(&mut self, chunk: u64) -> Vec<Change> {
        self.lines.get_mut(&chunk).map(|line| std::mem::take(&mut line.waiting)).unwrap_or_default()
    }

    /// Gives back what was taken and not done.
    pub fn put_back(&mut self, chunk: u64, changes: Vec<Change>) {
        if let Some(line) = self.lines.get_mut(&chunk) {
            let later = std::mem::replace(&mut line.waiting, changes);
            line.waiting.extend(later);
        }
    }

    /// The chunk's turn is over; if something waits, it is put at the end of the queue.
    pub fn end(&mut self, chunk: u64) {
        let Some(line) = self.lines.get_mut(&chunk) else { return };
        line.has_turn = false;
        self.under_way -= 1;
        if line.waiting.is_empty() {
            self.lines.remove(&chunk);
        } else {
            self.ready.push_back(chunk);
        }
    }

    /// Whether no chunk has its turn.
    pub fn is_idle(&self) -> bool {
        self.under_way == 0
    }

    /// Whether another chunk could have one, and waits.
    pub fn others_wait(&self) -> bool {
        !self.ready.is_empty()
    }
}

/// What is stored of chunks, as far as it is known.
#[derive(Default)]
pub(super) struct Known {
    objects: HashMap<u64, Expected>,
    order: VecDeque<u64>,
}

impl Known {
    pub fn get(&self, chunk: u64) -> Option<&Expected> {
        self.objects.get(&chunk)
    }

    pub fn set(&mut self, chunk: u64, stored: Expected) {
        if self.objects.insert(chunk, stored).is_none() {
            self.order.push_back(chunk);
            if self.order.len() > KNOWN_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.objects.remove(&oldest);
            }
        }
    }

    pub fn forget(&mut self, chunk: u64) {
        if self.objects.remove(&chunk).is_some() {
            self.order.retain(|it| *it != chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn change(from: usize, to: usize, source: Option<usize>) -> Change {
        Change { job: 0, from, to, source }
    }

    #[test]
    fn a_chunk_has_one_turn_and_all_that_waits_is_in_it() {
        let mut put_order = PutOrder::new(2);
        for chunk in [5, 5, 6, 7] {
            put_order.push(chunk, change(0, 1, None));
        }
        assert_eq!((put_order.begin(), put_order.begin(), put_order.begin()), (Some(5), Some(6), None));
        assert!(put_order.others_wait());
        put_order.push(5, change(1, 2, None));
        let batch = put_order.take(5);
        assert_eq!(batch.len(), 3);
        put_order.push(5, change(2, 3, None));
        put_order.put_back(5, batch);
        assert_eq!(put_order.take(5).iter().map(|it| it.from).collect::<Vec<_>>(), [0, 0, 1, 2]);
        put_order.push(5, change(3, 4, None));
        put_order.end(5);
        // Chunk 7 came before.
        assert_eq!((put_order.begin(), put_order.begin()), (Some(7), None));
        for chunk in [6, 7] {
            put_order.take(chunk);
            put_order.end(chunk);
        }
        assert_eq!(put_order.begin(), Some(5));
        put_order.take(5);
        put_order.end(5);
        assert!(put_order.is_idle() && put_order.begin().is_none());
    }

    #[test]
    fn what_is_known_is_bounded() {
        let mut known = Known::default();
        for chunk in 0..KNOWN_MAX as u64 + 2 {
            known.set(chunk, Expected::Absent);
        }
        assert_eq!((known.get(1), known.get(2)), (None, Some(&Expected::Absent)));
        known.forget(2);
        assert_eq!((known.get(2), known.order.len()), (None, KNOWN_MAX - 1));
    }

    proptest! {
        #[test]
        fn changes_do_what_they_would_to_plain_bytes(
            base in prop::collection::vec(0u8..3, 0..40),
            changes in prop::collection::vec((0usize..40, 0usize..40, any::<bool>()), 1..8),
        ) {
            let buffer: Vec<u8> = (0..80).map(|at| at % 3).collect();
            let changes: Vec<Change> = changes
                .iter()
                .map(|(a, b, zero)| change(*a.min(b), *a.max(b), (!zero).then_some(*a)))
                .collect();
            let mut naive = base.clone();
            naive.resize(40, 0);
            let mut touched = [false; 40];
            for it in &changes {
                for at in it.from..it.to {
                    naive[at] = it.source.map_or(0, |source| buffer[source + at - it.from]);
                    touched[at] = true;
                }
            }
            let object = apply([vec![9; HEADER_BYTES], base].concat(), &changes, |_| &buffer);
            let payload = &object[HEADER_BYTES..];
            prop_assert!(payload.last() != Some(&0));
            prop_assert!(payload.iter().chain(std::iter::repeat(&0)).take(40).eq(&naive));
            prop_assert_eq!(cover(&changes, 40), touched.iter().all(|it| *it));
        }
    }
}
