//! Room of the journal: two halves that are written in turn, and which of their records a restart needs.

use super::persist_command::Recorded;

/// How full the journal is.
#[derive(Debug)]
pub(super) struct Journal {
    /// Records that a half holds.
    half_records: u64,
    /// Records in the half that is in use.
    used: u64,
    /// A restart would begin with the other half: the checkpoint that was to end that is not complete, or has failed.
    needs_other_half: bool,
    /// A restart would find nothing: records that it needs were written over.
    is_blank: bool,
    /// How often that has happened.
    overruns: u64,
}

impl Journal {
    /// A journal with `used` records in the half that is in use. `needs_other_half`: a restart needs the records of the other one
    /// too.
    pub(super) fn new(half_records: u64, used: u64, needs_other_half: bool) -> Self {
        assert!(half_records > 0, "a half of the journal holds something");
        Journal { half_records, used, needs_other_half, is_blank: false, overruns: 0 }
    }

    /// Finds a place for a record. While a checkpoint `is_under_way` a restart may need both halves.
    pub(super) fn note_record(&mut self, is_under_way: bool) -> Recorded {
        if !self.is_full() {
            self.used += 1;
            return Recorded::Behind;
        }
        self.used = 1;
        if is_under_way || self.needs_other_half() {
            let is_first = !std::mem::replace(&mut self.is_blank, true);
            self.overruns += u64::from(is_first);
            return Recorded::OverLost { is_first };
        }
        self.needs_other_half = true;
        Recorded::InOtherHalf
    }

    /// Begins the half again, where a restart finds nothing anyway. Returns whether it does.
    pub(super) fn rewind_if_blank(&mut self) -> bool {
        if self.is_blank {
            self.used = 0;
        }
        self.is_blank
    }

    /// The superblock names a checkpoint that began with the half in use; with `false` it could not be written.
    pub(super) fn note_named(&mut self, is_written: bool) {
        self.needs_other_half = false;
        self.is_blank &= !is_written;
    }

    /// Whether a restart would begin with the half that is not in use.
    fn needs_other_half(&self) -> bool {
        !self.is_blank && self.needs_other_half
    }

    /// Whether a checkpoint is missing, for a restart to find anything or for the other half to be used again.
    pub(super) fn lacks_checkpoint(&self) -> bool {
        self.is_blank || self.needs_other_half
    }

    /// Whether the half in use has no room for a record.
    pub(super) fn is_full(&self) -> bool {
        self.used >= self.half_records
    }

    /// The share of the half in use that is full.
    pub(super) fn fullness(&self) -> f64 {
        self.used as f64 / self.half_records as f64
    }

    /// Whether a restart would find nothing.
    pub(super) fn is_blank(&self) -> bool {
        self.is_blank
    }

    /// How often records were written over that a restart needed.
    pub(super) fn overruns(&self) -> u64 {
        self.overruns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(journal: &mut Journal, is_under_way: bool) -> Vec<Recorded> {
        (0..4).map(|_| journal.note_record(is_under_way)).filter(|it| *it != Recorded::Behind).collect()
    }

    #[test]
    fn halves_are_used_in_turn_as_long_as_checkpoints_follow() {
        let mut journal = Journal::new(4, 0, false);
        assert_eq!(fill(&mut journal, false), []);
        assert!(journal.is_full() && !journal.lacks_checkpoint());
        for _ in 0..3 {
            assert_eq!(fill(&mut journal, false), [Recorded::InOtherHalf]);
            assert!(journal.lacks_checkpoint());
            journal.note_named(true);
            assert!(!journal.lacks_checkpoint());
        }
        assert_eq!(journal.overruns(), 0);
    }

    #[test]
    fn what_a_restart_needs_is_written_over_only_when_there_is_no_other_room() {
        for is_under_way in [false, true] {
            let mut journal = Journal::new(4, 4, !is_under_way);
            let first = Recorded::OverLost { is_first: true };
            assert_eq!(fill(&mut journal, is_under_way), [first]);
            assert!(journal.is_blank() && journal.lacks_checkpoint());
            // Until a checkpoint begins again there is nothing more to lose.
            let again =
                if is_under_way { Recorded::OverLost { is_first: false } } else { Recorded::InOtherHalf };
            assert_eq!(fill(&mut journal, is_under_way), [again]);
            assert!(journal.rewind_if_blank() && journal.fullness() == 0.0);
            journal.note_named(false);
            assert!(journal.is_blank(), "it is not named");
            journal.note_named(true);
            assert!(!journal.is_blank() && !journal.rewind_if_blank());
            assert_eq!(journal.overruns(), 1);
        }
    }
}
