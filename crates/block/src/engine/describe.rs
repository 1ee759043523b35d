//! Descriptions of a range, of which the store is asked, since it knows of holes.

use std::ops::Range;

use tiermem_policy::extents::UNIT_BYTES;
use tiermem_tier::backing::{self, Request};

use super::descriptions::{Description, EXTENTS_MAX, allocation};
use super::device::Io;
use super::op::units_of;
use super::shared::Shared;
use crate::disks::{Answer, Asker};
use crate::nbd::{Context, Contexts, Extent};

impl Shared {
    /// A client asks what a range is.
    pub fn describe(&mut self, asker: Asker, at: usize, range: Range<u64>, contexts: Contexts) {
        let (mut cache, mut dirty): (Vec<Extent>, Vec<Range<u64>>) = (Vec::new(), Vec::new());
        let mut reached = range.start;
        let mut push = |to: u64, flags: u32| {
            if cache.len() < EXTENTS_MAX && reached < to {
                cache.push(Extent { len_bytes: (to - reached) as u32, flags });
            }
            reached = to.max(reached);
        };
        let units = units_of(&range);
        let aligned = units.start * UNIT_BYTES..units.end * UNIT_BYTES;
        self.extents.visit(self.volumes[at].number, aligned, |part, is_dirty| {
            let end = (part.offset + part.bytes).min(range.end);
            push(part.offset.min(range.end), 0);
            push(end, Context::CACHED | if is_dirty { Context::DIRTY } else { 0 });
            match dirty.last_mut() {
                _ if !is_dirty => {}
                Some(last) if last.end == part.offset => last.end = end,
                _ => dirty.push(part.offset.max(range.start)..end),
            }
        });
        push(range.end, 0);
        let description = Description { asker, range, dirty, cache };
        let there = description.range.start..description.range.end.min(self.volumes[at].backing.size_bytes());
        if !contexts.contains(Context::Allocation) || there.is_empty() {
            return self.tell_description(description, &[]);
        }
        let number = self.descriptions.insert(description) as u32;
        let token = self.device.name(Io::Describe { number });
        let bytes = there.end - there.start;
        self.volumes[at].backing.submit(Request::describe(token, there.start, bytes));
    }

    /// A store has said what a range is; nothing, if it failed.
    pub fn described(&mut self, number: u32, extents: &[backing::Extent]) {
        let description = self.descriptions.remove(number as usize);
        self.tell_description(description, extents);
    }

    fn tell_description(&mut self, description: Description, extents: &[backing::Extent]) {
        let Description { asker, range, dirty, cache } = description;
        let allocation = allocation(&range, extents, &dirty);
        self.answers.tell(asker, Ok(Answer::Parts { allocation, cache }));
    }
}
