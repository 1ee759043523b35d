//! Captions of pictures.

use tiermem_base::Op;
use tiermem_trace::recording::{Level, LevelChoice, Mode, Recording, Unit};

use super::{Field, Look, Show};
use crate::quantity::{Quantity, grouped, trimmed};

/// A size to three digits, with its unit.
pub fn bytes(bytes: f64) -> String {
    Quantity::Bytes.tick(bytes).replace('\u{202f}', " ")
}

/// A time to three digits, with its unit.
pub fn time(time_ns: u64) -> String {
    match time_ns {
        0 => "0 s".to_owned(),
        time_ns => Quantity::Time.tick(time_ns as f64).replace('\u{202f}', " "),
    }
}

/// A number of accesses: whole ones in full, others to three digits.
pub fn count(count: f64) -> String {
    match count.fract() == 0.0 && count < 1e15 {
        true => grouped(count as u64),
        false => trimmed(count, 4),
    }
}

/// A text as a sentence begins.
pub fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// A count with its noun.
pub fn several(count: usize, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{} {many}", grouped(count as u64)),
    }
}

impl Look<'_> {
    /// What the source counts.
    pub(super) fn noun(&self) -> &'static str {
        noun(self.recording, self.selection.source)
    }

    /// One of what the source counts.
    pub(super) fn noun_of_one(&self) -> &'static str {
        match self.noun() {
            "samples" => "sample",
            "page touches" => "page touch",
            "page writes" => "page write",
            "page faults" => "page fault",
            _ => "access",
        }
    }

    /// The figure of a granule, for a colour bar or an axis.
    pub(super) fn measure(&self) -> String {
        match self.show {
            Show::Accesses => format!("{} per granule", self.noun()),
            Show::ShareRemote => format!("remote share of {} per granule", self.noun()),
            Show::Idle => format!("time since the last {}", self.noun_of_one()),
        }
    }

    /// Which accesses were looked at.
    pub(super) fn what(&self) -> String {
        let op = match self.selection.op {
            None => "loads and stores".to_owned(),
            Some(Op::Store) => "stores alone".to_owned(),
            Some(op) => format!("{}s alone", op.name()),
        };
        let mode = match self.selection.mode {
            None | Some(Mode::Unknown) => "",
            Some(Mode::User) => ", by the program",
            Some(Mode::Kernel) => ", by the kernel",
        };
        let level = match self.selection.level {
            LevelChoice::All => "",
            LevelChoice::Memory => ", that reached memory",
            LevelChoice::Only(Level::Local) => ", answered by local memory",
            LevelChoice::Only(Level::Remote) => ", answered by remote memory",
            LevelChoice::Only(Level::Cache) => ", answered by caches",
            LevelChoice::Only(Level::Unknown) => ", level unknown",
        };
        let source = self.recording.head.sources.get(usize::from(self.selection.source.unwrap_or(0)));
        let seen = source.map_or(String::new(), |source| format!(", seen by {}", source.name));
        format!("{op}{mode}{level}{seen}")
    }

    /// What a picture of a field shows, in a few words.
    pub(super) fn title(&self, field: &Field, view: &str) -> String {
        format!("{}: {view}", self.region_name(field))
    }

    /// The region's name, and the stretch of it.
    pub(super) fn region_name(&self, field: &Field) -> String {
        let region = self.recording.head.regions.get(field.window.region);
        let name = region.map_or("", |region| &region.name);
        let is_whole = region.is_none_or(|region| field.window.bytes >= region.bytes);
        match is_whole {
            true => name.to_owned(),
            false => format!(
                "{name}, {} from offset {}",
                bytes(field.window.bytes as f64),
                bytes(field.window.offset as f64)
            ),
        }
    }

    /// The address of a field's region in the recorded run.
    pub(super) fn start(&self, field: &Field) -> u64 {
        self.recording.head.regions.get(field.window.region).map_or(0, |region| region.start)
    }

    /// Granules, slices, and what is counted, in a sentence.
    pub(super) fn remark(&self, field: &Field) -> String {
        let granules = field.granules();
        let window = &field.window;
        let unknown = match self.show {
            _ if !self.is_unknown(field) => "",
            Show::Idle => "; it was looked at as a whole, and parts may have been idle for longer",
            _ => "; which parts are hot is not known",
        };
        format!(
            "{} in {} of {}; {}; {}{unknown}",
            bytes(window.bytes as f64),
            several(granules, "granule", "granules"),
            bytes(window.granule_bytes as f64),
            slices(self.recording, &field.slices),
            self.what()
        )
    }

    /// Whether the source tells when memory was last accessed. A page fault tells of the first access to a page alone.
    pub fn tells_ages(&self) -> bool {
        let source = self.recording.head.sources.get(usize::from(self.selection.source.unwrap_or(0)));
        source.is_none_or(|source| source.unit != Unit::Faults)
    }

    /// Whether it is not known which granules of a field are hot.
    pub(super) fn is_unknown(&self, field: &Field) -> bool {
        let window = &field.window;
        self.recording.unknown_heat(&self.selection, Some(window.region), window.granule_bytes).is_some()
    }

    /// What the colour of no access is.
    pub(super) fn never(&self) -> String {
        format!("{} is never accessed", self.theme.never_name)
    }
}

/// The noun for a source's counts; the first source where none is chosen.
pub fn noun(recording: &Recording, source: Option<u8>) -> &'static str {
    match recording.head.sources.get(usize::from(source.unwrap_or(0))).map(|source| source.unit) {
        None | Some(Unit::Accesses) => "accesses",
        Some(Unit::Samples) => "samples",
        Some(Unit::PageTouches) => "page touches",
        Some(Unit::PageWrites) => "page writes",
        Some(Unit::Faults) => "page faults",
    }
}

/// Some slices and their time.
pub fn slices(recording: &Recording, chosen: &[usize]) -> String {
    let all = recording.head.slices.len();
    let at = |slice: usize| recording.head.slices.get(slice);
    let (Some(first), Some(last)) = (chosen.first(), chosen.last()) else { return "no slices".to_owned() };
    let from = at(*first).map_or(0, |slice| slice.start_ns);
    let to = at(*last).map_or(0, |slice| slice.end_ns);
    let which = if chosen.len() == all && all > 1 {
        format!("all {} slices", grouped(all as u64))
    } else if chosen.len() == 1 && all == 1 {
        "the one slice".to_owned()
    } else if chosen.len() == 1 {
        format!("slice {first}")
    } else if last - first + 1 == chosen.len() {
        format!("slices {first}-{last}")
    } else {
        format!("{} slices of {first}-{last}", grouped(chosen.len() as u64))
    };
    format!("{which}, {} to {}", time(from), time(to))
}
