//! Space of the cache: groups, the class that each serves, and the free places in them.
//!
//! Source: Yang 2024, section 2.2.3. A group holds blocks of one size, side by side; the next block of a size goes into the
//! *open* group of that size. A place inside a group becomes free when its block is dropped (a discarded range, a volume that is
//! removed); such a group is open again, so there may be several. A group without blocks belongs to no share.

use crate::Id;
use crate::column::Column;
use crate::evict::list::{Links, List};

use super::bits::RunBits;
use super::geometry::Geometry;
use super::shares::{Share, Shares};

/// The mark of a group that belongs to no share.
const NO_CLASS: u8 = u8::MAX;

/// The share and class of a group.
#[derive(Clone, Copy, Debug)]
struct Group {
    /// Blocks in it.
    blocks: u16,
    share: Share,
    class: u8,
}

/// The share of each group, and the free places in it.
#[derive(Clone, Debug)]
pub struct Space {
    groups: Vec<Group>,
    /// Groups with free places, by share and class; the head is the one that is filled.
    open: Vec<List>,
    links: Column<Links>,
    /// Slots at which a block begins.
    begins: RunBits,
    /// Free groups before `untouched`; the head was given back last.
    free: List,
    /// Groups from this one on were never used.
    untouched: u32,
    shares: Shares,
    classes: usize,
    /// Groups that get no more blocks.
    retired: RunBits,
    retired_groups: u32,
}

impl Space {
    /// All groups free, for `shares` shares without a limit.
    pub fn new(geometry: &Geometry, shares: u16) -> Self {
        let nobody = Group { blocks: 0, share: Share(0), class: NO_CLASS };
        Space {
            groups: vec![nobody; geometry.groups() as usize],
            open: vec![List::default(); usize::from(shares) * geometry.classes()],
            links: Column::default(),
            begins: RunBits::new(u64::from(geometry.slots())),
            free: List::default(),
            untouched: 0,
            shares: Shares::new(geometry, shares),
            classes: geometry.classes(),
            retired: RunBits::new(u64::from(geometry.groups())),
            retired_groups: 0,
        }
    }

    /// The share of each group, and the limits of the shares.
    pub fn shares(&self) -> &Shares {
        &self.shares
    }

    /// The shares, to change their limits.
    pub fn shares_mut(&mut self) -> &mut Shares {
        &mut self.shares
    }

    /// The share that a group belongs to.
    #[inline]
    pub fn share(&self, group: u32) -> Share {
        self.groups[group as usize].share
    }

    /// The class of a group's blocks. The group must belong to a share.
    #[inline]
    pub fn class(&self, group: u32) -> usize {
        usize::from(self.groups[group as usize].class)
    }

    /// The slot at which the block begins that has this one.
    pub fn block_of(&self, geometry: &Geometry, slot: u32) -> Option<u32> {
        let class = self.groups.get(geometry.group_of(slot) as usize)?.class;
        if class == NO_CLASS {
            return None;
        }
        // Blocks stand in their group as if it began with one: at multiples of their size.
        let begin = slot & !(geometry.class_pieces(usize::from(class)) as u32 - 1);
        self.begins.get(u64::from(begin)).then_some(begin)
    }

