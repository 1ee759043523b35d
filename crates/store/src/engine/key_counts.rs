//! Number of keys in each database, and where in the order of hashes a database may have keys. A key counts once, in memory or on
//! flash.

use super::DATABASES;

/// Bits of a position in the order of hashes.
pub(super) const POSITION_BITS: u32 = 40;
/// Bits of a stretch's number: a database that has a key needs 72 KiB, and of a million keys 16 lie in a stretch.
const STRETCH_BITS: u32 = 16;
const STRETCHES: u64 = 1 << STRETCH_BITS;

/// Stretches of the order of hashes in which a database may have keys. All keys lie in these; in some of them there is none any more.
#[derive(Debug)]
struct Stretches {
    /// A bit for each.
    inhabited: Box<[u64; STRETCHES as usize / 64]>,
    /// At most so many keys are in each; [`MANY`]: so many or more, which stays.
    keys: Box<[u8; STRETCHES as usize]>,
}

const MANY: u8 = u8::MAX;

impl Stretches {
    /// All of them, with any number of keys, or none.
    fn new(keys: u8) -> Self {
        let bits = if keys > 0 { u64::MAX } else { 0 };
        Stretches {
            inhabited: Box::new([bits; STRETCHES as usize / 64]),
            keys: Box::new([keys; STRETCHES as usize]),
        }
    }

    fn add(&mut self, stretch: u64) {
        let keys = &mut self.keys[stretch as usize];
        *keys = keys.saturating_add(1);
        self.inhabited[stretch as usize / 64] |= 1 << (stretch % 64);
    }

    fn remove(&mut self, stretch: u64) {
        match self.keys[stretch as usize] {
            MANY => {}
            0 | 1 => self.note_empty(stretch),
            more => self.keys[stretch as usize] = more - 1,
        }
    }

    fn note_empty(&mut self, stretch: u64) {
        self.keys[stretch as usize] = 0;
        self.inhabited[stretch as usize / 64] &= !(1 << (stretch % 64));
    }
}

/// Keys by database.
#[derive(Debug, Default)]
pub(super) struct KeyCounts([u64; DATABASES as usize], [Option<Stretches>; DATABASES as usize]);

/// The number of the stretch that a position lies in.
pub(super) fn stretch_of(position: u64) -> u64 {
    position >> (POSITION_BITS - STRETCH_BITS)
}

/// The first position of a stretch.
pub(super) fn start_of(stretch: u64) -> u64 {
    stretch << (POSITION_BITS - STRETCH_BITS)
}

impl KeyCounts {
    /// Number of keys of a database; 0 for an unknown database.
    pub fn of(&self, db: u8) -> u64 {
        self.0.get(usize::from(db)).copied().unwrap_or(0)
    }

    /// Keys of all databases.
    pub fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    /// One key more, of this hash.
    #[inline]
    pub fn add(&mut self, db: u8, hash: u64) {
        self.0[usize::from(db)] += 1;
        let stretch = stretch_of(hash >> (64 - POSITION_BITS));
        self.1[usize::from(db)].get_or_insert_with(|| Stretches::new(0)).add(stretch);
    }

    /// The first position from `position` on at which the database may have a key.
    pub fn next_position(&self, db: u8, position: u64) -> Option<u64> {
        let stretches = &self.1.get(usize::from(db))?.as_ref()?.inhabited;
        let first = stretch_of(position);
        let mut word = (first / 64) as usize;
        let mut bits = stretches.get(word)? & (u64::MAX << (first % 64));
        while bits == 0 {
            word += 1;
            bits = *stretches.get(word)?;
        }
        Some(start_of(word as u64 * 64 + u64::from(bits.trailing_zeros())).max(position))
    }

    /// The database has no key in this stretch.
    pub fn note_empty(&mut self, db: u8, stretch: u64) {
        if let Some(stretches) = self.1.get_mut(usize::from(db)).and_then(Option::as_mut) {
            stretches.note_empty(stretch);
        }
    }

