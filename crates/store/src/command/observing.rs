//! The parameters of all that observes: slow log, latencies, notifications, tracking.

use crate::clients::{NotifyFlags, TABLE_KEYS_MAX};
use crate::resp::parse_i64;

use super::context::Host;
use super::slowlog::{ENTRIES_MAX, Slowlog};

/// Their names, as Redis has them.
pub(super) const NAMES: [&str; 6] = [
    "latency-monitor-threshold",
    "latency-tracking",
    "notify-keyspace-events",
    "slowlog-log-slower-than",
    "slowlog-max-len",
    "tracking-table-max-keys",
];

/// Their values, to be checked as a whole before any of them holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observing {
    latency_threshold_ms: u64,
    histograms: bool,
    notify: NotifyFlags,
    slower_than_us: i64,
    slowlog_entries: usize,
    tracked_keys: usize,
}

impl Default for Observing {
    fn default() -> Self {
        let slowlog = Slowlog::default();
        Observing {
            latency_threshold_ms: 0,
            histograms: false,
            notify: NotifyFlags::default(),
            slower_than_us: slowlog.slower_than_us,
            slowlog_entries: slowlog.entries_max,
            tracked_keys: TABLE_KEYS_MAX,
        }
    }
}

fn whole(text: &str, least: i64, most: i64) -> Result<i64, String> {
    let number = parse_i64(text.as_bytes()).ok_or("argument couldn't be parsed into an integer")?;
    if !(least..=most).contains(&number) {
        return Err(format!("argument must be between {least} and {most} inclusive"));
    }
    Ok(number)
}

impl Observing {
    /// The value of a parameter; nothing for a name that is none of [`NAMES`].
    pub(super) fn get(&self, name: &str) -> String {
        match name {
            "latency-monitor-threshold" => self.latency_threshold_ms.to_string(),
            "latency-tracking" => if self.histograms { "yes" } else { "no" }.to_owned(),
            "notify-keyspace-events" => self.notify.text(),
            "slowlog-log-slower-than" => self.slower_than_us.to_string(),
            "slowlog-max-len" => self.slowlog_entries.to_string(),
            "tracking-table-max-keys" => self.tracked_keys.to_string(),
            _ => String::new(),
        }
    }

    /// Sets a parameter, or says why not in Redis's words.
    pub(super) fn set(&mut self, name: &str, text: &str) -> Result<(), String> {
        match name {
            "latency-monitor-threshold" => self.latency_threshold_ms = whole(text, 0, i64::MAX)? as u64,
            "latency-tracking" => {
                self.histograms = match text {
                    yes if yes.eq_ignore_ascii_case("yes") => true,
                    no if no.eq_ignore_ascii_case("no") => false,
                    _ => return Err("argument must be 'yes' or 'no'".to_owned()),
                }
            }
            "notify-keyspace-events" => {
                self.notify = NotifyFlags::parse(text.as_bytes())
                    .ok_or("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")?;
            }
            "slowlog-log-slower-than" => self.slower_than_us = whole(text, -1, i64::MAX)?,
            "slowlog-max-len" => self.slowlog_entries = whole(text, 0, ENTRIES_MAX as i64)? as usize,
            "tracking-table-max-keys" => self.tracked_keys = whole(text, 0, i64::MAX)? as usize,
            _ => return Err("there is no such parameter".to_owned()),
        }
        Ok(())
    }
}

impl Host {
    /// Makes new values hold. [`super::Context::refresh`] is to be called behind it.
    pub fn observe(&mut self, observing: Observing) {
        let (slowlog, latencies) = (&mut self.timing.slowlog, &mut self.timing.latencies);
        slowlog.slower_than_us = observing.slower_than_us;
        slowlog.entries_max = observing.slowlog_entries;
        slowlog.forget_surplus();
        latencies.threshold_ms = observing.latency_threshold_ms;
        latencies.histograms = observing.histograms;
        self.timing.update();
        self.clients.set_notify_flags(observing.notify);
        self.clients.set_tracked_keys_max(observing.tracked_keys);
        self.observing = observing;
    }
}
