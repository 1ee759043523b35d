//! An engine's virtual time.

use tiermem_block::disks::{Disks, Outcome};
use tiermem_block::engine::Engine;
use tiermem_tier::block::Simulation;

/// Lets time pass, from one moment at which something happens to the next, and tells what was answered.
pub fn pass(engine: &mut Engine, simulation: &Simulation, time_ns: u64, mut answered: impl FnMut(Outcome)) {
    let end_ns = simulation.now_ns() + time_ns;
    let mut done = Vec::new();
    loop {
        engine.take(&mut done);
        done.drain(..).for_each(&mut answered);
        let now_ns = simulation.now_ns();
        if now_ns >= end_ns {
            return;
        }
        let due_ns = simulation.next_due_ns().into_iter().chain(engine.wakes_at_ns()).min();
        let next_ns = due_ns.map_or(end_ns, |due_ns| due_ns.clamp(now_ns + 1_000, end_ns));
        simulation.pass(next_ns - now_ns);
    }
}
