//! Contents of an engine: parts that each own their fields, and the operations that cross them. An item has a place,
//! bytes, perhaps a seal, a counted key, a tenant, perhaps a copy on flash, and perhaps observers of its changes.

use crate::tiers::{TierError, Tiers};
use tiermem_base::Rng;
use tiermem_base::hash::KeyHasher;
use tiermem_model::advisor::Outcome;
use tiermem_policy::Id;
use tiermem_policy::ladder::Loc;
use tiermem_policy::log::LogPlace;
use tiermem_policy::shard::{Entered, Entry, Shard};

use super::counters::Counters;
use super::flash_figures::FlashDescription;
use super::flash_waiters::FlashWaiters;
use super::item::{HEADER_BYTES, Header};
use super::key_counts::KeyCounts;
use super::losses::{LosesParts, Losses};
use super::memory::Memory;
use super::pin::Pins;
use super::seal::Keeping;
use super::staged::StagedItems;

use super::tenants::TenantAccounts;
use super::types::KEY_BYTES_MAX;
use super::{Change, Changes, Condition, EngineConfig, Expiry, Hit, ItemRef, StoreError, ValueKind};

/// The parts. Each is borrowed apart from the others.
#[derive(Debug)]
pub(super) struct Contents {
    /// Decides where items lie and which are evicted.
    pub shard: Shard,
    /// Their bytes.
    pub items: Memory,
    pub rng: Rng,
    /// The seals of items that outlive the process.
    pub keeping: Keeping,
    pub keys: KeyCounts,
    pub tenants: TenantAccounts,
    pub changes: Changes,
    pub counters: Counters,
    /// Items read from flash for the current request.
    pub staged: StagedItems,
    /// Values that replies under way have pinned.
    pub pins: Pins,
    /// Requests that wait for the flash tier.
    pub waiters: FlashWaiters,
    pub flash: FlashDescription,
    pub losses: Losses,
    /// The longest value.
    pub value_bytes_max: usize,
}

/// The facts about a new item that a shard needs.
pub(super) fn entry(hash: u64, header: Header, expires_at_ms: Option<u64>, tenant: u16) -> Entry {
    Entry { hash, bytes: header.item_len() as u64, expires_at_ms, tenant, is_newcomer: true }
}

impl Contents {
    /// Nothing yet, in tiers that take memory as it is used.
    pub fn new(config: &EngineConfig) -> Result<Self, TierError> {
        // Pages are divided by this factor between size classes.
        let layout = config.ladder.class_factor.to_bits();
        let mut tiers = Tiers::new(&config.tier_specs(), layout, config.spin)?;
        tiers.announce_session(config.session);
        let keeping = Keeping::over(&tiers, config.session);
        let mut shard = Shard::new(config.ladder_config(), keeping.tail_bytes() as u64);
        let mut tenants = TenantAccounts::new(&config.tenancy, config.divider(&shard));
        tenants.apply_settings(&mut shard);
        Ok(Contents {
            shard,
            items: Memory { tiers, hasher: KeyHasher::seeded(config.seed), flash: None },
            rng: Rng::seeded(config.seed),
            keeping,
            keys: KeyCounts::default(),
            tenants,
            changes: Changes::default(),
            counters: Counters::default(),
            staged: StagedItems::default(),
            pins: Pins::new(config.pinned_share),
            waiters: FlashWaiters::default(),
            flash: FlashDescription::default(),
            losses: Losses::default(),
            value_bytes_max: config.value_bytes_max,
        })
    }

    /// Whether there is a flash tier.
    #[inline]
    pub fn has_flash(&self) -> bool {
        self.items.flash.is_some()
    }

    /// The item of this key, expired or not.
    #[inline]
    pub fn find(&self, db: u8, key: &[u8], hash: u64) -> Option<Id> {
        self.shard.memory().find(hash, (db, key), &self.items)
    }

