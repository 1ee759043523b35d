//! Division of a tier among shards: which shard gives memory to which.
//!
//! Keys spread evenly over shards, but their sizes and request rates need not. One cache with all the memory would evict whatever
//! was used longest ago, wherever its key belongs. Shards that each evict for themselves equal that one cache exactly when the
//! items that leave them were last used equally long ago. So memory moves from the shard where they are oldest to the one where
//! they are youngest, one region at a time, until the ages are about the same. A shard that evicts nothing has memory to spare.
//! What this leaves aside is that misses may cost one shard's clients more than another's.

mod allowance;
mod member;
mod resize;

pub use allowance::{Allowance, LimitChange};
pub use member::{Driven, Member, Shown, TICK_NS, Ticks, Word, shares_of};
pub use resize::Resize;

/// A tier's share in one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its bytes.
    pub capacity_bytes: u64,
    /// How long ago the items that leave it lately were last used, in milliseconds; `None`: none leaves.
    pub tail_age_ms: Option<u64>,
}

/// Memory that is to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The shard that gives.
    pub from: usize,
    /// The one that gets.
    pub to: usize,
    /// The bytes.
    pub bytes: u64,
}

/// When and how much moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Division {
    /// Regions come in multiples of this.
    pub page_bytes: u64,
    /// Regions that an equal share consists of.
    pub regions: u64,
    /// A shard keeps this part of an equal share, whatever its items' age.
    pub least: f64,
    /// Nothing moves while the oldest age is within this factor of the youngest: measured ages vary, and moving costs.
    pub tolerance: f64,
}

impl Default for Division {
    fn default() -> Self {
        Division { page_bytes: crate::ladder::PAGE_BYTES, regions: 32, least: 0.25, tolerance: 1.25 }
    }
}

impl Division {
    /// The next region to move between shards with these shares of a tier, if any is to.
    pub fn next_transfer(&self, shares: &[Share]) -> Option<Transfer> {
        let total: u64 = shares.iter().map(|share| share.capacity_bytes).sum();
        let equal = total / (shares.len() as u64).max(1);
        let bytes = (equal / self.regions / self.page_bytes).max(1) * self.page_bytes;
        let least = (equal as f64 * self.least) as u64;
        let ages = || shares.iter().enumerate();
        let (to, youngest) =
            ages().filter_map(|(at, share)| Some((at, share.tail_age_ms?))).min_by_key(|(_, age)| *age)?;
        let can_give = |share: &Share| share.capacity_bytes >= least + bytes;
        // A shard that evicts nothing comes before any age.
        let oldest = |share: &Share| share.tail_age_ms.unwrap_or(u64::MAX);
        let (from, share) = ages()
            .filter(|(at, share)| *at != to && can_give(share))
            .max_by_key(|(_, share)| (oldest(share), share.capacity_bytes))?;
        let worth_it = oldest(share) as f64 > youngest as f64 * self.tolerance;
        worth_it.then_some(Transfer { from, to, bytes })
    }
}

/// Looks after a move before the next in the same tier: ages are means over what leaves, and follow.
const REST_LOOKS: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    Looks(u8),
    UntilMoved,
}

/// Divides the tiers of a store over time: one move at a time in each, and a rest behind it.
#[derive(Clone, Debug, Default)]
pub struct Divider {
    division: Division,
    /// By tier.
    resting: Vec<Rest>,
}

impl Divider {
    /// Looks at a tier's shares. Returns the memory that is to move now; call [`Self::moved`] when it has.
    pub fn look(&mut self, tier: usize, shares: &[Share]) -> Option<Transfer> {
        if self.resting.len() <= tier {
            self.resting.resize(tier + 1, Rest::Looks(REST_LOOKS));
        }
        match &mut self.resting[tier] {
            Rest::UntilMoved => return None,
            Rest::Looks(0) => {}
            Rest::Looks(looks) => {
                *looks -= 1;
                return None;
            }
        }
        let transfer = self.division.next_transfer(shares)?;
        self.resting[tier] = Rest::UntilMoved;
        Some(transfer)
    }

    /// The memory that was to move in a tier has arrived.
    pub fn moved(&mut self, tier: usize) {
        if let Some(rest) = self.resting.get_mut(tier) {
            *rest = Rest::Looks(REST_LOOKS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = crate::ladder::PAGE_BYTES;

    fn share(pages: u64, tail_age_ms: Option<u64>) -> Share {
        Share { capacity_bytes: pages * PAGE, tail_age_ms }
    }

    #[test]
    fn memory_goes_from_the_oldest_to_the_youngest() {
        let division = Division::default();
        let next =
            |shares: &[Share]| division.next_transfer(shares).map(|it| (it.from, it.to, it.bytes / PAGE));
        assert_eq!(
            next(&[share(320, Some(100)), share(320, Some(900)), share(320, Some(500))]),
            Some((1, 0, 10))
        );
        assert_eq!(next(&[share(320, Some(100)), share(320, Some(900)), share(320, None)]), Some((2, 0, 10)));
        assert_eq!(next(&[share(320, Some(100)), share(320, Some(120))]), None, "about the same");
        assert_eq!(next(&[share(320, None), share(320, None)]), None, "nobody wants");
        assert_eq!(next(&[share(560, Some(1)), share(80, Some(900))]), None, "the rest is its own");
        assert_eq!(next(&[share(1, Some(1)), share(9, Some(900))]), Some((1, 0, 1)), "a page at least");
        assert_eq!(next(&[share(320, Some(5))]), None);
    }

    #[test]
    fn one_region_moves_at_a_time_and_a_rest_follows() {
        let mut divider = Divider::default();
        let shares = [share(320, Some(100)), share(320, Some(900))];
        let moves = |divider: &mut Divider, tier| divider.look(tier, &shares).is_some();
        let looks: Vec<bool> = (0..5).map(|_| moves(&mut divider, 0)).collect();
        assert_eq!(looks, [false, false, true, false, false]);
        assert!(
            !moves(&mut divider, 1) && !moves(&mut divider, 1) && moves(&mut divider, 1),
            "each tier by itself"
        );
        divider.moved(0);
        let looks: Vec<bool> = (0..4).map(|_| moves(&mut divider, 0)).collect();
        assert_eq!(looks, [false, false, true, false]);
    }

    /// Caches of items of equal size that are requested in cycles: the age at which items leave is the room of a shard over the
    /// rate of new ones. Moving on and on makes the ages equal and then rests.
    #[test]
    fn ages_become_equal_and_stay_so() {
        let rates = [10, 30, 60];
        let mut pages = [3200u64; 3];
        let division = Division::default();
        let mut moves = 0;
        loop {
            let shares: Vec<Share> = pages
                .iter()
                .zip(rates)
                .map(|(pages, rate)| share(*pages, Some(pages * 1000 / rate)))
                .collect();
            let Some(transfer) = division.next_transfer(&shares) else { break };
            pages[transfer.from] -= transfer.bytes / PAGE;
            pages[transfer.to] += transfer.bytes / PAGE;
            moves += 1;
            assert!(moves < 100, "it comes to rest: {pages:?}");
        }
        assert_eq!(pages.iter().sum::<u64>(), 9600);
        let ages: Vec<u64> = pages.iter().zip(rates).map(|(pages, rate)| pages * 1000 / rate).collect();
        let (oldest, youngest) = (ages.iter().max().unwrap(), ages.iter().min().unwrap());
        assert!(*oldest as f64 <= *youngest as f64 * 1.25, "{ages:?}");
    }
}
