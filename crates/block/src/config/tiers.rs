//! Configuration of the cache's tiers: `[[tier]]` tables in the file, or a path and a size.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use tiermem_base::tier::TierError;
use tiermem_base::{Bytes, TierKind, TierSpec};
use tiermem_policy::extents::RequestCost;

use super::ConfigError;
use super::cache::CacheSection;

/// Default of DRAM for copies: this fraction of the cache, up to a maximum.
const MEMORY_SHARE: u64 = 16;
const MEMORY_BYTES_MAX: u64 = 256 << 20;

/// Kinds of tiers that can hold cached bytes.
const SERVED: [TierKind; 2] = [TierKind::Dram, TierKind::Flash];

/// Where cached bytes lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CachePlace {
    /// A file or block device; it outlives the process.
    Path(PathBuf),
    /// DRAM; nothing of it outlives the process, and so a flush brings all that is dirty to the stores.
    Dram,
}

impl fmt::Display for CachePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CachePlace::Path(path) => write!(f, "{}", path.display()),
            CachePlace::Dram => f.write_str("dram"),
        }
    }
}

/// The tiers of a cache, resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheTiers {
    /// Where cached bytes lie.
    pub place: CachePlace,
    /// Capacity of the cache in bytes.
    pub capacity_bytes: u64,
    /// DRAM for copies beside them; none where all is in DRAM.
    pub memory_bytes: u64,
    /// Cost of requests to the stores behind it, until it is measured.
    pub request_cost: RequestCost,
    /// Whether to overwrite existing contents of the device.
    pub reset: bool,
}

impl CacheTiers {
    /// A cache on one tier.
    pub(super) fn of(tier: &TierSpec) -> Result<Self, TierError> {
        tier.served_by("the block cache", &SERVED)?;
        let place = match tier.kind {
            TierKind::Dram => CachePlace::Dram,
            _ => CachePlace::Path(tier.path()?.to_owned()),
        };
        let capacity_bytes = tier.bytes()?;
        let memory_bytes = match place {
            CachePlace::Dram => 0,
            CachePlace::Path(_) => (capacity_bytes / MEMORY_SHARE).min(MEMORY_BYTES_MAX),
        };
        let request_cost = RequestCost::default();
        Ok(CacheTiers { place, capacity_bytes, memory_bytes, request_cost, reset: tier.reset })
    }
}

impl FromStr for CacheSection {
    type Err = String;

    /// `PATH:SIZE` or `dram:SIZE`, or a tier as everywhere: `flash:PATH=SIZE` or `dram=SIZE`.
    fn from_str(text: &str) -> Result<Self, String> {
        let form = || {
            format!(
                "`{text}` is neither PATH:SIZE, as in /srv/cache:16GiB or dram:2GiB, nor a tier, as in flash:/srv/cache=16GiB"
            )
        };
        let size = |(path, size): (&str, &str)| Some((path.to_owned(), size.parse::<Bytes>().ok()?));
        let short = text.rsplit_once(':').filter(|(path, _)| !path.is_empty()).and_then(size);
        let (path, capacity) = match short {
            Some(short) => short,
            // A file's name may look like anything: only what cannot be the short form is a tier.
            None => {
                let tier = text.parse::<TierSpec>().map_err(|error| format!("{}: {error}", form()))?;
                let place = CacheTiers::of(&tier).map_err(|error| error.to_string())?.place;
                (place.to_string(), Bytes(tier.bytes().map_err(|error| error.to_string())?))
            }
        };
        Ok(CacheSection::on(path, capacity))
    }
}

