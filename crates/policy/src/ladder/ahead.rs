//! What the next call will read and write, for a driver that knows which items come and can bring memory near.

use super::Ladder;
use crate::Id;
use crate::evict::Evict;

impl Ladder {
    /// What [`Self::loc`] reads.
    #[inline]
    pub fn node(&self, id: Id) -> &impl Sized {
        self.places.cell(id)
    }

    /// What [`Self::hit`] writes beside the node.
    #[inline]
    pub fn mark(&self, id: Id) -> Option<&u64> {
        self.lists.mark(id)
    }
}
