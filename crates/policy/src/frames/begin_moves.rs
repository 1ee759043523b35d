//! The mover, which begins moves: the state together with what one call brings along (time, random numbers, acts).

use super::act::Act;
use super::state::State;
use crate::prefetch::Why;
use tiermem_base::Rng;

/// Access of one call to the state. Making room ([`super::evict`]), bringing frames in ([`super::fault`]) and background work
/// ([`super::step`]) are its functions.
#[derive(Debug)]
pub(super) struct Mover<'a, E> {
    pub state: &'a mut State<E>,
    pub now: u64,
    pub rng: &'a mut Rng,
    pub acts: &'a mut Vec<Act>,
    /// Why room is made, as prefetchers have it.
    pub why: Why,
}
