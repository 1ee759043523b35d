//! Two recordings beside each other: what each region had in one and in the other.

use std::collections::BTreeMap;

use super::page::kind_name;
use super::{Field, Look};

/// What was seen of a region, or of all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// The region's name.
    pub name: String,
    /// Its kind; empty for all.
    pub kind: &'static str,
    /// Its size.
    pub bytes: u64,
    /// Accesses, in the unit of the source.
    pub accesses: f64,
    /// Bytes that were touched. `None` where mappings were looked at as wholes: it is not known.
    pub touched_bytes: Option<u64>,
}

/// One of the recordings, as far as it is looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// Each region.
    pub regions: Vec<Seen>,
    /// All of them together.
    pub all: Seen,
    /// Time that was recorded.
    seconds: f64,
}

impl Recorded {
    /// Of these fields.
    pub fn of(look: &Look, fields: &[Field]) -> Self {
        let head = &look.recording.head;
        let seen = |field: &Field| {
            Some(Seen {
                name: head.regions.get(field.window.region)?.name.clone(),
                kind: kind_name(head.regions.get(field.window.region)?.kind),
                bytes: field.window.bytes,
                accesses: field.sum,
                touched_bytes: (!look.is_unknown(field)).then(|| field.touched.bytes()),
            })
        };
        let regions: Vec<Seen> = fields.iter().filter_map(seen).collect();
        let slices = fields.first().map_or(&[][..], |field| &field.slices);
        Recorded { all: all(&regions), regions, seconds: seconds(look, slices) }
    }

    /// Accesses per second of recorded time; NaN without any time.
    pub fn rate(&self, seen: &Seen) -> f64 {
        if self.seconds > 0.0 { seen.accesses / self.seconds } else { f64::NAN }
    }

    /// Share of all accesses.
    pub fn share(&self, seen: &Seen) -> f64 {
        if self.all.accesses > 0.0 { seen.accesses / self.all.accesses } else { 0.0 }
    }
}

/// The recorded time of some slices.
pub(super) fn seconds(look: &Look, slices: &[usize]) -> f64 {
    let slices = slices.iter().filter_map(|slice| look.recording.head.slices.get(*slice));
    slices.map(|slice| slice.end_ns.saturating_sub(slice.start_ns)).sum::<u64>() as f64 / 1e9
}

fn all(regions: &[Seen]) -> Seen {
    Seen {
        name: "all".to_owned(),
        kind: "",
        bytes: regions.iter().map(|it| it.bytes).sum(),
        accesses: regions.iter().map(|it| it.accesses).sum(),
        // Bytes of which some are not known are not known.
        touched_bytes: regions.iter().map(|it| it.touched_bytes).sum(),
    }
}

/// A region, or all of them, in both recordings; `None` where one does not have it.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    seen: [Option<&'a Seen>; 2],
    recorded: [&'a Recorded; 2],
}

impl<'a> Pair<'a> {
    /// What was seen of it.
    pub fn seen(&self) -> [Option<&'a Seen>; 2] {
        self.seen
    }

    /// One that has it.
    pub fn either(&self) -> Option<&'a Seen> {
        self.seen[0].or(self.seen[1])
    }

    /// Accesses per second; NaN where it is not.
    pub fn rates(&self) -> [f64; 2] {
        self.each(Recorded::rate)
    }

    /// Shares of all accesses; NaN where it is not.
    pub fn shares(&self) -> [f64; 2] {
        self.each(Recorded::share)
    }

    /// How many times as many bytes were touched as in the other; NaN where that is not known.
    pub fn touched_ratio(&self) -> f64 {
        let touched =
            |seen: Option<&Seen>| seen.and_then(|seen| seen.touched_bytes).map_or(f64::NAN, |it| it as f64);
        ratio(self.seen.map(touched))
    }

    fn each(&self, value: fn(&Recorded, &Seen) -> f64) -> [f64; 2] {
        [0, 1].map(|at| self.seen[at].map_or(f64::NAN, |seen| value(self.recorded[at], seen)))
    }
}

/// How many times the other a number is; NaN if the other is nothing.
pub fn ratio([one, other]: [f64; 2]) -> f64 {
    if other > 0.0 { one / other } else { f64::NAN }
}

/// All regions together, then those of each name, the highest rates first.
pub fn pairs<'a>(one: &'a Recorded, other: &'a Recorded) -> Vec<Pair<'a>> {
    let recorded = [one, other];
    let mut names: BTreeMap<&str, [Option<&Seen>; 2]> = BTreeMap::new();
    for (side, its) in recorded.into_iter().enumerate() {
        for seen in &its.regions {
            names.entry(&seen.name).or_default()[side] = Some(seen);
        }
    }
    let mut regions: Vec<Pair> = names.into_values().map(|seen| Pair { seen, recorded }).collect();
    // NaN is the least here: a rate that is not there is none.
    let highest = |pair: &Pair| pair.rates().into_iter().fold(0.0, f64::max);
    regions.sort_by(|a, b| highest(b).total_cmp(&highest(a)));
    // Of a recording without a region that is asked for there is nothing to tell.
    let seen = recorded.map(|its| Some(&its.all).filter(|_| !its.regions.is_empty()));
    regions.insert(0, Pair { seen, recorded });
    regions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(seconds: f64, regions: &[(&str, f64, Option<u64>)]) -> Recorded {
        let seen = |(name, accesses, touched_bytes): &(&str, f64, Option<u64>)| Seen {
            name: (*name).to_owned(),
            kind: "heap",
            bytes: 100,
            accesses: *accesses,
            touched_bytes: *touched_bytes,
        };
        let regions: Vec<Seen> = regions.iter().map(seen).collect();
        Recorded { all: all(&regions), regions, seconds }
    }

    #[test]
    fn regions_are_paired_by_name_and_what_is_missing_is_not_zero() {
        let one = recorded(2.0, &[("a", 8.0, Some(30)), ("b", 2.0, None)]);
        let other = recorded(4.0, &[("c", 40.0, Some(5)), ("a", 4.0, Some(10))]);
        let pairs = pairs(&one, &other);
        let names: Vec<&str> = pairs.iter().map(|pair| pair.either().unwrap().name.as_str()).collect();
        assert_eq!(names, ["all", "c", "a", "b"]);
        assert_eq!((pairs[0].rates(), pairs[0].shares()), ([5.0, 11.0], [1.0, 1.0]));
        assert!(one.all.touched_bytes.is_none() && pairs[0].touched_ratio().is_nan());
        assert_eq!((pairs[2].rates(), pairs[2].shares()), ([4.0, 1.0], [0.8, 4.0 / 44.0]));
        assert_eq!((pairs[2].touched_ratio(), ratio(pairs[2].rates())), (3.0, 4.0));
        assert!(
            pairs[1].rates()[0].is_nan() && pairs[1].seen()[0].is_none() && pairs[1].touched_ratio().is_nan()
        );
        assert!(ratio(pairs[3].rates()).is_nan() && ratio([1.0, 0.0]).is_nan());
        let nothing = recorded(0.0, &[]);
        assert!(super::pairs(&one, &nothing)[0].rates()[1].is_nan());
    }
}
