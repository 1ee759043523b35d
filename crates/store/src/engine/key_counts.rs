//! Number of keys in each database. A key counts once, in memory or on flash.

use super::DATABASES;

/// Keys by database.
#[derive(Debug, Default)]
pub(super) struct KeyCounts([u64; DATABASES as usize]);

impl KeyCounts {
    /// Number of keys of a database; 0 for an unknown database.
    pub fn of(&self, db: u8) -> u64 {
        self.0.get(usize::from(db)).copied().unwrap_or(0)
    }

    /// Keys of all databases.
    pub fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    /// One key more.
    #[inline]
    pub fn add(&mut self, db: u8) {
        self.0[usize::from(db)] += 1;
    }

    /// One key less.
    #[inline]
    pub fn remove(&mut self, db: u8) {
        let keys = &mut self.0[usize::from(db)];
        // What power loss took from flash was perhaps never counted.
        *keys = keys.saturating_sub(1);
    }

    /// As many as these, by database.
    pub fn set(&mut self, counts: &[u64]) {
        self.0.copy_from_slice(&counts[..usize::from(DATABASES)]);
    }

    /// No keys in a database or, with `None`, in any.
    pub fn clear(&mut self, db: Option<u8>) {
        match db {
            Some(db) => self.0[usize::from(db)] = 0,
            None => self.0.fill(0),
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
        [3, 3, 5, 15].into_iter().for_each(|db| keys.add(db));
        assert_eq!((keys.of(3), keys.of(5), keys.of(DATABASES), keys.sum(), keys.fullest()), (2, 1, 0, 4, 3));
        keys.remove(3);
        keys.remove(0);
        assert_eq!((keys.of(0), keys.of(3), keys.sum()), (0, 1, 3), "none are less than none");
        keys.clear(Some(5));
        assert_eq!((keys.of(5), keys.sum()), (0, 2));
        keys.set(&[7; DATABASES as usize]);
        assert_eq!(keys.sum(), 7 * u64::from(DATABASES));
        keys.clear(None);
        assert_eq!(keys.sum(), 0);
    }
}
