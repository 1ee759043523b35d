//! Admission to the block cache: reads that get no place are those of long sequential streams, and those of pieces that are
//! requested too seldom.
//!
//! Source: Open CAS, "sequential cutoff" and the "nhit" promotion policy, both with their defaults: no read is refused while the
//! cache has free room. A refused read is still answered from the cache as far as the cache has its bytes, and a request for
//! which every piece has a block is never refused. Writes are never refused: in write-back mode none may bypass the cache, or the
//! order of epochs would not hold, and in the other modes the backing store gets them in any case.

use std::ops::Range;

use super::plan::Request;

/// Streams of a volume that are told apart; that which went on longest ago makes room.
const STREAMS: usize = 16;
/// Counters for each slot of the cache. With 16 a new piece is mistaken for another one time in twenty.
const COUNTERS_PER_SLOT: u64 = 16;
/// Counters at most.
const COUNTERS_MAX: u64 = 1 << 24;
/// Counters that age whenever a piece is counted. All have aged once after four times as many pieces as the cache has slots: a
/// piece that is requested again later than that is counted from zero.
const AGED_AT_ONCE: usize = 4;

/// Rules of admission: which reads are refused a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionRules {
    /// Refuses reads that continue a stream which is this long with them, in bytes; none if `None`.
    pub sequential_cutoff_bytes: Option<u64>,
    /// Refuses reads of pieces that were missed less often than this, this time included; none with 1 or 0.
    pub promote_after: u8,
}

impl Default for AdmissionRules {
    /// No read is refused.
    fn default() -> Self {
        AdmissionRules { sequential_cutoff_bytes: None, promote_after: 1 }
    }
}

/// Reads of a volume each of which began where the one before ended.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// Where the last one ended.
    end: u64,
    bytes: u64,
    /// When that was, in reads.
    used: u64,
}

/// The state of admission: streams and counters of the reads so far.
#[derive(Clone, Debug)]
pub struct Admission {
    rules: AdmissionRules,
    reads: u64,
    /// The streams of each volume, by its number.
    streams: Vec<[Stream; STREAMS]>,
    misses: Sketch,
}

impl Admission {
    /// Empty counters and streams, for a cache of `slots` slots.
    pub fn new(rules: AdmissionRules, slots: u32) -> Self {
        let counts = if rules.promote_after > 1 { u64::from(slots) } else { 0 };
        Admission { rules, reads: 0, streams: Vec::new(), misses: Sketch::new(counts) }
    }

    /// Whether no read is ever refused.
    pub fn is_open(&self) -> bool {
        self.rules.sequential_cutoff_bytes.is_none() && self.rules.promote_after <= 1
    }

    /// Whether a request is to go past the cache; `missing` are the ranges of its pieces that have no block. Every request is shown once.
    pub fn bypass(&mut self, request: &Request, missing: impl Iterator<Item = Range<u64>>) -> bool {
        if self.is_open() || request.write.is_some() {
            return false;
        }
        let stream_bytes = self.follow(request);
        let mut missing = missing.flatten().peekable();
        if missing.peek().is_none() {
            return false;
        }
        if self.rules.sequential_cutoff_bytes.is_some_and(|cutoff| stream_bytes >= cutoff) {
            return true;
        }
        if self.rules.promote_after <= 1 {
            return false;
        }
        let volume = u64::from(request.volume.0) << 48;
        let seldom = missing.filter(|piece| self.misses.count(volume ^ piece) < self.rules.promote_after);
        seldom.count() > 0
    }

    /// Finds the stream that a read continues, or begins one; its bytes with the read.
    fn follow(&mut self, request: &Request) -> u64 {
        self.reads += 1;
        let volume = usize::from(request.volume.0);
        if self.streams.len() <= volume {
            self.streams.resize(volume + 1, Default::default());
        }
        let streams = &mut self.streams[volume];
        let Request { offset, bytes, .. } = *request;
        let continued = streams.iter().position(|stream| stream.used > 0 && stream.end == offset);
        let at = continued.or_else(|| (0..STREAMS).min_by_key(|&at| streams[at].used)).unwrap_or(0);
        let before = if continued.is_some() { streams[at].bytes } else { 0 };
        let stream = &mut streams[at];
        *stream = Stream { end: offset + bytes, bytes: before.saturating_add(bytes), used: self.reads };
        stream.bytes
    }

    /// Bytes held.
    pub fn metadata_bytes(&self) -> u64 {
        (self.streams.capacity() * size_of::<[Stream; STREAMS]>() + self.misses.counters.capacity()) as u64
    }
}

