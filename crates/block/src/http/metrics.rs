//! `/metrics`: figures under their stable names.

use tiermem_live::metrics::{Exposition, escape};

use super::view::{ExportView, Histogram, OpHistogram, View};
use crate::engine::{CacheStatus, Counts, LogStatus};

/// All figures as text.
pub fn render(view: &View, ready: bool) -> String {
    let mut text = Exposition::begin(&view.version, view.uptime_s, ready);
    text.single("connections", "Connections open now.", view.connections);
    text.single("connections_accepted_total", "Connections accepted.", view.connections_accepted);
    text.single(
        "connections_refused_total",
        "Connections refused because there were too many.",
        view.connections_refused,
    );
    cache(&mut text, &view.cache);
    if let Some(figures) = &view.cache.log {
        log(&mut text, figures);
    }
    let labels: Vec<String> =
        view.exports.iter().map(|export| format!("export=\"{}\"", escape(&export.status.name))).collect();
    let exports: Vec<_> = view.exports.iter().zip(labels.iter().map(String::as_str)).collect();
    states(&mut text, &exports);
    counts(&mut text, &exports);
    times(&mut text, &exports);
    text.into_text()
}

/// An export and its label.
type Labelled<'a> = (&'a ExportView, &'a str);

fn cache(text: &mut Exposition, cache: &CacheStatus) {
    text.single("block_cache_capacity_bytes", "Capacity of the cache for blocks.", cache.capacity_bytes);
    text.single("block_cache_held_bytes", "Bytes of all blocks in the cache.", cache.held_bytes);
    text.plain_family("block_cache_blocks", "Blocks in the cache by size.");
    for size in &cache.blocks {
        text.sample("block_cache_blocks", &format!("{{block_bytes=\"{}\"}}", size.block_bytes), size.blocks);
    }
    text.single(
        "block_cache_dirty_bytes",
        "Dirty bytes: not yet known to be durable in the backing store.",
        cache.dirty_bytes,
    );
    text.single(
        "block_cache_metadata_bytes",
        "Memory of the map, the order of eviction and the log's table.",
        cache.metadata_bytes,
    );
    if let Some(bytes) = cache.metadata_bytes_per_gib {
        text.single(
            "block_cache_metadata_bytes_per_gib",
            "Metadata bytes for each GiB of blocks; absent while the cache is less than 1% full.",
            bytes,
        );
    }
    text.single("block_cache_parked", "Parts of requests that wait for write-back.", cache.parked);
    text.single(
        "block_cache_retired_bytes",
        "Bytes of the cache that get nothing more before a restart, because its device failed somewhere among them.",
        cache.retired_bytes,
    );
    text.single(
        "block_cache_unstored_bytes",
        "Dirty bytes that the cache's device did not take: in memory until the backing stores have them.",
        cache.unstored_bytes,
    );
    text.single(
        "block_cache_unchecked_bytes",
        "Dirty bytes that the start took unchecked, as they were being overwritten when the process before ended.",
        cache.unchecked_bytes,
    );
    text.single(
        "block_cache_out_of_use",
        "1 if the cache's device failed in so many places that the backing stores serve alone, else 0.",
        u8::from(cache.out_of_use),
    );
}

fn log(text: &mut Exposition, log: &LogStatus) {
    for (name, help, value) in [
        ("block_log_capacity_bytes", "Size of the log of what is cached.", log.capacity_bytes),
        ("block_log_used_bytes", "Bytes of the log in use.", log.used_bytes),
        ("block_log_written_bytes_total", "Bytes written to the log.", log.written_bytes),
        ("block_log_batches_total", "Batches of records written.", log.batches),
        ("block_log_syncs_total", "Syncs of the cache's device.", log.syncs),
        ("block_log_seals_total", "Seals written to the log.", log.seals),
        ("block_log_checkpoints_total", "Checkpoints of the log.", log.checkpoints),
        (
            "block_log_table_reads_total",
            "Pages of the log's table read back from the device.",
            log.table_reads,
        ),
        ("block_log_has_room", "1 if the log takes new work, else 0.", u64::from(log.has_room)),
        ("block_log_refusals_total", "Parts of requests that found no room in the log.", log.refusals),
        ("block_log_admissions_total", "Parts of requests that found room in the log.", log.admissions),
        (
            "block_log_cleaner_steps_total",
            "Decisions of write-back on something new while the log had room.",
            log.cleaner_steps,
        ),
    ] {
        text.single(name, help, value);
    }
    text.single(
        "block_log_failed",
        "1 if the log can no longer be written, else 0.",
        u8::from(log.failure.is_some()),
    );
}

