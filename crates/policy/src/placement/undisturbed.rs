//! Undisturbed placement: where granules would lie if nothing had ever been placed or moved.
//!
//! The kernel gives a page fast memory when it is first touched, while there is room, and leaves it there. That takes nothing but the
//! order of first touches, so it is known beside any other placement, and what another placement is worth is measured against it.

/// First come, first served, on granules.
#[derive(Clone, Debug)]
pub(super) struct Undisturbed {
    granules: Vec<Granule>,
    fast: u32,
    capacity: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Granule {
    is_there: bool,
    is_fast: bool,
}

impl Undisturbed {
    /// Nothing is there yet of `granules` granules; `capacity` of them fit in fast memory.
    pub fn new(granules: u32, capacity: u32) -> Self {
        Undisturbed { granules: vec![Granule::default(); granules as usize], fast: 0, capacity }
    }

    /// A granule is touched. Whether that is its first touch.
    pub fn touched(&mut self, granule: u32) -> bool {
        let Some(it) = self.granules.get_mut(granule as usize).filter(|it| !it.is_there) else {
            return false;
        };
        *it = Granule { is_there: true, is_fast: self.fast < self.capacity };
        self.fast += u32::from(it.is_fast);
        true
    }

    /// A granule is no longer there, and gives its room back.
    pub fn gone(&mut self, granule: u32) {
        if let Some(it) = self.granules.get_mut(granule as usize) {
            self.fast -= u32::from(it.is_fast);
            *it = Granule::default();
        }
    }

    /// Whether a granule would lie in fast memory.
    pub fn is_fast(&self, granule: u32) -> bool {
        self.granules.get(granule as usize).is_some_and(|it| it.is_fast)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_first_has_fast_memory_until_it_goes() {
        let mut undisturbed = Undisturbed::new(5, 2);
        let first: Vec<bool> = [4, 1, 4, 0, 9].into_iter().map(|it| undisturbed.touched(it)).collect();
        assert_eq!(first, [true, true, false, true, false]);
        let fast = |it: &Undisturbed| (0..6).filter(|granule| it.is_fast(*granule)).collect::<Vec<u32>>();
        assert_eq!(fast(&undisturbed), [1, 4]);
        undisturbed.gone(4);
        undisturbed.gone(4);
        // What lies in slow memory stays there; the next one that is new has the room.
        assert!(!undisturbed.touched(0) && undisturbed.touched(2) && undisturbed.touched(4));
        assert_eq!(fast(&undisturbed), [1, 2]);
    }
}
