//! Tenants with declared parts of memory: each has the same in both worlds, however newcomers are admitted.

use tiermem_base::Access;
use tiermem_policy::ladder::{Admission, LadderConfig};
use tiermem_sim::cache::Sharing;
use tiermem_store::engine::By;

use super::{by_database, live_with, simulated_with};

/// In the engine, tenants are databases or key prefixes. Keys of a database hash differently there: the simulator's keys all lie in the first
/// database. So the index splits in other places, and admissions that judge newcomers by their hashes (all but [`Admission::Fast`]) turn others
/// away. Keys with their tenant's prefix hash the same in both, and run with every admission.
#[test]
fn tenants_have_the_same_in_both() {
    let mix = "mix:0.4*zipf(alpha=0.8,objects=20k,size=64-1024)+0.4*zipf(alpha=1.1,objects=20k,size=300)\
               +0.2*scan(objects=30k,size=2000),requests=60k";
    let trace: Vec<Access> = tiermem_trace::open(mix).unwrap().collect::<Result<_, _>>().unwrap();
    // The first digit of a name is the tenant's number, the second one ends it.
    let prefixed = |access: &Access| {
        let tenant = access.tenant + 1;
        let key = (u64::from(tenant) << 60) | (0xF << 56) | (access.key & 0xFF_FFFF);
        Access { key, tenant, ..*access }
    };
    let by_prefix = (By::Prefix(b'f'), Sharing { names: vec!["(others)".to_owned()], ..by_database().1 });
    let named: Vec<Access> = trace.iter().map(prefixed).collect();
    let ways = [
        (by_database(), &trace, Admission::Fast),
        (by_prefix.clone(), &named, Admission::Fast),
        (by_prefix.clone(), &named, Admission::Proven),
        (by_prefix, &named, Admission::Interleaved { fast_share: 0.25 }),
    ];
    for (shared, trace, admission) in &ways {
        for capacities in [&[4 << 20][..], &[1 << 20, 4 << 20]] {
            for watermarks in [None, Some(Default::default())] {
                let ladder = LadderConfig {
                    charge_metadata: false,
                    admission: *admission,
                    watermarks,
                    ..LadderConfig::with_capacities(capacities)
                };
                let mut live = live_with(&ladder, None, trace, Some(shared));
                let mut simulated = simulated_with(&ladder, None, trace, Some(shared));
                if shared.0 == By::Database {
                    (live.metadata_bytes, simulated.metadata_bytes) = (0, 0);
                }
                assert_eq!(live, simulated, "{:?}, {admission:?}, {capacities:?}, {watermarks:?}", shared.0);
                let evictions: u64 = live.tiers.iter().map(|tier| tier[3]).sum();
                assert!(evictions > 10_000, "they press on each other");
                assert!(live.division.shares().iter().any(|&bytes| bytes > 0), "shares are declared");
            }
        }
    }
}
