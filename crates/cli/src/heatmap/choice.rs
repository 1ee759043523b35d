//! Selection of regions, slices, granules and columns on the command line.

use std::str::FromStr;

use tiermem_base::Bytes;
use tiermem_trace::recording::{Candidate, Mode, NAME_WORDS, Recording, RegionRange, choose};

/// `--columns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnChoice {
    /// As many as rows.
    Square,
    /// The period that is found.
    Period,
    /// This number.
    Given(usize),
}

impl FromStr for ColumnChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse::<usize>()) {
            ("square", _) => Ok(ColumnChoice::Square),
            ("period", _) => Ok(ColumnChoice::Period),
            (_, Ok(columns)) if columns > 0 => Ok(ColumnChoice::Given(columns)),
            _ => Err("columns are a number from 1 on, period or square".to_owned()),
        }
    }
}

/// Reads `all`, `user` or `kernel`.
pub fn mode(text: &str) -> Result<Mode, String> {
    match text {
        "user" => Ok(Mode::User),
        "kernel" => Ok(Mode::Kernel),
        _ => Err("it is user or kernel".to_owned()),
    }
}

/// The stretches that `NAME`, `NUMBER` or either with `:OFFSET+BYTES` means, the latter a part of one region; their granule is still to be
/// chosen. `accesses` has those of each region, which tell the hottest.
pub fn regions(recording: &Recording, text: &str, accesses: &[f64]) -> Result<Vec<RegionRange>, String> {
    let regions = &recording.head.regions;
    let candidates: Vec<Candidate<'_>> = regions
        .iter()
        .zip(accesses)
        .map(|(it, &accesses)| Candidate {
            name: &it.name,
            kind: it.kind,
            path: it.path.as_deref(),
            bytes: it.bytes,
            accesses,
        })
        .collect();
    // A name may have colons itself, so the whole text is tried first.
    let found = |name: &str| {
        let number = || name.parse().ok().filter(|number| *number < regions.len());
        let chosen = choose(name, &candidates);
        if chosen.is_empty() { number().into_iter().collect() } else { chosen }
    };
    let chosen = found(text);
    if !chosen.is_empty() {
        return Ok(chosen.into_iter().map(|region| RegionRange::whole(recording, region, None)).collect());
    }
    let part = text.rsplit_once(':').map(|(name, stretch)| (found(name), stretch));
    let (region, stretch) = match part {
        Some((chosen, stretch)) if chosen.len() == 1 => (chosen[0], stretch),
        Some((chosen, _)) if chosen.len() > 1 => {
            let names: Vec<&str> = chosen.iter().map(|region| regions[*region].name.as_str()).collect();
            return Err(format!("{text:?} is a part of several regions ({}); name one", names.join(", ")));
        }
        _ => {
            let names: Vec<&str> = regions.iter().map(|region| region.name.as_str()).collect();
            let names = names.join(", ");
            return Err(format!(
                "there is no region {text:?}; the regions are {names}; a name is {NAME_WORDS}"
            ));
        }
    };
    let wrong = || format!("{stretch:?} is not a part of a region such as 2GiB+64MiB (offset and bytes)");
    let (offset, bytes) = stretch.split_once('+').ok_or_else(wrong)?;
    let size = |text: &str| text.parse::<Bytes>().map(|bytes| bytes.0).map_err(|_| wrong());
    let (offset, bytes) = (size(offset)?, size(bytes)?);
    let all = regions[region].bytes;
    if bytes == 0 || offset >= all {
        return Err(format!("{stretch} is outside of {}, which has {}", regions[region].name, Bytes(all)));
    }
    let window =
        RegionRange { offset, bytes: bytes.min(all - offset), ..RegionRange::whole(recording, region, None) };
    Ok(vec![window.with_granule(recording, None)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiermem_trace::recording::{Head, Region};

    #[test]
    fn stretches_are_read_and_mistakes_are_told() {
        let region_of = |name: &str, bytes| Region { name: name.to_owned(), bytes, ..Region::default() };
        let regions = vec![region_of("heap", 1 << 20), region_of("a:0+1", 4096)];
        let recording = Recording { head: Head { regions, ..Head::default() }, samples: Vec::new() };
        let regions_of = |text: &str| super::regions(&recording, text, &[1.0, 2.0]);
        let one = |text: &str| regions_of(text).map(|windows| windows[0]);
        let window = one("heap:64KiB+2MiB").unwrap();
        assert_eq!((window.region, window.offset, window.bytes), (0, 65536, (1 << 20) - 65536));
        assert_eq!(one("1").unwrap().region, 1);
        assert_eq!(one("a:0+1").unwrap().bytes, 4096);
        assert_eq!((one("largest").unwrap().region, one("hottest").unwrap().region), (0, 1));
        assert_eq!(regions_of("anon").unwrap().len(), 2);
        for wrong in
            ["stack", "2", "heap:1MiB+4096", "heap:0+0", "heap:x", "heap:1+", "nothing:0+1", "anon:0+1"]
        {
            assert!(regions_of(wrong).is_err(), "{wrong}");
        }
        let told = regions_of("anon 3").unwrap_err();
        assert!(told.contains("`hottest`") && told.contains("the regions are heap, a:0+1;"), "{told}");
    }
}
