//! Engine over memory, for tests of its parts.

use tiermem_policy::extents::{Mode, Sizing};
use tiermem_tier::backing::MemoryStore;
use tiermem_tier::block::MemoryDisk;

use super::shared::Shared;
use super::{Engine, EngineConfig, VolumeConfig};
use crate::disks::{Answer, Asker, Outcome, Task};

const VOLUME_BYTES: u64 = 4 << 20;

/// What a test has of an engine with one volume in this mode: its parts, and the volume's store. With a log where it is `kept`; nothing is
/// submitted to the cache's device unless the test has it done.
pub(super) fn engine(mode: Mode, kept: bool) -> (Engine, MemoryStore) {
    let cache = Box::new(MemoryDisk::new(16 << 20).open());
    let config = EngineConfig { sizing: Sizing::Request, ..EngineConfig::default() };
    let mut engine = match kept {
        true => Engine::open(cache, config, false).unwrap().0,
        false => Engine::new(cache, config).unwrap(),
    };
    let store = MemoryStore::new(VOLUME_BYTES);
    engine.add(VolumeConfig { mode, ..VolumeConfig::new("disk") }, Box::new(store.open())).unwrap();
    engine.begin_service().unwrap();
    (engine, store)
}

/// A client, by the name of its request.
pub(super) fn asker(cookie: u64) -> Asker {
    Asker { connection: 1, cookie }
}

/// Replies to clients since the last call: the request, and whether it succeeded.
pub(super) fn told(shared: &mut Shared) -> Vec<(u64, bool)> {
    let mut done = Vec::new();
    shared.answers.take(&mut done);
    done.iter().map(|outcome: &Outcome| (outcome.asker.cookie, outcome.result.is_ok())).collect()
}

/// Has a client's request done; the bytes of a read.
pub(super) fn ask(engine: &mut Engine, task: Task, range: std::ops::Range<u64>) -> Vec<u8> {
    use crate::disks::{Disks, Job};
    let (offset, bytes) = (range.start, range.end - range.start);
    engine.submit(Job { asker: asker(0), disk: 0, task, offset, bytes, durable: false });
    let mut done = Vec::new();
    while done.is_empty() {
        engine.take(&mut done);
    }
    match done.remove(0).result.unwrap() {
        Answer::Data(pieces) => pieces
            .iter()
            .flat_map(|piece| piece.buffer[piece.from..piece.from + piece.bytes].to_vec())
            .collect(),
        _ => Vec::new(),
    }
}
