//! Descriptions of generators as they stand on the command line: `zipf:alpha=0.99,objects=1000000,size=64-1024`.

mod text;

pub use text::parse_count;
use tiermem_base::Access;

use crate::TraceError;
use crate::generate::{
    ALPHA_MAX, Mix, OBJECTS_MAX, Permutation, Phase, Scan, SizeDistribution, Sizes, Streams, Tenant, Uniform,
    Workload, Ycsb, Zipf, ZipfRanks, mix_bits, ycsb,
};
use crate::trace::{Extent, Trace};

/// The kind of generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// [`Zipf`].
    Zipf,
    /// [`Uniform`].
    Uniform,
    /// [`Scan`] in ascending order.
    Scan,
    /// [`Scan`] in an order of its own.
    Loop,
    /// [`Streams`].
    Streams,
    /// [`Phase`], half of the requests in each phase.
    Phase,
    /// [`Ycsb`].
    Ycsb(Workload),
    /// [`Mix`].
    Mix,
}

const KINDS: [(&str, Kind); 13] = [
    ("zipf", Kind::Zipf),
    ("uniform", Kind::Uniform),
    ("scan", Kind::Scan),
    ("loop", Kind::Loop),
    ("streams", Kind::Streams),
    ("phase", Kind::Phase),
    ("ycsb-a", Kind::Ycsb(Workload::A)),
    ("ycsb-b", Kind::Ycsb(Workload::B)),
    ("ycsb-c", Kind::Ycsb(Workload::C)),
    ("ycsb-d", Kind::Ycsb(Workload::D)),
    ("ycsb-e", Kind::Ycsb(Workload::E)),
    ("ycsb-f", Kind::Ycsb(Workload::F)),
    ("mix", Kind::Mix),
];
const KIND_NAMES: &str = "zipf, uniform, scan, loop, streams, phase, ycsb-a to ycsb-f, mix";

impl Kind {
    /// The word for it in descriptions.
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// The settings that this generator takes, for error messages and help.
    pub fn settings(self) -> &'static str {
        match self {
            Kind::Zipf => "alpha, objects, requests, size, seed, scramble",
            Kind::Streams => "alpha, objects, length, requests, size, seed",
            Kind::Phase => "alpha, alpha-then, objects, requests, size, seed",
            Kind::Uniform | Kind::Scan | Kind::Loop | Kind::Ycsb(_) => "objects, requests, size, seed",
            Kind::Mix => "requests, seed",
        }
    }

    fn takes(self, key: &str) -> bool {
        self.settings().split(", ").any(|known| known == key)
    }
}

/// A complete description of a synthetic trace; equal descriptions give equal traces.
///
/// Its text form is `KIND` or `KIND:key=value,...` with these settings, each with a default:
///
/// | setting | means | default |
/// | --- | --- | --- |
/// | `alpha` | exponent of the Zipf distribution, 0 to 3 | 0.99; `phase` 0.9 |
/// | `alpha-then` | the exponent of the second phase | `alpha` |
/// | `objects` | how many keys there are (`ycsb-*`: at the start) | 1M |
/// | `length` | how many keys a stream has | 10k |
/// | `requests` | how many accesses the trace has | 10M |
/// | `size` | bytes of a value, see [`SizeDistribution`] | 300; `ycsb-*` 1000 |
/// | `seed` | chooses the random stream | 1 |
/// | `scramble` | whether hot keys are scattered over the key space (`true`, `false`) | true |
///
/// Counts may end in `k`, `M` or `G` for thousands, millions and milliards.
///
/// A mix of tenants is `mix:WEIGHT*KIND(key=value,...)+WEIGHT*KIND(...)`, and may be followed by its own settings
/// behind a comma: `mix:0.7*zipf(alpha=0.9,objects=1M)+0.3*scan(objects=100k),requests=5M`. A weight that is left
/// out is 1. The tenants have no `requests` of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The generator.
    pub kind: Kind,
    /// The exponent, for `zipf`, `phase` and `streams`.
    pub alpha: f64,
    /// The exponent of the second phase, for `phase`, where it is another.
    pub alpha_then: Option<f64>,
    /// Number of keys.
    pub objects: u64,
    /// Keys of a stream, for `streams`.
    pub length: u64,
    /// Number of accesses.
    pub requests: u64,
    /// The sizes of values in bytes.
    pub size: SizeDistribution,
    /// The seed.
    pub seed: u64,
    /// Whether ranks become keys by a permutation, for `zipf`.
    pub scramble: bool,
    /// For `mix`, the weight and the description of each tenant; `requests` of these has no meaning.
    pub tenants: Vec<(f64, Spec)>,
}