    /// The slots at which blocks begin, from this one on, ascending.
    pub fn begins_from(&self, slot: u32) -> impl Iterator<Item = u32> + '_ {
        let bits = self.begins.bits();
        self.begins.runs(u64::from(slot).min(bits)..bits, true).flatten().map(|slot| slot as u32)
    }

    fn open_list(&mut self, share: Share, class: usize) -> (&mut List, &mut Column<Links>) {
        (&mut self.open[usize::from(share.0) * self.classes + class], &mut self.links)
    }

    /// The group into which a share's next block of this class is placed, if one has room.
    #[inline]
    pub fn open_group(&self, share: Share, class: usize) -> Option<u32> {
        let head = self.open[usize::from(share.0) * self.classes + class].head;
        (head != Id::NONE).then_some(head.0)
    }

    /// Whether a share may have another group and there is one.
    pub fn can_open(&self, share: Share) -> bool {
        self.openable(share) > 0
    }

    /// How many free groups a share may still open.
    pub fn openable(&self, share: Share) -> u32 {
        let free = self.free.len + (self.groups.len() as u32 - self.untouched);
        free.min(self.shares.groups_left(share))
    }

    /// Gives a free group to a share, open for blocks of this class. [`Self::can_open`] has been asked.
    pub fn open_new(&mut self, share: Share, class: usize) -> u32 {
        let group = match self.free.head {
            Id::NONE => self.untouched,
            Id(group) => group,
        };
        self.open_at(share, class, group);
        group
    }

    /// Gives this free group to a share, open for blocks of this class.
    pub fn open_at(&mut self, share: Share, class: usize, group: u32) {
        debug_assert!(self.is_free(group));
        self.links.grow_to(Id(group));
        if group < self.untouched {
            self.free.unlink(&mut self.links, Id(group));
        }
        // Groups that are passed over are free as if they had been used before.
        while self.untouched < group {
            self.free.push_head(&mut self.links, Id(self.untouched));
            self.untouched += 1;
        }
        self.untouched = self.untouched.max(group + 1);
        self.groups[group as usize] = Group { blocks: 0, share, class: class as u8 };
        self.shares.gained(share);
        let (list, links) = self.open_list(share, class);
        list.push_head(links, Id(group));
    }

    /// Whether a group belongs to no share.
    #[inline]
    pub fn is_free(&self, group: u32) -> bool {
        self.groups[group as usize].class == NO_CLASS && !self.is_retired(group)
    }

    /// How many groups get no more blocks.
    pub fn retired_groups(&self) -> u32 {
        self.retired_groups
    }

    /// Whether a group gets no more blocks.
    #[inline]
    pub fn is_retired(&self, group: u32) -> bool {
        self.retired_groups > 0 && self.retired.get(u64::from(group))
    }

    /// Nothing gets a place in a group any more. Its blocks stay until they are dropped.
    pub fn retire(&mut self, geometry: &Geometry, group: u32) {
        if self.is_retired(group) {
            return;
        }
        self.links.grow_to(Id(group));
        let Group { blocks, share, class } = self.groups[group as usize];
        if class == NO_CLASS {
            while self.untouched <= group {
                self.free.push_head(&mut self.links, Id(self.untouched));
                self.untouched += 1;
            }
            self.free.unlink(&mut self.links, Id(group));
        } else if u32::from(blocks) * geometry.class_pieces(usize::from(class)) as u32
            != geometry.group_slots()
        {
            let (list, links) = self.open_list(share, usize::from(class));
            list.unlink(links, Id(group));
        }
        self.retired.set(u64::from(group)..u64::from(group) + 1);
        self.retired_groups += 1;
    }

    /// The slots of a group at which blocks begin, ascending.
    pub fn blocks_of(&self, geometry: &Geometry, group: u32) -> impl Iterator<Item = u32> + '_ {
        let first = u64::from(geometry.first_slot(group));
        let slots = first..first + u64::from(geometry.group_slots());
        self.begins.runs(slots, true).flatten().map(|slot| slot as u32)
    }

    /// Takes a free place in an open group.
    pub fn take(&mut self, geometry: &Geometry, group: u32) -> u32 {
        let Group { blocks, class, .. } = self.groups[group as usize];
        let step = geometry.class_pieces(usize::from(class)) as u32;
        let first = geometry.first_slot(group);
        // Groups are filled from the front and seldom have holes.
        let likely = first + u32::from(blocks) * step;
        let slot = if self.begins.get(u64::from(likely)) {
            let mut places = (first..first + geometry.group_slots()).step_by(step as usize);
            places.find(|&slot| !self.begins.get(u64::from(slot))).expect("an open group has a free place")
        } else {
            likely
        };
        self.take_at(geometry, slot);
        slot
    }

    /// Takes this place, which is free and where a block of its group can begin.
    pub fn take_at(&mut self, geometry: &Geometry, slot: u32) {
        let group = geometry.group_of(slot);
        let Group { blocks, share, class } = self.groups[group as usize];
        let class = usize::from(class);
        let step = geometry.class_pieces(class) as u32;
        self.begins.set(u64::from(slot)..u64::from(slot) + 1);
        self.groups[group as usize].blocks += 1;
        if (u32::from(blocks) + 1) * step == geometry.group_slots() {
            let (list, links) = self.open_list(share, class);
            list.unlink(links, Id(group));
        }
    }

    /// Frees the place of a block. Returns true when the group has no block left and belongs to no share now.
    pub fn free(&mut self, geometry: &Geometry, slot: u32) -> bool {
        let group = geometry.group_of(slot);
        let Group { blocks, share, class } = self.groups[group as usize];
        let class = usize::from(class);
        let was_full = u32::from(blocks) * geometry.class_pieces(class) as u32 == geometry.group_slots();
        self.begins.clear(u64::from(slot)..u64::from(slot) + 1);
        self.groups[group as usize].blocks -= 1;
        let emptied = blocks == 1;
        let is_retired = self.is_retired(group);
        let (list, links) = self.open_list(share, class);
        if is_retired {
            // It is in no list.
        } else if was_full && !emptied {
            list.push_head(links, Id(group));
        } else if emptied && !was_full {
            list.unlink(links, Id(group));
        }
        if emptied {
            self.shares.gave(share);
            self.groups[group as usize].class = NO_CLASS;
            if !is_retired {
                self.free.push_head(&mut self.links, Id(group));
            }
        }
        emptied
    }

    /// Bytes held.
    pub fn metadata_bytes(&self) -> u64 {
        self.links.bytes()
            + self.begins.bytes()
            + self.retired.bytes()
            + (self.groups.len() * size_of::<Group>()) as u64
            + (self.open.len() * size_of::<List>()) as u64
            + self.shares.metadata_bytes()
    }
}
