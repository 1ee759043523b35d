//! Memory of processes beside what they touch: how much of each was in memory.

use serde::{Deserialize, Serialize};

use super::Recording;

/// Bytes of a process that were in memory (RSS) at the end of slices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rss {
    /// The slice of the first number.
    first_slice: u32,
    /// From that slice on; `None` where it is not known.
    bytes: Vec<Option<u64>>,
}

impl Rss {
    /// Whether it is known of no slice.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// At the end of a slice; `None` if that is not known.
    pub fn at(&self, slice: usize) -> Option<u64> {
        let at = slice.checked_sub(self.first_slice as usize)?;
        self.bytes.get(at).copied().flatten()
    }

    /// Takes back what was told of a slice, if it is the last one.
    pub(super) fn forget(&mut self, slice: u32) {
        if (self.first_slice as usize + self.bytes.len()).checked_sub(1) == Some(slice as usize) {
            self.bytes.pop();
        }
    }

    /// At the end of two slices each, of `slices` in all: the last of an odd number is alone.
    pub(super) fn of_pairs(&self, slices: usize) -> Rss {
        let mut pairs = Rss::default();
        for pair in self.first_slice as usize / 2..slices.div_ceil(2) {
            if let Some(bytes) = self.at((2 * pair + 1).min(slices.saturating_sub(1))) {
                pairs.put(pair as u32, bytes);
            }
        }
        pairs
    }

    /// Adds a slice behind those that it has.
    pub(super) fn put(&mut self, slice: u32, bytes: u64) {
        if self.bytes.is_empty() {
            self.first_slice = slice;
        }
        let at = slice.saturating_sub(self.first_slice) as usize;
        self.bytes.resize(at.max(self.bytes.len()), None);
        self.bytes.push(Some(bytes));
    }

    /// Of some slices, as if there had been no others.
    pub(super) fn of_slices(&self, slices: &[usize]) -> Rss {
        let mut chosen = Rss::default();
        for (place, slice) in (0..).zip(slices) {
            if let Some(bytes) = self.at(*slice) {
                chosen.put(place, bytes);
            }
        }
        chosen
    }
}

impl Recording {
    /// Bytes that were in memory at the end of a slice, of all processes together: what several have mapped counts for each. `None` if it
    /// is known of none, as in recordings of older versions.
    pub fn rss(&self, slice: usize) -> Option<u64> {
        let known = self.head.processes.iter().filter_map(|process| process.rss.at(slice));
        known.reduce(u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Head, Process};

    fn rss(slices: &[(u32, u64)]) -> Rss {
        let mut rss = Rss::default();
        slices.iter().for_each(|(slice, bytes)| rss.put(*slice, *bytes));
        rss
    }

    #[test]
    fn what_is_not_known_is_not_zero() {
        let one = rss(&[(2, 10), (3, 0), (5, 30)]);
        let all: Vec<Option<u64>> = (0..7).map(|slice| one.at(slice)).collect();
        assert_eq!(all, [None, None, Some(10), Some(0), None, Some(30), None]);
        assert!(!one.is_empty() && Rss::default().is_empty());
        assert_eq!(one.of_slices(&[0, 3, 5]), rss(&[(1, 0), (2, 30)]));
        assert!(one.of_slices(&[0, 1, 4]).is_empty());
    }

    #[test]
    fn processes_add_up_as_far_as_they_are_known() {
        let process = |rss: Rss| Process { rss, ..Process::default() };
        let processes =
            vec![process(rss(&[(0, 1), (1, 2)])), process(rss(&[(1, 40)])), process(Rss::default())];
        let head = Head { processes, ..Head::default() };
        let recording = Recording { head, samples: Vec::new() };
        assert_eq!([0, 1, 2].map(|slice| recording.rss(slice)), [Some(1), Some(42), None]);
        assert_eq!(Recording::default().rss(0), None);
    }

    #[test]
    fn an_older_process_has_none() {
        let older = r#"{"name":"sh","pid":1,"parent":null,"command":[],"executable":{"path":"","build_id":null},"begun_ns":0,
            "ended_ns":null,"is_observed":true}"#;
        let process: Process = serde_json::from_str(older).unwrap();
        assert!(process.rss.is_empty());
        assert!(!serde_json::to_string(&process).unwrap().contains("rss"));
        let newer = Process { rss: rss(&[(1, 4096)]), ..process };
        let text = serde_json::to_string(&newer).unwrap();
        assert_eq!(serde_json::from_str::<Process>(&text).unwrap(), newer);
    }
}
