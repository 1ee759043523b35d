//! Repeated crashes: a cache that dies again and again keeps its promises, and never makes up data.

#[path = "journal/world.rs"]
mod world;

use tiermem_block::journal::LayoutConfig;
use world::World;

fn lives(
    block_bytes: &[u64],
    table_bytes: Option<u64>,
    disk_bytes: usize,
    units: u64,
    seeds: std::ops::Range<u64>,
    steps: u64,
) {
    let config =
        LayoutConfig { block_bytes: block_bytes.to_vec(), group_bytes: None, log_bytes: Some(256 << 10) };
    let (mut taken, mut dropped, mut kept, mut poisoned) = (0, 0, 0, 0);
    for seed in seeds {
        eprintln!("seed {seed}");
        let mut world = World::new(config.clone(), table_bytes, disk_bytes, units, seed);
        for _ in 0..8 {
            let steps = world.rng.below(steps);
            world.live(steps);
            let power = world.rng.below(3) > 0;
            world.crash(power);
            // What a recovery has found after the death of the process must stay through all later crashes.
            if !power {
                world.crash(true);
            }
        }
        taken += world.taken;
        dropped += world.dropped;
        kept += world.kept;
        poisoned += world.poisoned;
    }
    // The cases that recovery is for have come up.
    eprintln!("taken {taken}, dropped {dropped}, kept {kept}, poisoned {poisoned}");
    assert!(taken > 0 && dropped > 0 && kept > 0);
}

#[test]
fn small_blocks() {
    lives(&[4096, 8192, 16384], None, 4 << 20, 150, 0..60, 4000);
}

#[test]
fn small_blocks_and_little_memory() {
    lives(&[4096, 8192, 16384], Some(8192), 4 << 20, 150, 200..240, 4000);
}

#[test]
fn blocks_over_several_pages() {
    lives(&[2 << 20, 4 << 20], None, 32 << 20, 3000, 100..110, 2000);
}

#[test]
fn blocks_over_several_pages_and_little_memory() {
    lives(&[2 << 20, 4 << 20], Some(3 * 4096), 32 << 20, 3000, 300..330, 4000);
}
