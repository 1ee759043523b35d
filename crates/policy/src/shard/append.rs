//! Appends to the log: the log itself, its segments that are being filled, and the acts of both.
//!
//! The bytes of a segment that is being filled stay with the driver until all of it is safe and announced;
//! [`super::Duty::Release`] says so. So a look-up of an item there needs no device, and a segment whose bytes are still in memory
//! is not read to be emptied.

use std::collections::VecDeque;

use super::open_segments::Fillings;
use super::{Act, From, Keys};
use crate::log::{Appended, Fate, Leaving, Log, LogPlace, Stream};

/// A log, and the segments of it that are being filled.
#[derive(Debug)]
pub(super) struct Appender {
    log: Log,
    fillings: Fillings,
    acts: VecDeque<Act>,
}

/// Hands out the bytes of a segment that are to be written.
fn writes(acts: &mut VecDeque<Act>, segment: u32) -> impl FnMut(std::ops::Range<u32>) {
    move |range| acts.push_back(Act::Write { segment, start: range.start, end: range.end })
}

impl Appender {
    /// An appender to this log; no segment is being filled.
    pub(super) fn new(log: Log) -> Self {
        Appender { log, fillings: Fillings::default(), acts: VecDeque::new() }
    }

    /// The log, to be read.
    #[inline]
    pub(super) fn log(&self) -> &Log {
        &self.log
    }

    /// The log, for changes that concern no segment that is being filled.
    pub(super) fn log_mut(&mut self) -> &mut Log {
        &mut self.log
    }

    /// The segments that are being filled.
    pub(super) fn fillings(&self) -> &Fillings {
        &self.fillings
    }

    /// The segments that are being filled, to note the work that the device has done.
    pub(super) fn fillings_mut(&mut self) -> &mut Fillings {
        &mut self.fillings
    }

    /// Whether the driver should be given more time, as it has too much to write or to empty.
    pub(super) fn is_choked(&self) -> bool {
        self.log.is_choked(self.fillings.len())
    }

    /// Decides the fate of an item that leaves memory. `is_here`: the log has the same one.
    pub(super) fn receive(&mut self, leaving: &Leaving, is_here: bool) -> Fate {
        self.log.receive(leaving, is_here, self.fillings.len())
    }

    /// Appends an item and enters its place; the act that writes its bytes there. Other acts follow. `None`: no space.
    pub(super) fn append(
        &mut self,
        keys: &mut Keys,
        stream: Stream,
        (hash, bytes, heat): (u64, u32, u32),
        from: From,
    ) -> Option<Act> {
        let Appended { place, segment, sequence, offset, sealed } = self.log.append(stream, bytes)?;
        if let Some(sealed) = sealed {
            self.seal(sealed);
        }
        let to = Appended { place: place.with_heat(heat), segment, sequence, offset, sealed };
        self.fillings.append(stream, (hash, bytes), &to, writes(&mut self.acts, segment));
        let replaced = keys.put_below(hash, to.place);
        if let Some(replaced) = replaced {
            // Another key with the same 40 bits, or what survives now: either is at one place only.
            self.log.forget(replaced);
        }
        Some(Act::Append { from, to, hash, bytes, replaced: replaced.filter(|_| stream == Stream::Fresh) })
    }

    /// Takes an item out of index and log. Returns where it was.
    pub(super) fn forget(&mut self, keys: &mut Keys, hash: u64) -> Option<LogPlace> {
        let place = keys.remove_below(hash)?;
        self.log.forget(place);
        Some(place)
    }

    /// Seals a segment: nothing more is appended to it, and the rest is written as it is.
    fn seal(&mut self, segment: u32) {
        self.acts.push_back(Act::Seal { segment });
        self.fillings.seal(segment, writes(&mut self.acts, segment));
    }

    /// Seals all segments that are being filled.
    pub(super) fn seal_all(&mut self) {
        for stream in [Stream::Fresh, Stream::Kept] {
            self.log.seal(stream);
        }
        self.fillings.unsealed().into_iter().for_each(|segment| self.seal(segment));
    }

    /// Writes a stream's open segment, to the last byte appended.
    pub(super) fn flush(&mut self, stream: Stream) {
        if let Some(segment) = self.fillings.open(stream) {
            self.log.pad(stream);
            let segment_bytes = self.log.config().segment_bytes;
            self.fillings.pad(segment, segment_bytes, writes(&mut self.acts, segment));
        }
    }

    /// Flushes both streams.
    pub(super) fn flush_all(&mut self) {
        [Stream::Fresh, Stream::Kept].into_iter().for_each(|stream| self.flush(stream));
    }

