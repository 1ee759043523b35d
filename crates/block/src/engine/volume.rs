//! Volume: its store, its claims and its flushes; and the set of volumes.

use std::ops::{Index, IndexMut};
use std::sync::Arc;

use tiermem_policy::extents::cleaner::Standing;
use tiermem_policy::extents::{Mode, Share, Volume};

use super::claims::Claims;
use super::config::VolumeConfig;
use super::counts::Counts;
use super::flushing::Flushing;
use super::op::Failure;
use super::pairing_state::Pairing;
use crate::disks::Waker;
use crate::nbd::Export;
use tiermem_tier::backing::{Backing, Completion};

/// A volume.
pub(super) struct VolumeState {
    /// Under which the cache knows it.
    pub number: Volume,
    pub backing: Box<dyn Backing>,
    pub mode: Mode,
    /// The share that its blocks are charged to, and that share's quota.
    pub share: Share,
    pub quota_bytes: Option<u64>,
    /// Whether each write is to be durable before its client is told.
    pub acknowledges_durably: bool,
    pub claims: Claims,
    pub counts: Counts,
    pub flushing: Flushing,
    pub pairing: Pairing,
    /// Until when nothing more is said of requests that the store fails.
    quiet_until_ns: u64,
    /// What was said of its store's room.
    room: Room,
}

/// Whether a store has room for what is written back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Room {
    #[default]
    Some,
    None,
    /// None, and those who would wait for it are refused.
    Refuses,
}

/// Least time between messages about failed requests of a store.
const COMPLAIN_EVERY_NS: u64 = 1_000_000_000;

impl VolumeState {
    /// Whether it is time to say that the store fails requests.
    fn may_complain(&mut self, now_ns: u64) -> bool {
        let may = now_ns >= self.quiet_until_ns;
        if may {
            self.quiet_until_ns = now_ns + COMPLAIN_EVERY_NS;
        }
        may
    }

    pub(super) fn new(number: Volume, config: &VolumeConfig, backing: Box<dyn Backing>) -> Self {
        VolumeState {
            number,
            backing,
            mode: config.mode,
            share: Share(config.share),
            quota_bytes: config.quota_bytes,
            acknowledges_durably: config.acknowledges_durably,
            claims: Claims::default(),
            counts: Counts::default(),
            flushing: Flushing::default(),
            pairing: Pairing::default(),
            quiet_until_ns: 0,
            room: Room::default(),
        }
    }
}

/// The volumes, by their places: those of the server's exports.
#[derive(Default)]
pub(super) struct Volumes {
    states: Vec<VolumeState>,
    exports: Vec<Export>,
    /// The place of each, by the number under which the cache knows it.
    places: Vec<usize>,
    /// What stores have done, and was not taken yet; the first one last.
    answered: Vec<Completion>,
}

impl Volumes {
    /// Adds a volume; its place.
    pub fn add(&mut self, volume: VolumeState, export: Export) -> usize {
        let (at, number) = (self.states.len(), usize::from(volume.number.0));
        self.places.resize(self.places.len().max(number + 1), usize::MAX);
        self.places[number] = at;
        self.states.push(volume);
        self.exports.push(export);
        at
    }

    /// Number of volumes.
    pub fn len(&self) -> usize {
        self.states.len()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &VolumeState> {
        self.states.iter()
    }

    /// All of them, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut VolumeState> {
        self.states.iter_mut()
    }

    /// Says, now and then, that the store of the volume at a place fails what a client waits for.
    pub fn complain(&mut self, at: usize, now_ns: u64, offset: u64, failure: &Failure) {
        if self.states[at].may_complain(now_ns) {
            tracing::warn!(volume = self.name(at), offset, error = failure.1, "a request fails");
        }
    }

