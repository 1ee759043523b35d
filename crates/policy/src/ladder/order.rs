//! Who goes first in a tier: lists, or samples.
//!
//! *Who must give* and *which slot becomes free* are two questions. The first is asked of a tier ([`Ladder::coldest`]):
//! the list policy answers with the oldest of its lists' tails, the sampling one with K draws among all items of the
//! tier. The second is asked of a class ([`Ladder::victim`]), when a slot of just that class is wanted now.
//!
//! Sampling keeps nothing of its own: the tables of the pages already say who lies in which slot, and the node when it
//! was last used, so a draw is a random slot of a random page, a hit writes the node and nothing else, and the eight
//! bytes of links per item are saved (Wang 2024, sections 2.2.1 and 6.2). An insertion point becomes an initial age: an
//! item that was not used since it came looks older than it is, by the age that the tier's items reach at that point.

use super::slots::Slots;
use super::{Class, Context, Ladder, domain};
use crate::Id;
use crate::column::Column;
use crate::evict::{Departure, Evict, Origin, Touch};
use crate::expiry::ExpiryWheel;
use crate::ladder::place::{self, Place};
use tiermem_base::Rng;

/// Used items that are passed over at once in search of a victim.
const PASSED_OVER: usize = 8;
/// Draws that may meet nobody before a sample is given up.
const REFUSALS_MAX: u32 = 64;
/// The largest count of uses that is kept.
const USES_MAX: u8 = 15;
/// Median ages after which a count of uses is worth half: long enough that counts differ by popularity, and not only by
/// recency over again.
const HALF_LIFE_MEDIANS: u32 = 16;
/// Tier-wide draws between two looks at how many items each class holds.
const WEIGHTS_FOR: u32 = 256;

/// What makes one item go before another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// It was used longer ago.
    #[default]
    Recency,
    /// It was used less often: a count up to 15 that is halved for each median age without a use. A byte per item.
    Frequency,
    /// It expires sooner; those that never expire come last, by recency.
    Expiry,
}

/// The order of eviction in a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// LRU lists with an insertion point, one per class ([`Lru`]).
    #[default]
    Lists,
    /// Of so many items drawn at random the first by priority.
    Sample {
        /// How many.
        k: u8,
        /// Which of them.
        by: Priority,
    },
}

impl std::str::FromStr for Order {
    type Err = String;
    /// Reads `lru`, `klru:5`, `klfu:5` or `kttl:5` (K from 1 to 64; 5 when left out).
    fn from_str(word: &str) -> Result<Self, String> {
        if word == "lru" {
            return Ok(Order::Lists);
        }
        let (name, k) = word.split_once(':').unwrap_or((word, "5"));
        let by = match name {
            "klru" => Priority::Recency,
            "klfu" => Priority::Frequency,
            "kttl" => Priority::Expiry,
            _ => return Err(format!("{word:?} is none of lru, klru:K, klfu:K, kttl:K")),
        };
        match k.parse() {
            Ok(k @ 1..=64) => Ok(Order::Sample { k, by }),
            _ => Err(format!("the K of {word:?} must lie between 1 and 64")),
        }
    }
}

/// The age that a given share of a tier's items has not reached, learnt from the items that are drawn.
///
/// Each draw moves the estimate by a 64th of itself, up or down in such proportion that it rests at the quantile.
#[derive(Clone, Debug)]
pub(super) struct AgeQuantile {
    /// In 1/256 ticks.
    age: u64,
    /// Share of items beyond it, in 1/1024.
    beyond: u64,
}

impl AgeQuantile {
    pub fn new(beyond: f64) -> Self {
        AgeQuantile { age: 0, beyond: ((beyond * 1024.0) as u64).min(1024) }
    }

    #[inline]
    pub fn note(&mut self, age: u32) {
        let step = (self.age >> 6).max(256);
        if u64::from(age) << 8 > self.age {
            self.age += (step * (1024 - self.beyond)) >> 10;
        } else {
            self.age = self.age.saturating_sub((step * self.beyond) >> 10);
        }
    }

