//! Space that is kept free in the background: a tier that falls below the low watermark, or a class of it, gives items away until
//! the high one is reached (Wang 2024, section 5.1.3).

use super::Context;
use super::classes::Class;
use super::giving::Giving;
use super::rebalance::Exchange;
use super::reclaim::Reclaim;
use super::transit::Transit;

/// Items given away from the coldest class before the coldest is looked for again.
const PRESSED_BATCH: u32 = 8;
/// How often in a row used items are passed over in vain before a class's last item goes all the same.
const PASSES_MAX: u8 = 8;
/// Pages of a tier taken back in one step when it is above its limit.
const RECLAIM_BATCH: u32 = 4;
/// Once so many acts are decided no further page is taken back in this step.
const ACTS_MAX: usize = 512;

/// How far the relief of one tier has come.
#[derive(Clone, Copy, Debug, Default)]
struct Tier {
    /// It fell below the low watermark as a whole, and has not reached the high one.
    pressed: bool,
    /// The class that then gives next, and how many items.
    coldest_class: Option<(Class, u32)>,
    /// How often in a row used items of short classes were passed over and nobody was found.
    passes: u8,
}

/// The relief of all tiers.
#[derive(Clone, Debug)]
pub(super) struct Relief {
    tiers: Vec<Tier>,
}

impl Relief {
    pub fn new(tiers: usize) -> Self {
        Relief { tiers: vec![Tier::default(); tiers] }
    }

    /// There are no items any more.
    pub fn clear(&mut self) {
        self.tiers.fill(Tier::default());
    }

    /// Takes back pages above the limit: metadata has grown into the tier, or the tier was made smaller.
    #[inline]
    pub fn keep_within_limit(tier: usize, transit: &mut Transit, context: &mut Context<'_>) {
        for _ in 0..RECLAIM_BATCH {
            if context.acts.len() >= ACTS_MAX {
                break;
            }
            let supply = transit.residents.levels[tier].slots.supply();
            let is_enough = supply.used() <= supply.limit();
            let reclaim = Reclaim::in_background(tier, transit);
            if !reclaim.behind_end(transit, context)
                && (is_enough || !Relief::reclaim_or_force(tier, transit, context))
            {
                break;
            }
        }
    }

    /// Takes a page back, from whomever it is where nobody else has one to give.
    fn reclaim_or_force(tier: usize, transit: &mut Transit, context: &mut Context<'_>) -> bool {
        let reclaim = Reclaim::in_background(tier, transit);
        reclaim.pages(1, transit, context)
            || transit.residents.tenants().is_some() && reclaim.pages(1, transit, &mut context.forced())
    }

    /// Brings a tier from the low to the high watermark: class by class, then as a whole; `budget` items at most. Whether it has
    /// to go on in the next step.
    #[inline]
    pub fn relieve(
        &mut self,
        tier: usize,
        budget: u32,
        exchange: &mut Exchange,
        giving: &mut Giving<'_>,
        context: &mut Context<'_>,
    ) -> bool {
        let Some(marks) = giving.transit.residents.config.watermarks else { return false };
        let is_last = tier + 1 == giving.transit.residents.levels.len();
        if is_last && !giving.transit.may_evict() {
            return false;
        }
        let budget = self.relieve_classes(tier, budget, marks.high, exchange, giving, context);
        let capacity_bytes = giving.transit.residents.levels[tier].usable_bytes() as f64;
        let free = |giving: &Giving<'_>| giving.transit.residents.levels[tier].will_be_free_bytes();
        if free(giving) < (capacity_bytes * marks.low) as u64 {
            self.tiers[tier].pressed = true;
        }
        self.relieve_tier(tier, budget, (capacity_bytes * marks.high) as u64, giving, context);
        self.tiers[tier].pressed || giving.transit.residents.levels[tier].short() != 0
    }

    /// Has classes that are short give items of theirs, unless a page comes to them; what is left of the budget.
    fn relieve_classes(
        &mut self,
        tier: usize,
        mut budget: u32,
        high: f64,
        exchange: &mut Exchange,
        giving: &mut Giving<'_>,
        context: &mut Context<'_>,
    ) -> u32 {
        let mut short = giving.transit.residents.levels[tier].short();
        while short != 0 && budget > 0 {
            let class = Class(short.trailing_zeros() as u8);
            let bit = 1 << class.index();
            let transit = &mut *giving.transit;
            let passes = &mut self.tiers[tier].passes;
            if transit.residents.levels[tier].will_be_enough(class, high)
                || exchange.page_comes(tier, class, &mut transit.residents, context)
            {
                short &= !bit;
                transit.residents.levels[tier].settle_short(class);
            } else if *passes < PASSES_MAX
                && !transit.residents.orders.is_at_hand(tier, class, &transit.residents.nodes)
            {
                // Next step.
                *passes += 1;
                short &= !bit;
            } else if giving.one_of(tier, class, context) {
                *passes = 0;
                budget -= 1;
            } else {
                short &= !bit;
                giving.transit.residents.levels[tier].settle_short(class);
            }
        }
        budget
    }

    /// Has a tier that is pressed give its coldest items until so many bytes are free.
    fn relieve_tier(
        &mut self,
        tier: usize,
        mut budget: u32,
        enough_bytes: u64,
        giving: &mut Giving<'_>,
        context: &mut Context<'_>,
    ) {
        while self.tiers[tier].pressed && budget > 0 {
            let transit = &mut *giving.transit;
            if let Some((class, left)) = self.tiers[tier].coldest_class
                && !transit.residents.orders.is_at_hand(tier, class, &transit.residents.nodes)
            {
                self.tiers[tier].coldest_class = (left > 1).then_some((class, left - 1));
                break;
            }
            let gave = self.give_coldest(tier, giving, context);
            budget -= u32::from(gave);
            if !gave || giving.transit.residents.levels[tier].will_be_free_bytes() >= enough_bytes {
                self.tiers[tier].pressed = false;
                self.tiers[tier].coldest_class = None;
            }
        }
    }

    /// Moves the tier's coldest item down or out. With lists that means to look at all of them, so several are taken from
    /// the coldest one, over as many steps as it takes, before it is looked for again.
    fn give_coldest(&mut self, tier: usize, giving: &mut Giving<'_>, context: &mut Context<'_>) -> bool {
        if let Some((class, left)) = self.tiers[tier].coldest_class.take()
            && giving.one_of(tier, class, context)
        {
            self.tiers[tier].coldest_class = (left > 1).then_some((class, left - 1));
            return true;
        }
        let transit = &mut *giving.transit;
        let Some(id) = transit.residents.coldest(tier, context) else { return false };
        let class =
            transit.residents.levels[tier].slots.pages().class_at(transit.residents.nodes.loc(id).unit);
        let has_order_by_class = transit.residents.orders.has_order_by_class(tier);
        let gave = giving.item(tier, class, id, context);
        if gave && has_order_by_class {
            self.tiers[tier].coldest_class = Some((class, PRESSED_BATCH - 1));
        }
        gave
    }
}