/// Roughly how often each of many things was counted lately: never too few while none has aged, sometimes too many.
///
/// A count-min sketch of two rows in one table, with conservative update (Estan and Varghese, SIGCOMM 2002): only the smaller of a
/// thing's two counters counts. Counters are halved one after the other, so that no call takes long.
#[derive(Clone, Debug)]
struct Sketch {
    /// As many as a power of two, or none.
    counters: Vec<u8>,
    /// The counter that ages next.
    hand: usize,
}

impl Sketch {
    fn new(slots: u64) -> Self {
        let counters = match slots {
            0 => 0,
            slots => (slots * COUNTERS_PER_SLOT).next_power_of_two().min(COUNTERS_MAX),
        };
        Sketch { counters: vec![0; counters as usize], hand: 0 }
    }

    /// Counts a thing; how often it was counted, this time included.
    fn count(&mut self, thing: u64) -> u8 {
        let size = self.counters.len();
        if size == 0 {
            return u8::MAX;
        }
        for _ in 0..AGED_AT_ONCE {
            self.hand = (self.hand + 1) % size;
            self.counters[self.hand] /= 2;
        }
        let hash = tiermem_base::hash::sample_hash(thing);
        let places = [hash >> 32, hash].map(|hash| hash as usize & (size - 1));
        let count = places.map(|place| self.counters[place]).into_iter().min().unwrap_or(0).saturating_add(1);
        for place in places {
            self.counters[place] = self.counters[place].max(count);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extents::{Mode, Volume};

    const MIB: u64 = 1 << 20;

    fn cutoff(bytes: u64) -> Admission {
        let rules = AdmissionRules { sequential_cutoff_bytes: Some(bytes), promote_after: 1 };
        Admission::new(rules, 1024)
    }

    fn read(volume: u16, offset: u64, bytes: u64) -> Request {
        Request { volume: Volume(volume), offset, bytes, write: None, bypass: false }
    }

    /// A read that misses one piece.
    fn bypass(admission: &mut Admission, request: &Request) -> bool {
        admission.bypass(request, std::iter::once(0..1))
    }

    #[test]
    fn interleaved_streams_are_each_cut_off_at_their_length() {
        let mut admission = cutoff(8 * MIB);
        for step in 0..20 {
            for stream in 0..STREAMS as u64 {
                let request = read(0, (stream << 30) + step * MIB, MIB);
                assert_eq!(bypass(&mut admission, &request), step >= 7, "step {step} of {stream}");
            }
            // The same addresses in another volume are no part of them.
            assert!(!bypass(&mut admission, &read(1, step * 3 * MIB, MIB)));
        }
    }

    #[test]
    fn the_stream_that_rested_longest_makes_room() {
        let mut admission = cutoff(2 * MIB);
        for stream in 0..=STREAMS as u64 {
            assert!(!bypass(&mut admission, &read(0, stream << 30, MIB)));
        }
        assert!(bypass(&mut admission, &read(0, (1 << 30) + MIB, MIB)));
        assert!(!bypass(&mut admission, &read(0, MIB, MIB)), "the first is forgotten");
    }

    #[test]
    fn what_is_cached_and_what_is_written_is_never_turned_away_and_one_large_read_is_a_stream() {
        let mut admission = cutoff(4 * MIB);
        assert!(bypass(&mut admission, &read(0, 0, 4 * MIB)));
        assert!(!admission.bypass(&read(0, 4 * MIB, MIB), std::iter::once(7..7)), "nothing is missing");
        assert!(bypass(&mut admission, &read(0, 5 * MIB, MIB)), "but it went on");
        let write = Request { write: Some(Mode::WriteBack), ..read(0, 6 * MIB, MIB) };
        assert!(!bypass(&mut admission, &write));
        assert!(bypass(&mut admission, &read(0, 6 * MIB, MIB)), "writes are no part of streams of reads");
    }

    #[test]
    fn pieces_come_in_when_they_were_missed_often_enough() {
        let rules = AdmissionRules { sequential_cutoff_bytes: None, promote_after: 3 };
        let mut admission = Admission::new(rules, 1024);
        let mut away = |pieces: Range<u64>| admission.bypass(&read(0, 0, MIB), std::iter::once(pieces));
        assert_eq!([away(5..7), away(5..7), away(5..7)], [true, true, false]);
        assert!(away(6..8), "one of them is new");
        assert!([away(7..8), away(7..8)].contains(&false));
    }

    #[test]
    fn what_is_missed_seldom_stays_outside_however_long_it_goes_on() {
        let rules = AdmissionRules { sequential_cutoff_bytes: None, promote_after: 2 };
        let mut admission = Admission::new(rules, 1024);
        let once = (0..100_000)
            .filter(|&piece| !admission.bypass(&read(0, 0, MIB), std::iter::once(piece..piece + 1)));
        assert!(once.count() < 10_000, "those that collide");
    }
}
