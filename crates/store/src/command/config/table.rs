//! Table of parameters, one line each.
//!
//! To add one that clients can change: a field in [`crate::settings::Settings`] (or in the ladder's `Tuning`),
//! and a `live` line here, in the order of names. `at` gives it a place of its own in the configuration file;
//! without `at` it is in `[config]`, under its name. No other code knows single parameters.

use tiermem_base::Bytes;
use tiermem_policy::ladder::{Eviction, Reactive};
use tiermem_policy::promotion_rule::Promotion;
use tiermem_policy::shard_memory::Resize;

use super::parameter::{
    Form, Live, Parameter, Problem, TIER_SECTION, fixed, in_seconds, live, number, seconds, share, size,
    switch, word, word_for, yes_or_no,
};
use crate::clients::NotifyFlags;
use crate::engine::DATABASES;
use crate::server::FILES_RESERVED;
use crate::settings::LogLevel;

const EVICTION: [(Eviction, &str); 2] =
    [(Eviction::AllItems, "allkeys-lru"), (Eviction::Forbidden, "noeviction")];
const REACTIVE: [(Reactive, &str); 2] = [(Reactive::Demote, "demote"), (Reactive::Drop, "drop")];
const PROMOTION: [(Promotion, &str); 6] = [
    (Promotion::ReuseTwice, "reuse-twice"),
    (Promotion::ReuseTime, "reuse-time"),
    (Promotion::ReuseTimeScan, "reuse-time-scan"),
    (Promotion::TailAge, "tail-age"),
    (Promotion::Naive, "naive"),
    (Promotion::None, "none"),
];

/// Items moved or dropped in one step: at zero nothing would ever move, and many make the step long.
const BATCH: (i64, i64) = (1, 4096);
const COUNT: (i64, i64) = (1, i64::MAX);
const ANY: (i64, i64) = (0, i64::MAX);
/// Entries of the slow log: what each may hold times this is the memory that clients can fill.
const SLOWLOG_ENTRIES_MAX: i64 = 8192;
const SECONDS: (i64, i64) = (0, i32::MAX as i64);
const OUTPUT: (u64, u64) = (16 << 10, 1 << 40);
const BUFFER: (u64, u64) = (64 << 10, 1 << 40);

