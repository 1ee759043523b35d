//! Streams: pages that come back to DRAM in ascending or descending order.

/// Pages of a piece: as many as a word has bits.
pub const PIECE_PAGES: u64 = 64;
/// Streams at once; the one that went on longest ago is replaced.
const STREAMS: usize = 32;
/// Pages between one and the next of a stream at most, before it is known to be one: the kernel brings neighbours by itself.
const GAP: u64 = 16;
/// And afterwards: over what has stayed in DRAM.
const GAP_IN_RUN: u64 = 2 * PIECE_PAGES;
/// A stream is known after so many pages.
const RUN_MIN: u32 = 16;

/// A piece of memory, and which of its pages a stream has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The first page; a multiple of [`PIECE_PAGES`].
    pub first: u64,
    /// A bit for each page.
    pub used: u64,
    /// The number of the stream.
    pub stream: u32,
}

impl Piece {
    fn of(page: u64, stream: u32) -> Self {
        Piece { first: first_of(page), used: bit_of(page), stream }
    }

    /// Whether the page lies in it, used or not.
    pub fn holds(&self, page: u64) -> bool {
        first_of(page) == self.first
    }

    /// How many pages were used.
    pub fn pages(&self) -> u32 {
        self.used.count_ones()
    }

    /// The pages that were used, in ascending order.
    pub fn used_pages(self) -> impl Iterator<Item = u64> {
        (0..PIECE_PAGES).filter(move |bit| self.used >> bit & 1 == 1).map(move |bit| self.first + bit)
    }
}

/// The first page of the piece that a page lies in.
pub fn first_of(page: u64) -> u64 {
    page & !(PIECE_PAGES - 1)
}

fn bit_of(page: u64) -> u64 {
    1 << (page % PIECE_PAGES)
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    /// The page that it began with.
    begin: u64,
    /// The page farthest along; before it is known to be a stream, the last one.
    last: u64,
    /// Pages so far.
    run: u32,
    piece: Piece,
    /// When it went on, in uses.
    at: u64,
}

impl Stream {
    fn new(page: u64, at: u64, number: u32) -> Self {
        Stream { begin: page, last: page, run: 1, piece: Piece::of(page, number), at }
    }

    fn is_known(&self) -> bool {
        self.run >= RUN_MIN
    }

    /// Whether the stream goes on with a page: in its direction, or in any while it is not known.
    fn goes_to(&self, page: u64) -> bool {
        let gap = if self.is_known() { GAP_IN_RUN } else { GAP };
        let is_along = !self.is_known() || (page > self.last) == (self.last > self.begin);
        is_along && page != self.last && page.abs_diff(self.last) <= gap
    }

    /// Whether the page is one that the stream has left out a moment ago: threads and the kernel's own order make such.
    fn is_late(&self, page: u64) -> bool {
        self.is_known() && self.piece.holds(page) && page.abs_diff(self.last) <= GAP
    }
}

/// The streams.
#[derive(Clone, Debug, Default)]
pub struct Streams {
    streams: Vec<Stream>,
    uses: u64,
    begun: u32,
}

impl Streams {
    /// A page came back and was used. Returns the piece that its stream has left by that, if it is known to be one.
    pub fn used(&mut self, page: u64) -> Option<Piece> {
        self.uses += 1;
        let Some(stream) = self.streams.iter_mut().find(|stream| stream.goes_to(page)) else {
            match self.streams.iter_mut().find(|stream| stream.is_late(page)) {
                Some(stream) => stream.piece.used |= bit_of(page),
                None => self.begin(page),
            }
            return None;
        };
        (stream.last, stream.at) = (page, self.uses);
        stream.run = stream.run.saturating_add(1);
        if stream.piece.holds(page) {
            stream.piece.used |= bit_of(page);
            return None;
        }
        let next = Piece::of(page, stream.piece.stream);
        let left = std::mem::replace(&mut stream.piece, next);
        (stream.run > RUN_MIN).then_some(left)
    }

    fn begin(&mut self, page: u64) {
        self.begun = self.begun.wrapping_add(1);
        let new = Stream::new(page, self.uses, self.begun);
        if self.streams.len() < STREAMS {
            self.streams.push(new);
        } else if let Some(oldest) = self.streams.iter_mut().min_by_key(|stream| stream.at) {
            *oldest = new;
        }
    }

    /// Bytes held.
    pub fn metadata_bytes(&self) -> u64 {
        (self.streams.capacity() * size_of::<Stream>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn passed(pages: impl IntoIterator<Item = u64>) -> Vec<Piece> {
        let mut streams = Streams::default();
        pages.into_iter().filter_map(|page| streams.used(page)).collect()
    }

    #[test]
    fn a_sweep_passes_each_piece_once_up_or_down() {
        let up = passed(640..1280);
        assert_eq!(
            up,
            (10..19).map(|piece| Piece { first: piece * 64, used: u64::MAX, stream: 1 }).collect::<Vec<_>>()
        );
        let down = passed((640..1280).rev());
        assert_eq!(
            down,
            (11..20)
                .rev()
                .map(|piece| Piece { first: piece * 64, used: u64::MAX, stream: 1 })
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn what_stayed_is_jumped_over_and_not_among_the_used() {
        // The second half of each piece has stayed.
        let pages = (0..640).filter(|page| page % 64 < 32);
        let all = passed(pages);
        assert_eq!(all.len(), 9);
        assert!(all.iter().all(|piece| piece.used == u64::from(u32::MAX) && piece.pages() == 32));
        assert_eq!(all[1].used_pages().collect::<Vec<_>>(), (64..96).collect::<Vec<_>>());
    }

    #[test]
    fn neighbours_that_come_out_of_order_belong_to_it() {
        // In pairs, the second one first, as two threads may have it.
        let pages = (0..320).flat_map(|pair| [2 * pair + 1, 2 * pair]);
        let all: Vec<u64> = passed(pages).into_iter().flat_map(Piece::used_pages).collect();
        assert_eq!(all, (0..all.len() as u64).collect::<Vec<_>>());
        assert!(all.len() >= 9 * 64);
    }

    #[test]
    fn sweeps_at_once_do_not_disturb_each_other() {
        let pages = (0..1000).flat_map(|step| [step, 100_000 - step, 200_000 + step]);
        assert_eq!(passed(pages).len(), 15 + 16 + 15);
    }

    #[test]
    fn short_runs_and_the_ends_of_all_numbers_pass_nothing() {
        // Runs of sixteen pages, far apart.
        assert_eq!(passed((0..100).flat_map(|run| (0..16).map(move |page| run * 1000 + 56 + page))), []);
        assert_eq!(passed([u64::MAX - 1, u64::MAX, 0, 1]), []);
    }

    proptest! {
        /// Pages without an order pass nothing, however small the memory.
        #[test]
        fn random_pages_pass_nothing(seed in 0_u64..u64::MAX) {
            let mut rng = tiermem_base::Rng::seeded(seed);
            prop_assert_eq!(passed((0..3000).map(|_| rng.below(16_384))), []);
        }

        /// A page is in no more pieces than it was used.
        #[test]
        fn pieces_hold_what_was_used(pages in prop::collection::vec(0_u64..512, 0..600)) {
            let mut seen = BTreeSet::new();
            let mut streams = Streams::default();
            for page in pages {
                seen.insert(page);
                if let Some(piece) = streams.used(page) {
                    prop_assert!(piece.used_pages().all(|page| seen.contains(&page)));
                    prop_assert!(piece.pages() > 0 && !piece.holds(page));
                }
            }
        }
    }
}
