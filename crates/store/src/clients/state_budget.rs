//! Budget of bytes that clients make the server remember: names, subscriptions, watched keys, prefixes.

/// Most bytes remembered for all clients together.
pub const STATE_BYTES_MAX: usize = 16 << 20;
/// Overhead of a remembered item beside its bytes.
const STATE_OVERHEAD_BYTES: usize = 128;

/// The server remembers too much for its clients already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMuch;

/// The bytes taken so far.
#[derive(Debug, Default)]
pub(super) struct StateBudget {
    bytes: usize,
}

impl StateBudget {
    /// Takes the cost of remembering `bytes` from the budget.
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), TooMuch> {
        let bytes = bytes + STATE_OVERHEAD_BYTES;
        if self.bytes + bytes > STATE_BYTES_MAX {
            return Err(TooMuch);
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Gives back the cost of remembering `bytes`.
    pub(super) fn give_back(&mut self, bytes: usize) {
        debug_assert!(self.bytes >= bytes + STATE_OVERHEAD_BYTES, "only what was taken is given back");
        self.bytes -= bytes + STATE_OVERHEAD_BYTES;
    }

    /// Bytes taken.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_takes_nothing() {
        let mut state = StateBudget::default();
        state.take(STATE_BYTES_MAX - STATE_OVERHEAD_BYTES).unwrap();
        assert_eq!(state.take(0), Err(TooMuch));
        state.give_back(STATE_BYTES_MAX - STATE_OVERHEAD_BYTES);
        assert_eq!((state.bytes(), state.take(0)), (0, Ok(())));
        assert_eq!(state.bytes(), STATE_OVERHEAD_BYTES);
    }
}
