//! Bytes in the upper part of a stack, found without a walk over the objects.

/// The sizes of what stands at positions 1 to 2^k, for each k with 2^k below the stack's length, and of all: the
/// *sizeArray* of section 2.3.1 with base 2. Between two boundaries bytes count as evenly spread.
#[derive(Clone, Debug)]
pub(super) struct PrefixSizes {
    /// Bytes at positions 1 to 2^k.
    below: Vec<u64>,
    total: u64,
}

impl PrefixSizes {
    pub fn new() -> Self {
        PrefixSizes { below: Vec::new(), total: 0 }
    }

    /// Bytes at positions 1 to `position` of a stack of `len`.
    pub fn up_to(&self, position: usize, len: usize) -> f64 {
        let k = position.ilog2() as usize;
        let boundary = 1usize << k;
        let low = self.below.get(k).copied().unwrap_or(self.total);
        if position == boundary {
            return low as f64;
        }
        let (next, high) = match self.below.get(k + 1) {
            Some(&high) => (2 * boundary, high),
            None => (len, self.total),
        };
        low as f64 + (high as f64 - low as f64) * (position - boundary) as f64 / (next - boundary) as f64
    }

    /// What stands at `position` of a stack that is now `len` long had the size `before` and has the size `after`; a
    /// position at the end may be new.
    pub fn resize_at(&mut self, position: usize, before: u64, after: u64, len: usize) {
        // Wrapping: only the difference may be negative, never a sum.
        let difference = after.wrapping_sub(before);
        self.total = self.total.wrapping_add(difference);
        let first = usize::BITS - (position - 1).leading_zeros();
        self.below.iter_mut().skip(first as usize).for_each(|sum| *sum = sum.wrapping_add(difference));
        while 1usize << self.below.len() <= len {
            self.below.push(self.total);
        }
    }

    /// The stack is `len` long now; what stood behind had no bytes.
    pub fn shrink(&mut self, len: usize) {
        while !self.below.is_empty() && 1usize << (self.below.len() - 1) > len {
            self.below.pop();
        }
    }

    /// For each boundary from `from` up to but not including position `to + 1`: `entering` bytes came above it and
    /// `leaving` went.
    #[inline]
    pub fn exchange(&mut self, from: usize, to: usize, entering: u64, leaving: u64) {
        let mut k = (usize::BITS - (from - 1).leading_zeros()) as usize;
        while k < self.below.len() && 1usize << k <= to {
            self.below[k] = self.below[k].wrapping_add(entering).wrapping_sub(leaving);
            k += 1;
        }
    }

    pub fn metadata_bytes(&self) -> u64 {
        (self.below.capacity() * size_of::<u64>()) as u64
    }

    pub fn boundaries(&self) -> &[u64] {
        &self.below
    }
}