pub(super) static PARAMETERS: &[Parameter] = &[
    fixed("appendonly", |_| "no".to_owned()),
    fixed("bind", |context| context.host.bind.clone()),
    fixed("databases", |_| DATABASES.to_string()),
    live("flash-capacity", Form::Size, |it| it.flash_bytes.to_string(), set_flash_capacity)
        .at(TIER_SECTION, "capacity"),
    fixed("io-threads", |_| "1".to_owned()),
    live(
        "latency-monitor-threshold",
        Form::Number,
        |it| it.server.latency_threshold_ms.to_string(),
        |it, text| number(&mut it.server.latency_threshold_ms, text, ANY),
    ),
    live(
        "latency-tracking",
        Form::Switch,
        |it| yes_or_no(it.server.latency_tracking),
        |it, text| switch(&mut it.server.latency_tracking, text),
    ),
    live(
        "loglevel",
        Form::Word,
        |it| word_for(it.server.log_level, &LogLevel::ALL),
        |it, text| word(&mut it.server.log_level, text, &LogLevel::ALL),
    ),
    live("maxclients", Form::Number, |it| it.server.maxclients.to_string(), set_maxclients)
        .at("server", "maxclients"),
    live("maxmemory", Form::Size, |it| it.server.maxmemory.bytes.to_string(), set_maxmemory),
    live(
        "maxmemory-policy",
        Form::Word,
        |it| word_for(it.policy.eviction, &EVICTION),
        |it, text| word(&mut it.policy.eviction, text, &EVICTION),
    ),
    live("notify-keyspace-events", Form::Word, |it| it.server.notify.text(), set_notify),
    live(
        "output-buffer",
        Form::Size,
        |it| it.server.output_bytes_max.to_string(),
        |it, text| size(&mut it.server.output_bytes_max, text, OUTPUT),
    )
    .at("server", "output_buffer"),
    live(
        "output-buffer-total",
        Form::Size,
        |it| it.server.output_total_bytes_max.to_string(),
        |it, text| size(&mut it.server.output_total_bytes_max, text, BUFFER),
    ),
    live(
        "policy-demote-batch",
        Form::Number,
        |it| it.policy.demote_batch.to_string(),
        |it, text| number(&mut it.policy.demote_batch, text, BATCH),
    )
    .at("policy", "demote_batch"),
    live(
        "policy-evict-batch",
        Form::Number,
        |it| it.policy.evict_batch.to_string(),
        |it, text| number(&mut it.policy.evict_batch, text, BATCH),
    )
    .at("policy", "evict_batch"),
    live(
        "policy-high-watermark",
        Form::Share,
        |it| it.policy.watermarks.high.to_string(),
        |it, text| share(&mut it.policy.watermarks.high, text),
    )
    .at("policy", "high_watermark"),
    live(
        "policy-low-watermark",
        Form::Share,
        |it| it.policy.watermarks.low.to_string(),
        |it, text| share(&mut it.policy.watermarks.low, text),
    )
    .at("policy", "low_watermark"),
    live(
        "policy-promote-batch",
        Form::Number,
        |it| it.policy.promote_batch.to_string(),
        |it, text| number(&mut it.policy.promote_batch, text, BATCH),
    )
    .at("policy", "promote_batch"),
    live("policy-promotion", Form::Word, |it| word_for(it.policy.promotion, &PROMOTION), set_promotion)
        .at("policy", "promotion"),
    live(
        "policy-reactive",
        Form::Word,
        |it| word_for(it.policy.reactive, &REACTIVE),
        |it, text| word(&mut it.policy.reactive, text, &REACTIVE),
    )
    .at("policy", "reactive"),
    live(
        "policy-scan-depth",
        Form::Number,
        |it| it.policy.scan_depth.to_string(),
        |it, text| number(&mut it.policy.scan_depth, text, BATCH),
    )
    .at("policy", "scan_depth"),
    live(
        "policy-scan-requests",
        Form::Number,
        |it| it.policy.scan_requests.to_string(),
        |it, text| number(&mut it.policy.scan_requests, text, COUNT),
    )
    .at("policy", "scan_requests"),
    live(
        "policy-watermarks",
        Form::Switch,
        |it| yes_or_no(it.policy.proactive),
        |it, text| switch(&mut it.policy.proactive, text),
    )
    .at("policy", "watermarks"),
    fixed("port", |context| context.host.tcp_port.to_string()),
    fixed("protected-mode", |context| yes_or_no(context.host.protected_mode)),
    fixed("proto-max-bulk-len", |context| context.engine.value_bytes_max().to_string()),
    live(
        "request-buffer",
        Form::Size,
        |it| it.server.request_buffer_bytes.to_string(),
        |it, text| size(&mut it.server.request_buffer_bytes, text, BUFFER),
    )
    .at("server", "request_buffer"),
    live(
        "requirepass",
        Form::Word,
        |it| it.server.users.requirepass().unwrap_or("").to_owned(),
        |it, text| {
            it.server.users.set_requirepass((!text.is_empty()).then_some(text));
            Ok(())
        },
    )
    .at("server", "requirepass"),
    fixed("save", |_| String::new()),
    live(
        "slowlog-log-slower-than",
        Form::Number,
        |it| it.server.slowlog_slower_than_us.to_string(),
        |it, text| number(&mut it.server.slowlog_slower_than_us, text, (-1, i64::MAX)),
    ),
    live(
        "slowlog-max-len",
        Form::Number,
        |it| it.server.slowlog_entries_max.to_string(),
        |it, text| number(&mut it.server.slowlog_entries_max, text, (0, SLOWLOG_ENTRIES_MAX)),
    ),
    live(
        "stall-timeout-ms",
        Form::Number,
        |it| it.server.stall_timeout_ms.to_string(),
        |it, text| number(&mut it.server.stall_timeout_ms, text, COUNT),
    ),
    live(
        "tcp-keepalive",
        Form::Number,
        |it| it.server.tcp_keepalive_s.to_string(),
        |it, text| number(&mut it.server.tcp_keepalive_s, text, SECONDS),
    ),
    live(
        "tenants-divide",
        Form::Word,
        |it| it.division.aim.to_string(),
        |it, text| text.parse().map(|aim| it.division.aim = aim),
    )
    .at("tenants", "divide"),
    live("tenants-terms", Form::Word, |it| it.division.terms_text(), |it, text| it.division.read_terms(text)),
    live(
        "tenants-window",
        Form::Number,
        |it| it.division.window.to_string(),
        |it, text| number(&mut it.division.window, text, COUNT),
    )
    .at("tenants", "window"),
    live(
        "timeout",
        Form::Seconds,
        |it| in_seconds(it.server.timeout_ms),
        |it, text| seconds(&mut it.server.timeout_ms, text),
    )
    .at("server", "timeout"),
    fixed("tls-port", |context| context.host.tls_port.to_string()),
    live(
        "tracking-table-max-keys",
        Form::Number,
        |it| it.server.tracked_keys_max.to_string(),
        |it, text| number(&mut it.server.tracked_keys_max, text, ANY),
    ),
    fixed("unixsocket", |context| context.host.unix_socket.clone()),
];

fn set_notify(live: &mut Live, text: &str) -> Result<(), Problem> {
    let flags = NotifyFlags::parse(text.as_bytes());
    live.server.notify = flags.ok_or("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")?;
    Ok(())
}

/// Whether there is room for it is known when the device has grown.
fn set_flash_capacity(it: &mut Live, text: &str) -> Result<(), Problem> {
    let Bytes(bytes) = text.parse::<Bytes>().map_err(|error| error.to_string())?;
    if bytes != it.flash_bytes && it.flash_bytes == 0 {
        return Err("there is no flash tier: start the store with one".to_owned());
    }
    it.flash_bytes = bytes;
    Ok(())
}

