//! Expiry between requests: what a tick has left is taken out in pieces, until nothing is due.

use std::rc::Rc;
use std::time::Duration;

use super::shard_context::{Core, Shard};
use crate::command::settle_idle;

/// Time that requests have the shard for themselves between two pieces, if any have come.
const REST: Duration = Duration::from_millis(1);
/// How long requests wait for a piece, at least and at most. In between a microsecond for each millisecond that expiry is late: so
/// it takes more of the time the more there is to do.
const PIECE_US: (u64, u64) = (200, 500);

/// Takes out what has expired whenever a tick has left some.
pub(super) async fn expire_when_late(shard: Rc<Shard>) {
    let late = Rc::clone(&shard.borrow().expiry_is_late);
    loop {
        late.notified().await;
        let mut served = shard.borrow().engine.requests();
        while shard.borrow_mut().expire_piece() {
            // Requests that have arrived meanwhile go first.
            tokio::task::yield_now().await;
            if shard.borrow().engine.requests() != served {
                tokio::time::sleep(REST).await;
                served = shard.borrow().engine.requests();
            }
        }
    }
}

impl Core {
    /// A piece of what has expired; `false`: that was all.
    fn expire_piece(&mut self) -> bool {
        let begun = self.read_clock();
        let piece = Duration::from_micros(
            self.engine.between_requests().expiry_late_ms().clamp(PIECE_US.0, PIECE_US.1),
        );
        let mut more = true;
        while more && self.clock.batch_end().saturating_duration_since(begun) < piece {
            more = self.engine.between_requests().expire_piece();
        }
        self.engine.commit();
        settle_idle(&mut self.engine, &mut self.host.clients);
        let took = self.clock.batch_end().saturating_duration_since(begun);
        self.host.timing.latencies.note(
            "expire-cycle",
            took.as_micros() as u64,
            self.host.now_us / 1_000_000,
        );
        more
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Arc;

    use tiermem_base::{Bytes, TierKind, TierSpec};
    use tokio::runtime::{Builder, LocalOptions};

    use super::super::memory_limit::KnownLimit;
    use super::*;
    use crate::engine::{Condition, Engine, EngineConfig, Expiry};
    use crate::server::ServerConfig;

    /// Nothing here is about speed: this only ends what hangs.
    const PATIENCE: Duration = Duration::from_secs(120);

    #[test]
    fn one_tick_is_enough_for_all_that_has_expired() {
        let engine = Engine::new(EngineConfig::new(vec![TierSpec::new(TierKind::Dram, Bytes(32 << 20))]));
        let config = ServerConfig::default();
        let mut core =
            Core::new(&config, engine.expect("memory"), 0, Arc::default(), None, KnownLimit::default());
        core.read_clock();
        // Buckets of expiry are a tenth of a second wide.
        let over_ms = core.engine.clock_ms() + 1;
        for key in 0u32..50_000 {
            let set =
                core.engine.set(0, &key.to_le_bytes(), b"v", Condition::Always, Expiry::AtUnixMs(over_ms));
            assert_eq!(set, Ok(true));
        }
        std::thread::sleep(Duration::from_millis(200));
        core.tick();
        assert!(core.engine.len(0) > 40_000, "a tick does a little itself");
        let shard = Rc::new(RefCell::new(core));
        let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
        runtime.expect("an event loop").block_on(async {
            let all = async {
                tokio::task::spawn_local(expire_when_late(Rc::clone(&shard)));
                while shard.borrow().engine.len(0) > 0 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(PATIENCE, all).await.expect("all are taken out");
        });
    }
}
