//! Ages of objects: how many were last accessed in each bucket of epochs.

/// Ages below this have a hint each, longer ones 32 an octave.
const HINTS_EXACT: u32 = 64;
const HINTS_PER_OCTAVE: u32 = 32;

/// Buckets of epochs, oldest first. An object is in the bucket of the epoch of its last access. Young buckets hold one
/// epoch; older ones are merged so that their width grows with their age, which keeps their number logarithmic in the
/// number of epochs.
#[derive(Clone, Debug)]
pub(super) struct Ages {
    /// Ages longer than this many times a bucket's width may share the bucket.
    age_per_width: u32,
    /// The first epoch of each bucket; the last bucket is the current epoch.
    pub start: Vec<u32>,
    /// Objects last accessed in each bucket.
    pub objects: Vec<f64>,
    /// Their bytes; stays zero where sizes do not count.
    pub bytes: Vec<f64>,
    /// By the age of an epoch in [`hint_of`]'s terms, the youngest bucket that may hold it.
    hints: Vec<u32>,
}

impl Ages {
    pub fn new(age_per_width: u32) -> Self {
        Ages { age_per_width, start: vec![0], objects: vec![0.0], bytes: vec![0.0], hints: vec![0] }
    }

    pub fn len(&self) -> usize {
        self.start.len()
    }

    /// The bucket that holds `epoch`, which is not later than the current one.
    #[inline]
    pub fn find(&self, epoch: u32) -> usize {
        let newest = self.start.len() - 1;
        let hint = hint_of(self.start[newest] - epoch.min(self.start[newest]));
        let mut at = self.hints.get(hint).map_or(newest, |&at| at as usize);
        while self.start[at] > epoch {
            at -= 1;
        }
        at
    }

    /// Begins the epoch `epoch`. Hints are made anew, so this takes time proportional to the number of buckets.
    pub fn push(&mut self, epoch: u32) {
        self.start.push(epoch);
        self.objects.push(0.0);
        self.bytes.push(0.0);
        self.make_hints();
    }

    /// The neighbouring buckets that should be merged: the number of buckets in each group, oldest first. Groups of one are left.
    pub fn groups_to_merge(&self) -> Vec<usize> {
        let newest = self.start.len() - 1;
        let now = self.start[newest];
        let mut groups = Vec::with_capacity(self.start.len());
        let mut from = 0;
        while from < newest {
            let mut to = from + 1;
            // The current epoch's bucket stays alone.
            while to < newest
                && (self.start[to + 1] - self.start[from]) * self.age_per_width <= now - self.start[to + 1]
            {
                to += 1;
            }
            groups.push(to - from);
            from = to;
        }
        groups.push(1);
        groups
    }

    pub fn merge(&mut self, groups: &[usize]) {
        let mut from = 0;
        for (to, &count) in groups.iter().enumerate() {
            self.start[to] = self.start[from];
            self.objects[to] = self.objects[from..from + count].iter().sum();
            self.bytes[to] = self.bytes[from..from + count].iter().sum();
            from += count;
        }
        self.start.truncate(groups.len());
        self.objects.truncate(groups.len());
        self.bytes.truncate(groups.len());
        self.make_hints();
    }

    pub fn metadata_bytes(&self) -> u64 {
        let floats = self.objects.capacity() + self.bytes.capacity();
        (floats * size_of::<f64>() + (self.start.capacity() + self.hints.capacity()) * size_of::<u32>())
            as u64
    }

    fn make_hints(&mut self) {
        let newest = self.start.len() - 1;
        let now = self.start[newest];
        let oldest = hint_of(now - self.start[0]);
        self.hints.clear();
        let mut at = newest;
        for hint in 0..=oldest {
            let youngest = now.saturating_sub(youngest_age(hint as u32));
            while self.start[at] > youngest {
                at -= 1;
            }
            self.hints.push(at as u32);
        }
    }
}

/// The hint that ages like this one share.
#[inline]
fn hint_of(age: u32) -> usize {
    if age < HINTS_EXACT {
        return age as usize;
    }
    let octave = age.ilog2() - HINTS_EXACT.ilog2();
    (HINTS_EXACT + octave * HINTS_PER_OCTAVE + ((age >> (octave + 1)) - HINTS_PER_OCTAVE)) as usize
}

/// The smallest age of a hint.
fn youngest_age(hint: u32) -> u32 {
    if hint < HINTS_EXACT {
        return hint;
    }
    let octave = (hint - HINTS_EXACT) / HINTS_PER_OCTAVE;
    let step = (hint - HINTS_EXACT) % HINTS_PER_OCTAVE;
    (step + HINTS_PER_OCTAVE) << (octave + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_know_their_smallest_age() {
        for age in 0..100_000 {
            let hint = hint_of(age);
            assert!(youngest_age(hint as u32) <= age && age < youngest_age(hint as u32 + 1), "{age}");
        }
    }

    #[test]
    fn every_epoch_is_found_in_its_bucket_and_buckets_stay_few() {
        let mut ages = Ages::new(64);
        for epoch in 1..20_000u32 {
            ages.objects[epoch as usize % 7 % ages.start.len()] += 1.0;
            ages.push(epoch);
            if epoch % 50 == 0 {
                ages.merge(&ages.groups_to_merge());
            }
            if epoch % 997 == 0 {
                for asked in 0..=epoch {
                    let at = ages.find(asked);
                    assert!(
                        ages.start[at] <= asked && ages.start.get(at + 1).is_none_or(|&next| asked < next)
                    );
                }
            }
        }
        assert_eq!(ages.objects.iter().sum::<f64>(), 19_999.0);
        assert!(ages.len() < 64 * 11, "{}", ages.len());
        let widths = ages.start.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(widths.max().unwrap() <= 20_000 / 64);
    }
}
