//! The order in which pages have left DRAM.
//!
//! It is the part of an LRU stack that lies below DRAM: *places*, the one that was taken last on top. A page that leaves takes a new place.
//! A page that comes back leaves its place empty, as does one that is given up. A larger DRAM that ends below an empty place has one page
//! free, and the next page that leaves goes no deeper than there: it takes the uppermost empty place away. Without that, pages that are
//! discarded would let those below them seem nearer than they are.
//!
//! Where there are more places than are held, a sample of the frames stands for all, with twice the weight whenever half of them go
//! (Waldspurger et al., "Efficient MRC construction with SHARDS", 2015). A place takes about 40 bytes.

use std::collections::{BinaryHeap, VecDeque};

use tiermem_base::hash::{Sample, sample_hash};
use tiermem_base::recency::Recency;

use crate::column::Column;
use crate::frames::Frame;

/// What is known of a place.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The frame that took it, which may have left it; `None`: nobody has told which.
    frame: Option<Frame>,
    /// How many places were taken before.
    taken: u64,
}

/// Places by order, and the frames that have one.
#[derive(Clone, Debug)]
pub(super) struct Departures {
    /// The order: the objects are places.
    order: Recency,
    places: Vec<Place>,
    /// Places of frames of which nothing was heard yet, the first that left in front.
    unheard: VecDeque<u32>,
    /// Empty places, by when they were taken.
    empty: BinaryHeap<(u64, u32)>,
    /// Numbers of places that are not in the order.
    free: Vec<u32>,
    /// Of each frame the number of its place plus one; 0: it has none.
    place_of: Column<u32>,
    /// Frames that have a place.
    held: u32,
    taken: u64,
    places_max: u32,
    /// One frame in 2^this is in the sample.
    sample_log2: u32,
}

impl Departures {
    /// Nothing has left yet. At most so many places are held.
    pub fn new(places_max: u32) -> Self {
        Departures {
            order: Recency::of_objects(),
            places: Vec::new(),
            unheard: VecDeque::new(),
            empty: BinaryHeap::new(),
            free: Vec::new(),
            place_of: Column::default(),
            held: 0,
            taken: 0,
            places_max,
            sample_log2: 0,
        }
    }

    /// There are so many frames from now on.
    pub fn grow_to(&mut self, frames: u32) {
        self.place_of.grow_to(Frame(frames.saturating_sub(1)).id());
    }

    /// How many frames one of the sample stands for; `None` for a frame that is not in it.
    pub fn weight_of(&self, frame: Frame) -> Option<u64> {
        let is_in =
            Sample::with_rate(0.5_f64.powi(self.sample_log2 as i32)).holds(sample_hash(frame.0.into()));
        is_in.then_some(1 << self.sample_log2)
    }

    /// Whether the frame has a place.
    pub fn holds(&self, frame: Frame) -> bool {
        self.place_of.get(frame.id()) > 0
    }

    /// A frame leaves DRAM, or is heard to have left: then it is taken for the first that did.
    pub fn leave(&mut self, frame: Frame) {
        // One that was not heard of meanwhile leaves from where it is.
        self.come_back(frame);
        if self.weight_of(frame).is_none() {
            return;
        }
        let number = self.unheard.pop_front().unwrap_or_else(|| self.take_place());
        if let Some(place) = self.places.get_mut(number as usize) {
            place.frame = Some(frame);
        }
        *self.place_of.at(frame.id()) = number + 1;
        self.held += 1;
        if self.held + (self.unheard.len() + self.empty.len()) as u32 > self.places_max {
            self.halve();
        }
    }

    /// So many frames have left of which nothing was heard yet.
    pub fn expect(&mut self, frames: u64) {
        let wanted = (frames >> self.sample_log2).min(u64::from(self.places_max / 2)) as usize;
        while self.unheard.len() < wanted {
            let number = self.take_place();
            self.unheard.push_back(number);
        }
        while self.unheard.len() > wanted {
            // The first of them have not left after all.
            let number = self.unheard.pop_front();
            number.into_iter().for_each(|number| self.vacate(number));
        }
    }

    /// A place on top. The uppermost empty one goes away for it.
    fn take_place(&mut self) -> u32 {
        let place = Place { frame: None, taken: self.taken };
        self.taken += 1;
        let number = match self.empty.pop() {
            Some((_, number)) => number,
            None => self.free.pop().unwrap_or(self.places.len() as u32),
        };
        match self.places.get_mut(number as usize) {
            Some(known) => *known = place,
            None => self.places.push(place),
        }
        // One that was empty goes from where it was to the top.
        self.order.access(number, 1);
        number
    }

    fn vacate(&mut self, number: u32) {
        let taken = self.places.get(number as usize).map(|place| place.taken);
        self.empty.extend(taken.map(|taken| (taken, number)));
    }

