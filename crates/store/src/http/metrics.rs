//! `/metrics`: figures under their stable names.

use tiermem_live::metrics::{Exposition, escape};

use super::view::{SnapshotFile, View};
use crate::engine::{DivisionStats, FlashFigures, TenantStats, TenantTierStats, TierStats};
use crate::stats::{Activity, CallFigures, ServerStats};

/// All figures as text.
pub fn render(view: &View, ready: bool) -> String {
    let mut text = Exposition::begin(view.version, view.uptime_s, ready);
    text.single("connections", "Connections open now.", view.connections);
    text.single("commands_total", "Requests answered.", view.commands_total);
    text.single("net_input_bytes_total", "Bytes read from clients.", view.net_input_bytes);
    text.single("net_output_bytes_total", "Bytes written to clients.", view.net_output_bytes);
    let engine = &view.engine;
    text.single("gets_total", "Look-ups.", engine.gets);
    text.single("hits_total", "Look-ups that found their key, in any tier.", engine.hits);
    text.single("sets_total", "Values written.", engine.sets);
    text.single("expired_total", "Items removed because they expired.", engine.expired);
    text.single("evicted_total", "Items evicted to make room.", engine.evicted);
    text.single(
        "moves_aborted_total",
        "Moves between tiers cancelled because the item changed.",
        engine.moves_aborted,
    );
    text.single("writes_refused_total", "Writes refused for lack of memory.", engine.refused);
    text.single(
        "lost_items_total",
        "Items dropped because a part of their tier's file or device was lost.",
        engine.lost,
    );
    text.single(
        "missing_tier_bytes",
        "Bytes that tiers have less than configured, because their files cannot hold what was lost.",
        engine.missing_bytes,
    );
    text.single("keys", "Keys in the store now.", engine.keys);
    text.single("keys_with_expiry", "Keys in the store now that expire.", engine.keys_with_expiry);
    text.single(
        "metadata_bytes",
        "Bytes of index, nodes and tables, counted in tier 0.",
        engine.metadata_bytes,
    );
    text.single("pinned_bytes", "Bytes pinned by replies under way.", engine.pinned_bytes);
    tiers(&mut text, &engine.tiers);
    if !engine.tenants.is_empty() {
        tenants(&mut text, &engine.tenants, &engine.tiers);
    }
    if let Some(figures) = &engine.division {
        division(&mut text, figures, &engine.tenants);
    }
    if let Some(figures) = &engine.flash {
        flash(&mut text, figures);
    }
    latency(&mut text, view);
    server(&mut text, &view.server);
    commands(&mut text, &view.activity);
    if let Some(file) = &view.snapshots {
        snapshots(&mut text, file);
    }
    text.into_text()
}

fn server(text: &mut Exposition, stats: &ServerStats) {
    let figures = [
        ("connections_received_total", "Connections accepted.", stats.connections_received),
        (
            "connections_rejected_total",
            "Connections refused because there were too many.",
            stats.connections_rejected,
        ),
        (
            "clients_dropped_total",
            "Connections closed because they were idle or stalled, or broke the protocol.",
            stats.clients_dropped,
        ),
        (
            "clients_blocked_on_output",
            "Clients not read from because they do not read their replies.",
            stats.clients_blocked_on_output,
        ),
        (
            "clients_waiting_for_buffer",
            "Clients with a large request that waits for buffer space.",
            stats.clients_waiting_for_buffer,
        ),
        ("request_buffer_bytes", "Bytes of unfinished requests.", stats.request_buffer_bytes),
        (
            "reply_buffer_bytes",
            "Bytes of replies not yet sent, pinned values among them.",
            stats.reply_buffer_bytes,
        ),
    ];
    for (name, help, value) in figures {
        text.single(name, help, value);
    }
}