/// States of exports.
fn states(text: &mut Exposition, exports: &[Labelled<'_>]) {
    text.plain_family("block_export_info", "An export's mode and store, as labels.");
    for (export, label) in exports {
        let (mode, store) = (export.status.mode, escape(&export.status.store));
        text.sample("block_export_info", &format!("{{{label},mode=\"{mode}\",store=\"{store}\"}}"), 1);
    }
    type Field = (&'static str, &'static str, fn(&ExportView) -> Option<f64>);
    const FIELDS: [Field; 18] = [
        ("block_size_bytes", "Size of the export.", |export| Some(export.status.size_bytes as f64)),
        ("block_dirty_bytes", "Dirty bytes of the export.", |export| Some(export.status.dirty_bytes as f64)),
        (
            "block_dirty_age_seconds",
            "Age of the oldest dirty bytes of the export; 0 if there are none or all are being written back.",
            |export| Some(export.status.dirty_age_s.unwrap_or(0.0)),
        ),
        ("block_epochs", "Groups of writes between flushes that go to the store in order.", |export| {
            Some(export.status.epochs as f64)
        }),
        ("block_store_flushes_total", "Flushes of the store.", |export| {
            Some(export.status.store_flushes as f64)
        }),
        ("block_epoch_merges_total", "Flushes that write-back merged: their order was not kept.", |export| {
            Some(export.status.epoch_merges as f64)
        }),
        ("block_write_back_groups_total", "Groups of flushes that the store has got as a whole.", |export| {
            Some(export.status.write_back_groups as f64)
        }),
        (
            "block_write_back_groups_grown_total",
            "Groups that grew to a later flush, since the store did not take what was to be overwritten.",
            |export| Some(export.status.write_back_groups_grown as f64),
        ),
        (
            "block_copies_out_total",
            "Copies of what a write was to change and the group under way needed.",
            |export| Some(export.status.copies_out as f64),
        ),
        ("block_copied_out_bytes_total", "Bytes of such copies.", |export| {
            Some(export.status.copied_out_bytes as f64)
        }),
        (
            "block_store_whole_seconds",
            "For how long the store has been an image as of a flush; absent while a group is being written to it.",
            |export| export.status.store_whole_s,
        ),
        (
            "block_store_full_seconds",
            "For how long the store has had no room for some of what is written back; 0 while it has.",
            |export| Some(export.status.store_full_s.unwrap_or(0.0)),
        ),
        (
            "block_refuses_writes",
            "1 if writes fail that would have to wait for a store without room, else 0.",
            |export| Some(f64::from(u8::from(export.status.refuses_writes))),
        ),
        ("block_quota_bytes", "Quota of the export in the cache, if it has one.", |export| {
            export.status.quota_bytes.map(|bytes| bytes as f64)
        }),
        (
            "block_share_held_bytes",
            "Bytes of the cache that the export holds; exports without a quota are counted together.",
            |export| Some(export.status.share_held_bytes as f64),
        ),
        ("block_parked", "Parts of the export's requests that wait for write-back.", |export| {
            Some(export.status.parked_now as f64)
        }),
        ("block_clients", "Clients connected to the export.", |export| Some(export.status.clients as f64)),
        ("block_errors_total", "Requests that were refused or failed.", |export| {
            Some(export.status.errors as f64)
        }),
    ];
    for (name, help, value) in FIELDS {
        text.plain_family(name, help);
        for (export, label) in exports {
            if let Some(value) = value(export) {
                text.sample(name, &format!("{{{label}}}"), value);
            }
        }
    }
}

/// A family and its samples: the labels and the value of each.
type SplitFamily = (&'static str, &'static str, &'static [(&'static str, fn(&Counts) -> u64)]);
/// Counters that are split by a label.
const SPLIT_COUNTS: [SplitFamily; 5] = [
    (
        "block_requests_total",
        "Requests answered.",
        &[
            ("op=\"read\"", |counts| counts.reads),
            ("op=\"write\"", |counts| counts.writes),
            ("op=\"trim\"", |counts| counts.trims),
            ("op=\"prefetch\"", |counts| counts.prefetches),
            ("op=\"flush\"", |counts| counts.flushes),
            ("op=\"describe\"", |counts| counts.describes),
        ],
    ),
    (
        "block_request_bytes_total",
        "Bytes that requests read and wrote.",
        &[("op=\"read\"", |counts| counts.read_bytes), ("op=\"write\"", |counts| counts.written_bytes)],
    ),
    (
        "block_hits_total",
        "Requests that found all they needed in the cache.",
        &[("op=\"read\"", |counts| counts.read_hits), ("op=\"write\"", |counts| counts.write_hits)],
    ),
    (
        "block_io_total",
        "Reads and writes of the backing store (core) and of the cache's device (cache).",
        &[
            ("device=\"core\",op=\"read\"", |counts| counts.core_reads),
            ("device=\"core\",op=\"write\"", |counts| counts.core_writes),
            ("device=\"cache\",op=\"read\"", |counts| counts.cache_reads),
            ("device=\"cache\",op=\"write\"", |counts| counts.cache_writes),
        ],
    ),
    (
        "block_io_bytes_total",
        "Bytes read from and written to the backing store (core) and the cache's device (cache).",
        &[
            ("device=\"core\",op=\"read\"", |counts| counts.core_read_bytes),
            ("device=\"core\",op=\"write\"", |counts| counts.core_written_bytes),
            ("device=\"cache\",op=\"read\"", |counts| counts.cache_read_bytes),
            ("device=\"cache\",op=\"write\"", |counts| counts.cache_written_bytes),
        ],
    ),
];
/// A family, and its value.
type PlainFamily = (&'static str, &'static str, fn(&Counts) -> u64);
/// Counters with one value for each export.
const PLAIN_COUNTS: [PlainFamily; 10] = [
    ("block_missed_requests_total", "Reads and writes that missed at least a part.", |counts| {
        counts.missed_requests
    }),
    (
        "block_missed_request_bytes_total",
        "Bytes of reads and writes that missed at least a part.",
        |counts| counts.missed_request_bytes,
    ),
    ("block_bypassed_reads_total", "Parts of reads whose missed bytes were not cached.", |counts| {
        counts.bypassed_reads
    }),
    ("block_allocated_blocks_total", "Blocks allocated.", |counts| counts.allocated_blocks),
    ("block_allocated_bytes_total", "Bytes of blocks allocated.", |counts| counts.allocated_bytes),
    ("block_parked_total", "Waits for write-back.", |counts| counts.parked),
    ("block_cache_failures_total", "Reads and writes of the cache's device that failed.", |counts| {
        counts.cache_failures
    }),
    ("block_poisoned_units_total", "Dirty units that the cache's device lost.", |counts| {
        counts.poisoned_units
    }),
    ("block_write_back_failures_total", "Writes and flushes of write-back that failed.", |counts| {
        counts.write_back_failures
    }),
    (
        "block_full_refusals_total",
        "Parts of writes, and flushes, that failed because the store has no room.",
        |counts| counts.full_refusals,
    ),
];