    /// The item of this key, unless its time is over; one that was read from flash is in memory then.
    #[inline]
    pub fn find_live(&mut self, db: u8, key: &[u8], hash: u64) -> Option<Id> {
        match self.find_in_memory(db, key, hash) {
            None if self.staged_reads().has(db, key, hash) => {
                self.staged_reads().move_into_memory(db, key, hash)
            }
            found => found,
        }
    }

    /// The item of this key in memory, unless its time is over; then it is removed.
    #[inline]
    pub fn find_in_memory(&mut self, db: u8, key: &[u8], hash: u64) -> Option<Id> {
        let found = if self.items.tiers.keeping() == 0 {
            self.find(db, key, hash)
        } else {
            self.find_there(db, key, hash)
        };
        let id = found?;
        if self.shard.is_expired(id) {
            self.forget_copy(id, hash);
            self.changes.note(Change::Expired, db, key);
            self.tenants.removed(db, key, hash);
            self.forget(id, hash);
            self.counters.expired += 1;
            return None;
        }
        Some(id)
    }

    /// Counts a look-up that found its item in memory.
    // A hit is most of what a store does: a call would take a twentieth of it.
    #[inline(always)]
    pub fn note_hit(&mut self, db: u8, key: &[u8], hash: u64, id: Id) {
        self.counters.hits += 1;
        let tenant = self.tenants.looked_up((db, key, hash), Outcome::Memory(id), &mut self.shard);
        self.shard.item(id).hit(Some(tenant));
    }