/// Commands that were called, and error replies by code.
fn commands(text: &mut Exposition, activity: &Activity) {
    type Field = (&'static str, &'static str, fn(&CallFigures) -> f64);
    const FIELDS: [Field; 4] = [
        ("command_calls_total", "Calls of the command.", |it| it.calls as f64),
        ("command_failures_total", "Calls of the command that ended in an error.", |it| it.failed as f64),
        ("command_rejections_total", "Calls of the command refused before they began.", |it| {
            it.rejected as f64
        }),
        ("command_seconds_total", "Time of the command's calls together, estimated from a sample.", |it| {
            it.usec as f64 / 1e6
        }),
    ];
    for (name, help, value) in FIELDS {
        text.plain_family(name, help);
        for (command, calls) in &activity.commands {
            text.sample(name, &format!("{{command=\"{}\"}}", escape(command)), value(calls));
        }
    }
    text.plain_family("error_replies_total", "Error replies by their code.");
    for (code, count) in &activity.errors {
        text.sample("error_replies_total", &format!("{{code=\"{}\"}}", escape(code)), count);
    }
}

fn snapshots(text: &mut Exposition, file: &SnapshotFile) {
    text.single("snapshots_total", "Snapshots written.", file.written);
    text.single("snapshot_changes", "Values written since the last snapshot.", file.changes);
    text.single(
        "snapshot_failed",
        "1 if the last snapshot could not be written, else 0.",
        u8::from(file.failed),
    );
    let running = u8::from(file.running_s.is_some());
    text.single("snapshot_running", "1 while a snapshot is written in the background, else 0.", running);
    if let Some(age_s) = file.age_s {
        text.single("snapshot_age_seconds", "Time since the last snapshot was written.", age_s);
    }
}

fn flash(text: &mut Exposition, figures: &FlashFigures) {
    let counters = [
        ("flash_admitted_total", "Items demoted from memory and written to flash.", figures.admitted),
        (
            "flash_admitted_bytes_total",
            "Bytes of items demoted from memory and written to flash.",
            figures.admitted_bytes,
        ),
        (
            "flash_rejected_total",
            "Items not written to flash, to spare the device's write endurance.",
            figures.rejected,
        ),
        (
            "flash_unchanged_total",
            "Items that left memory while their copy on flash was current.",
            figures.unchanged,
        ),
        ("flash_refused_total", "Items not written to flash for lack of free segments.", figures.refused),
        (
            "flash_unindexed_total",
            "Items not written to flash for lack of memory for the index.",
            figures.unindexed,
        ),
        (
            "flash_kept_total",
            "Items rewritten by garbage collection: their segment was emptied.",
            figures.kept,
        ),
        ("flash_segments_emptied_total", "Segments emptied by garbage collection.", figures.segments_emptied),
        ("flash_reads_total", "Reads from flash for look-ups.", figures.reads),
        ("flash_read_bytes_total", "Bytes read from flash.", figures.read_bytes),
        (
            "flash_written_bytes_total",
            "Bytes written to flash: items, journal, checkpoints.",
            figures.written_bytes,
        ),
        ("flash_io_errors_total", "Reads and writes of flash that failed.", figures.io_errors),
        ("flash_lost_items_total", "Items on flash that could not be read back.", figures.lost_items),
    ];
    for (name, help, value) in counters {
        text.single(name, help, value);
    }
    text.single("flash_room_bytes", "Bytes that items on flash may fill.", figures.room_bytes);
    text.single("flash_recovered_items", "Items that the last restart found.", figures.recovered_items);
    text.single(
        "flash_recoverable_items",
        "Items that a restart would find if the process died now.",
        figures.recoverable_items,
    );
    text.single(
        "flash_write_amplification",
        "Bytes written to flash for each byte demoted from memory.",
        figures.write_amplification,
    );
    text.single(
        "flash_broken",
        "1 if the flash device failed and is no longer used, else 0.",
        u8::from(figures.broken),
    );
    text.single(
        "flash_recoverable",
        "1 if a restart finds the items on flash, else 0.",
        u8::from(figures.recoverable),
    );
    if let Some(years) = figures.lifetime_years {
        text.single(
            "flash_lifetime_years",
            "Life of the flash device in years at the average write rate since the start.",
            years,
        );
    }
}