    /// A frame that left is back, or given up. Returns its distance, and for how many frames it stands.
    pub fn come_back(&mut self, frame: Frame) -> Option<(u64, u64)> {
        let number = std::mem::take(self.place_of.at(frame.id())).checked_sub(1)?;
        let distance = self.order.distance(number)?;
        self.held -= 1;
        self.vacate(number);
        if self.held == 0 && self.unheard.is_empty() {
            // An empty place with no frame below it is nothing.
            let place_of = std::mem::take(&mut self.place_of);
            *self =
                Departures { place_of, sample_log2: self.sample_log2, ..Departures::new(self.places_max) };
        }
        Some((distance << self.sample_log2, 1 << self.sample_log2))
    }

    /// Halves the sample.
    #[cold]
    fn halve(&mut self) {
        self.sample_log2 += 1;
        // Who has not been heard of is expected anew.
        self.unheard.clear();
        let mut is_empty = vec![false; self.places.len()];
        self.empty.iter().for_each(|(_, number)| is_empty[*number as usize] = true);
        let mut is_free = vec![false; self.places.len()];
        self.free.iter().for_each(|number| is_free[*number as usize] = true);
        for number in 0..self.places.len() {
            let frame = self.places[number].frame;
            if is_free[number] || frame.is_some_and(|frame| self.weight_of(frame).is_some()) {
                continue;
            }
            self.order.remove(number as u32);
            self.free.push(number as u32);
            is_free[number] = true;
            if let Some(frame) = frame.filter(|_| !is_empty[number]) {
                *self.place_of.at(frame.id()) = 0;
                self.held -= 1;
            }
        }
        self.empty.retain(|(_, number)| !is_free[*number as usize]);
    }

    /// Bytes held.
    pub fn metadata_bytes(&self) -> u64 {
        let lists = self.places.capacity() * size_of::<Place>()
            + self.unheard.capacity() * size_of::<u32>()
            + self.empty.capacity() * size_of::<(u64, u32)>()
            + self.free.capacity() * size_of::<u32>();
        self.order.metadata_bytes() + self.place_of.bytes() + lists as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tiermem_base::Rng;

    /// The order as a list, the top first; `None` is an empty place.
    #[derive(Default)]
    struct Naive(Vec<Option<u32>>);

    impl Naive {
        fn come_back(&mut self, frame: u32) -> Option<u64> {
            let at = self.0.iter().position(|place| *place == Some(frame))?;
            self.0[at] = None;
            Some(at as u64 + 1)
        }

        fn leave(&mut self, frame: u32) {
            self.come_back(frame);
            if let Some(empty) = self.0.iter().position(Option::is_none) {
                self.0.remove(empty);
            }
            self.0.insert(0, Some(frame));
        }
    }

    proptest! {
        #[test]
        fn distances_are_those_of_a_list(steps in prop::collection::vec((0u32..40, any::<bool>()), 0..600)) {
            let (mut departures, mut naive) = (Departures::new(1000), Naive::default());
            departures.grow_to(40);
            for (frame, leaves) in steps {
                if leaves {
                    departures.leave(Frame(frame));
                    naive.leave(frame);
                } else {
                    let found = departures.come_back(Frame(frame));
                    prop_assert_eq!(found, naive.come_back(frame).map(|distance| (distance, 1)));
                }
            }
        }
    }

    #[test]
    fn a_sample_stands_for_all() {
        const FRAMES: u32 = 40_000;
        let (mut all, mut sample) = (Departures::new(u32::MAX), Departures::new(4000));
        let mut rng = Rng::seeded(1);
        let mut sums = [[0; 4]; 2];
        all.grow_to(FRAMES);
        sample.grow_to(FRAMES);
        for _ in 0..400_000 {
            let frame = Frame(rng.below(u64::from(FRAMES)) as u32);
            let is_back = [&mut all, &mut sample].map(|it| it.come_back(frame));
            for (sum, (distance, weight)) in
                sums.iter_mut().zip(is_back).filter_map(|(sum, it)| Some((sum, it?)))
            {
                sum[(distance / 10_000).min(3) as usize] += weight;
            }
            all.leave(frame);
            sample.leave(frame);
        }
        let held = u64::from(sample.held) + sample.empty.len() as u64;
        assert!(
            held <= 4000
                && sample.places.len() <= 4001
                && sample.weight_of(Frame(0)).is_none_or(|it| it == 16)
        );
        // What more DRAM saves is the sum up to a distance.
        let (mut all, mut sample) = (0, 0);
        for (here, sampled) in sums[0].into_iter().zip(sums[1]) {
            all += here;
            sample += sampled;
            assert!(here > 50_000 && (all * 95 / 100..all * 105 / 100).contains(&sample), "{sums:?}");
        }
    }
}
