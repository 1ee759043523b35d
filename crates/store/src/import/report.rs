//! Report of an import.

use std::collections::BTreeMap;
use std::time::Duration;

/// Complaints that are kept; more are only counted.
const COMPLAINTS_MAX: usize = 10;
/// Bytes of a complaint's words that are kept.
const TEXT_BYTES_MAX: usize = 300;

/// Something that was not stored, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Where it stands: a line or row of the input, or a key.
    pub place: String,
    /// The server's error message, or the fault in the input.
    pub text: String,
}

/// Result of comparing keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Keys that were compared.
    pub keys: u64,
    /// Keys that differ, in value, kind or expiry, or are missing.
    pub differing: u64,
}

/// Result of an import.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Commands, rows or keys that were answered, refused ones counted.
    pub items: u64,
    /// Strings stored.
    pub strings: u64,
    /// Hashes stored, from another server.
    pub hashes: u64,
    /// Fields of hashes stored.
    pub fields: u64,
    /// Left as they were, as the target had them already (`--if-absent`).
    pub kept: u64,
    /// Keys that went while they were read.
    pub vanished: u64,
    /// Keys of kinds that cannot be stored, by kind.
    pub skipped: BTreeMap<String, u64>,
    /// Commands and keys that were refused or could not be read.
    pub errors: u64,
    /// The first of those.
    pub complaints: Vec<Complaint>,
    /// Bytes of keys and values sent, with the protocol's.
    pub bytes: u64,
    /// Number of reconnects.
    pub reconnects: u64,
    /// Number of scans started again because the source had restarted.
    pub restarts: u64,
    /// Of keys that were compared afterwards.
    pub verified: Option<Verified>,
    /// From the first command to the last answer.
    pub elapsed: Duration,
}

impl Report {
    /// Counts an error, and keeps it if it is among the first.
    pub(super) fn complain(&mut self, place: impl FnOnce() -> String, text: &str) {
        self.errors += 1;
        self.note(place, text);
    }

    /// Keeps a complaint if it is among the first.
    pub(super) fn note(&mut self, place: impl FnOnce() -> String, text: &str) {
        if self.complaints.len() < COMPLAINTS_MAX {
            let text = text.chars().take(TEXT_BYTES_MAX).collect();
            self.complaints.push(Complaint { place: place(), text });
        }
    }

    /// Adds the result of a part.
    pub(super) fn add(&mut self, part: Report) {
        self.items += part.items;
        self.strings += part.strings;
        self.hashes += part.hashes;
        self.fields += part.fields;
        self.kept += part.kept;
        self.vanished += part.vanished;
        self.bytes += part.bytes;
        self.errors += part.errors;
        for (kind, count) in part.skipped {
            *self.skipped.entry(kind).or_default() += count;
        }
        let room = COMPLAINTS_MAX - self.complaints.len();
        self.complaints.extend(part.complaints.into_iter().take(room));
    }

    /// Items per second.
    pub fn items_per_second(&self) -> f64 {
        self.items as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Whether all is as it should be.
    pub fn is_clean(&self) -> bool {
        self.errors == 0 && self.verified.as_ref().is_none_or(|verified| verified.differing == 0)
    }
}

/// A key as people can read it.
pub(super) fn shown(key: &[u8]) -> String {
    let shown = key[..key.len().min(80)].escape_ascii();
    if key.len() > 80 { format!("{shown}...") } else { shown.to_string() }
}