    /// Says whether the store of the volume at a place has room, when that has changed.
    pub fn tell_of_room(&mut self, at: usize, standing: Standing, now_ns: u64) {
        let room = match standing {
            Standing { full_since_ns: None, .. } => Room::Some,
            Standing { refuses: false, .. } => Room::None,
            Standing { refuses: true, .. } => Room::Refuses,
        };
        let before = std::mem::replace(&mut self.states[at].room, room);
        if before == room {
            return;
        }
        let volume = self.name(at);
        let full_s = standing.full_since_ns.map(|since_ns| now_ns.saturating_sub(since_ns) / 1_000_000_000);
        let dirty_bytes = standing.unwritten_bytes();
        match room {
            Room::Some => tracing::info!(volume, "the store has room again, and has all that it had refused"),
            Room::None if before == Room::Refuses => {
                tracing::info!(volume, full_s, "the store takes something again: writes wait for it");
            }
            Room::None => tracing::warn!(
                volume,
                dirty_bytes,
                "the store is full: give it room; writes go on as long as the cache has"
            ),
            Room::Refuses => tracing::error!(
                volume,
                full_s,
                dirty_bytes,
                "the store is full, and so is the cache: writes that would have to wait fail, until the store has room"
            ),
        }
    }

    /// The exports of the volumes.
    pub fn exports(&self) -> &[Export] {
        &self.exports
    }

    /// The export's name.
    pub fn name(&self, at: usize) -> &str {
        &self.exports[at].name
    }

    /// Where the volume of this number is.
    pub fn place_of(&self, volume: Volume) -> usize {
        self.places[usize::from(volume.0)]
    }

    /// Asks the stores what they have done; whether there is anything.
    pub fn collect(&mut self) -> bool {
        debug_assert!(self.answered.is_empty(), "all is taken before more is asked for");
        self.states.iter_mut().for_each(|volume| volume.backing.completed(&mut self.answered));
        self.answered.reverse();
        !self.answered.is_empty()
    }

    /// Takes the oldest completion.
    pub fn answered(&mut self) -> Option<Completion> {
        self.answered.pop()
    }

    /// Whom to call when a store has done something.
    pub fn notify(&mut self, waker: &Waker) {
        self.states.iter_mut().for_each(|volume| volume.backing.notify(Arc::clone(waker)));
    }
}

impl Index<usize> for Volumes {
    type Output = VolumeState;

    fn index(&self, at: usize) -> &VolumeState {
        &self.states[at]
    }
}

impl IndexMut<usize> for Volumes {
    fn index_mut(&mut self, at: usize) -> &mut VolumeState {
        &mut self.states[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiermem_tier::backing::{MemoryStore, Request};

    /// Volumes of these numbers.
    fn volumes(numbers: &[u16]) -> Volumes {
        let mut volumes = Volumes::default();
        for number in numbers {
            let config = VolumeConfig::new(format!("v{number}"));
            let export = config.export(8192, false);
            let volume = VolumeState::new(Volume(*number), &config, Box::new(MemoryStore::new(8192).open()));
            volumes.add(volume, export);
        }
        volumes
    }

    #[test]
    fn a_volume_is_found_by_its_number_wherever_it_was_added() {
        let volumes = volumes(&[5, 0, 9]);
        assert_eq!(volumes.len(), 3);
        for (at, number) in [5, 0, 9].into_iter().enumerate() {
            assert_eq!((volumes.place_of(Volume(number)), volumes[at].number), (at, Volume(number)));
            assert_eq!(
                (volumes.name(at), &*volumes.exports()[at].name),
                (&*format!("v{number}"), volumes.name(at))
            );
        }
    }

    #[test]
    fn what_stores_have_done_is_taken_once_and_in_order() {
        let mut volumes = volumes(&[0, 1]);
        assert!(!volumes.collect() && volumes.answered().is_none());
        for (at, token) in [(1, 7), (0, 3), (0, 4)] {
            volumes[at].backing.submit(Request::flush(token));
        }
        assert!(volumes.collect());
        let tokens: Vec<u64> =
            std::iter::from_fn(|| volumes.answered()).map(|completion| completion.token).collect();
        assert_eq!(tokens, [3, 4, 7], "one store after the other, each in its own order");
        assert!(!volumes.collect(), "each is told once");
    }

    #[test]
    fn a_store_is_complained_of_once_a_second_each() {
        let mut volumes = volumes(&[0, 1]);
        assert!(volumes[0].may_complain(5) && !volumes[0].may_complain(5 + COMPLAIN_EVERY_NS - 1));
        assert!(volumes[1].may_complain(6), "another store is another's affair");
        assert!(volumes[0].may_complain(5 + COMPLAIN_EVERY_NS));
    }
}
