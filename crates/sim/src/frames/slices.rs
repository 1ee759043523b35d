//! The order of the touches of a slice, which a recording does not tell.
//!
//! Three replays bracket it: as the file has them; those whose frame is in place first, which is the best order for this slice,
//! as each frame that is not in place faults once in any order; and whatever would fault at the moment first, as long as there
//! is such a touch, which evicts frames before they are touched. The second and the third are orders that are possible, so that
//! the true best and worst of the whole recording may lie outside of them.

/// An order of the touches within a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SliceOrder {
    /// As the file has them.
    AsTold,
    /// Those that need no fault now, then the others.
    HitsFirst,
    /// Those that fault now, as often as there are any, then the others.
    FaultsFirst,
}

/// Calls `touch` with each number of a slice once. `faults` says whether a touch would fault now.
pub(super) fn in_order<D, E>(
    order: SliceOrder,
    slice: std::ops::Range<u32>,
    driver: &mut D,
    would_fault: impl Fn(&D, u32) -> bool,
    mut touch: impl FnMut(&mut D, u32) -> Result<(), E>,
) -> Result<(), E> {
    if order == SliceOrder::AsTold {
        return slice.into_iter().try_for_each(|number| touch(driver, number));
    }
    let mut rest: Vec<u32> = slice.collect();
    loop {
        let before = rest.len();
        let mut later = Vec::new();
        for number in rest {
            if would_fault(driver, number) == (order == SliceOrder::FaultsFirst) {
                touch(driver, number)?;
            } else {
                later.push(number);
            }
        }
        rest = later;
        // Once hits are done all others fault, whatever their order.
        if rest.len() == before || order == SliceOrder::HitsFirst {
            break;
        }
    }
    rest.into_iter().try_for_each(|number| touch(driver, number))
}
