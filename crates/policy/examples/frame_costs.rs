//! Costs of frames: nanoseconds for a touch, a granule and a fault with its eviction, and bytes for a frame.
//!
//!     cargo run --release -p tiermem-policy --example frame_costs -- [FRAMES]
//!
//! Frames of 4 KiB in two tiers, half of them in DRAM; touches go to frames in DRAM at random. Columns: the order, how references
//! are told, ns for a touch, for a granule of 64 frames, for a fault with the eviction it waits for (moves end at once), bytes
//! for a frame without and with the order. Medians of nine rounds.
#![forbid(unsafe_code)]

use std::fmt::Debug;
use std::hint::black_box;
use std::time::Instant;

use tiermem_base::Rng;
use tiermem_policy::evict::any_policy::WithPolicy;
use tiermem_policy::evict::{Evict, Named};
use tiermem_policy::frames::{Config, Fault, Frame, Frames, Outcome, References, TierConfig, domains};

const ROUNDS: usize = 9;
const CALLS: usize = 1 << 16;

struct Measure {
    config: Config,
    frames: u32,
}

/// Median time of a call.
fn median_ns(mut round: impl FnMut()) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            round();
            start.elapsed().as_nanos() as f64 / CALLS as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

impl WithPolicy for Measure {
    type Output = String;

    fn with<E: Evict + Send + Debug + 'static>(self, policy: E) -> String {
        let dram = self.frames / 2;
        let Ok(mut frames) = Frames::new(self.config, policy) else { return "cannot be".to_owned() };
        frames.grow_to(self.frames);
        let (mut rng, mut acts, mut now) = (Rng::seeded(1), Vec::new(), 0);
        for frame in 0..self.frames {
            frames.adopt(Frame(frame), u8::from(frame >= dram), 0, &mut acts);
        }
        let used: Vec<u32> = (0..CALLS).map(|_| rng.below(u64::from(dram)) as u32).collect();
        let touch_ns = median_ns(|| {
            for &frame in &used {
                now += 1;
                black_box(frames.touch(Frame(frame), now));
            }
        });
        let granule_ns = median_ns(|| {
            for &frame in &used {
                now += 1;
                frames.touch_granule(Frame(frame & !63), 6, now);
            }
        });
        let wanted: Vec<u32> = (0..CALLS).map(|_| rng.below(u64::from(self.frames)) as u32).collect();
        let fault_ns = median_ns(|| {
            for &frame in &wanted {
                now += 1;
                while let Fault::Room(ticket) | Fault::After(ticket) =
                    frames.fault(Frame(frame), false, now, &mut rng, &mut acts)
                {
                    frames.done(ticket, Outcome::Done, now, &mut acts);
                }
                acts.clear();
            }
        });
        let each = |bytes: u64| bytes as f64 / f64::from(self.frames);
        let own = each(frames.metadata_bytes());
        let with_order = own + each(frames.policy().metadata_bytes());
        format!("{touch_ns:8.1}  {granule_ns:10.1}  {fault_ns:8.1}  {own:9.3}  {with_order:10.3}")
    }
}

fn main() {
    let frames: u32 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1 << 20);
    println!("order     references  touch_ns  granule_ns  fault_ns  own_bytes  with_order");
    for named in [Named::Lru, Named::LruLazy, Named::Clock, Named::KLru(5), Named::Sieve, Named::S3Fifo] {
        for references in [References::Told, References::Sampled] {
            let tiers = [TierConfig::memory(frames / 2), TierConfig::storage(frames)];
            let config = Config { references, ..Config::of(&tiers) };
            let row = named.build(domains(&config), 0, Measure { config, frames });
            println!("{:9} {:10}  {row}", named.name(), format!("{references:?}"));
        }
    }
}
