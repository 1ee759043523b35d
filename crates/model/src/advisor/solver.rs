//! Solver of a division: it computes each tenant's part of memory from a [`Question`]. Pure arithmetic, to be run on any thread.

use tiermem_policy::choose_k::{DISTINCT_LEAST, Overheads};
use tiermem_policy::partition::{Objective, TooLittle};

use super::config::{Plan, Room};
use crate::mrc::Curve;
use crate::partition::{Pieces, Profile, Score, Share, Terms, divide, keep_least, loss_ns, score, share_at};

/// A tenant in a question.
#[derive(Clone, Debug)]
pub(super) struct Tenant {
    pub tenant: u16,
    /// Its bytes in each tier now.
    pub held: Vec<u64>,
    /// The bytes of each tier that it was last given.
    pub given: Option<Vec<u64>>,
    /// The bytes that it is to have if its gain is unknown.
    pub wants_bytes: u64,
    pub terms: Terms,
    pub is_miss_known: bool,
    pub keys_sampled: u64,
}

impl Tenant {
    fn held_bytes(&self) -> u64 {
        self.held.iter().sum()
    }

    /// Bytes that it has been given of the first `tiers` tiers; those that it has there, where it was given nothing.
    fn before(&self, tiers: usize) -> u64 {
        self.given.as_ref().unwrap_or(&self.held).iter().take(tiers).sum()
    }
}

/// The K of a tenant with too few known keys: the tier's own.
const K_UNKNOWN: u8 = 0;
/// Granules for each tenant, at least ...
const GRANULES_EACH: u64 = 4;
/// ... and for the tightest bound; ...
const GRANULES_BOUND: u64 = 8;
/// ... and of all memory at most: the work grows with their square.
const GRANULES_MAX: u64 = 2048;
/// A tenant that is given no granule of an upper tier gets a part of one all the same, 1 in this many.
const LEAST_PART: u64 = 8;

/// Promises that together are more than there is, because what is kept about items has grown, are cut down in proportion.
fn fit_promises(profiles: &mut [Profile], pieces: Pieces) {
    let promised: u64 = profiles.iter().map(|profile| profile.terms.least_bytes).sum();
    // Each may need a granule that is not full.
    let room = pieces.total_bytes.saturating_sub(profiles.len() as u64 * pieces.granule_bytes);
    if promised > room {
        let part = room as f64 / promised as f64;
        for profile in profiles {
            profile.terms.least_bytes = (profile.terms.least_bytes as f64 * part) as u64;
        }
    }
}

/// Promises that do not all fit are cut down as memory comes and goes with what is kept about items: a part is closer to one only
/// if it differs from what there is by more than 1 in this many.
const TOLERANCE: u64 = 32;

/// A division, and whether it is better than what there was.
struct Divided {
    parts: Vec<TenantPart>,
    predicted_ns: (f64, f64),
    is_worth: bool,
    /// Whether what there was is not within the terms of tenants, as this is.
    keeps_terms: bool,
}

/// Everything that a division needs.
#[derive(Clone, Debug)]
pub struct Question {
    pub(super) window: u64,
    pub(super) plan: Plan,
    pub(super) rooms: Vec<Room>,
    /// Tenants with known curves ...
    pub(super) known: Vec<(Tenant, Profile)>,
    /// ... and tenants with too few keys seen.
    pub(super) unknown: Vec<Tenant>,
    /// The mean cost of misses per look-up in the window that ended.
    pub(super) lost_ns: f64,
}

/// Whether there is anything to do, and why not.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Memory is to be divided, and K set, as the parts say.
    Divide,
    /// K is to be set as the parts say; dividing memory anew would gain too little to be worth it.
    ChooseK,
    /// It was the first window, in which everything is missed once: K is set, and nothing divided.
    First,
    /// Of no tenant were enough keys seen.
    TooFewSamples {
        /// The most that were seen of one.
        sampled: u64,
        /// The keys that are needed.
        needed: u64,
    },
    /// The least parts of tenants add up to more than there is.
    TooLittle(TooLittle),
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Verdict::Divide => f.write_str("divided anew"),
            Verdict::ChooseK => f.write_str("left as it was: another division would gain too little"),
            Verdict::First => f.write_str("left as it was: the first window only shows what there is"),
            Verdict::TooFewSamples { sampled, needed } => {
                write!(f, "left as it was: too few samples ({sampled} of {needed} keys)")
            }
            Verdict::TooLittle(problem) => write!(f, "left as it was: {problem}"),
        }
    }
}