/// What a section's cache lies on, of these tiers if it names some.
pub(super) fn resolve(section: &CacheSection, tiers: &[TierSpec]) -> Result<CacheTiers, ConfigError> {
    let value = |key, problem: String| Err(ConfigError::Value { key, problem });
    let mut found = match (&section.tiers[..], &section.path, section.capacity) {
        ([], Some(path), Some(capacity)) => {
            let tier = TierSpec::new(if path == "dram" { TierKind::Dram } else { TierKind::Flash }, capacity);
            CacheTiers::of(&if path == "dram" { tier } else { tier.at_path(path) })?
        }
        ([], None, None) => {
            return value(
                "cache.tiers",
                "is missing: name the tier that the cache lies on, such as tiers = [\"flash\"], or give path and capacity"
                    .to_owned(),
            );
        }
        ([], None, _) => return value("cache.path", "is missing: name a file or block device".to_owned()),
        ([], _, None) => {
            return value("cache.capacity", "is missing: give bytes, such as \"16GiB\"".to_owned());
        }
        (_, Some(_), _) | (_, _, Some(_)) => {
            let problem = "contradicts tiers: leave path and capacity out, for the tier has them".to_owned();
            return value("cache.path", problem);
        }
        ([device], ..) => CacheTiers::of(named(tiers, "cache.tiers", device)?)?,
        ([memory, device], ..) => {
            let (memory, device) =
                (named(tiers, "cache.tiers", memory)?, named(tiers, "cache.tiers", device)?);
            memory.served_by("the place for copies", &[TierKind::Dram])?;
            if device.kind == TierKind::Dram {
                let problem =
                    format!("{:?} is DRAM already, before which copies in DRAM are of no use", device.name);
                return value("cache.tiers", problem);
            }
            CacheTiers { memory_bytes: memory.bytes()?, ..CacheTiers::of(device)? }
        }
        (more, ..) => {
            let problem =
                format!("names {} tiers: the cache lies on one, and may have DRAM before it", more.len());
            return value("cache.tiers", problem);
        }
    };
    match section.memory {
        Some(_) if section.tiers.len() == 2 => {
            let problem =
                format!("contradicts tiers: leave it out, for tier {:?} says how much", section.tiers[0]);
            return value("cache.memory", problem);
        }
        Some(memory) if found.place != CachePlace::Dram => found.memory_bytes = memory.0,
        _ => {}
    }
    if let Some(name) = &section.backing_tier {
        found.request_cost = RequestCost::of(&named(tiers, "cache.backing_tier", name)?.curve()?.read);
    }
    found.reset |= section.reset;
    Ok(found)
}

/// The tier of this name.
fn named<'a>(tiers: &'a [TierSpec], key: &'static str, name: &str) -> Result<&'a TierSpec, ConfigError> {
    tiers.iter().find(|tier| tier.name == name).ok_or_else(|| {
        let names: Vec<_> = tiers.iter().map(|tier| format!("{:?}", tier.name)).collect();
        let known = if names.is_empty() {
            "the file has no [[tier]]".to_owned()
        } else {
            format!("there are {}", names.join(", "))
        };
        ConfigError::Value { key, problem: format!("there is no tier {name:?}: {known}") }
    })
}

#[cfg(test)]
mod tests {
    use super::super::BlockConfig;
    use super::*;
    use tiermem_live::config::{Reader, parse};

    const TIERS: &str = r#"
        [[tier]]
        name = "dram"
        kind = "dram"
        capacity = "64MiB"
        [[tier]]
        name = "nvme"
        kind = "flash"
        path = "/dev/nvme0n1"
        capacity = "16GiB"
        [[tier]]
        name = "other"
        kind = "numa"
        node = 1
        capacity = "1GiB"
        [[tier]]
        name = "store"
        kind = "remote"
        read_latency = "5ms"
        write_latency = "6ms"
        bandwidth = "2GB/s"
    "#;

    fn cache(section: &str) -> Result<CacheTiers, String> {
        let config: BlockConfig = parse(&format!("[cache]\n{section}\n{TIERS}"), Reader::Block).unwrap();
        config.cache_tiers().map_err(|error| error.to_string())
    }

