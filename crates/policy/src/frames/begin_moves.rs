//! Who begins moves: the state, and what a call brings along.

use super::act::Act;
use super::state::State;
use crate::prefetch::Why;
use tiermem_base::Rng;

/// One call's hold on the state. Making room ([`super::evict`]), bringing frames in ([`super::fault`]) and background work
/// ([`super::step`]) are its functions.
#[derive(Debug)]
pub(super) struct Mover<'a, E> {
    pub state: &'a mut State<E>,
    pub now: u64,
    pub rng: &'a mut Rng,
    pub acts: &'a mut Vec<Act>,
    /// For whom room is made, as prefetchers have it.
    pub why: Why,
}
