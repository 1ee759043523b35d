//! Pairing of a cache with the store of a volume: whether what the cache has of the volume is of the store that a start finds.
//!
//! Both sides keep a [`Mark`]: the cache and a *generation*, drawn anew by each start that may write. In the store it is a part of a
//! [`Label`], which also says whether the store may lack what only the cache has. A start goes in steps, each durable before the next:
//!
//! 1. [`judge`] compares what is there. A start that is refused has changed nothing.
//! 2. The log notes the new mark *beside* what the store's label is at that moment ([`Marks::beginning`]).
//! 3. The store gets its new label.
//! 4. The log notes the new mark alone ([`Marks::confirmed`]). Only now a client is served, and the store written.
//!
//! A stop that leaves nothing dirty writes the label anew, without "may lack", and then notes in the log how the store stands. A volume
//! that is set to write-back while it is served gets "may lack" before its first dirty byte.
//!
//! So the store's label is always one that the log names: before step 3 the one that was there, after it the new one; a crash between
//! any two steps leaves a pair that the next start takes. And whoever else writes the store gives it another mark first, which no log
//! but its own names. What is refused, and what is only forgotten, follows from one rule: nothing that a client was promised may be lost
//! or be written into another store without the operator's word, and nothing else needs it.

use std::fmt;
use std::str::FromStr;

/// Which cache wrote a store last, and in which generation. Unique: a part of the generation is random, so that two copies of a cache
/// that both go on differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The cache.
    pub cache: u128,
    /// The generation: above 32 bits of chance, a number that grows with each start.
    pub generation: u64,
}

impl Mark {
    /// That of a start of `cache` behind these, by a drawn number.
    pub fn next(cache: u128, before: impl Iterator<Item = Mark>, drawn: u64) -> Self {
        let last = before.map(|mark| mark.generation >> 32).max().unwrap_or(0);
        Mark { cache, generation: (last + 1) << 32 | drawn & 0xffff_ffff }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, drawn) = (self.generation >> 32, self.generation & 0xffff_ffff);
        write!(out, "cache {:032x}, generation {number}-{drawn:08x}", self.cache)
    }
}

/// What a store keeps of the cache that wrote it last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The cache.
    pub mark: Mark,
    /// Whether the cache may have what the store lacks.
    pub may_lack: bool,
}

/// How a label's text begins.
const LABEL: &str = "tiermem-label 1";

impl fmt::Display for Label {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Label { mark: Mark { cache, generation }, may_lack } = self;
        let lacks = if *may_lack { "may-lack" } else { "whole" };
        write!(out, "{LABEL} {cache:032x} {generation:016x} {lacks}")
    }
}

impl FromStr for Label {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let words: Vec<&str> = text.trim().strip_prefix(LABEL).ok_or(())?.split_ascii_whitespace().collect();
        let [cache, generation, lacks] = words[..] else { return Err(()) };
        let cache = u128::from_str_radix(cache, 16).map_err(drop)?;
        let generation = u64::from_str_radix(generation, 16).map_err(drop)?;
        let may_lack = match lacks {
            "may-lack" => true,
            "whole" => false,
            _ => return Err(()),
        };
        Ok(Label { mark: Mark { cache, generation }, may_lack })
    }
}

/// What the store's side says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreSays {
    /// It can keep no label, and nothing is known of it elsewhere.
    Unknown,
    /// That no cache ever wrote it.
    Nothing,
    /// A cache did.
    Label(Label),
    /// Something that cannot be read.
    Unreadable,
}

impl StoreSays {
    /// The mark of its label.
    pub fn mark(&self) -> Option<Mark> {
        match self {
            StoreSays::Label(label) => Some(label.mark),
            _ => None,
        }
    }
}

/// What the cache's log says of a volume's store: which labels may be there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// That of the last start that may have written the store.
    pub own: Option<Mark>,
    /// The one that was there before, or none: as long as the store may not have the new one yet.
    pub before: Option<Option<Mark>>,
}

impl Marks {
    /// Of a start that is about to give the store a label.
    pub fn beginning(own: Mark, found: StoreSays) -> Self {
        Marks { own: Some(own), before: Some(found.mark()) }
    }

    /// Of a start whose label the store has.
    pub fn confirmed(own: Mark) -> Self {
        Marks { own: Some(own), before: None }
    }

    /// Of a start that will not write the store.
    pub fn seen(found: StoreSays) -> Self {
        Marks { own: None, before: Some(found.mark()) }
    }