/// Each client is an open file: a number that the system would not allow is refused.
/// 0 is what the tiers were given at the start, as there is no more.
fn set_maxmemory(it: &mut Live, text: &str) -> Result<(), Problem> {
    let maxmemory = &mut it.server.maxmemory;
    let Bytes(bytes) = text.parse::<Bytes>().map_err(|error| error.to_string())?;
    let (least, most) = (Resize::least_bytes(maxmemory.most_bytes), maxmemory.most_bytes);
    let bytes = if bytes == 0 { most } else { bytes };
    if bytes != maxmemory.bytes && maxmemory.has_dax {
        return Err("a tier of kind dax keeps the size of its file, where its items outlive the process: stop the store and start it \
                    with other capacities"
            .to_owned());
    }
    if !(least..=most).contains(&bytes) {
        return Err(format!(
            "argument must be between {} and {}: the memory tiers change in proportion, up to what they were given at the start. \
             To have more, start the store with larger tiers",
            Bytes(least),
            Bytes(most)
        ));
    }
    maxmemory.bytes = bytes;
    Ok(())
}

fn set_maxclients(live: &mut Live, text: &str) -> Result<(), Problem> {
    number(&mut live.server.maxclients, text, (1, u32::MAX.into()))?;
    let files = live.server.maxclients as u64 + FILES_RESERVED;
    tiermem_sys::limits::raise_open_files(files).map_err(|error| error.to_string())
}

/// Promotion by scanning keeps a reuse time for each item from the start on, and cannot be turned to or from.
fn set_promotion(live: &mut Live, text: &str) -> Result<(), Problem> {
    let before = live.policy.promotion;
    word(&mut live.policy.promotion, text, &PROMOTION)?;
    let scans = |promotion| promotion == Promotion::ReuseTimeScan;
    if scans(before) != scans(live.policy.promotion) {
        return Err("reuse-time-scan is chosen at the start: set promotion in the file's [policy]".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::parameter::Access;
    use super::*;

    #[test]
    fn parameters_stand_in_the_order_of_their_names() {
        assert!(PARAMETERS.is_sorted_by(|a, b| a.name < b.name));
    }

    #[test]
    fn what_a_parameter_says_of_itself_it_understands() {
        for parameter in PARAMETERS {
            let Access::Live { get, set, .. } = parameter.access else { continue };
            let mut live = Live::default();
            let text = get(&live);
            assert_eq!(set(&mut live, &text), Ok(()), "{} = {text}", parameter.name);
            assert_eq!(live, Live::default(), "{}", parameter.name);
        }
    }

    /// Forgotten wiring would let a change reach another field than the one that is read.
    #[test]
    fn a_change_is_read_back_and_changes_nothing_else() {
        for (name, text) in [
            ("latency-monitor-threshold", "7"),
            ("latency-tracking", "yes"),
            ("notify-keyspace-events", "AKE"),
            ("slowlog-log-slower-than", "-1"),
            ("slowlog-max-len", "7"),
            ("tracking-table-max-keys", "7"),
            ("loglevel", "debug"),
            ("maxclients", "123"),
            ("maxmemory-policy", "noeviction"),
            ("output-buffer", "65536"),
            ("output-buffer-total", "131072"),
            ("policy-demote-batch", "9"),
            ("policy-evict-batch", "9"),
            ("policy-high-watermark", "0.5"),
            ("policy-low-watermark", "0.5"),
            ("policy-promote-batch", "9"),
            ("policy-promotion", "naive"),
            ("policy-reactive", "drop"),
            ("policy-scan-depth", "9"),
            ("policy-scan-requests", "9"),
            ("policy-watermarks", "no"),
            ("request-buffer", "131072"),
            ("requirepass", "secret"),
            ("stall-timeout-ms", "9"),
            ("tcp-keepalive", "9"),
            ("tenants-divide", "hits"),
            ("tenants-terms", "web:min=1024"),
            ("tenants-window", "9"),
            ("timeout", "9"),
        ] {
            let mut live = Live::default();
            let texts = |live: &Live| -> Vec<(&str, String)> {
                PARAMETERS
                    .iter()
                    .filter_map(|it| match it.access {
                        Access::Live { get, .. } => Some((it.name, get(live))),
                        Access::Fixed(_) => None,
                    })
                    .collect()
            };
            let before = texts(&live);
            let parameter = PARAMETERS.iter().find(|it| it.name == name).unwrap();
            let Access::Live { set, .. } = parameter.access else { panic!("{name} can change") };
            assert_eq!(set(&mut live, text), Ok(()), "{name}");
            for ((other, old), (_, new)) in before.iter().zip(texts(&live)) {
                if *other == name {
                    assert_eq!(new, text, "{name}");
                } else {
                    assert_eq!(*old, new, "{name} changed {other}");
                }
            }
        }
    }
}
