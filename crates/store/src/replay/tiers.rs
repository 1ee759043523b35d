//! Tier figures of a server, from the section `# Tiers` of `INFO`.
//!
//! One line for each tier, fastest first: `tier0:name=dram,kind=dram,...,hits=12,promotions=0,...`.
//! Unknown fields are skipped, so the server may report more.

/// The counters of one tier at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierCounts {
    name: String,
    hits: u64,
    promotions: u64,
    demotions: u64,
    evictions: u64,
}

/// Figures of one tier during a replay.
#[derive(Clone, Debug, PartialEq)]
pub struct TierShare {
    /// The tier's name.
    pub name: String,
    /// Look-ups that found their item in this tier.
    pub hits: u64,
    /// Hits of this tier over all look-ups of the replay; for tier 0 the fast-tier hit share.
    pub hit_share: f64,
    /// Items moved up from this tier.
    pub promotions: u64,
    /// Items moved down from this tier.
    pub demotions: u64,
    /// Items evicted from this tier.
    pub evictions: u64,
}

/// The tiers in the text of `INFO tiers`; `None` when there are none, as with Redis.
pub fn parse(info: &str) -> Option<Vec<TierCounts>> {
    let tiers: Vec<_> = info.lines().filter_map(parse_line).collect();
    (!tiers.is_empty()).then_some(tiers)
}

fn parse_line(line: &str) -> Option<TierCounts> {
    let (number, fields) = line.trim_end().strip_prefix("tier")?.split_once(':')?;
    number.parse::<u32>().ok()?;
    let mut tier = TierCounts::default();
    for (key, value) in fields.split(',').filter_map(|field| field.split_once('=')) {
        let count = || value.parse().unwrap_or(0);
        match key {
            "name" => value.clone_into(&mut tier.name),
            "hits" => tier.hits = count(),
            "promotions" => tier.promotions = count(),
            "demotions" => tier.demotions = count(),
            "evictions" => tier.evictions = count(),
            _ => {}
        }
    }
    Some(tier)
}

/// Differences between two readings, with `gets` look-ups in between. A counter that
/// went back, because the server was restarted or its statistics reset, counts as 0.
pub fn shares(before: &[TierCounts], after: &[TierCounts], gets: u64) -> Vec<TierShare> {
    let share = |after: &TierCounts| {
        let earlier = before.iter().find(|tier| tier.name == after.name).cloned().unwrap_or_default();
        let hits = after.hits.saturating_sub(earlier.hits);
        TierShare {
            name: after.name.clone(),
            hits,
            hit_share: if gets == 0 { 0.0 } else { hits as f64 / gets as f64 },
            promotions: after.promotions.saturating_sub(earlier.promotions),
            demotions: after.demotions.saturating_sub(earlier.demotions),
            evictions: after.evictions.saturating_sub(earlier.evictions),
        }
    };
    after.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Tiers\r\n\
        tier0:name=dram,kind=dram,capacity_bytes=9,used_bytes=5,hits=30,promotions=0,demotions=4,evictions=0\r\n\
        tier1:name=cxl,kind=emulated,hits=20,promotions=3,demotions=0,evictions=7,charged_ns=99\r\n";

    #[test]
    fn differences_become_shares() {
        let before = parse(INFO).unwrap();
        let after = parse(&INFO.replace("hits=30", "hits=90").replace("evictions=7", "evictions=8")).unwrap();
        let shares = shares(&before, &after, 100);
        assert_eq!((shares[0].name.as_str(), shares[0].hits, shares[0].hit_share), ("dram", 60, 0.6));
        assert_eq!((shares[1].hits, shares[1].promotions, shares[1].evictions), (0, 0, 1));
    }

    #[test]
    fn servers_without_tiers_have_none() {
        assert_eq!(parse(""), None);
        assert_eq!(parse("# Server\r\nredis_version:7.0.15\r\ntiers:2\r\n"), None);
    }

    #[test]
    fn odd_numbers_do_no_harm() {
        let odd = parse("tier0:name=a,hits=x,,=,promotions=18446744073709551616").unwrap();
        assert_eq!(odd, [TierCounts { name: "a".into(), ..Default::default() }]);
        assert_eq!(shares(&parse(INFO).unwrap(), &odd, 0)[0].hit_share, 0.0);
    }
}
