//! Survey of a trace: a first pass over what it requests of its volumes, before anything is sent.

use std::collections::BTreeMap;

use tiermem_base::Access;

/// Requests of a trace to one volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeSurvey {
    /// Requests about it.
    pub requests: u64,
    /// End of the highest request, in bytes; saturates at the largest number.
    pub end_bytes: u64,
}

/// Requests of a trace to its volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// By the volume's number, the tenant of its records.
    pub volumes: BTreeMap<u32, VolumeSurvey>,
    /// Number of records, including those that send nothing.
    pub records: u64,
    /// The latest time of a record, in nanoseconds from the trace's begin.
    pub last_ns: u64,
}

impl Survey {
    /// Counts one record more.
    pub fn add(&mut self, access: &Access) {
        self.records += 1;
        self.last_ns = self.last_ns.max(access.time_ns);
        if sends(access) {
            let volume = self.volumes.entry(access.tenant).or_default();
            volume.requests += 1;
            volume.end_bytes = volume.end_bytes.max(access.key.saturating_add(u64::from(access.size)));
        }
    }
}

/// Whether a record reads or writes bytes at all.
pub(super) fn sends(access: &Access) -> bool {
    access.size > 0 && (access.op.is_write() || access.op.is_lookup())
}

#[cfg(test)]
mod tests {
    use tiermem_base::Op;

    use super::*;

    #[test]
    fn a_survey_knows_how_far_each_volume_reaches() {
        let mut survey = Survey::default();
        let record = |op, key, size, tenant| Access { tenant, ..Access::new(key, op, key, size) };
        for access in [
            record(Op::Write, 4096, 512, 3),
            record(Op::Read, 0, 100, 3),
            record(Op::Read, 1 << 40, 0, 3),
            record(Op::Del, 1 << 41, 10, 4),
            record(Op::Get, u64::MAX, 2, 0),
        ] {
            survey.add(&access);
        }
        let volumes: Vec<_> = survey.volumes.iter().map(|(n, v)| (*n, v.requests, v.end_bytes)).collect();
        assert_eq!(volumes, [(0, 1, u64::MAX), (3, 2, 4608)]);
        assert_eq!((survey.records, survey.last_ns), (5, u64::MAX));
    }
}