    /// Has this done when the acts before it are.
    pub(super) fn push(&mut self, act: Act) {
        self.acts.push_back(act);
    }

    /// Has this done before all others.
    pub(super) fn push_first(&mut self, act: Act) {
        self.acts.push_front(act);
    }

    /// The next act, to be carried out before anything else is decided.
    #[inline]
    pub(super) fn next_act(&mut self) -> Option<Act> {
        self.acts.pop_front()
    }

    /// Whether nothing is.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.acts.is_empty()
    }

    /// The segment in which a place lies, and the number of its filling.
    pub(super) fn filling_of(&self, place: LogPlace) -> (u32, u32) {
        let segment = self.log.segment_of(place.page());
        (segment, self.log.sequence(segment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Id;
    use crate::ladder::Loc;
    use crate::log::{Admission, LOG_PAGE_BYTES, LogConfig, RESERVE};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const SEGMENT_BYTES: u32 = 160 << 10;

    /// A segment as its driver knows it.
    #[derive(Debug)]
    struct Known {
        stream: Stream,
        /// The byte behind the last item.
        end: u32,
        /// Everything before this is to be written.
        written: u32,
        is_sealed: bool,
    }

    proptest! {
        /// Over any sequence of appends, deaths and flushes: an item has one place, in its stream's open segment and after the
        /// items before it; each byte is written once and in order, all of a segment's when it is sealed.
        #[test]
        fn what_comes_in_has_one_place_and_is_written_once(
            ops in prop::collection::vec((0u8..24, 0u64..12, 100u32..9000, any::<bool>()), 1..150),
        ) {
            let config = LogConfig { segments: 16, segment_bytes: SEGMENT_BYTES, admission: Admission::All, reserve: RESERVE, journal_records: 1 << 20 };
            let mut keys = Keys::default();
            let mut appender = Appender::new(Log::new(config));
            let from = From::Memory { id: Id(0), loc: Loc { tier: 0, unit: 0 }, expires_at_ms: None };
            let mut live = BTreeMap::<u64, LogPlace>::new();
            let mut segments = BTreeMap::<u32, Known>::new();
            for (what, key, bytes, is_kept) in ops {
                let hash = (key + 1) << 40;
                let stream = if is_kept { Stream::Kept } else { Stream::Fresh };
                match what {
                    0..19 => match appender.append(&mut keys, stream, (hash, bytes, 0), from) {
                        Some(Act::Append { from: whose, to, hash: of, bytes: len, replaced }) => {
                            prop_assert_eq!((whose, of, len), (from, hash, bytes));
                            prop_assert_eq!(replaced, live.insert(hash, to.place).filter(|_| !is_kept));
                            let new = Known { stream, end: 0, written: 0, is_sealed: false };
                            let known = segments.entry(to.segment).or_insert(new);
                            prop_assert!(known.stream == stream && !known.is_sealed && to.offset >= known.end);
                            known.end = to.offset + bytes;
                            prop_assert!(known.end <= SEGMENT_BYTES);
                            prop_assert_eq!(appender.filling_of(to.place), (to.segment, to.sequence));
                            let page = to.segment * (SEGMENT_BYTES / LOG_PAGE_BYTES) + to.offset / LOG_PAGE_BYTES;
                            prop_assert_eq!(to.place.page(), page);
                        }
                        act => prop_assert_eq!(act, None),
                    }
                    19..22 => prop_assert_eq!(appender.forget(&mut keys, hash), live.remove(&hash)),
                    22 => appender.flush(stream),
                    _ => appender.seal_all(),
                }
                while let Some(act) = appender.next_act() {
                    match act {
                        Act::Seal { segment } => {
                            let known = segments.get_mut(&segment).unwrap();
                            prop_assert!(!std::mem::replace(&mut known.is_sealed, true), "it is sealed once");
                        }
                        Act::Write { segment, start, end } => {
                            let known = segments.get_mut(&segment).unwrap();
                            prop_assert!(start == known.written && end > start && end.is_multiple_of(LOG_PAGE_BYTES));
                            known.written = end;
                        }
                        act => prop_assert!(false, "{:?}", act),
                    }
                }
                prop_assert!(appender.is_quiet());
                for known in segments.values() {
                    let all = known.is_sealed || what == 22 && known.stream == stream;
                    prop_assert!(!all || known.written >= known.end);
                    prop_assert!(what < 23 || known.is_sealed);
                }
                prop_assert_eq!(appender.log().items(), live.len() as u64);
                for (&hash, &place) in &live {
                    prop_assert_eq!(keys.place_below(hash), Some(place));
                }
                prop_assert_eq!(keys.items_below(), live.len() as u64);
            }
        }
    }
}