/// The most tenants in a mix: their numbers stand in the highest sixteen bits of keys.
pub const TENANTS_MAX: usize = 1 << 16;

impl Spec {
    /// The description of a generator of this kind that leaves every setting at its default.
    pub fn new(kind: Kind) -> Spec {
        Spec {
            kind,
            alpha: match kind {
                Kind::Phase => 0.9,
                Kind::Streams => 0.5,
                _ => 0.99,
            },
            alpha_then: None,
            objects: 1_000_000,
            length: 10_000,
            requests: 10_000_000,
            size: SizeDistribution::Fixed(if let Kind::Ycsb(_) = kind { 1000 } else { 300 }),
            seed: 1,
            scramble: true,
            tenants: Vec::new(),
        }
    }

    /// Whether a TRACE argument is meant as a description and not as a path.
    pub fn looks_like_one(text: &str) -> bool {
        let kind = text.split_once(':').map_or(text, |(kind, _)| kind);
        KINDS.iter().any(|(name, _)| *name == kind)
    }

    /// The trace described. Settings out of range, which [`std::str::FromStr`] refuses, are brought into it.
    pub fn open(&self) -> Trace {
        let mut left = self.requests;
        let counted = self.accesses().take_while(move |_| {
            let more = left > 0;
            left = left.saturating_sub(1);
            more
        });
        Trace::new(Box::new(counted.map(Ok::<_, TraceError>)), 0, Extent::Records(self.requests))
    }

    /// The endless stream of accesses.
    fn accesses(&self) -> Box<dyn Iterator<Item = Access> + Send> {
        let (requests, seed) = (self.requests, self.seed);
        let objects = self.objects.clamp(1, OBJECTS_MAX);
        let in_range = |alpha: f64| if alpha.is_finite() { alpha.clamp(0.0, ALPHA_MAX) } else { 0.0 };
        let alpha = in_range(self.alpha);
        let sizes = Sizes::new(self.size.clone(), seed);
        if self.kind == Kind::Streams
            && let Some(streams) = Streams::new(objects, self.length, alpha, sizes.clone(), seed)
        {
            return Box::new(streams);
        }
        match (self.kind, ZipfRanks::new(objects, alpha)) {
            (Kind::Zipf, Some(ranks)) => {
                let keys = self.scramble.then(|| Permutation::new(objects, seed));
                Box::new(Zipf::new(ranks, keys, sizes, seed))
            }
            (Kind::Phase, Some(ranks)) => {
                let then = self.alpha_then.and_then(|alpha| ZipfRanks::new(objects, in_range(alpha)));
                let ranks = [ranks.clone(), then.unwrap_or(ranks)];
                Box::new(Phase::new(ranks, objects, requests.div_ceil(2), sizes, seed))
            }
            (Kind::Scan, _) => Box::new(Scan::new(objects, sizes)),
            (Kind::Loop, _) => Box::new(Scan::scattered(objects, sizes, seed)),
            (Kind::Ycsb(workload), _) => {
                // Room below 2^48 for what is inserted.
                let objects = objects.min(OBJECTS_MAX / 2);
                Box::new(Ycsb::new(workload, objects, requests, ycsb::SCAN_LENGTH_MAX, sizes, seed))
            }
            (Kind::Mix, _) => Box::new(self.mix()),
            (Kind::Uniform | Kind::Zipf | Kind::Phase | Kind::Streams, _) => {
                Box::new(Uniform::new(objects, sizes, seed))
            }
        }
    }