/// The part of memory that a tenant is to have.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantPart {
    /// Its number.
    pub tenant: u16,
    /// Bytes of each tier.
    pub bytes: Vec<u64>,
    /// Its K in each tier; 0: the tier's own.
    pub ks: Vec<u8>,
    /// Its miss ratio with all that, as the curves say; [`None`] where they say nothing.
    pub miss_ratio: Option<f64>,
    /// The miss ratio with what it had.
    pub miss_ratio_before: Option<f64>,
    /// Look-ups of a window, later windows weighing more.
    pub rate: f64,
    /// The cost of a miss.
    pub miss_ns: f64,
    /// Whether that was measured or declared.
    pub is_miss_known: bool,
    /// Keys that the curves are from.
    pub keys_sampled: u64,
    /// The lowest of its curves at every size.
    pub curve: Option<Curve>,
}

/// The answer to a [`Question`].
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The window that it is about.
    pub window: u64,
    /// The verdict: what is to be done.
    pub verdict: Verdict,
    /// The part of each tenant; the best division, where it is not to be applied.
    pub parts: Vec<TenantPart>,
    /// Nanoseconds that misses cost a look-up on average, as the curves say: with what tenants have been given, and with these parts.
    pub predicted_ns: (f64, f64),
    /// The cost as measured in the window that ended.
    pub lost_ns: f64,
}

impl Answer {
    /// Whether memory is divided anew.
    pub fn is_applied(&self) -> bool {
        self.verdict == Verdict::Divide
    }
}

impl Question {
    /// The division with the smallest loss that keeps what was promised.
    pub fn answer(&self) -> Answer {
        let answer = |verdict, parts, predicted_ns| Answer {
            window: self.window,
            verdict,
            parts,
            predicted_ns,
            lost_ns: self.lost_ns,
        };
        if self.known.is_empty() && !self.breaks_terms(self.unknown_bytes(self.total_bytes()).into_iter()) {
            let sampled = self.unknown.iter().map(|tenant| tenant.keys_sampled).max().unwrap_or(0);
            let verdict = Verdict::TooFewSamples { sampled, needed: DISTINCT_LEAST };
            return answer(verdict, Vec::new(), (0.0, 0.0));
        }
        match self.divide_all() {
            Ok(Divided { parts, predicted_ns, is_worth, keeps_terms }) => {
                let verdict = match self.plan.divides {
                    true if keeps_terms => Verdict::Divide,
                    true if is_worth && self.window == 1 => Verdict::First,
                    true if is_worth => Verdict::Divide,
                    _ => Verdict::ChooseK,
                };
                answer(verdict, parts, predicted_ns)
            }
            Err(problem) => answer(Verdict::TooLittle(problem), Vec::new(), (0.0, 0.0)),
        }
    }

    fn total_bytes(&self) -> u64 {
        self.rooms.iter().map(|room| room.capacity_bytes).sum()
    }

    /// Pieces to divide memory in: enough for every tenant and for the tightest bound, as far as that can be afforded.
    fn granules(&self, total_bytes: u64) -> u64 {
        let bounds =
            self.known.iter().flat_map(|(tenant, _)| [tenant.terms.least_bytes, tenant.terms.most_bytes]);
        let tightest = bounds.filter(|&bytes| bytes > 0).min().unwrap_or(u64::MAX).max(1);
        let for_bounds = (total_bytes / tightest).saturating_mul(GRANULES_BOUND);
        let for_tenants = self.known.len() as u64 * GRANULES_EACH;
        self.plan.granules.max(for_bounds).max(for_tenants).clamp(1, GRANULES_MAX.max(self.plan.granules))
    }