/// Counters of exports.
fn counts(text: &mut Exposition, exports: &[Labelled<'_>]) {
    for (name, help, samples) in SPLIT_COUNTS {
        text.plain_family(name, help);
        for (export, label) in exports {
            for (kind, value) in samples {
                text.sample(name, &format!("{{{label},{kind}}}"), value(&export.status.counts));
            }
        }
    }
    for (name, help, value) in PLAIN_COUNTS {
        text.plain_family(name, help);
        for (export, label) in exports {
            text.sample(name, &format!("{{{label}}}"), value(&export.status.counts));
        }
    }
}

/// Latency of requests.
fn times(text: &mut Exposition, exports: &[Labelled<'_>]) {
    type Field = (&'static str, &'static str, fn(&OpHistogram) -> &Histogram);
    const FIELDS: [Field; 2] = [
        (
            "block_request_duration_seconds",
            "From when a request was there as a whole until its reply was ready.",
            |op| &op.service,
        ),
        (
            "block_processing_duration_seconds",
            "Looking up, allocating and planning, until a request's parts were on their way.",
            |op| &op.processing,
        ),
    ];
    for (name, help, histogram) in FIELDS {
        text.family(name, "histogram", help);
        let [bucket, sum, count] = ["bucket", "sum", "count"].map(|end| format!("{name}_{end}"));
        for (export, label) in exports {
            for op in &export.times.histograms {
                let labels = format!("{label},op=\"{}\"", op.op);
                let histogram = histogram(op);
                for step in &histogram.buckets {
                    let upper_s = step.upper_us / 1e6;
                    text.sample(&bucket, &format!("{{{labels},le=\"{upper_s}\"}}"), step.count);
                }
                text.sample(&bucket, &format!("{{{labels},le=\"+Inf\"}}"), histogram.count);
                text.sample(&sum, &format!("{{{labels}}}"), histogram.sum_us / 1e6);
                text.sample(&count, &format!("{{{labels}}}"), histogram.count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tiermem_live::metrics::check;

    use super::*;
    use crate::engine::{BlockSize, ExportStatus};
    use crate::http::view::{Bucket, Times};

    fn view() -> View {
        let histogram =
            |count| Histogram { buckets: vec![Bucket { upper_us: 1.024, count: 2 }], count, sum_us: 5.0 };
        let histograms =
            vec![OpHistogram { op: "read".into(), service: histogram(3), processing: histogram(3) }];
        let export = |name: &str, quota_bytes| ExportView {
            status: ExportStatus {
                name: name.into(),
                quota_bytes,
                store_full_s: quota_bytes.map(|_| 7.0),
                refuses_writes: quota_bytes.is_some(),
                counts: Counts { reads: 9, read_hits: 7, core_read_bytes: 4096, ..Counts::default() },
                ..ExportStatus::default()
            },
            times: Times { histograms: histograms.clone(), ..Times::default() },
        };
        View {
            exports: vec![export("disk", Some(5)), export("odd \"name", None)],
            cache: CacheStatus {
                blocks: vec![BlockSize { block_bytes: 32768, blocks: 4 }],
                log: Some(LogStatus { refusals: 6, failure: Some("gone".into()), ..LogStatus::default() }),
                retired_bytes: 9,
                unchecked_bytes: 8,
                out_of_use: true,
                ..CacheStatus::default()
            },
            ..View::default()
        }
    }

    #[test]
    fn the_text_is_well_formed_and_says_what_the_view_says() {
        let samples = check(&render(&view(), true)).unwrap();
        assert_eq!(samples["tiermem_ready"], 1.0);
        assert_eq!(samples["tiermem_block_cache_blocks{block_bytes=\"32768\"}"], 4.0);
        assert_eq!(samples["tiermem_block_log_failed"], 1.0);
        assert_eq!(samples["tiermem_block_cache_out_of_use"], 1.0);
        assert_eq!(samples["tiermem_block_cache_retired_bytes"], 9.0);
        assert_eq!(samples["tiermem_block_cache_unchecked_bytes"], 8.0);
        assert_eq!(samples["tiermem_block_log_has_room"], 0.0);
        assert_eq!(samples["tiermem_block_log_refusals_total"], 6.0);
        assert_eq!(samples["tiermem_block_hits_total{export=\"odd \\\"name\",op=\"read\"}"], 7.0);
        let volume = "tiermem_block_io_bytes_total{export=\"disk\",device=\"core\",op=\"read\"}";
        assert_eq!(samples[volume], 4096.0);
        assert_eq!(samples["tiermem_block_quota_bytes{export=\"disk\"}"], 5.0);
        let full =
            |family: &str, export: &str| samples[&format!("tiermem_block_{family}{{export=\"{export}\"}}")];
        assert_eq!((full("store_full_seconds", "disk"), full("refuses_writes", "disk")), (7.0, 1.0));
        let other = "odd \\\"name";
        assert_eq!((full("store_full_seconds", other), full("refuses_writes", other)), (0.0, 0.0));
        let quotas = samples.keys().filter(|series| series.starts_with("tiermem_block_quota_bytes"));
        assert_eq!(quotas.count(), 1, "an export without a quota has none");
        let bucket = |le| {
            format!(
                "tiermem_block_request_duration_seconds_bucket{{export=\"disk\",op=\"read\",le=\"{le}\"}}"
            )
        };
        assert_eq!((samples[&bucket("0.000001024")], samples[&bucket("+Inf")]), (2.0, 3.0));
    }

    #[test]
    fn an_empty_view_is_well_formed_too() {
        assert_eq!(check(&render(&View::default(), false)).unwrap()["tiermem_ready"], 0.0);
    }
}
