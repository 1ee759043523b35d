//! When the mappings of a program are to be looked at, after the kernel has told of new ones.

use std::time::{Duration, Instant};

/// A program makes a mapping by several calls: it unmaps a part of what it has mapped, for instance, of which the kernel does not tell. On a
/// busy machine it may be kept from that for long. So mappings are looked at again after this time, and after longer and longer ones.
const FIRST: Duration = Duration::from_millis(20);
const LONGER: u32 = 4;
const LAST: Duration = Duration::from_secs(1);

/// What was told and not looked at yet.
#[derive(Debug, Default)]
pub(in crate::capture) struct MappingNews {
    is_new: bool,
    /// When it is looked at again, and how long after that once more.
    again: Option<(Instant, Duration)>,
}

impl MappingNews {
    /// Takes in that something large was mapped.
    pub fn tell(&mut self) {
        self.is_new = true;
    }

    /// Whether mappings are to be looked at now. Whoever asks does so if that is answered.
    pub fn is_due(&mut self, now: Instant) -> bool {
        if std::mem::take(&mut self.is_new) {
            self.again = Some((now + FIRST, FIRST * LONGER));
            return true;
        }
        let Some((_, longer)) = self.again.filter(|(at, _)| now >= *at) else { return false };
        self.again = (longer <= LAST).then(|| (now + longer, longer * LONGER));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_looked_at_at_once_and_some_times_later() {
        let mut news = MappingNews::default();
        let begun = Instant::now();
        let due_at = |news: &mut MappingNews| -> Vec<u64> {
            (0..4000).filter(|at| news.is_due(begun + Duration::from_millis(*at))).collect()
        };
        assert_eq!(due_at(&mut news), [0; 0]);
        news.tell();
        assert_eq!(due_at(&mut news), [0, 20, 100, 420]);
    }
}
