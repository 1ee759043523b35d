//! Eviction order of one tier: lists, samples, or a policy of [`crate::evict`].
//!
//! There are two questions: *which item of the tier must leave*, and *which slot of a class becomes free*. The first is asked of
//! a tier ([`super::victims::Orders::coldest`]): lists answer with the oldest of their tails, samples with K draws among all
//! items of the tier. The second is asked of a class ([`super::victims::Orders::victim`]), when a slot of just that class is
//! wanted now.
//!
//! Sampling keeps no state of its own: the tables of the pages already say which item lies in which slot, and the node when it
//! was last used. So a draw is a random slot of a random page, a hit writes the node and nothing else, and the eight bytes of
//! links per item are saved (Wang 2024, sections 2.2.1 and 6.2). An insertion point becomes an initial age: an item that was not
//! used since it came looks older than it is, by the age that the tier's items reach at that point.
//!
//! Any other policy of [`crate::evict`] can order the tiers ([`Order::Policy`]). It answers the second question class by class.
//! It has no answer of its own to the first, since the orders of two classes cannot be compared: of the classes' victims the
//! least recently used one is evicted. The node has no bit to spare, so a policy keeps its links, queues and ghosts in tables of
//! its own. Counted with nodes and tables of pages, for items of 200 bytes, none used again: 21 bytes an item with lists, FIFO,
//! CLOCK and SIEVE (one link forth and one back), 13 with samples, 30 with SLRU and ARC, which tell segments apart, 42 with 2Q
//! and 56 with S3-FIFO, which remember as many evicted keys. Tables of ghosts double in one piece, so metadata may exceed the
//! room kept free for it until the next steps have taken pages back.

use super::Class;
use super::item_record::Place;
use super::item_table::Nodes;
use super::slots::Slots;
use crate::Id;
use crate::column::Column;
use crate::evict::Named;
use tiermem_base::Rng;

/// Draws that may find no item before a sample is given up.
const REFUSALS_MAX: u32 = 64;
/// The largest count of uses that is kept.
const USES_MAX: u8 = 15;
/// Median ages after which a count of uses is worth half: long enough that counts differ by popularity, and not only by
/// recency over again.
const HALF_LIFE_MEDIANS: u32 = 16;
/// Tier-wide draws between two looks at how many items each class holds.
const WEIGHTS_FOR: u32 = 256;

/// The priority by which one item is evicted before another.
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
    /// The first by priority of `k` items drawn at random.
    Sample {
        /// The number of items drawn.
        k: u8,
        /// The priority by which one of them is evicted.
        by: Priority,
    },
    /// The order of an eviction policy of [`crate::evict`], one per class. All tiers have the same one, because a policy knows an
    /// item from its admission on, and keeps what it knows when the item moves. It keeps that in tables of its own, 8 to 32 bytes
    /// an item, which are charged to tier 0 like all metadata.
    Policy(Named),
}

impl std::str::FromStr for Order {
    type Err = String;
    /// Reads `lru`, `klru:5`, `klfu:5` or `kttl:5` (K from 1 to 64; 5 when left out), or the name of a [policy](Named).
    fn from_str(word: &str) -> Result<Self, String> {
        if word == "lru" {
            return Ok(Order::Lists);
        }
        let (name, k) = word.split_once(':').unwrap_or((word, "5"));
        let by = match name {
            "klru" => Priority::Recency,
            "klfu" => Priority::Frequency,
            "kttl" => Priority::Expiry,
            _ => {
                let none = |problem| format!("{word:?} is none of lru, klru:K, klfu:K, kttl:K; {problem}");
                return word.parse().map(Order::Policy).map_err(none);
            }
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

/// The state of sampling in one tier.
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
}

impl Sampling {
    pub fn new(insertion_point: f64) -> Self {
        Sampling {
            insertion: AgeQuantile::new(insertion_point),
            median: AgeQuantile::new(0.5),
            weights: Vec::new(),
            weights_left: 0,
        }
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
            self.weights.extend((0..=slots.by_class().runs().0).map(|class| {
                sum += slots.by_class().class_use(Class(class)).items;
                sum
            }));
            self.weights_left = WEIGHTS_FOR.min(sum);
        }
        self.weights_left = self.weights_left.checked_sub(1)?;
        let at = rng.below(u64::from(*self.weights.last()?)) as u32;
        Some(Class(self.weights.partition_point(|&sum| sum <= at) as u8))
    }
}

/// The counts of uses, for the priorities that need more than recency.
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

/// A sample being drawn from a tier: its sources, and the statistics that learn from it.
#[derive(Debug)]
pub(super) struct Draw<'a> {
    pub nodes: &'a Nodes,
    pub slots: &'a Slots,
    pub uses: &'a Uses,
    pub sampling: &'a mut Sampling,
    /// How many items.
    pub k: u8,
    /// The priority by which one of them is evicted.
    pub by: Priority,
    /// The ticks now.
    pub recency: u32,
}