    /// In ticks.
    #[inline]
    pub fn age(&self) -> u32 {
        (self.age >> 8) as u32
    }
}

/// What sampling keeps of one tier.
#[derive(Clone, Debug)]
pub(super) struct Sampling {
    /// The age at the tier's insertion point.
    insertion: AgeQuantile,
    /// For frequency: the age after which a count is worth half.
    median: AgeQuantile,
    /// Items of the classes up to each, when last looked at.
    weights: Vec<u32>,
    /// Tier-wide draws until the next look.
    weights_left: u32,
    /// Draws from the whole tier and from one class.
    pub drawn: [u64; 2],
}

impl Sampling {
    pub fn new(insertion_point: f64) -> Self {
        Sampling {
            insertion: AgeQuantile::new(insertion_point),
            median: AgeQuantile::new(0.5),
            weights: Vec::new(),
            weights_left: 0,
            drawn: [0; 2],
        }
    }

    /// Learns from an item that was drawn.
    pub fn note_age(&mut self, age: u32) {
        self.median.note(age);
    }

    /// The age after which a count of uses is worth half, in ticks.
    #[inline]
    pub fn half_life(&self) -> u32 {
        self.median.age().saturating_mul(HALF_LIFE_MEDIANS)
    }

    /// A class, each with the probability of its share of items.
    fn draw_class(&mut self, slots: &Slots, rng: &mut Rng) -> Option<Class> {
        if self.weights_left == 0 {
            self.weights.clear();
            let mut sum = 0;
            self.weights.extend((0..=slots.runs().0).map(|class| {
                sum += slots.by_class().used(Class(class));
                sum
            }));
            self.weights_left = WEIGHTS_FOR.min(sum);
        }
        self.weights_left = self.weights_left.checked_sub(1)?;
        let at = rng.below(u64::from(*self.weights.last()?)) as u32;
        Some(Class(self.weights.partition_point(|&sum| sum <= at) as u8))
    }
}

/// What the priorities beside recency know of items.
#[derive(Clone, Debug, Default)]
pub(super) struct Uses(Option<Column<u8>>);

impl Uses {
    pub fn new(kept: bool) -> Self {
        Uses(kept.then(Column::default))
    }

    pub fn grow_to(&mut self, id: Id) {
        if let Some(column) = &mut self.0 {
            column.grow_to(id);
        }
    }

    pub fn reset(&mut self, id: Id) {
        if let Some(column) = &mut self.0 {
            *column.at(id) = 0;
        }
    }

    /// Counts a use after `age`; half of the count is forgotten for each `half_life`.
    #[inline]
    pub fn count(&mut self, id: Id, age: u32, half_life: u32) {
        if let Some(column) = &mut self.0 {
            let uses = column.at(id);
            *uses = (faded(*uses, age, half_life) + 1).min(USES_MAX);
        }
    }

    fn get(&self, id: Id) -> u8 {
        self.0.as_ref().map_or(0, |column| column.get(id))
    }

    pub fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, Column::bytes)
    }

    pub fn clear(&mut self) {
        *self = Uses::new(self.0.is_some());
    }
}

/// A count of uses that were `age` ago.
fn faded(uses: u8, age: u32, half_life: u32) -> u8 {
    uses.checked_shr(age / half_life.max(1)).unwrap_or(0)
}

/// What a sample reads.
pub(super) struct Known<'a> {
    pub places: &'a Column<Place>,
    pub expiry: &'a ExpiryWheel,
    pub uses: &'a Uses,
    /// The ticks now.
    pub recency: u32,
}

impl Known<'_> {
    /// How soon an item goes: of two, the one with the larger key. One that was not used since it came looks older by
    /// `insertion_age`.
    #[inline]
    pub fn key(&self, id: Id, by: Priority, insertion_age: u32, half_life: u32) -> (u64, u32) {
        let place = self.places.get(id);
        let age = self.recency.wrapping_sub(place.last()) & place::LAST_MASK;
        let looks = if place.is_fresh() { age.saturating_add(insertion_age) } else { age };
        match by {
            Priority::Recency => (0, looks),
            Priority::Frequency => (u64::from(USES_MAX - faded(self.uses.get(id), looks, half_life)), looks),
            Priority::Expiry if place.expires() => (u64::MAX - self.expiry.at_ms(id), looks),
            Priority::Expiry => (0, looks),
        }
    }
}

