//! Merge of several traces into one, in the order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tiermem_base::Access;

use crate::generate::{TENANT_KEY_SHIFT, mix_bits};
use crate::{Trace, TraceError};

/// How equal keys of different inputs are made to differ, if they should.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeySpaces {
    /// Nothing: equal keys are the same key.
    #[default]
    Shared,
    /// The input's number goes into the highest 16 bits; keys must be below 2^48. Neighbours stay neighbours.
    Prefixed,
    /// Keys are hashed together with the input's number. Any key will do, but neighbours are lost.
    Hashed,
}

/// How traces are merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeOptions {
    /// Keep the tenants of the inputs; otherwise the tenant is the number of the input, from 0.
    pub keep_tenants: bool,
    /// How keys of different inputs are told apart.
    pub keys: KeySpaces,
}

/// Why traces could not be merged on.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// One of them cannot be read on.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A key does not leave room for the input's number.
    #[error("input {input} has the key {key}, which is not below 2^48")]
    Key {
        /// The number of the input, from 0.
        input: usize,
        /// The key.
        key: u64,
    },
    /// Input numbers stand in 16 bits.
    #[error("{inputs} traces cannot be told apart by 16 bits of the key")]
    Inputs {
        /// How many traces were given.
        inputs: usize,
    },
}

/// The accesses of several traces by time, those of equal time in the order of the inputs. Each trace keeps its own
/// order, even where its time goes back. The first error ends it.
pub struct Merge {
    traces: Vec<Trace>,
    /// The next access of each trace that has one, by time and number of the trace.
    heads: BinaryHeap<Reverse<(u64, usize)>>,
    next: Vec<Option<Access>>,
    options: MergeOptions,
    failed: Option<MergeError>,
}

impl Merge {
    /// Merges `traces`, reading the first access of each.
    pub fn new(traces: Vec<Trace>, options: MergeOptions) -> Result<Merge, MergeError> {
        let inputs = traces.len();
        if options.keys == KeySpaces::Prefixed && inputs > 1 << (u64::BITS - TENANT_KEY_SHIFT) {
            return Err(MergeError::Inputs { inputs });
        }
        let heads = BinaryHeap::with_capacity(inputs);
        let mut merge = Merge { traces, heads, next: vec![None; inputs], options, failed: None };
        for input in 0..inputs {
            merge.advance(input)?;
        }
        Ok(merge)
    }

    /// Broken records passed over so far, in all traces.
    pub fn skipped(&self) -> u64 {
        self.traces.iter().map(Trace::skipped).sum()
    }

    /// Reads the next access of one trace.
    fn advance(&mut self, input: usize) -> Result<(), MergeError> {
        let Some(access) = self.traces[input].next().transpose()? else { return Ok(()) };
        let number = input as u64;
        let key = match self.options.keys {
            KeySpaces::Shared => access.key,
            KeySpaces::Prefixed if access.key >> TENANT_KEY_SHIFT != 0 => {
                return Err(MergeError::Key { input, key: access.key });
            }
            KeySpaces::Prefixed => access.key | (number << TENANT_KEY_SHIFT),
            KeySpaces::Hashed => mix_bits(access.key ^ mix_bits(number)),
        };
        let tenant = if self.options.keep_tenants { access.tenant } else { input as u32 };
        self.next[input] = Some(Access { key, tenant, ..access });
        self.heads.push(Reverse((access.time_ns, input)));
        Ok(())
    }
}

impl Iterator for Merge {
    type Item = Result<Access, MergeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.failed.take() {
            self.heads.clear();
            return Some(Err(error));
        }
        let Reverse((_, input)) = self.heads.pop()?;
        let access = self.next[input].take()?;
        // What is wrong with the access behind this one comes after this one.
        self.failed = self.advance(input).err();
        Some(Ok(access))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Extent;
    use proptest::prelude::*;

    fn trace(accesses: &[Access]) -> Trace {
        let owned: Vec<_> = accesses.iter().copied().map(Ok).collect();
        Trace::new(Box::new(owned.into_iter()), 0, Extent::Records(accesses.len() as u64))
    }

    fn merged(inputs: &[Vec<Access>], options: MergeOptions) -> Vec<Access> {
        let traces = inputs.iter().map(|input| trace(input)).collect();
        Merge::new(traces, options).unwrap().map(|access| access.unwrap()).collect()
    }

    proptest! {
        #[test]
        fn it_is_a_stable_sort(inputs in prop::collection::vec(prop::collection::vec((0u64..20, 0u64..9), 0..30), 0..5)) {
            let numbered = |(input, rows): (u32, Vec<(u64, u64)>)| {
                let mut rows: Vec<_> =
                    rows.into_iter().map(|(time, key)| Access { tenant: input, ..Access::get(time, key, 1) }).collect();
                rows.sort_by_key(|access| access.time_ns);
                rows
            };
            let inputs: Vec<Vec<Access>> = (0..).zip(inputs).map(numbered).collect();
            let mut wanted = inputs.concat();
            wanted.sort_by_key(|access| access.time_ns);
            prop_assert_eq!(merged(&inputs, MergeOptions::default()), wanted);
        }
    }

    #[test]
    fn tenants_are_numbered_or_kept() {
        let input = |tenant| vec![Access { tenant, ..Access::get(1, 1, 1) }];
        let inputs = [input(7), input(9)];
        let tenants =
            |options| merged(&inputs, options).iter().map(|access| access.tenant).collect::<Vec<_>>();
        assert_eq!(tenants(MergeOptions::default()), [0, 1]);
        assert_eq!(tenants(MergeOptions { keep_tenants: true, ..MergeOptions::default() }), [7, 9]);
    }

    #[test]
    fn key_spaces_are_shared_prefixed_or_hashed() {
        let inputs = [vec![Access::get(1, 5, 1)], vec![Access::get(2, 5, 1), Access::get(3, 6, 1)]];
        let keys = |keys| {
            let options = MergeOptions { keys, ..MergeOptions::default() };
            merged(&inputs, options).iter().map(|access| access.key).collect::<Vec<_>>()
        };
        assert_eq!(keys(KeySpaces::Shared), [5, 5, 6]);
        assert_eq!(keys(KeySpaces::Prefixed), [5, (1 << 48) + 5, (1 << 48) + 6]);
        let hashed = keys(KeySpaces::Hashed);
        assert!(hashed[0] != hashed[1] && hashed[1] != hashed[2]);
    }

    #[test]
    fn what_cannot_be_merged_is_said_after_what_can() {
        let inputs = [vec![Access::get(1, 5, 1), Access::get(2, 1 << 48, 1), Access::get(3, 6, 1)]];
        let options = MergeOptions { keys: KeySpaces::Prefixed, ..MergeOptions::default() };
        let merge = Merge::new(vec![trace(&inputs[0])], options).unwrap();
        let items: Vec<_> = merge.map(|item| item.map_err(|error| error.to_string())).collect();
        assert_eq!(items.len(), 2);
        let error = items[1].as_ref().unwrap_err();
        assert_eq!(error, "input 0 has the key 281474976710656, which is not below 2^48");
    }
}
