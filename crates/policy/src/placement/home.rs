//! Homes: the tier of memory in which a granule is placed when it is first touched.

use super::follower::Tier;

/// The state of a granule before it was touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Granule {
    /// The plan has it in fast memory all the time.
    is_named: bool,
    /// Where it is to come to lie, once it is mapped and that was decided on.
    home: Option<Tier>,
    /// It lies somewhere.
    is_there: bool,
}

impl Granule {
    /// It takes room in fast memory when it is touched, and that room may not be given to another granule meanwhile.
    fn holds_room(&self) -> bool {
        !self.is_named && !self.is_there && self.home == Some(Tier::Fast)
    }

    /// The plan wants room for it that it does not take yet.
    fn is_awaited(&self) -> bool {
        self.is_named && !self.is_there
    }
}

/// The homes of all granules.
#[derive(Clone, Debug)]
pub(super) struct Homes {
    granules: Vec<Granule>,
    /// Granules that the plan names and that lie nowhere yet.
    awaited: u32,
    /// Granules that it does not name, and that will take fast memory when they are touched.
    promised: u32,
}

impl Homes {
    /// Homes of `granules` granules, of which the plan has the `named` ones in fast memory all the time. Names of granules that
    /// do not exist are ignored.
    pub fn new(granules: u32, named: impl IntoIterator<Item = u32>) -> Self {
        let mut homes =
            Homes { granules: vec![Granule::default(); granules as usize], awaited: 0, promised: 0 };
        for granule in named {
            homes.change(granule, |it| it.is_named = true);
        }
        homes
    }

    /// The home of a granule that is first touched while `fast_left` granules of fast memory are free. A granule that the plan
    /// names goes to fast memory while there is any; another one goes there too, while there is room that the plan does not want
    /// for named ones. Unused fast memory is wasted, and granules that turn out to be cold make room when it is needed.
    pub fn home(&self, granule: u32, fast_left: u32) -> Tier {
        let kept = if self.is_named(granule) { 0 } else { self.awaited };
        if fast_left > kept { Tier::Fast } else { Tier::Slow }
    }

    /// Whether the plan has it in fast memory all the time.
    pub fn is_named(&self, granule: u32) -> bool {
        self.granules.get(granule as usize).is_some_and(|it| it.is_named)
    }

    /// The home that was decided on when the granule was mapped.
    pub fn decided(&self, granule: u32) -> Option<Tier> {
        self.granules.get(granule as usize)?.home
    }

    /// Granules of fast memory that are promised to granules that the plan does not name.
    pub fn promised(&self) -> u32 {
        self.promised
    }

    /// Notes the decided home of a granule.
    pub fn decide(&mut self, granule: u32, home: Tier) {
        self.change(granule, |it| it.home = Some(home));
    }

    /// A granule lies somewhere now, or no longer.
    pub fn there(&mut self, granule: u32, is_there: bool) {
        self.change(granule, |it| it.is_there = is_there);
    }

    /// A granule is no longer mapped.
    pub fn unmapped(&mut self, granule: u32) {
        self.change(granule, |it| (it.home, it.is_there) = (None, false));
    }

    fn change(&mut self, granule: u32, change: impl FnOnce(&mut Granule)) {
        let Some(it) = self.granules.get_mut(granule as usize) else { return };
        let before = *it;
        change(it);
        self.awaited = self.awaited + u32::from(it.is_awaited()) - u32::from(before.is_awaited());
        self.promised = self.promised + u32::from(it.holds_room()) - u32::from(before.holds_room());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_has_fast_memory_while_there_is_room_that_nobody_waits_for() {
        let mut homes = Homes::new(10, [3, 4, 4, 99]);
        assert_eq!((homes.home(3, 1), homes.home(3, 0)), (Tier::Fast, Tier::Slow));
        assert_eq!((homes.home(0, 3), homes.home(0, 2)), (Tier::Fast, Tier::Slow));
        homes.there(3, true);
        assert_eq!((homes.home(0, 2), homes.home(0, 1)), (Tier::Fast, Tier::Slow));
        // A granule that was unmapped is waited for again.
        homes.unmapped(3);
        assert_eq!(homes.home(0, 2), Tier::Slow);
        assert_eq!((homes.home(99, 3), homes.decided(99)), (Tier::Fast, None));
    }

    #[test]
    fn room_is_promised_until_it_is_taken() {
        let mut homes = Homes::new(4, [3]);
        homes.decide(0, Tier::Fast);
        homes.decide(1, Tier::Slow);
        homes.decide(3, Tier::Fast);
        assert_eq!(
            (homes.promised(), homes.decided(0), homes.decided(1)),
            (1, Some(Tier::Fast), Some(Tier::Slow))
        );
        homes.there(0, true);
        assert_eq!(homes.promised(), 0);
        homes.there(0, false);
        assert_eq!(homes.promised(), 1);
        homes.unmapped(0);
        assert_eq!((homes.promised(), homes.decided(0)), (0, None));
    }
}