    /// Whether tenants have been given what is not within their terms, where these `parts` are, or come closer: those of known
    /// tenants, then those of unknown ones. Where not all that was promised fits, the closest that there is counts as kept.
    fn breaks_terms(&self, parts: impl Iterator<Item = u64>) -> bool {
        let tenants = self.known.iter().map(|(tenant, _)| tenant).chain(&self.unknown);
        tenants.zip(parts).any(|(tenant, part)| {
            let Terms { least_bytes, most_bytes, .. } = tenant.terms;
            tenant.given.as_ref().map_or(least_bytes > 0 || most_bytes < u64::MAX, |given| {
                let given: u64 = given.iter().sum();
                let is_better = |within: bool| within || part.abs_diff(given) > part / TOLERANCE;
                (given < least_bytes && part > given && is_better(part >= least_bytes))
                    || (given > most_bytes && part < given && is_better(part <= most_bytes))
            })
        })
    }

    fn divide_all(&self) -> Result<Divided, TooLittle> {
        let total_bytes = self.total_bytes();
        let granules = self.granules(total_bytes);
        let unknown = self.unknown_bytes(total_bytes);
        let left_bytes = total_bytes.saturating_sub(unknown.iter().sum());
        let mut profiles: Vec<Profile> = self.known.iter().map(|(_, profile)| profile.clone()).collect();
        let pieces = Pieces { total_bytes: left_bytes, granule_bytes: (left_bytes / granules).max(1) };
        fit_promises(&mut profiles, pieces);
        let overheads = &self.plan.overheads;
        let tiers = self.rooms.len();
        let before = self.before(&profiles, tiers, overheads);
        let mut whole = if self.plan.divides {
            let shares = divide(&profiles, self.plan.objective, pieces, overheads)?;
            // Bounds hold to the byte, and no tenant's part is nothing.
            keep_least(&profiles, &shares, left_bytes, overheads)
        } else {
            before.clone()
        };
        let score = |shares| score(&profiles, shares, self.plan.objective, pieces, overheads);
        let mut is_worth = score(&whole).is_worth(&score(&before), self.plan.gain_least);
        let is_known = self.known.iter().all(|(tenant, _)| tenant.given.is_some());
        let known_bytes = whole.iter().map(|share| share.bytes);
        let keeps_terms = self.breaks_terms(known_bytes.chain(unknown.iter().copied()));
        if !is_worth && is_known && !keeps_terms {
            // It stays as it is; there may still be better parts of the upper tiers.
            whole.clone_from(&before);
        }
        let lookups: f64 = profiles.iter().map(|profile| profile.rate).sum::<f64>().max(1.0);
        let predicted_ns = (loss_ns(&profiles, &before) / lookups, loss_ns(&profiles, &whole) / lookups);
        // From all tiers to the fastest: of a tenant's whole part, the best amount for the tiers above the last, and so on. An
        // item is drawn for demotion when another is promoted, which is rare compared with look-ups in a slower tier.
        let overheads = &Overheads::none();
        let mut upto = vec![whole.clone()];
        for above in (1..self.rooms.len()).rev() {
            let room_bytes: u64 = self.rooms[..above].iter().map(|room| room.capacity_bytes).sum();
            let below = &upto[0];
            for (profile, share) in profiles.iter_mut().zip(below) {
                profile.terms =
                    Terms { most_bytes: share.bytes, promise: None, least_bytes: 0, ..profile.terms };
                profile.miss_ns = self.rooms[above - 1].slower_ns.max(1.0);
            }
            let part = room_bytes as f64 / total_bytes.max(1) as f64;
            let unknown_bytes = (unknown.iter().sum::<u64>() as f64 * part) as u64;
            let left_bytes = room_bytes.saturating_sub(unknown_bytes);
            let pieces = Pieces { total_bytes: left_bytes, granule_bytes: (left_bytes / granules).max(1) };
            let shares = divide(&profiles, Objective::Latency, pieces, overheads)?;
            let within = |(profile, share): (&Profile, Share)| {
                let bytes = share.bytes.max(pieces.granule_bytes / LEAST_PART).min(profile.terms.most_bytes);
                share_at(profile, bytes, overheads)
            };
            let shares: Vec<Share> = profiles.iter().zip(shares).map(within).collect();
            let loss = |shares: &[Share]| Score { broken: 0.0, loss: loss_ns(&profiles, shares) };
            let before = self.before(&profiles, above, overheads);
            is_worth |= loss(&shares).is_worth(&loss(&before), self.plan.gain_least);
            upto.insert(0, shares);
        }
        let mut parts: Vec<TenantPart> = Vec::with_capacity(self.known.len() + self.unknown.len());
        for (at, (tenant, profile)) in self.known.iter().enumerate() {
            let sums = upto.iter().map(|shares| shares[at].bytes);
            let curves: Vec<Curve> = profile.curves.iter().map(|(_, curve)| curve.clone()).collect();
            parts.push(TenantPart {
                tenant: tenant.tenant,
                bytes: differences(sums),
                ks: upto.iter().map(|shares| shares[at].k).collect(),
                miss_ratio: Some(whole[at].miss_ratio),
                miss_ratio_before: Some(before[at].miss_ratio),
                rate: profile.rate,
                miss_ns: self.known[at].1.miss_ns,
                is_miss_known: tenant.is_miss_known,
                keys_sampled: profile.keys_sampled,
                curve: Curve::lower_envelope(&curves).map(|(curve, _)| curve),
            });
        }
        parts.extend(self.parts_of_unknown(&unknown, total_bytes));
        Ok(Divided { parts, predicted_ns, is_worth, keeps_terms })
    }

