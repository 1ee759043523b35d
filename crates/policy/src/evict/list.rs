//! Doubly linked lists whose links lie in a column: the base of most policies.

use crate::Id;
use crate::column::Column;

/// How many items a policy offers that the driver will not let go, before it gives up.
pub const REFUSALS_MAX: usize = 64;

/// An item's neighbours.
#[derive(Clone, Copy, Debug)]
pub struct Links {
    /// The neighbour towards the head.
    pub prev: Id,
    /// The neighbour towards the tail.
    pub next: Id,
}

impl Default for Links {
    fn default() -> Self {
        Links { prev: Id::NONE, next: Id::NONE }
    }
}

/// A cell of a column that can be linked into a list.
pub trait Linked: Copy + Default {
    /// Its neighbours.
    fn links(&self) -> Links;
    /// Its neighbours, to change.
    fn links_mut(&mut self) -> &mut Links;
    /// Its part of a list's [`List::size`].
    fn size(&self) -> u64;
}

impl Linked for Links {
    #[inline]
    fn links(&self) -> Links {
        *self
    }
    #[inline]
    fn links_mut(&mut self) -> &mut Links {
        self
    }
    #[inline]
    fn size(&self) -> u64 {
        1
    }
}

/// A cell of policies that count sizes and remember keys: 16 bytes, so that one item touches one cache line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Node {
    links: Links,
    /// The item's size in the driver's unit.
    pub size: u32,
    /// The item's key, folded ([`super::ghosts::fold`]).
    pub key: u32,
}

impl Node {
    /// An item that is in no list yet.
    pub fn new(key: u64, size: u32) -> Self {
        Node { links: Links::default(), size, key: super::ghosts::fold(key) }
    }
}

impl Linked for Node {
    #[inline]
    fn links(&self) -> Links {
        self.links
    }
    #[inline]
    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
    #[inline]
    fn size(&self) -> u64 {
        u64::from(self.size)
    }
}

/// The ends of one list.
#[derive(Clone, Copy, Debug)]
pub struct List {
    /// The item that entered or was moved here last.
    pub head: Id,
    /// The next victim.
    pub tail: Id,
    /// Items.
    pub len: u32,
    /// Sum of the items' [`Linked::size`].
    pub size: u64,
}

impl Default for List {
    fn default() -> Self {
        List { head: Id::NONE, tail: Id::NONE, len: 0, size: 0 }
    }
}

impl List {
    /// Links `id` in before `next`; `NONE`: at the tail.
    #[inline]
    pub fn insert_before<N: Linked>(&mut self, nodes: &mut Column<N>, id: Id, next: Id) {
        let prev = if next == Id::NONE { self.tail } else { nodes.cell(next).links().prev };
        let node = nodes.at(id);
        *node.links_mut() = Links { prev, next };
        self.size += node.size();
        self.len += 1;
        if prev == Id::NONE {
            self.head = id;
        } else {
            nodes.at(prev).links_mut().next = id;
        }
        if next == Id::NONE {
            self.tail = id;
        } else {
            nodes.at(next).links_mut().prev = id;
        }
    }

    /// Links `id` in where `behind` others lie between it and the tail, or at the head if there are fewer.
    pub fn insert_low<N: Linked>(&mut self, nodes: &mut Column<N>, id: Id, behind: u32) {
        let mut next = Id::NONE;
        for _ in 0..behind {
            next = if next == Id::NONE { self.tail } else { nodes.cell(next).links().prev };
            if next == Id::NONE {
                // All of the list lies behind it.
                return self.push_head(nodes, id);
            }
        }
        self.insert_before(nodes, id, next);
    }

    /// Links `id` in at the head.
    #[inline]
    pub fn push_head<N: Linked>(&mut self, nodes: &mut Column<N>, id: Id) {
        self.insert_before(nodes, id, self.head);
    }