    fn name(&self, found: StoreSays) -> bool {
        match found {
            StoreSays::Unknown => true,
            StoreSays::Unreadable => false,
            StoreSays::Nothing => self.before == Some(None),
            StoreSays::Label(Label { mark, .. }) => self.own == Some(mark) || self.before == Some(Some(mark)),
        }
    }
}

/// What the cache says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheSays {
    /// It does not know the volume.
    Nothing,
    /// It was written by a version that kept no marks.
    Unmarked,
    /// Which labels may be there.
    Marks(Marks),
}

/// What the operator has accepted for a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accepted {
    /// Nothing: a pair that does not fit is refused.
    #[default]
    Nothing,
    /// The store is the right one, as it is: what is dirty is written to it.
    Store,
    /// What only a cache has is lost.
    Loss,
}

/// What a start finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The cache's side.
    pub cache: CacheSays,
    /// The store's side.
    pub store: StoreSays,
    /// Whether size, identity and version of the store are what the cache knows, as far as either side knows them.
    pub is_same: bool,
    /// Whether the cache has what the store lacks, or lost it.
    pub is_dirty: bool,
    /// Whether some of that lies beyond the store's end.
    pub is_beyond: bool,
    /// Whether the store's mark is this cache's, of a volume of another name: what that has dirty is asked for by that name.
    pub is_renamed: bool,
    /// The cache that the operator has just had overwritten.
    pub discarded: Option<u128>,
    /// Whether the store is about to be written. One that is only read may be served as it is: another cache may have more, and keeps it.
    pub writes: bool,
    /// What the operator says.
    pub accepted: Accepted,
}

/// What stays cached of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All.
    All,
    /// What is dirty.
    Dirty,
    /// Nothing.
    Nothing,
}

/// Why a start is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The cache has dirty data of another store, or of another state of it. The operator may accept either.
    Dirty,
    /// The same, and some of the data lies beyond the store's end, where it cannot be written: only loss can be accepted.
    Beyond,
    /// The store may lack what only another cache has, or another state of this one. Only loss can be accepted.
    Lacks,
}