fn tiers(text: &mut Exposition, tiers: &[TierStats]) {
    type Field = (&'static str, &'static str, fn(&TierStats) -> u64);
    const FIELDS: [Field; 8] = [
        ("capacity_bytes", "Capacity of the tier; tier 0 includes the metadata.", |tier| tier.capacity_bytes),
        ("used_bytes", "Bytes in use: pages given to size classes; tier 0 includes the metadata.", |tier| {
            tier.used_bytes
        }),
        ("item_bytes", "Bytes of keys, values and headers in the tier.", |tier| tier.item_bytes),
        ("items", "Items in the tier.", |tier| tier.items),
        ("hits_total", "Look-ups that found their item in this tier.", |tier| tier.hits),
        ("promotions_total", "Items promoted from this tier.", |tier| tier.promotions),
        ("demotions_total", "Items demoted from this tier.", |tier| tier.demotions),
        ("evictions_total", "Items evicted from this tier out of the system.", |tier| tier.evictions),
    ];
    let labels: Vec<String> = tiers
        .iter()
        .map(|tier| format!("{{tier=\"{}\",kind=\"{}\"}}", escape(&tier.name), escape(&tier.kind)))
        .collect();
    for (field, help, value) in FIELDS {
        let name = format!("tier_{field}");
        text.plain_family(&name, help);
        for (tier, labels) in tiers.iter().zip(&labels) {
            text.sample(&name, labels, value(tier));
        }
    }
    text.family("tier_charged_seconds_total", "counter", "Latency charged by the emulator; 0 on real tiers.");
    for (tier, labels) in tiers.iter().zip(&labels) {
        text.sample("tier_charged_seconds_total", labels, tier.charged_ns as f64 / 1e9);
    }
}

fn tenants(text: &mut Exposition, tenants: &[TenantStats], tiers: &[TierStats]) {
    type Field<T> = (&'static str, &'static str, fn(&T) -> u64);
    const ASKED: [Field<TenantStats>; 3] = [
        ("gets_total", "Look-ups of the tenant.", |tenant| tenant.gets),
        ("hits_total", "Look-ups of the tenant that found their key.", |tenant| tenant.hits),
        ("sets_total", "Values that the tenant wrote.", |tenant| tenant.sets),
    ];
    const HELD: [Field<TenantTierStats>; 5] = [
        ("items", "Items of the tenant in the tier.", |tier| tier.items),
        ("bytes", "Bytes of the slots of the tenant's items in the tier.", |tier| tier.bytes),
        ("share_bytes", "The tenant's share of the tier; 0 if none was declared.", |tier| tier.share_bytes),
        ("evictions_total", "Items of the tenant evicted from the tier.", |tier| tier.evictions),
        (
            "trespasses_total",
            "Items of the tenant evicted for another tenant although the tenant held no more than its share.",
            |tier| tier.trespasses,
        ),
    ];
    for (field, help, value) in ASKED {
        let name = format!("tenant_{field}");
        text.plain_family(&name, help);
        for tenant in tenants {
            text.sample(&name, &format!("{{tenant=\"{}\"}}", escape(&tenant.name)), value(tenant));
        }
    }
    for (field, help, value) in HELD {
        let name = format!("tenant_tier_{field}");
        text.plain_family(&name, help);
        for tenant in tenants {
            for (held, tier) in tenant.tiers.iter().zip(tiers) {
                let (tenant, tier) = (escape(&tenant.name), escape(&tier.name));
                text.sample(&name, &format!("{{tenant=\"{tenant}\",tier=\"{tier}\"}}"), value(held));
            }
        }
    }
}