impl Ladder {
    /// Enters an item in the order of its tier.
    pub(super) fn order_insert(&mut self, id: Id, tier: usize, class: Class, origin: Origin) {
        if self.tenants.is_some() {
            let bytes = self.place_bytes(id);
            self.tenants.as_mut().into_iter().for_each(|tenants| tenants.insert(id, tier, bytes));
        }
        if self.levels[tier].order == Order::Lists {
            self.lists.insert(id, domain(&self.classes, tier, class), origin);
        }
    }

    /// Takes an item out of the order of its tier.
    pub(super) fn order_remove(&mut self, id: Id, tier: usize, class: Class, departure: Departure) {
        if self.tenants.is_some() {
            let bytes = self.place_bytes(id);
            self.tenants.as_mut().into_iter().for_each(|tenants| tenants.remove(id, tier, bytes));
        }
        if self.levels[tier].order == Order::Lists {
            self.lists.remove(id, domain(&self.classes, tier, class), departure);
        }
    }

    /// Notes a use of an item that is not between two places, `age` ticks after the one before.
    #[inline]
    pub(super) fn order_hit(&mut self, id: Id, place: Place, age: u32, touch: Touch) {
        let tier = usize::from(place.tier());
        let level = &self.levels[tier];
        match level.order {
            Order::Lists => {
                let classes = &self.classes;
                self.lists
                    .hit(id, touch, || domain(classes, tier, level.slots.pages().class_at(place.unit())));
            }
            Order::Sample { by: Priority::Frequency, .. } => {
                self.uses.count(id, age, level.sampling.half_life());
            }
            Order::Sample { .. } => {}
        }
    }

    /// The item of this tier and class that should go next.
    pub(super) fn victim(&mut self, tier: usize, class: Class, context: &mut Context<'_>) -> Option<Id> {
        match self.levels[tier].order {
            Order::Sample { .. } if self.tenants.is_some() => self.tenant_victim(tier, Some(class), context),
            Order::Lists => {
                let places = &self.places;
                let may_go = |id: Id| may_go(places.get(id));
                self.lists.victim(
                    domain(&self.classes, tier, class),
                    context.now.requests,
                    context.rng,
                    may_go,
                )
            }
            Order::Sample { k, by } => self.sample(tier, Some(class), k, by, context),
        }
    }

    /// Whether the class's next victim is at hand, or some that were used have to be passed over first: a few are, at once.
    pub(super) fn victim_is_at_hand(&mut self, tier: usize, class: Class) -> bool {
        let places = &self.places;
        let may_go = |id: Id| may_go(places.get(id));
        self.levels[tier].order != Order::Lists
            || self.lists.pass_over(domain(&self.classes, tier, class), PASSED_OVER, may_go)
    }

    /// The item of this tier that should go next, whatever its class. The list policy looks at each list's tail.
    pub(super) fn coldest(&mut self, tier: usize, context: &mut Context<'_>) -> Option<Id> {
        match self.levels[tier].order {
            Order::Sample { .. } if self.tenants.is_some() => self.tenant_victim(tier, None, context),
            Order::Lists => {
                let mut coldest: Option<(u32, Id)> = None;
                // Classes whose last items were used have none of the coldest, unless all are so.
                for at_hand in [true, false] {
                    for class in (0..=self.classes.count()).map(|class| Class(class as u8)) {
                        if self.levels[tier].slots.by_class().used(class) > 0
                            && (!at_hand || self.victim_is_at_hand(tier, class))
                            && let Some(id) = self.victim(tier, class, context)
                            && coldest.is_none_or(|(age, _)| self.age(id, context.now) > age)
                        {
                            coldest = Some((self.age(id, context.now), id));
                        }
                    }
                    if coldest.is_some() {
                        break;
                    }
                }
                coldest.map(|(_, id)| id)
            }
            Order::Sample { k, by } => self.sample(tier, None, k, by, context),
        }
    }