impl Draw<'_> {
    /// The node of an item that may go.
    #[inline]
    pub fn may_go(&self, id: Id) -> Option<Place> {
        Some(self.nodes.get(id)).filter(|place| place.may_go())
    }

    /// The first of K items drawn from a class or, without one, from the tier; each item with the same probability.
    pub fn first(&mut self, class: Option<Class>, rng: &mut Rng) -> Option<Id> {
        let mut first = First::default();
        let (mut drawn, mut refusals) = (0, 0);
        while drawn < self.k && refusals < REFUSALS_MAX {
            let from = class.or_else(|| self.sampling.draw_class(self.slots, rng));
            let found = from.and_then(|class| self.slots.by_class().draw(class, self.slots.pages(), rng));
            let Some((id, place)) = found.and_then(|id| Some((id, self.may_go(id)?))) else {
                refusals += 1;
                continue;
            };
            drawn += 1;
            let age = place.age(self.recency);
            self.sampling.insertion.note(age);
            self.note_age(age);
            let insertion_age = self.sampling.insertion.age();
            first.meet(id, self.key(id, place, insertion_age));
        }
        // Where few slots are taken, all draws may miss: an item nearby will do.
        first.id().or_else(|| {
            let (by_class, pages) = (self.slots.by_class(), self.slots.pages());
            let mut near = |class| by_class.any_of(class, pages, rng, |id| self.nodes.get(id).may_go());
            match class {
                Some(class) => near(class),
                None => (0..=by_class.runs().0).map(Class).find_map(near),
            }
        })
    }

    /// Learns from an item that was drawn, where counts of uses are kept.
    #[inline]
    pub fn note_age(&mut self, age: u32) {
        if self.by == Priority::Frequency {
            self.sampling.median.note(age);
        }
    }

    /// The order of eviction: of two items, the one with the larger key is evicted first. One that was not used since it came
    /// looks older by `insertion_age`.
    #[inline]
    pub fn key(&self, id: Id, place: Place, insertion_age: u32) -> (u64, u32) {
        let age = place.age(self.recency);
        let looks = if place.is_fresh() { age.saturating_add(insertion_age) } else { age };
        match self.by {
            Priority::Recency => (0, looks),
            Priority::Frequency => {
                let uses = faded(self.uses.get(id), looks, self.sampling.half_life());
                (u64::from(USES_MAX - uses), looks)
            }
            Priority::Expiry => (self.nodes.expires_at_ms(id).map_or(0, |at_ms| u64::MAX - at_ms), looks),
        }
    }
}

/// The victim among the items drawn: the first by priority, and of equals the one that was drawn first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct First(Option<((u64, u32), Id)>);

impl First {
    /// Another one was drawn.
    #[inline]
    pub fn meet(&mut self, id: Id, key: (u64, u32)) {
        if self.0.is_none_or(|(first, _)| key > first) {
            self.0 = Some((key, id));
        }
    }

    /// The first, if any was drawn.
    pub fn id(self) -> Option<Id> {
        self.0.map(|(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_orders() {
        assert_eq!("lru".parse(), Ok(Order::Lists));
        assert_eq!("klru".parse(), Ok(Order::Sample { k: 5, by: Priority::Recency }));
        assert_eq!("klfu:16".parse(), Ok(Order::Sample { k: 16, by: Priority::Frequency }));
        assert_eq!("s3-fifo".parse(), Ok(Order::Policy(Named::S3Fifo)));
        let problem = "belady".parse::<Order>().unwrap_err();
        assert!(problem.contains("kttl:K") && problem.contains("s3-fifo"), "{problem}");
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
