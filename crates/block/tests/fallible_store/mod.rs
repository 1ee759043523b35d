//! An engine in virtual time, in front of a store that fails when a test wants it to.

use std::sync::Arc;

use tiermem_base::Rng;
use tiermem_block::engine::{Engine, EngineConfig, VolumeConfig};
use tiermem_policy::extents::Mode;
use tiermem_policy::extents::cleaner::{CleanerRules, WriteBackOrder};
use tiermem_tier::backing::{FaultControl, Faulty, MemoryStore};
use tiermem_tier::block::{MemoryDisk, Simulated, Simulation};

pub const ORDERS: [WriteBackOrder; 3] = [WriteBackOrder::Group, WriteBackOrder::Flush, WriteBackOrder::None];

/// The engine, and what it stands on.
pub struct Parts {
    pub engine: Engine,
    pub store: MemoryStore,
    pub faults: FaultControl,
    pub simulation: Simulation,
}

/// A cache of 16 MiB, which outlives its process if it `is_kept`, and a volume.
pub fn start(cleaning: CleanerRules, mode: Mode, is_kept: bool, volume_bytes: u64) -> Parts {
    let (simulation, disk) = (Simulation::new(1), MemoryDisk::new(16 << 20));
    let (clock, pause) = (simulation.clone(), simulation.clone());
    let config = EngineConfig {
        cleaning,
        log_bytes: Some(1 << 20),
        clock: Arc::new(move || clock.now_ns()),
        pause: Arc::new(move |time| pause.pass(time.as_nanos() as u64)),
        ..EngineConfig::default()
    };
    let cache = Box::new(Simulated::steady(disk, &simulation, 10_000));
    let mut engine = match is_kept {
        true => Engine::open(cache, config, false).unwrap().0,
        false => Engine::new(cache, config).unwrap(),
    };
    let store = MemoryStore::new(volume_bytes);
    let steady = Simulated::steady(store.clone(), &simulation, 10_000);
    let faulty = Faulty::new(steady, Default::default(), Rng::seeded(1));
    let faults = faulty.control();
    engine.add(VolumeConfig { mode, ..VolumeConfig::new("disk") }, Box::new(faulty)).unwrap();
    engine.begin_service().unwrap();
    Parts { engine, store, faults, simulation }
}
