//! Extents of a block status reply, collected one by one.

use super::command::Request;
use super::wire::{CommandFlags, EXTENTS_MAX};

/// A stretch of the volume with one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes.
    pub len_bytes: u32,
    /// Its status, as its metadata context defines it.
    pub flags: u32,
}

/// Extents of one metadata context, one behind the other from a request's offset on.
///
/// Neighbours in one state become one extent, nothing reaches beyond the request, and a request for one extent gets
/// one. A reply may be shorter than its request, so that there is a bound.
#[derive(Clone, Debug)]
pub struct Extents {
    list: Vec<Extent>,
    left_bytes: u32,
    count_max: usize,
}

impl Extents {
    /// The answer to `request`, of at most `count_max` extents.
    pub fn new(request: &Request, count_max: usize) -> Self {
        let one = request.flags.contains(CommandFlags::REQ_ONE);
        let count_max = if one { 1 } else { count_max.clamp(1, EXTENTS_MAX as usize) };
        Extents { list: Vec::new(), left_bytes: request.len_bytes, count_max }
    }

    /// Adds the next `len_bytes`; whether more are of use.
    pub fn push(&mut self, len_bytes: u64, flags: u32) -> bool {
        let len = u32::try_from(len_bytes).unwrap_or(u32::MAX).min(self.left_bytes);
        if len == 0 {
            return self.left_bytes > 0;
        }
        let count = self.list.len();
        match self.list.last_mut() {
            Some(last) if last.flags == flags => last.len_bytes += len,
            _ if count == self.count_max => {
                self.left_bytes = 0;
                return false;
            }
            _ => self.list.push(Extent { len_bytes: len, flags }),
        }
        self.left_bytes -= len;
        self.left_bytes > 0
    }

    /// The collected extents; a reply needs at least one.
    pub fn as_slice(&self) -> &[Extent] {
        &self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbd::Command;

    fn request(len_bytes: u32, flags: CommandFlags) -> Request {
        Request { cookie: 0, command: Command::BlockStatus, flags, offset: 0, len_bytes }
    }

    fn pairs(extents: &Extents) -> Vec<(u32, u32)> {
        extents.as_slice().iter().map(|extent| (extent.len_bytes, extent.flags)).collect()
    }

    #[test]
    fn neighbours_join_and_the_request_bounds_them() {
        let mut extents = Extents::new(&request(100, CommandFlags::none()), 10);
        assert!(extents.push(10, 0));
        assert!(extents.push(0, 7));
        assert!(extents.push(20, 0));
        assert!(extents.push(30, 3));
        assert!(!extents.push(u64::MAX, 1));
        assert!(!extents.push(1, 2));
        assert_eq!(pairs(&extents), [(30, 0), (30, 3), (40, 1)]);
    }

    #[test]
    fn one_extent_or_a_bounded_number_is_enough() {
        let mut one = Extents::new(&request(100, CommandFlags::REQ_ONE), 10);
        assert!(one.push(10, 1));
        assert!(one.push(10, 1), "it may still grow");
        assert!(!one.push(10, 2));
        assert!(!one.push(10, 1), "nothing joins over a gap");
        assert_eq!(pairs(&one), [(20, 1)]);
        let mut few = Extents::new(&request(u32::MAX, CommandFlags::none()), 2);
        assert!(few.push(1, 1) && few.push(1, 2) && !few.push(1, 3));
        assert_eq!(pairs(&few), [(1, 1), (1, 2)]);
    }
}