    /// The first of `k` items drawn from a class or, without one, from the tier; each item with the same probability.
    fn sample(
        &mut self,
        tier: usize,
        class: Option<Class>,
        k: u8,
        by: Priority,
        context: &mut Context<'_>,
    ) -> Option<Id> {
        let recency = self.recency(context.now);
        let level = &mut self.levels[tier];
        let (slots, sampling) = (&level.slots, &mut level.sampling);
        let known = Known { places: &self.places, expiry: &self.expiry, uses: &self.uses, recency };
        let mut first: Option<((u64, u32), Id)> = None;
        let (mut drawn, mut refusals) = (0, 0);
        while drawn < k && refusals < REFUSALS_MAX {
            let from = class.or_else(|| sampling.draw_class(slots, context.rng));
            let found = from
                .and_then(|class| slots.draw(class, context.rng))
                .filter(|&id| may_go(self.places.get(id)));
            let Some(id) = found else {
                refusals += 1;
                continue;
            };
            drawn += 1;
            let age = recency.wrapping_sub(self.places.get(id).last()) & place::LAST_MASK;
            sampling.insertion.note(age);
            if by == Priority::Frequency {
                sampling.note_age(age);
            }
            let key = known.key(id, by, sampling.insertion.age(), sampling.half_life());
            if first.is_none_or(|(first, _)| key > first) {
                first = Some((key, id));
            }
        }
        sampling.drawn[usize::from(class.is_some())] += u64::from(drawn);
        // Where few slots are taken, draws may all miss: somebody nearby will do.
        first.map(|(_, id)| id).or_else(|| {
            let mut near = |class| slots.any_of(class, context.rng, |id| may_go(self.places.get(id)));
            match class {
                Some(class) => near(class),
                None => (0..=slots.runs().0).map(Class).find_map(near),
            }
        })
    }

    /// Classes of a tier that hold something, with their next victim and its age, coldest first.
    pub(super) fn donors(&mut self, tier: usize, context: &mut Context<'_>) -> Vec<(u32, Class, Id)> {
        if self.tenants.is_some() {
            return self.tenant_donors(tier, context);
        }
        let mut donors = Vec::new();
        for class in (0..=self.classes.count()).map(|class| Class(class as u8)) {
            if self.levels[tier].slots.by_class().used(class) > 0
                && let Some(id) = self.victim(tier, class, context)
            {
                donors.push((self.age(id, context.now), class, id));
            }
        }
        donors.sort_by_key(|&(age, class, _)| (std::cmp::Reverse(age), class));
        donors
    }
}

#[inline]
pub(super) fn may_go(place: Place) -> bool {
    !place.is_moving() && !place.is_pinned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_orders() {
        assert_eq!("lru".parse(), Ok(Order::Lists));
        assert_eq!("klru".parse(), Ok(Order::Sample { k: 5, by: Priority::Recency }));
        assert_eq!("klfu:16".parse(), Ok(Order::Sample { k: 16, by: Priority::Frequency }));
        for wrong in ["klru:0", "klru:65", "klru:x", "mru", "lru:5"] {
            assert!(wrong.parse::<Order>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_quantile_of_ages_is_learnt() {
        let mut rng = Rng::seeded(3);
        let mut quarter = AgeQuantile::new(0.25);
        for _ in 0..20_000 {
            quarter.note(rng.below(10_000) as u32);
        }
        assert!((7000..8000).contains(&quarter.age()), "{}", quarter.age());
        assert_eq!(AgeQuantile::new(1.0).age(), 0);
        let mut head = AgeQuantile::new(1.0);
        (0..1000).for_each(|age| head.note(age));
        assert_eq!(head.age(), 0, "items that enter at the head look as young as they are");
    }
}