/// What a start keeps of a volume.
///
/// # Errors
/// When something would be lost, or be written into another store.
pub fn judge(found: &Found) -> Result<Kept, Refusal> {
    let Found { cache, store, is_same, is_dirty, is_beyond, is_renamed, discarded, writes, accepted } =
        *found;
    let is_paired = match cache {
        CacheSays::Nothing => is_renamed || matches!(store, StoreSays::Unknown | StoreSays::Nothing),
        CacheSays::Unmarked => matches!(store, StoreSays::Unknown | StoreSays::Nothing),
        CacheSays::Marks(marks) => marks.name(store),
    };
    if is_paired && is_same {
        return Ok(Kept::All);
    }
    let lacks = match store {
        StoreSays::Label(Label { mark, may_lack }) => may_lack && discarded != Some(mark.cache),
        StoreSays::Unreadable => true,
        StoreSays::Unknown | StoreSays::Nothing => false,
    };
    match accepted {
        Accepted::Loss => Ok(Kept::Nothing),
        Accepted::Store if is_dirty && !is_beyond => Ok(Kept::Dirty),
        _ if is_dirty => Err(if is_beyond { Refusal::Beyond } else { Refusal::Dirty }),
        _ if lacks && writes && !is_paired => Err(Refusal::Lacks),
        _ => Ok(Kept::Nothing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mark(number: u64) -> Mark {
        Mark { cache: u128::from(number % 3), generation: number }
    }

    #[test]
    fn a_label_is_its_text() {
        for (number, may_lack) in [(7, true), (u64::MAX, false)] {
            let label = Label { mark: mark(number), may_lack };
            assert_eq!(label.to_string().parse(), Ok(label));
            let text = label.to_string();
            for at in 0..text.len() - 4 {
                assert_ne!(text[..at].parse(), Ok(label), "{at}");
            }
        }
        for wrong in
            ["", "tiermem-label 2 0 0 whole", "tiermem-label 1 0 0 maybe", "tiermem-label 1 0 0 whole more"]
        {
            assert_eq!(wrong.parse::<Label>(), Err(()), "{wrong}");
        }
    }

    #[test]
    fn generations_grow_and_differ_where_two_copies_go_on() {
        let first = Mark::next(5, std::iter::empty(), 0xabc);
        let [one, two] = [1, 2].map(|drawn| Mark::next(5, [first].into_iter(), drawn));
        assert!(one.generation >> 32 > first.generation >> 32 && one != two);
        assert_eq!(one.to_string(), format!("cache {:032x}, generation 2-00000001", 5));
    }

    /// A cache's log, as a start finds it. Writes are counted: the last one that cache and store together have is the volume's state.
    #[derive(Clone, Copy, Debug)]
    struct Cache {
        id: u128,
        says: CacheSays,
        /// The store that it says is its own.
        which: u64,
        has: u64,
        is_dirty: bool,
    }

    #[derive(Clone, Copy, Debug)]
    struct Store {
        which: u64,
        says: StoreSays,
        has: u64,
    }

    /// What happens to a cache and a store, one after the other.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        /// A start that dies behind so many steps (the fourth is a write, the fifth and sixth those of a stop in order).
        Start {
            steps: u8,
            write_back: bool,
        },
        /// The cache's file is absent: the next start makes a new one.
        LoseCache,
        /// The cache, or the store, is what it was at an earlier time; a copy of the store is another file.
        RestoreCache(usize),
        RestoreStore(usize, bool),
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let start =
            (0u8..7, any::<bool>()).prop_map(|(steps, write_back)| Event::Start { steps, write_back });
        let event = prop_oneof![
            6 => start,
            1 => Just(Event::LoseCache),
            1 => (0usize..8).prop_map(Event::RestoreCache),
            1 => (0usize..8, any::<bool>()).prop_map(|(at, copied)| Event::RestoreStore(at, copied)),
        ];
        proptest::collection::vec(event, 1..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// As long as nobody touches either side no crash refuses a start, and nothing cached is forgotten. Whatever becomes of the
        /// cache: what a start takes without the operator's word is what the last client was promised, and what it keeps of the cache
        /// is of that state.
        #[test]
        fn right_starts_are_taken_and_wrong_ones_lose_nothing(events in events(), seed in any::<u64>()) {
            let mut rng = tiermem_base::Rng::seeded(seed);
            let mut cache = Cache { id: 1, says: CacheSays::Nothing, which: 1, has: 0, is_dirty: false };
            let mut store = Store { which: 1, says: StoreSays::Nothing, has: 0 };
            let (mut past, mut promised) = (vec![(cache, store)], 0);
            let (mut is_cache_touched, mut is_store_touched) = (false, false);
            for (number, event) in events.into_iter().enumerate() {
                let (steps, write_back) = match event {
                    Event::Start { steps, write_back } => (steps, write_back),
                    Event::LoseCache => {
                        let id = 100 + number as u128;
                        cache = Cache { id, says: CacheSays::Nothing, which: 1, has: 0, is_dirty: false };
                        is_cache_touched = true;
                        continue;
                    }
                    Event::RestoreCache(at) => {
                        (cache, is_cache_touched) = (past[at % past.len()].0, true);
                        continue;
                    }
                    Event::RestoreStore(at, is_copy) => {
                        let which = if is_copy { 100 + number as u64 } else { store.which };
                        (store, is_store_touched) = (Store { which, ..past[at % past.len()].1 }, true);
                        continue;
                    }
                };
                let kept = judge(&Found {
                    cache: cache.says,
                    store: store.says,
                    is_same: cache.says == CacheSays::Nothing || cache.which == store.which,
                    is_dirty: cache.is_dirty,
                    is_beyond: false,
                    is_renamed: false,
                    discarded: None,
                    writes: true,
                    accepted: Accepted::Nothing,
                });
                if !is_cache_touched && !is_store_touched {
                    prop_assert_eq!(kept, Ok(Kept::All), "{:?} {:?}", cache, store);
                }
                // The operator is asked, which ends this story.
                let Ok(kept) = kept else { break };
                let own = Mark::next(cache.id, store.says.mark().into_iter(), rng.next_u64());
                if steps >= 1 {
                    if kept == Kept::Nothing || cache.says == CacheSays::Nothing {
                        prop_assert!(!cache.is_dirty);
                        cache.has = store.has;
                    }
                    // A store that somebody put back is his word for the volume's state. Else nothing is missing, and nothing stale is kept.
                    if !is_store_touched {
                        prop_assert_eq!(cache.has, promised, "{:?} {:?}", cache, store);
                        prop_assert!(cache.is_dirty || store.has == promised, "{:?} {:?}", cache, store);
                    }
                    (promised, is_cache_touched, is_store_touched) = (cache.has, false, false);
                    cache.which = store.which;
                    cache.says = CacheSays::Marks(Marks::beginning(own, store.says));
                }
                if steps >= 2 {
                    store.says = StoreSays::Label(Label { mark: own, may_lack: write_back || cache.is_dirty });
                }
                if steps >= 3 {
                    cache.says = CacheSays::Marks(Marks::confirmed(own));
                }
                if steps >= 4 {
                    promised = 1 + number as u64;
                    cache.has = promised;
                    cache.is_dirty |= write_back;
                    if !cache.is_dirty {
                        store.has = promised;
                    }
                }
                if steps >= 5 {
                    (store.has, cache.is_dirty) = (cache.has, false);
                    store.says = StoreSays::Label(Label { mark: own, may_lack: false });
                }
                past.push((cache, store));
            }
        }
    }

    /// Every case by its name, once.
    #[test]
    fn what_differs_is_refused_where_something_would_be_lost() {
        let label = |number, may_lack| StoreSays::Label(Label { mark: mark(number), may_lack });
        let right = Found {
            cache: CacheSays::Marks(Marks::confirmed(mark(4))),
            store: label(4, true),
            is_same: true,
            is_dirty: true,
            is_beyond: false,
            is_renamed: false,
            discarded: None,
            writes: true,
            accepted: Accepted::Nothing,
        };
        let (store, loss) = (Accepted::Store, Accepted::Loss);
        let all_three = |found: Found| {
            [Accepted::Nothing, store, loss].map(|accepted| judge(&Found { accepted, ..found }))
        };
        assert_eq!(all_three(right), [Ok(Kept::All); 3], "the right pair");
        let dirty = [Err(Refusal::Dirty), Ok(Kept::Dirty), Ok(Kept::Nothing)];
        let lacks = [Err(Refusal::Lacks), Err(Refusal::Lacks), Ok(Kept::Nothing)];
        let forgotten = [Ok(Kept::Nothing); 3];
        let clean = Found { is_dirty: false, ..right };
        let absent = Found { cache: CacheSays::Nothing, ..clean };
        for (what, found, expected) in [
            ("another file", Found { is_same: false, ..right }, dirty),
            ("another file, nothing dirty", Found { is_same: false, ..clean }, forgotten),
            ("no label any more", Found { store: StoreSays::Nothing, ..right }, dirty),
            ("no label, nothing dirty", Found { store: StoreSays::Nothing, ..clean }, forgotten),
            ("a place without labels", Found { store: StoreSays::Unknown, ..right }, [Ok(Kept::All); 3]),
            ("an old cache, dirty", Found { store: label(7, false), ..right }, dirty),
            ("an old cache, clean, the store whole", Found { store: label(7, false), ..clean }, forgotten),
            ("an old cache, clean, the store not whole", Found { store: label(7, true), ..clean }, lacks),
            ("the cache is absent", Found { store: label(7, true), ..absent }, lacks),
            ("the cache is absent, the store whole", Found { store: label(7, false), ..absent }, forgotten),
            ("the store is only read", Found { store: label(7, true), writes: false, ..absent }, forgotten),
            (
                "the store is only read, and data for it are dirty",
                Found { store: label(7, true), writes: false, ..right },
                dirty,
            ),
            ("a new cache and store", Found { store: StoreSays::Nothing, ..absent }, [Ok(Kept::All); 3]),
            ("an export of another name", Found { is_renamed: true, ..absent }, [Ok(Kept::All); 3]),
            ("overwritten by the operator", Found { discarded: Some(1), ..absent }, forgotten),
            ("another one overwritten", Found { discarded: Some(2), ..absent }, lacks),
            ("an unreadable label", Found { store: StoreSays::Unreadable, ..clean }, lacks),
            (
                "an older version's cache",
                Found { cache: CacheSays::Unmarked, store: StoreSays::Nothing, ..right },
                [Ok(Kept::All); 3],
            ),
            (
                "an older version's cache, and another since",
                Found { cache: CacheSays::Unmarked, ..right },
                dirty,
            ),
        ] {
            assert_eq!(all_three(found), expected, "{what}");
        }
        let shrunk = Found { is_same: false, is_beyond: true, ..right };
        assert_eq!(all_three(shrunk), [Err(Refusal::Beyond), Err(Refusal::Beyond), Ok(Kept::Nothing)]);
    }
}
