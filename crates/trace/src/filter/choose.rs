//! Filter of accesses of a trace.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use tiermem_base::hash::{Sample, sample_hash};
use tiermem_base::{Access, Op};

use super::key_part;

/// The verdict on an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is wanted.
    Keep,
    /// It is not.
    Drop,
    /// Neither it nor any after it is.
    End,
}

/// A choice of accesses. Accesses that meet all conditions are counted; of these, every n-th is kept, up to a largest number. The
/// default keeps everything.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// The earliest time, included.
    pub since_ns: u64,
    /// The latest time, excluded; `None` has no end.
    pub until_ns: Option<u64>,
    /// The operations; empty for all.
    pub ops: Vec<Op>,
    /// The keys, in any of these ranges; empty for all.
    pub keys: Vec<RangeInclusive<u64>>,
    /// The sizes in bytes.
    pub sizes: RangeInclusive<u32>,
    /// The tenants; empty for all.
    pub tenants: BTreeSet<u32>,
    /// A spatial sample of the keys.
    pub sample: Option<Sample>,
    /// One part of the keys, its number from 0 and how many parts there are: see [`key_part`].
    pub part: Option<(u64, u64)>,
    /// Of each `every` accesses that meet all this, the first is kept; 0 and 1 keep all.
    pub every: u64,
    /// How many are kept at most.
    pub first: Option<u64>,
}

/// Applies a [`Filter`] to one trace.
#[derive(Clone, Debug)]
pub struct Judge {
    filter: Filter,
    /// Accesses that met the conditions so far.
    met: u64,
    kept: u64,
}

impl Default for Filter {
    fn default() -> Self {
        Filter {
            since_ns: 0,
            until_ns: None,
            ops: Vec::new(),
            keys: Vec::new(),
            sizes: 0..=u32::MAX,
            tenants: BTreeSet::new(),
            sample: None,
            part: None,
            every: 1,
            first: None,
        }
    }
}

impl Judge {
    /// No access has been judged.
    pub fn new(filter: Filter) -> Self {
        Judge { filter, met: 0, kept: 0 }
    }

    /// Decides on the next access. After [`Verdict::End`] every answer is the same.
    pub fn judge(&mut self, access: &Access) -> Verdict {
        if self.filter.first.is_some_and(|first| self.kept >= first) {
            return Verdict::End;
        }
        if !self.filter.meets(access) {
            return Verdict::Drop;
        }
        let number = self.met;
        self.met += 1;
        if self.filter.every > 1 && !number.is_multiple_of(self.filter.every) {
            return Verdict::Drop;
        }
        self.kept += 1;
        Verdict::Keep
    }
}

impl Filter {
    /// Whether an access meets the conditions, apart from those that count.
    pub fn meets(&self, access: &Access) -> bool {
        access.time_ns >= self.since_ns
            && self.until_ns.is_none_or(|until| access.time_ns < until)
            && self.sizes.contains(&access.size)
            && (self.ops.is_empty() || self.ops.contains(&access.op))
            && (self.tenants.is_empty() || self.tenants.contains(&access.tenant))
            && (self.keys.is_empty() || self.keys.iter().any(|range| range.contains(&access.key)))
            && self.sample.is_none_or(|sample| sample.holds(sample_hash(access.key)))
            && self.part.is_none_or(|(part, parts)| key_part(access.key, parts) == part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kept(filter: Filter, accesses: &[Access]) -> Vec<Access> {
        let mut judge = Judge::new(filter);
        let judged = accesses.iter().map(|access| (judge.judge(access), *access)).collect::<Vec<_>>();
        let end = judged.iter().position(|(verdict, _)| *verdict == Verdict::End).unwrap_or(judged.len());
        assert!(judged[end..].iter().all(|(verdict, _)| *verdict == Verdict::End));
        judged[..end]
            .iter()
            .filter(|(verdict, _)| *verdict == Verdict::Keep)
            .map(|(_, access)| *access)
            .collect()
    }

    fn accesses() -> impl Strategy<Value = Vec<Access>> {
        let access =
            (0u64..100, 0usize..8, 0u64..50, 0u32..100, 0u32..4).prop_map(|(time, op, key, size, tenant)| {
                Access { tenant, ..Access::new(time, Op::ALL[op], key, size) }
            });
        prop::collection::vec(access, 0..100)
    }

    proptest! {
        #[test]
        fn each_condition_keeps_what_meets_it(accesses in accesses(), a in 0u64..100, b in 0u64..100) {
            let (low, high) = (a.min(b), a.max(b));
            let check = |filter: Filter, meets: &dyn Fn(&Access) -> bool| {
                let wanted: Vec<_> = accesses.iter().copied().filter(|access| meets(access)).collect();
                prop_assert_eq!(kept(filter, &accesses), wanted);
                Ok(())
            };
            let all = Filter::default;
            check(all(), &|_| true)?;
            check(Filter { since_ns: low, until_ns: Some(high), ..all() }, &|a| (low..high).contains(&a.time_ns))?;
            check(Filter { ops: vec![Op::Get, Op::Scan], ..all() }, &|a| matches!(a.op, Op::Get | Op::Scan))?;
            check(Filter { keys: vec![low..=high, 3..=3], ..all() }, &|a| a.key == 3 || (low..=high).contains(&a.key))?;
            let sizes = low as u32..=high as u32;
            check(Filter { sizes: sizes.clone(), ..all() }, &|a| sizes.contains(&a.size))?;
            check(Filter { tenants: [1, 2].into(), ..all() }, &|a| a.tenant == 1 || a.tenant == 2)?;
            check(Filter { part: Some((1, 3)), ..all() }, &|a| key_part(a.key, 3) == 1)?;
            let sample = Sample::with_rate(0.3);
            check(Filter { sample: Some(sample), ..all() }, &|a| sample.holds(sample_hash(a.key)))?;
        }

        #[test]
        fn counting_comes_after_the_conditions(accesses in accesses(), every in 0u64..5, first in 0u64..50) {
            let filter = Filter { tenants: [0].into(), every, first: Some(first), ..Filter::default() };
            let met = accesses.iter().copied().filter(|access| access.tenant == 0);
            let wanted: Vec<_> = met.step_by(every.max(1) as usize).take(first as usize).collect();
            prop_assert_eq!(kept(filter, &accesses), wanted);
        }
    }
}