    /// Takes `id` out; its neighbours are returned.
    #[inline]
    pub fn unlink<N: Linked>(&mut self, nodes: &mut Column<N>, id: Id) -> Links {
        let node = nodes.cell(id);
        self.size -= node.size();
        self.len -= 1;
        let links @ Links { prev, next } = node.links();
        if prev == Id::NONE {
            self.head = next;
        } else {
            nodes.at(prev).links_mut().next = next;
        }
        if next == Id::NONE {
            self.tail = prev;
        } else {
            nodes.at(next).links_mut().prev = prev;
        }
        links
    }

    /// Moves `id` to the head.
    #[inline]
    pub fn move_to_head<N: Linked>(&mut self, nodes: &mut Column<N>, id: Id) {
        if self.head != id {
            self.unlink(nodes, id);
            self.push_head(nodes, id);
        }
    }

    /// The item nearest the tail that may go, among the last [`REFUSALS_MAX`].
    pub fn last_that<N: Linked>(&self, nodes: &Column<N>, may_go: impl Fn(Id) -> bool) -> Option<Id> {
        let mut id = self.tail;
        for _ in 0..REFUSALS_MAX {
            if id == Id::NONE || may_go(id) {
                break;
            }
            id = nodes.cell(id).links().prev;
        }
        (id != Id::NONE && may_go(id)).then_some(id)
    }

    /// The item nearest the tail that may go and is not `spared`; each that is met and spared moves to the head.
    /// `spared` must say no at last, as a counter does that it takes from.
    pub fn second_chance<N: Linked>(
        &mut self,
        nodes: &mut Column<N>,
        may_go: impl Fn(Id) -> bool,
        mut spared: impl FnMut(Id) -> bool,
    ) -> Option<Id> {
        let mut id = self.tail;
        let mut refusals = 0;
        while id != Id::NONE && refusals < REFUSALS_MAX {
            let before = nodes.cell(id).links().prev;
            if !may_go(id) {
                refusals += 1;
            } else if spared(id) {
                self.move_to_head(nodes, id);
            } else {
                return Some(id);
            }
            // Past the head the walk begins again with the items that were spared.
            id = if before == Id::NONE { self.tail } else { before };
        }
        None
    }

    /// Visits up to `count` items from the head.
    pub fn first<N: Linked>(&self, nodes: &Column<N>, count: usize, mut visit: impl FnMut(Id)) {
        let mut id = self.head;
        for _ in 0..count {
            if id == Id::NONE {
                return;
            }
            visit(id);
            id = nodes.cell(id).links().next;
        }
    }

    /// Visits up to `count` items from the tail.
    pub fn last<N: Linked>(&self, nodes: &Column<N>, count: usize, mut visit: impl FnMut(Id)) {
        let mut id = self.tail;
        for _ in 0..count {
            if id == Id::NONE {
                return;
            }
            visit(id);
            id = nodes.cell(id).links().prev;
        }
    }
}

/// Visits up to `count` items of several lists from their tails, all of one before the next.
pub fn last_of<'a, N: Linked>(
    lists: impl IntoIterator<Item = &'a List>,
    nodes: &Column<N>,
    count: usize,
    visit: &mut impl FnMut(Id),
) {
    let mut left = count;
    for list in lists {
        list.last(nodes, left, &mut *visit);
        left = left.saturating_sub(list.len as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_enters_low_before_as_many_as_asked() {
        let mut nodes: Column<Links> = Column::default();
        let mut list = List::default();
        nodes.grow_to(Id(9));
        for id in 0..4 {
            list.push_head(&mut nodes, Id(id));
        }
        for (id, behind) in [(4, 0), (5, 2), (6, 6), (7, 99)] {
            list.insert_low(&mut nodes, Id(id), behind);
        }
        let mut order = Vec::new();
        list.first(&nodes, 99, |id| order.push(id.0));
        // From the head: 3 2 1 0 at first; 4 at the tail; 5 before 0 and 4; 6 before all; 7 before all again.
        assert_eq!(order, [7, 6, 3, 2, 1, 5, 0, 4]);
        assert_eq!(list.len, 8);
    }
}
