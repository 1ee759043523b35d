//! Order in which the stores of a world are written: what they are an image of, if the cache's device is lost.

use tiermem_policy::extents::Mode;
use tiermem_policy::extents::cleaner::WriteBackOrder;

use crate::stamp::{STAMP_BYTES, value_of};
use crate::world::World;

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
            let is_whole = self.setup.order == WriteBackOrder::Group;
            store.with_bytes(|bytes| {
                let (mut first, mut last) = (0, u64::MAX);
                for (place, stamped) in bytes.chunks(STAMP_BYTES as usize).enumerate() {
                    let (value, stamp) = (value_of(stamped).unwrap(), &self.stamps(at)[place]);
                    let zeroes = stamp.history.iter().filter(|entry| entry.value == 0).count();
                    if value == 0 && (!is_whole || zeroes > 1 || stamp.trimmed > 0) {
                        // Which of its zeroes it is, is unknown.
                        continue;
                    }
                    let within = if is_whole { stamp.moments(value) } else { stamp.flushes(value) };
                    let (from, to) = within.unwrap();
                    (first, last) = (first.max(from), last.min(to));
                    assert!(
                        first <= last,
                        "volume {at}, stamp {place}: of {from} to {to}, others of {first} to {last}"
                    );
                }
            });
        }
    }
}
