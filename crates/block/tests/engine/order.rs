//! Order in which the stores of a world are written: what they are an image of, if the cache's device is lost.

use std::collections::BTreeMap;

use tiermem_policy::extents::Mode;
use tiermem_policy::extents::cleaner::WriteBackOrder;

use crate::stamp::{STAMP_BYTES, value_of};
use crate::world::World;

/// Counts for each moment of how many things it was one of those at which they may have been so.
#[derive(Default)]
struct Moments {
    /// How many more from this moment on.
    steps: BTreeMap<u64, i64>,
    things: i64,
}

impl Moments {
    /// Something may have been so at these moments, from one to another.
    fn add(&mut self, mut moments: Vec<(u64, u64)>) {
        moments.sort_unstable();
        let mut reached = 0;
        for (from, to) in moments {
            // Those that overlap count once.
            let from = from.max(reached);
            if from <= to {
                *self.steps.entry(from).or_default() += 1;
                reached = to.saturating_add(1);
                *self.steps.entry(reached).or_default() -= i64::from(to < u64::MAX);
            }
            if reached == u64::MAX {
                break;
            }
        }
        self.things += 1;
    }

    /// How many things are not what they may have been at one moment, the best there is.
    fn odd(&self) -> i64 {
        let counts = self.steps.values().scan(0, |count, step| {
            *count += step;
            Some(*count)
        });
        self.things - counts.max().unwrap_or(0)
    }
}

impl World {
    /// If the cache's device were lost now: where flushes go one after the other, each store has all that was written before some flush,
    /// and some of what was written before the next. Where they go in groups and none is under way, it is the image of one moment.
    pub fn check_order(&self) {
        let status = self.engine.status();
        for (at, store) in self.stores.iter().enumerate() {
            let is_promised = match self.setup.order {
                WriteBackOrder::Flush => true,
                WriteBackOrder::Group => status.exports[at].store_whole_s.is_some(),
                WriteBackOrder::None => false,
            };
            if self.setup.modes[at] != Mode::WriteBack || !is_promised {
                continue;
            }
            let mut image = Moments::default();
            store.with_bytes(|bytes| {
                for (place, stamped) in bytes.chunks(STAMP_BYTES as usize).enumerate() {
                    let (value, stamp) = (value_of(stamped).unwrap(), &self.stamps(at)[place]);
                    let moments = stamp.moments(value, self.setup.order == WriteBackOrder::Flush);
                    assert!(!moments.is_empty(), "volume {at}, stamp {place}: {value} of {stamp:?}");
                    if !stamp.is_untouched() {
                        image.add(moments);
                    }
                }
            });
            assert_eq!(image.odd(), 0, "volume {at}: stamps that are of another moment than the others");
        }
    }
}