    /// Parts of tenants without a curve yet: of every room as much as of all of them.
    fn parts_of_unknown(&self, unknown_bytes: &[u64], total_bytes: u64) -> impl Iterator<Item = TenantPart> {
        self.unknown.iter().zip(unknown_bytes).map(move |(tenant, &bytes)| {
            // The sums up to each room, so that all rooms together give it to the byte.
            let mut room_bytes = 0;
            let upto = self.rooms.iter().map(|room| {
                room_bytes += room.capacity_bytes;
                part_of(bytes, room_bytes, total_bytes)
            });
            TenantPart {
                tenant: tenant.tenant,
                bytes: differences(upto),
                ks: vec![K_UNKNOWN; self.rooms.len()],
                miss_ratio: None,
                miss_ratio_before: None,
                rate: 0.0,
                miss_ns: self.plan.miss_ns,
                is_miss_known: tenant.is_miss_known,
                keys_sampled: tenant.keys_sampled,
                curve: None,
            }
        })
    }

    /// The shares of tenants with what they have been given of the first `tiers` tiers.
    fn before(&self, profiles: &[Profile], tiers: usize, overheads: &Overheads) -> Vec<Share> {
        let tenants = self.known.iter().zip(profiles);
        tenants.map(|((tenant, _), profile)| share_at(profile, tenant.before(tiers), overheads)).collect()
    }

    /// The parts of tenants with too few keys seen: what they have and a little more, as long as it is no more than an equal
    /// part, and within their terms; less where they would not leave enough for the others.
    fn unknown_bytes(&self, total_bytes: u64) -> Vec<u64> {
        let equal = total_bytes / (self.known.len() + self.unknown.len()).max(1) as u64;
        let wanted = |tenant: &Tenant| {
            let Terms { least_bytes, most_bytes, .. } = tenant.terms;
            tenant.wants_bytes.min(equal.max(tenant.held_bytes())).min(most_bytes).max(least_bytes)
        };
        let bytes: Vec<u64> = self.unknown.iter().map(wanted).collect();
        let promised: u64 = self.known.iter().map(|(tenant, _)| tenant.terms.least_bytes).sum();
        let room = total_bytes.saturating_sub(promised);
        let least: Vec<u64> = self.unknown.iter().map(|tenant| tenant.terms.least_bytes).collect();
        let (sum, least_sum) = (bytes.iter().sum::<u64>(), least.iter().sum::<u64>());
        // What was promised is cut down last.
        if least_sum > room {
            return least.into_iter().map(|bytes| part_of(bytes, room, least_sum)).collect();
        }
        let (more_room, more_sum) = (room - least_sum, sum - least_sum);
        let cut =
            |(bytes, least): (u64, u64)| least + part_of(bytes - least, more_room.min(more_sum), more_sum);
        bytes.into_iter().zip(least).map(cut).collect()
    }
}

/// `bytes` times `part` of `whole`, rounded down; none of nothing.
fn part_of(bytes: u64, part: u64, whole: u64) -> u64 {
    (u128::from(bytes) * u128::from(part) / u128::from(whole.max(1))) as u64
}

/// From sums up to each place to what each adds.
fn differences(sums: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut before = 0;
    sums.map(|sum| sum.saturating_sub(std::mem::replace(&mut before, sum))).collect()
}
