//! Stream prefetcher: the one that Srinath, Mutlu, Kim, Patt, HPCA 2007, section 2.1, steer, after that of the IBM POWER4.
//!
//! An entry is allocated at a miss; two more misses within 16 pages of it, both onwards in one direction, train it. Then it
//! monitors a region that ends at the last page requested: a demand in the region requests the next `degree` pages beyond its end
//! and moves the end there. The start stays until the region is `distance` pages long and follows the end from then on, so that
//! requests run `distance` pages ahead of the demands. It suits runs in either direction, many at once; strides of more than a
//! few pages are not streams and train nothing.
//!
//! The paper's cache lies behind another, which absorbs repeated demands for a block. Here a demand does nothing if it finds its
//! page and that was the page of the demand before, or the page that moved the entry's region last.
//!
//! What the paper leaves open is decided so: of several entries that could take a demand the lowest slot does, trained ones
//! first; a miss in the other direction starts training again from the page before; the miss that trains an entry requests
//! nothing; where the steering lowers the distance, the start of a region closes up at the next request.

use super::{Demand, wish_above, wish_below};

/// How many streams, and what makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamParameters {
    /// Entries, at least one; the one used longest ago is replaced.
    pub streams: u32,
    /// How far from its first miss an entry is trained, in pages to either side.
    pub train_pages: u32,
    /// How far beyond the miss that trains it an entry's region ends at first, in pages. The paper has such a distance and
    /// gives no figure; ours is the smallest distance of its table.
    pub startup_pages: u32,
}

impl StreamParameters {
    /// 64 streams trained within 16 pages.
    pub const DEFAULT: Self = StreamParameters { streams: 64, train_pages: 16, startup_pages: 4 };
}

impl Default for StreamParameters {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// So far this way; `None` after the first miss.
    Training(Option<Direction>),
    Trained(Direction),
}

/// A stream. `low..=high` is the region monitored when trained, and where it is trained before that.
#[derive(Clone, Copy, Debug)]
struct Stream {
    low: u64,
    high: u64,
    /// The miss that allocated it.
    first: u64,
    /// The last page that trained it or moved its region.
    last: u64,
    /// When that was, in demands.
    used: u64,
    state: State,
}

impl Stream {
    #[inline]
    fn holds(&self, page: u64) -> bool {
        self.low <= page && page <= self.high
    }

    /// A miss near the first one.
    fn train(&mut self, page: u64, startup_pages: u32) {
        let State::Training(before) = self.state else { return };
        let direction = match page {
            _ if page > self.last => Direction::Up,
            _ if page < self.last => Direction::Down,
            _ => return,
        };
        self.last = page;
        if before != Some(direction) {
            self.state = State::Training(Some(direction));
            return;
        }
        self.state = State::Trained(direction);
        // The region must hold the pages between the first miss and the last even where they zigzagged.
        (self.low, self.high) = match direction {
            Direction::Up => (self.first.min(page), page.saturating_add(u64::from(startup_pages))),
            Direction::Down => (page.saturating_sub(u64::from(startup_pages)), self.first.max(page)),
        };
    }

    /// Wishes for the pages beyond the end of the region, which moves there.
    fn request(&mut self, direction: Direction, degree: u32, distance: u32, wanted: &mut Vec<u64>) {
        let (degree_pages, distance) = (u64::from(degree), u64::from(distance));
        match direction {
            Direction::Up => {
                wish_above(self.high, degree, wanted);
                self.high = self.high.saturating_add(degree_pages);
                self.low = self.low.max(self.high.saturating_sub(distance));
            }
            Direction::Down => {
                wish_below(self.low, degree, wanted);
                self.low = self.low.saturating_sub(degree_pages);
                self.high = self.high.min(self.low.saturating_add(distance));
            }
        }
    }
}

/// The table of streams. Degree and distance come with each demand, from the feedback that steers it.
#[derive(Clone, Debug)]
pub struct Streams {
    parameters: StreamParameters,
    /// Grows to `parameters.streams`, for which there is room from the start.
    streams: Vec<Stream>,
    demands: u64,
    before: Option<u64>,
}

impl Streams {
    /// With these parameters, no stream yet.
    pub fn new(mut parameters: StreamParameters) -> Self {
        parameters.streams = parameters.streams.max(1);
        let streams = Vec::with_capacity(parameters.streams as usize);
        Streams { parameters, streams, demands: 0, before: None }
    }

    /// A demand access, as [`super::Prefetch::demand`].
    pub fn demand(&mut self, page: u64, found: Demand, degree: u32, distance: u32, wanted: &mut Vec<u64>) {
        // A late prefetch is a miss here: the page is not in the cache.
        let missed = matches!(found, Demand::Miss | Demand::LatePrefetch);
        let repeated = self.before.replace(page) == Some(page);
        self.demands += 1;
        if repeated && !missed {
            return;
        }
        let now = self.demands;
        let mut training = None;
        for (at, stream) in self.streams.iter_mut().enumerate() {
            if !stream.holds(page) {
                continue;
            }
            match stream.state {
                State::Trained(direction) => {
                    if stream.last != page {
                        (stream.last, stream.used) = (page, now);
                        stream.request(direction, degree, distance, wanted);
                    }
                    return;
                }
                State::Training(_) => training = training.or(Some(at)),
            }
        }
        if !missed {
            return;
        }
        if let Some(at) = training {
            self.streams[at].used = now;
            self.streams[at].train(page, self.parameters.startup_pages);
        } else {
            self.allocate(page);
        }
    }

    fn allocate(&mut self, page: u64) {
        let reach = u64::from(self.parameters.train_pages);
        let (low, high) = (page.saturating_sub(reach), page.saturating_add(reach));
        let state = State::Training(None);
        let stream = Stream { low, high, first: page, last: page, used: self.demands, state };
        if self.streams.len() < self.parameters.streams as usize {
            self.streams.push(stream);
        } else if let Some(eldest) = self.streams.iter_mut().min_by_key(|one| one.used) {
            // No two entries were used at the same demand, so there is one eldest.
            *eldest = stream;
        }
    }

    /// Bytes of state held.
    pub fn metadata_bytes(&self) -> u64 {
        (self.streams.capacity() * size_of::<Stream>()) as u64
    }
}