    #[test]
    fn a_cache_lies_on_a_tier_that_it_names() {
        let alone = cache("tiers = [\"nvme\"]").unwrap();
        let place = CachePlace::Path("/dev/nvme0n1".into());
        assert_eq!((&alone.place, alone.capacity_bytes, alone.memory_bytes), (&place, 16 << 30, 256 << 20));
        assert_eq!(alone.request_cost, RequestCost::default());
        // The same as it was written before.
        assert_eq!(cache("path = \"/dev/nvme0n1\"\ncapacity = \"16GiB\""), Ok(alone.clone()));
        assert_eq!(cache("tiers = [\"nvme\"]\nmemory = \"64MiB\"").unwrap().memory_bytes, 64 << 20);
        let both = cache("tiers = [\"dram\", \"nvme\"]\nbacking_tier = \"store\"").unwrap();
        let request_cost = RequestCost { request_ns: 5_000_000, kib_ns: 512 };
        assert_eq!(both, CacheTiers { memory_bytes: 64 << 20, request_cost, ..alone });
        let dram = cache("tiers = [\"dram\"]").unwrap();
        assert_eq!((dram.place, dram.memory_bytes), (CachePlace::Dram, 0));
    }

    #[test]
    fn what_it_cannot_lie_on_is_told() {
        for (section, part) in [
            ("", "cache.tiers: is missing"),
            ("path = \"x\"", "cache.capacity: is missing"),
            ("capacity = \"1GiB\"", "cache.path: is missing"),
            ("tiers = [\"nvme\"]\npath = \"x\"", "cache.path: contradicts tiers"),
            ("tiers = [\"nvme\"]\ncapacity = \"1GiB\"", "contradicts tiers"),
            ("tiers = [\"gone\"]", "there is no tier \"gone\": there are \"dram\", \"nvme\""),
            ("tiers = [\"other\"]", "serves tiers of kind dram and flash, and not numa yet"),
            ("tiers = [\"store\"]", "and not remote yet"),
            (
                "tiers = [\"other\", \"nvme\"]",
                "the place for copies serves tiers of kind dram, and not numa yet",
            ),
            ("tiers = [\"nvme\", \"dram\"]", "and not flash yet"),
            ("tiers = [\"dram\", \"dram\"]", "is DRAM already"),
            ("tiers = [\"dram\", \"nvme\", \"other\"]", "names 3 tiers"),
            ("tiers = [\"dram\", \"nvme\"]\nmemory = \"1MiB\"", "cache.memory: contradicts tiers"),
            ("tiers = [\"nvme\"]\nbacking_tier = \"gone\"", "cache.backing_tier: there is no tier"),
        ] {
            let error = cache(section).unwrap_err();
            assert!(error.contains(part), "{section}: {error}");
        }
    }

    #[test]
    fn a_flag_says_place_and_size() {
        for (text, place, bytes) in [
            ("/srv/a:b:2GiB", CachePlace::Path("/srv/a:b".into()), 2 << 30),
            ("flash:/srv/a:b=c=2GiB", CachePlace::Path("/srv/a:b=c".into()), 2 << 30),
            // A file of that name in this folder.
            ("flash:2GiB", CachePlace::Path("flash".into()), 2 << 30),
            ("dram=x:2GiB", CachePlace::Path("dram=x".into()), 2 << 30),
            ("dram:1MiB", CachePlace::Dram, 1 << 20),
            ("dram=1MiB", CachePlace::Dram, 1 << 20),
        ] {
            let cache = resolve(&text.parse().unwrap(), &[]).unwrap();
            assert_eq!((cache.place, cache.capacity_bytes), (place, bytes), "{text}");
        }
        for wrong in ["", "x", ":1GiB", "x:", "x:big", "x=1GiB", "flash:/x=big"] {
            assert!(wrong.parse::<CacheSection>().unwrap_err().contains("PATH:SIZE"), "{wrong}");
        }
        for (wrong, part) in
            [("flash=1GiB", "has a path"), ("numa:1=1GiB", "dram and flash, and not numa yet")]
        {
            assert!(wrong.parse::<CacheSection>().unwrap_err().contains(part), "{wrong}");
        }
        assert!("x:1KiB".parse::<CacheSection>().unwrap().validate(1024).is_err());
    }
}
