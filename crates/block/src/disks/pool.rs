//! Pool of reusable buffers, so that a request costs no allocation.

use tiermem_tier::block::AlignedBuffer;

use super::UNIT_BYTES;

/// Most units of a buffer that is kept. Longer ones come from the system page by
/// page, so that a long request with a payload that never arrives takes no memory.
const UNITS_MAX: usize = 16;
/// Bytes that are kept at most.
const KEPT_BYTES_MAX: usize = 8 << 20;

/// Buffers by their length in units.
#[derive(Debug, Default)]
pub struct BufferPool {
    /// Those of `n + 1` units at place `n`.
    free: [Vec<AlignedBuffer>; UNITS_MAX],
    kept_bytes: usize,
}

impl BufferPool {
    /// A buffer of `bytes`, rounded up to units; it may hold anything.
    pub fn lend(&mut self, bytes: usize) -> AlignedBuffer {
        let units = bytes.div_ceil(UNIT_BYTES as usize);
        match units.checked_sub(1).and_then(|at| self.free.get_mut(at)).and_then(Vec::pop) {
            Some(buffer) => {
                self.kept_bytes -= buffer.len();
                buffer
            }
            None => AlignedBuffer::zeroed(bytes),
        }
    }

    /// Keeps a buffer for reuse, if there is room.
    pub fn give_back(&mut self, buffer: AlignedBuffer) {
        let units = buffer.len() / UNIT_BYTES as usize;
        let Some(free) = units.checked_sub(1).and_then(|at| self.free.get_mut(at)) else { return };
        if self.kept_bytes + buffer.len() <= KEPT_BYTES_MAX {
            self.kept_bytes += buffer.len();
            free.push(buffer);
        }
    }

    /// Bytes that are kept.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_and_what_is_kept_is_bounded() {
        let mut pool = BufferPool::default();
        let buffer = pool.lend(4097);
        let address = buffer.as_ptr();
        pool.give_back(buffer);
        assert_eq!(pool.kept_bytes(), 8192);
        let again = pool.lend(8192);
        assert_eq!((again.as_ptr(), again.len(), pool.kept_bytes()), (address, 8192, 0));
        assert_eq!(pool.lend(0).len(), 0);
        pool.give_back(AlignedBuffer::empty());
        pool.give_back(AlignedBuffer::zeroed((UNITS_MAX + 1) * 4096));
        assert_eq!(pool.kept_bytes(), 0, "long ones go back to the system");
        for _ in 0..3000 {
            pool.give_back(AlignedBuffer::zeroed(4096));
        }
        assert_eq!(pool.kept_bytes(), KEPT_BYTES_MAX);
    }
}