    /// The value of a live item, charged as one range from its header to its end.
    #[inline]
    pub fn hit(&self, id: Id) -> Hit<'_> {
        let loc = self.shard.ladder().residents().nodes().loc(id);
        let header = self.items.header(loc);
        self.items.tiers.charge_read(loc.tier, header.item_len());
        Hit { value: self.items.value(loc, header), kind: header.kind, item: ItemRef(id) }
    }

    /// Takes an item out of shard and accounts.
    pub fn forget(&mut self, id: Id, hash: u64) {
        let db = self.items.header(self.shard.ladder().residents().nodes().loc(id)).db;
        self.keys.remove(db, Some(hash));
        self.give_up_place(id, hash);
    }

    /// Removes an item from memory while its key stays.
    pub fn give_up_place(&mut self, id: Id, hash: u64) {
        let loc = self.shard.forget(id, hash, &self.items);
        debug_assert!(
            self.items.tiers.keeps(loc.tier)
                || self.items.hash(self.items.header(loc).db, self.items.key(loc, self.items.header(loc)))
                    >> 24
                    == hash >> 24,
            "the item that is taken out is the one that was meant"
        );
        self.keeping.unseal(&mut self.items.tiers, loc);
    }

    pub fn check_lengths(&self, key_len: usize, value_len: usize) -> Result<(), StoreError> {
        if key_len > KEY_BYTES_MAX {
            return Err(StoreError::KeyTooLarge);
        }
        if value_len > self.value_bytes_max {
            return Err(StoreError::ValueTooLarge { limit_bytes: self.value_bytes_max });
        }
        Ok(())
    }

    /// [`Engine::set_kind`](super::Engine::set_kind).
    #[inline]
    pub fn set(
        &mut self,
        db: u8,
        key: &[u8],
        (kind, value): (ValueKind, &[u8]),
        condition: Condition,
        expiry: Expiry,
    ) -> Result<bool, StoreError> {
        self.set_as(true, db, key, (kind, value), condition, expiry)
    }

    /// [`Self::set`] of an item that is a newcomer where its key is new, or was in the store before.
    #[inline]
    pub fn set_as(
        &mut self,
        is_newcomer: bool,
        db: u8,
        key: &[u8],
        (kind, value): (ValueKind, &[u8]),
        condition: Condition,
        expiry: Expiry,
    ) -> Result<bool, StoreError> {
        self.check_lengths(key.len(), value.len())?;
        self.begin();
        let hash = self.items.hash(db, key);
        let old = if condition == Condition::Always && expiry != Expiry::Keep {
            // What was there does not matter, and is not read from flash.
            self.find_in_memory(db, key, hash)
        } else {
            self.find_live(db, key, hash)
        };
        if (condition == Condition::IfAbsent && old.is_some())
            || (condition == Condition::IfPresent && old.is_none())
        {
            return Ok(false);
        }
        self.counters.sets += 1;
        let tenant = self.tenant_for(db, key);
        let header =
            Header { value_len: value.len() as u32, key_len: key.len() as u16, db, kind, unchanged: false };
        let expires_at_ms = match expiry {
            Expiry::Never => None,
            Expiry::AtUnixMs(at_ms) => Some(at_ms),
            Expiry::Keep => old.and_then(|id| self.shard.ladder().residents().nodes().expires_at_ms(id)),
        };
        self.tenants.wrote(tenant, hash, self.keeping.place_len(header), &self.shard);
        let entry = Entry { is_newcomer, ..entry(hash, header, expires_at_ms, tenant) };
        let loc = match old {
            Some(old) => {
                self.forget_copy(old, hash);
                self.rewrite(old, &entry, db)?
            }
            None => {
                let loc = self.enter(&entry, db)?.1;
                self.supersede(db, hash);
                loc
            }
        };
        self.write_item(loc, header, (key, value), expires_at_ms);
        if kind == ValueKind::Hash {
            self.note_fields_of(db, key);
        }
        self.keep_unless_lost(db, key, hash)?;
        let expires = matches!(expiry, Expiry::AtUnixMs(_));
        self.changes.note(Change::Written { new: old.is_none(), expires }, db, key);
        Ok(true)
    }

    /// Writes an item to its place, all of it.
    #[inline(always)]
    pub fn write_item(
        &mut self,
        loc: Loc,
        header: Header,
        (key, value): (&[u8], &[u8]),
        expires_at_ms: Option<u64>,
    ) {
        self.write_head(loc, header, key).copy_from_slice(value);
        self.keeping.seal(&mut self.items.tiers, loc, header, expires_at_ms);
        self.items.tiers.charge_write(loc.tier, header.item_len());
    }

    /// Writes header and key to an item's place and returns the place of its value.
    #[inline(always)]
    pub fn write_head(&mut self, loc: Loc, header: Header, key: &[u8]) -> &mut [u8] {
        debug_assert!(
            self.keeping.place_len(header)
                <= self.shard.ladder().residents().level(usize::from(loc.tier)).place_bytes(loc.unit),
            "an item is written inside the place that the shard gave"
        );
        self.keeping.prepare(&mut self.items.tiers, self.shard.ladder().residents(), loc, header);
        let item = self.items.tiers.bytes_mut(loc, header.item_len());
        header.write(item);
        let (head, value) = item.split_at_mut(header.value_offset());
        head[HEADER_BYTES..].copy_from_slice(key);
        value
    }

    /// The tenant that an item of this key will belong to.
    #[inline(always)]
    pub fn tenant_for(&mut self, db: u8, key: &[u8]) -> u16 {
        self.tenants.enter(db, key, &mut self.shard)
    }

    /// Takes a place for a new item and counts its key.
    pub fn enter(&mut self, entry: &Entry, db: u8) -> Result<(Id, Loc), StoreError> {
        loop {
            self.shard.hold(self.tenants.metadata_bytes());
            self.shard.enter(entry, &mut self.rng);
            self.carry_out();
            match self.entered() {
                Entered::Placed { id, loc, .. } => {
                    debug_assert!(
                        self.fits(id, loc, entry),
                        "a new item's place is its own and has room for it"
                    );
                    self.keys.add(db, entry.hash);
                    return Ok((id, loc));
                }
                // Each time there is less that only replies hold.
                Entered::Full { .. } if self.pinned_values().give_refused(entry.bytes) => {}
                Entered::Full { .. } | Entered::Waits => return Err(self.refuse()),
            }
        }
    }

    /// A place for the new bytes of a live item: its own where they fit, else a new one in the same tier.
    pub fn rewrite(&mut self, old: Id, entry: &Entry, db: u8) -> Result<Loc, StoreError> {
        let held = self.shard.ladder().residents().nodes().loc(old);
        self.pinned_values().give_own(held, false);
        loop {
            self.shard.hold(self.tenants.metadata_bytes());
            self.shard.rewrite(old, entry, &self.items, &mut self.rng);
            self.carry_out();
            match self.entered() {
                Entered::Placed { id, loc, replaces } => {
                    debug_assert!(self.fits(id, loc, entry), "new bytes have a place that has room for them");
                    debug_assert!(
                        replaces.is_some() || id == old,
                        "an item keeps its number in its own place"
                    );
                    replaces.into_iter().for_each(|old| self.give_up_place(old, entry.hash));
                    return Ok(loc);
                }
                Entered::Full { old_left } => {
                    if old_left {
                        self.keys.remove(db, Some(entry.hash));
                    }
                    match (
                        self.pinned_values().give_own(held, true)
                            || self.pinned_values().give_refused(entry.bytes),
                        old_left,
                    ) {
                        // Each time there is less that replies hold.
                        (true, false) => {}
                        (true, true) => return self.enter(entry, db).map(|(_, loc)| loc),
                        (false, _) => return Err(self.refuse()),
                    }
                }
                Entered::Waits => return Err(self.refuse()),
            }
        }
    }

    /// Whether an item of the shard lies at a place, which has room for its entry and what stands behind it.
    fn fits(&self, id: Id, loc: Loc, entry: &Entry) -> bool {
        let residents = self.shard.ladder().residents();
        let bytes = entry.bytes + self.keeping.tail_bytes() as u64;
        residents.nodes().loc(id) == loc && bytes <= residents.place_bytes(id)
    }

    /// An item has no place.
    #[cold]
    fn refuse(&mut self) -> StoreError {
        self.counters.refused += 1;
        StoreError::OutOfMemory
    }

    /// Outcome of an admission: memory is synchronous, so none waits.
    #[inline]
    pub fn entered(&mut self) -> Entered {
        let entered = self.shard.entered();
        debug_assert_ne!(entered, Entered::Waits, "moves have arrived when they are carried out");
        entered
    }

    /// Forgets the copy on flash of an item in memory that is about to change or go.
    #[inline]
    pub fn forget_copy(&mut self, id: Id, hash: u64) {
        if !self.has_flash() {
            return;
        }
        let db = self.items.header(self.shard.ladder().residents().nodes().loc(id)).db;
        if let Some(place) = self.shard.forget_copy(id, hash, &mut self.items) {
            self.retire(hash, place, db);
        } else {
            self.note_change(hash);
        }
    }

    /// Forgets what lies on flash under the hash of a key that has just got a value in memory, unseen.
    #[inline]
    pub fn supersede(&mut self, db: u8, hash: u64) {
        // What was read for this request is not the key's value any more, should the new one go as well.
        self.staged.forget(hash);
        if self.has_flash() && self.forget_on_flash(db, hash) {
            // The key was counted there, and is counted here.
            self.keys.remove(db, None);
        }
    }

    /// Forgets what lies on flash under a hash. Whether it counted.
    pub fn forget_on_flash(&mut self, db: u8, hash: u64) -> bool {
        match self.shard.forget_below(hash) {
            Some(place) => self.retire(hash, place, db),
            None => {
                self.note_change(hash);
                false
            }
        }
    }

    /// Makes the reply to a request that changes a key wait for the removal of its copy from flash.
    pub fn note_change(&mut self, hash: u64) {
        if let Some(flash) = &mut self.items.flash {
            flash.note_change(hash);
        }
    }

    /// Takes an item out of the flash tier's accounts that has left the index. Whether it counted.
    pub fn retire(&mut self, hash: u64, place: LogPlace, db: u8) -> bool {
        self.items.flash.as_mut().is_some_and(|flash| flash.retire(&mut self.shard, hash, place, db))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::FlashConfig;
    use tiermem_base::{Bytes, TierKind, TierSpec};
    use tiermem_tier::block::Immediate;

    const REGION_BYTES: u64 = 16 << 20;

    fn contents(value_bytes_max: usize) -> Contents {
        let tiers = vec![TierSpec::new(TierKind::Dram, Bytes(2 << 20))];
        let mut contents =
            Contents::new(&EngineConfig { value_bytes_max, ..EngineConfig::new(tiers) }).unwrap();
        contents.changes.want(true);
        contents
    }

    fn set(contents: &mut Contents, key: &[u8], value: &[u8], condition: Condition, expiry: Expiry) -> bool {
        contents.set(0, key, (ValueKind::String, value), condition, expiry).unwrap()
    }

    /// The value in memory of a key of the first database.
    fn value<'a>(contents: &'a Contents, key: &[u8]) -> Option<&'a [u8]> {
        let id = contents.find(0, key, contents.items.hash(0, key))?;
        Some(contents.hit(id).value)
    }

    /// What happened to keys since this was last asked.
    fn changes(contents: &mut Contents) -> Vec<Change> {
        contents.changes.take().iter().map(|(change, ..)| change).collect()
    }

    #[test]
    fn a_value_is_set_where_its_condition_holds_and_its_key_counts_once() {
        let mut contents = contents(1 << 20);
        let (always, never) = (Condition::Always, Expiry::Never);
        assert!(!set(&mut contents, b"one", b"1", Condition::IfPresent, never));
        assert_eq!((contents.counters.sets, contents.keys.sum(), changes(&mut contents)), (0, 0, vec![]));
        assert!(set(&mut contents, b"one", b"1", always, never));
        assert!(!set(&mut contents, b"one", b"2", Condition::IfAbsent, never));
        assert_eq!(value(&contents, b"one"), Some(&b"1"[..]));
        // In its place, and where that is too small in another.
        for new in [&b"3"[..], &[4; 5000]] {
            assert!(set(&mut contents, b"one", new, Condition::IfPresent, never));
            assert_eq!(value(&contents, b"one"), Some(new));
        }
        assert!(contents.set(1, b"one", (ValueKind::String, b"5"), always, never).unwrap());
        assert_eq!((contents.counters.sets, contents.keys.of(0), contents.keys.of(1)), (4, 1, 1));
        assert_eq!(value(&contents, b"one"), Some(&[4; 5000][..]), "another database's is another");
        let written = [true, false, false, true].map(|new| Change::Written { new, expires: false });
        assert_eq!(changes(&mut contents), written);
    }

    #[test]
    fn a_new_value_keeps_the_expiry_where_it_is_to_and_whose_time_is_over_is_gone() {
        let mut contents = contents(1 << 20);
        let (always, soon) = (Condition::Always, Expiry::AtUnixMs(1000));
        for key in [b"kept", b"lost"] {
            set(&mut contents, key, b"1", always, soon);
        }
        set(&mut contents, b"kept", b"2", always, Expiry::Keep);
        set(&mut contents, b"lost", b"2", always, Expiry::Never);
        changes(&mut contents);
        contents.shard.set_clock(1001);
        let is_live = |contents: &mut Contents, key: &[u8]| {
            let hash = contents.items.hash(0, key);
            contents.find_live(0, key, hash).is_some()
        };
        assert!(is_live(&mut contents, b"lost") && !is_live(&mut contents, b"kept"));
        assert_eq!((contents.counters.expired, contents.keys.of(0)), (1, 1));
        assert!(value(&contents, b"kept").is_none() && changes(&mut contents) == [Change::Expired]);
    }

    #[test]
    fn what_is_too_large_is_refused_and_what_was_there_stays() {
        let mut contents = contents(1000);
        let (always, never) = (Condition::Always, Expiry::Never);
        set(&mut contents, b"one", &[1; 1000], always, never);
        let too_large = contents.set(0, b"one", (ValueKind::String, &[2; 1001]), always, never);
        assert_eq!(too_large, Err(StoreError::ValueTooLarge { limit_bytes: 1000 }));
        let key = [b'k'; KEY_BYTES_MAX + 1];
        let too_large = contents.set(0, &key, (ValueKind::String, b"3"), always, never);
        assert_eq!(too_large, Err(StoreError::KeyTooLarge));
        assert!(set(&mut contents, &key[1..], b"3", always, never), "the longest there may be");
        assert_eq!((contents.counters.sets, contents.keys.of(0)), (2, 2));
        assert_eq!(value(&contents, b"one"), Some(&[1; 1000][..]));
    }

    #[test]
    fn what_no_tier_has_room_for_is_refused_and_keys_count_that_are_there() {
        let mut contents = contents(16 << 20);
        let (always, never) = (Condition::Always, Expiry::Never);
        for old in [false, true] {
            if old {
                set(&mut contents, b"one", b"1", always, never);
            }
            let refused = contents.set(0, b"one", (ValueKind::String, &[2; 4 << 20]), always, never);
            assert_eq!(refused, Err(StoreError::OutOfMemory));
            let found = value(&contents, b"one").is_some();
            assert_eq!(contents.keys.of(0), u64::from(found));
        }
    }

    /// Keys of which memory holds but some, and the flash tier the others.
    fn over_flash() -> (Contents, Vec<String>) {
        let mut contents = contents(1 << 20);
        let device = Box::new(Immediate::new(REGION_BYTES as usize));
        let config = FlashConfig::whole(REGION_BYTES, 128 << 10, 7);
        contents.flash_tier().attach("flash", None, device, &config).unwrap();
        let keys: Vec<String> = (0..4000).map(|key| format!("key:{key}")).collect();
        for key in &keys {
            set(&mut contents, key.as_bytes(), &[1; 1000], Condition::Always, Expiry::Never);
            contents.flash_tier().advance();
        }
        (contents, keys)
    }

    #[test]
    fn a_new_value_forgets_what_lies_on_flash_unseen_and_its_key_counts_once() {
        let (mut contents, keys) = over_flash();
        assert_eq!(contents.keys.of(0), keys.len() as u64, "all are somewhere");
        let is_below = |key: &&String| value(&contents, key.as_bytes()).is_none();
        let below: Vec<&String> = keys.iter().filter(is_below).take(50).collect();
        assert_eq!(below.len(), 50);
        for key in below {
            set(&mut contents, key.as_bytes(), &[2; 1000], Condition::Always, Expiry::Never);
            assert_eq!(value(&contents, key.as_bytes()), Some(&[2; 1000][..]));
            assert_eq!(contents.keys.of(0), keys.len() as u64);
            let hash = contents.items.hash(0, key.as_bytes());
            assert!(!contents.forget_on_flash(0, hash), "{key}: its old value is forgotten");
        }
    }

    #[test]
    fn an_item_that_lies_on_flash_too_changes_in_memory_and_its_copy_is_forgotten() {
        let (mut contents, keys) = over_flash();
        let mut copies = 0;
        for key in keys[..200].iter().flat_map(|key| [key.as_bytes(); 3]) {
            let hash = contents.items.hash(0, key);
            contents.flash_reads().resolve(0, key);
            contents.begin();
            contents.staged_reads().get(0, key, hash);
            let Some(id) = contents.find(0, key, hash) else { continue };
            let is_copy = |contents: &Contents| {
                contents.items.header(contents.shard.ladder().residents().nodes().loc(id)).unchanged
            };
            if is_copy(&contents) {
                copies += 1;
                contents.forget_copy(id, hash);
                assert!(!is_copy(&contents) && !contents.forget_on_flash(0, hash), "memory alone has it");
                assert_eq!(contents.keys.of(0), keys.len() as u64);
            }
        }
        assert!(copies > 10, "{copies} were found hot");
    }
}