    /// One key less. `hash`: it lay in memory, and was of this database for certain. `None`: where it was may count as if it had a
    /// key, until it is looked for there in vain; who looks must never miss one.
    #[inline]
    pub fn remove(&mut self, db: u8, hash: Option<u64>) {
        if let Some(hash) = hash
            && let Some(stretches) = &mut self.1[usize::from(db)]
        {
            stretches.remove(stretch_of(hash >> (64 - POSITION_BITS)));
        }
        let keys = &mut self.0[usize::from(db)];
        // What power loss took from flash was perhaps never counted.
        *keys = keys.saturating_sub(1);
    }

    /// As many as these, by database, wherever they are.
    pub fn set(&mut self, counts: &[u64]) {
        self.0.copy_from_slice(&counts[..usize::from(DATABASES)]);
        if self.sum() > 0 {
            self.1.fill_with(|| Some(Stretches::new(MANY)));
        }
    }

    /// No keys in a database or, with `None`, in any.
    pub fn clear(&mut self, db: Option<u8>) {
        match db {
            Some(db) => (self.0[usize::from(db)], self.1[usize::from(db)]) = (0, None),
            None => *self = KeyCounts::default(),
        }
    }

    /// The database with most keys: the most likely one for a key with an unreadable database number.
    pub fn fullest(&self) -> u8 {
        (0..DATABASES).max_by_key(|&db| self.of(db)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_counted_by_database() {
        let mut keys = KeyCounts::default();
        [3, 3, 5, 15].into_iter().for_each(|db| keys.add(db, 0));
        assert_eq!((keys.of(3), keys.of(5), keys.of(DATABASES), keys.sum(), keys.fullest()), (2, 1, 0, 4, 3));
        keys.remove(3, None);
        keys.remove(0, Some(7));
        assert_eq!((keys.of(0), keys.of(3), keys.sum()), (0, 1, 3), "none are less than none");
        keys.clear(Some(5));
        assert_eq!((keys.of(5), keys.sum()), (0, 2));
        keys.set(&[7; DATABASES as usize]);
        assert_eq!(keys.sum(), 7 * u64::from(DATABASES));
        keys.clear(None);
        assert_eq!(keys.sum(), 0);
    }

    #[test]
    fn keys_are_where_they_may_be() {
        let mut keys = KeyCounts::default();
        assert_eq!(keys.next_position(1, 0), None);
        let hashes = [3 << 48 | 77, 63 << 48, 64 << 48, u64::MAX];
        hashes.into_iter().for_each(|hash| keys.add(1, hash));
        let found = |keys: &KeyCounts| {
            let mut stretches = Vec::new();
            let mut position = 0;
            while let Some(next) = keys.next_position(1, position) {
                stretches.push(stretch_of(next));
                position = start_of(stretch_of(next) + 1);
            }
            stretches
        };
        assert_eq!(found(&keys), [3, 63, 64, STRETCHES - 1]);
        assert_eq!(keys.next_position(1, start_of(63) + 5), Some(start_of(63) + 5));
        assert_eq!((keys.next_position(0, 0), keys.next_position(DATABASES, 0)), (None, None));
        keys.note_empty(1, 63);
        keys.note_empty(2, 63);
        assert_eq!(found(&keys), [3, 64, STRETCHES - 1]);
        keys.remove(1, None);
        assert_eq!(found(&keys), [3, 64, STRETCHES - 1], "others of its stretch may be left");
        keys.add(1, 3 << 48);
        keys.remove(1, Some(3 << 48 | 77));
        keys.remove(1, Some(64 << 48 | 5));
        assert_eq!(found(&keys), [3, STRETCHES - 1], "one is left of two, and none of one");
        (0..2 * usize::from(MANY)).for_each(|_| keys.add(1, 9 << 48));
        (0..2 * usize::from(MANY)).for_each(|_| keys.remove(1, Some(9 << 48)));
        assert_eq!(found(&keys), [3, 9, STRETCHES - 1], "how many there were is not known");
        keys.note_empty(1, 9);
        keys.add(1, 9 << 48);
        keys.remove(1, Some(9 << 48));
        assert_eq!(found(&keys), [3, STRETCHES - 1]);
        keys.clear(Some(1));
        assert!(found(&keys).is_empty());
        keys.set(&[1; DATABASES as usize]);
        assert_eq!(found(&keys).len() as u64, STRETCHES);
    }
}