    fn mix(&self) -> Mix {
        let total: f64 = self.tenants.iter().map(|(weight, _)| weight).sum();
        let tenant = |((weight, spec), number): (&(f64, Spec), u64)| {
            // The mix's seed and the place reach every tenant: equal neighbouring descriptions must not walk in step.
            let seed = spec.seed ^ mix_bits(mix_bits(self.seed) ^ number);
            let requests = (weight / total * self.requests as f64) as u64;
            Tenant { weight: *weight, accesses: Spec { seed, requests, ..spec.clone() }.accesses() }
        };
        // What the text form cannot say, a mix within a mix, would not fit into the keys.
        let tenants = self.tenants.iter().filter(|(_, spec)| spec.kind != Kind::Mix).take(TENANTS_MAX);
        Mix::new(tenants.zip(0..).map(tenant).collect(), self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_opens_with_as_many_requests_as_described() {
        for (name, kind) in KINDS {
            let text = match kind {
                Kind::Mix => {
                    "mix:zipf(objects=10,size=1-9)+2*ycsb-d(objects=10,size=5),requests=25".to_owned()
                }
                _ => format!("{name}:objects=10,requests=25,size=1-9"),
            };
            let trace = crate::open(&text).unwrap();
            assert_eq!(trace.len_hint(), Some(25));
            let accesses: Vec<_> = trace.map(|access| access.unwrap()).collect();
            assert_eq!(accesses.len(), 25);
            let keys_max = if matches!(kind, Kind::Ycsb(_) | Kind::Mix) { u64::MAX } else { 10 };
            assert!(accesses.iter().all(|access| access.key < keys_max && (1..=9).contains(&access.size)));
        }
        assert_eq!(crate::open("scan:requests=0").unwrap().count(), 0);
    }

    #[test]
    fn equal_tenants_of_a_mix_do_not_walk_in_step() {
        let trace = crate::open("mix:zipf(objects=1k)+zipf(objects=1k),requests=20k").unwrap();
        let mut counts = [vec![0u32; 1000], vec![0u32; 1000]];
        for access in trace.map(|access| access.unwrap()) {
            assert_eq!(access.key >> 48, u64::from(access.tenant));
            counts[access.tenant as usize][(access.key & 0xffff) as usize] += 1;
        }
        let hottest = counts.map(|counts| (0..1000).max_by_key(|key| counts[*key]));
        assert_ne!(hottest[0], hottest[1]);
    }

    #[test]
    fn a_second_phase_can_be_more_skewed() {
        let accesses = crate::open("phase:alpha=0,alpha-then=2,objects=1k,requests=20k").unwrap();
        let keys: Vec<u64> = accesses.map(|access| access.unwrap().key).collect();
        let edge = |keys: &[u64]| keys.iter().filter(|&&key| !(10..990).contains(&key)).count();
        // 2% of the first half; nine tenths of the second, whose first ten ranks have 1.55 of 1.64.
        assert!(edge(&keys[..10_000]) < 400 && edge(&keys[10_000..]) > 8500);
        assert_eq!(
            keys,
            crate::open("phase:alpha=0,alpha-then=2,objects=1k,requests=20k")
                .unwrap()
                .map(|it| it.unwrap().key)
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_tenants_phase_changes_at_half_of_its_own_requests() {
        let trace = crate::open("mix:3*phase(objects=100)+1*scan,requests=40k").unwrap();
        let low: Vec<bool> = trace
            .map(|access| access.unwrap())
            .filter(|access| access.tenant == 0)
            .map(|access| access.key < 50)
            .collect();
        let share = |part: &[bool]| part.iter().filter(|low| **low).count() as f64 / part.len() as f64;
        assert!(share(&low[..14_000]) > 0.7 && share(&low[16_000..]) < 0.3);
    }
}