/// The last division of memory among tenants, and the figures of each tenant.
fn division(text: &mut Exposition, figures: &DivisionStats, tenants: &[TenantStats]) {
    text.single(
        "division_windows_total",
        "Windows after which memory was divided among tenants.",
        figures.windows,
    );
    let bytes = figures.metadata_bytes;
    text.single(
        "division_metadata_bytes",
        "Bytes of miss-ratio curves and samples, counted in tier 0.",
        bytes,
    );
    let rate = figures.sample_rate;
    text.single("division_sample_rate", "Share of the keys that is sampled for miss-ratio curves.", rate);
    let predicted = [("before", figures.predicted_before_ns), ("after", figures.predicted_after_ns)];
    let measured = [("before", Some(figures.measured_before_ns)), ("after", figures.measured_after_ns)];
    let name = "division_predicted_miss_seconds";
    text.family(
        name,
        "gauge",
        "Mean cost of misses for a look-up, predicted at the last division of memory.",
    );
    for (when, ns) in predicted {
        text.sample(name, &format!("{{when=\"{when}\"}}"), ns / 1e9);
    }
    let name = "division_measured_miss_seconds";
    text.family(name, "gauge", "Mean cost of misses for a look-up, measured in the window before the last division and in the latest window.");
    for (when, ns) in measured.into_iter().filter_map(|(when, ns)| Some((when, ns?))) {
        text.sample(name, &format!("{{when=\"{when}\"}}"), ns / 1e9);
    }
    text.family("tenant_miss_cost_seconds", "gauge", "Mean cost of a miss of the tenant.");
    for tenant in tenants {
        if let Some(advice) = &tenant.advice {
            let labels = format!("{{tenant=\"{}\"}}", escape(&tenant.name));
            text.sample("tenant_miss_cost_seconds", &labels, advice.miss_ns / 1e9);
        }
    }
}

fn latency(text: &mut Exposition, view: &View) {
    let latency = &view.latency;
    text.family("request_duration_seconds", "histogram", "Service times of requests.");
    for bucket in &latency.buckets {
        let labels = format!("{{le=\"{}\"}}", bucket.upper_us / 1e6);
        text.sample("request_duration_seconds_bucket", &labels, bucket.count);
    }
    text.sample("request_duration_seconds_bucket", "{le=\"+Inf\"}", latency.count);
    text.sample("request_duration_seconds_sum", "", latency.sum_us / 1e6);
    text.sample("request_duration_seconds_count", "", latency.count);
    text.family("request_duration_recent_seconds", "gauge", "Quantiles of service times in the last second.");
    let quantiles = [("0.5", latency.p50_us), ("0.99", latency.p99_us), ("0.999", latency.p999_us)];
    for (quantile, us) in quantiles {
        text.sample("request_duration_recent_seconds", &format!("{{quantile=\"{quantile}\"}}"), us / 1e6);
    }
}

#[cfg(test)]
mod tests {
    use tiermem_live::metrics::check;

    use super::*;
    use crate::http::view::{Bucket, Latency};

    fn view() -> View {
        let tier = |name: &str, kind: &str| TierStats {
            name: name.into(),
            kind: kind.into(),
            hits: 7,
            charged_ns: 1_500_000_000,
            ..Default::default()
        };
        let mut view = View { version: "1.2.3", uptime_s: 2.5, ..Default::default() };
        view.engine.tiers = vec![tier("dram", "dram"), tier("odd \"\\\nname", "emulated")];
        let held = vec![TenantTierStats { items: 3, ..Default::default() }; 2];
        view.engine.tenants =
            vec![TenantStats { name: "we\"b".into(), gets: 9, tiers: held, ..Default::default() }];
        let bucket = |upper_us, count| Bucket { upper_us, count };
        view.latency = Latency {
            buckets: vec![bucket(1.0, 3), bucket(2.5, 5)],
            count: 6,
            sum_us: 9.0,
            ..Default::default()
        };
        view
    }

    #[test]
    fn the_text_is_well_formed_and_says_what_the_view_says() {
        let samples = check(&render(&view(), true)).unwrap();
        assert_eq!(samples["tiermem_ready"], 1.0);
        assert_eq!(samples["tiermem_uptime_seconds"], 2.5);
        assert_eq!(samples["tiermem_build_info{version=\"1.2.3\"}"], 1.0);
        assert_eq!(samples["tiermem_tier_hits_total{tier=\"dram\",kind=\"dram\"}"], 7.0);
        let odd = "tiermem_tier_charged_seconds_total{tier=\"odd \\\"\\\\\\nname\",kind=\"emulated\"}";
        assert_eq!(samples[odd], 1.5);
        assert_eq!(samples["tiermem_request_duration_seconds_bucket{le=\"0.0000025\"}"], 5.0);
        assert_eq!(samples["tiermem_request_duration_seconds_bucket{le=\"+Inf\"}"], 6.0);
    }

    #[test]
    fn an_empty_view_is_well_formed_too() {
        assert_eq!(check(&render(&View::default(), false)).unwrap()["tiermem_ready"], 0.0);
    }
}
