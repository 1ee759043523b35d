//! `INFO` in Redis's layout, so that exporters and dashboards can read it, with an additional section for the tiers.

use core::fmt::Write;

use tiermem_base::Bytes;
use tiermem_sys::cpu_time;

use crate::engine::{EngineStats, Eviction, FlashFigures};
use crate::resp::Args;
use crate::shards::shard_stats::Figures;
use crate::stats::CommandStatistics;

use super::context::Context;
use super::refusal::Outcome;
use super::spec::Spec;
use super::table::COMMANDS;

pub(super) fn time(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let now_us = context.host.wall_clock.unix_us(context.host.now_us);
    let mut reply = context.reply();
    reply.array(2);
    for part in [now_us / 1_000_000, now_us % 1_000_000] {
        reply.bulk(itoa::Buffer::new().format(part).as_bytes());
    }
    Ok(())
}

type Section = fn(&mut String, &Context<'_>, &Facts) -> core::fmt::Result;

/// Facts used by several sections.
struct Facts {
    figures: Figures,
    commands: CommandStatistics,
}

/// Sections shown by default.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Always,
    /// With `all` and `everything`.
    WithAll,
}

/// The sections in their order.
const SECTIONS: [(&str, Shown, Section); 15] = [
    ("Server", Shown::Always, server),
    ("Clients", Shown::Always, clients),
    ("Memory", Shown::Always, memory),
    ("Persistence", Shown::Always, persistence),
    ("Stats", Shown::Always, stats),
    ("Replication", Shown::Always, replication),
    ("CPU", Shown::Always, cpu),
    ("Modules", Shown::Always, modules),
    ("Commandstats", Shown::WithAll, commandstats),
    ("Errorstats", Shown::Always, errorstats),
    ("Latencystats", Shown::WithAll, latencystats),
    ("Cluster", Shown::Always, cluster),
    ("Keyspace", Shown::Always, keyspace),
    ("Tiers", Shown::Always, tiers),
    ("Shards", Shown::Always, shards),
];

pub(super) fn info(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let asked = |name: &str| args.iter_from(1).any(|section| name.as_bytes().eq_ignore_ascii_case(section));
    let all = asked("all") || asked("everything");
    let default = args.len() == 1 || asked("default");
    let host = &*context.host;
    let facts = Facts { figures: host.all_figures(context.engine), commands: host.all_commands() };
    context.host.note_peak(&facts.figures);
    let mut text = String::new();
    for (name, shown, write) in SECTIONS {
        if all || asked(name) || (default && shown == Shown::Always) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            // Writing to a string does not fail.
            let _ = write!(text, "# {name}\r\n");
            let _ = write(&mut text, context, &facts);
        }
    }
    context.reply().verbatim(text.as_bytes());
    Ok(())
}

/// Appends `name:value` and a line end.
macro_rules! fields {
    ($text:expr, $($name:literal : $value:expr),+ $(,)?) => {{
        $(write!($text, concat!($name, ":{}\r\n"), $value)?;)+
        Ok(())
    }};
}

fn server(text: &mut String, context: &Context<'_>, _: &Facts) -> core::fmt::Result {
    let host = &context.host;
    let uptime_s = host.now_us.saturating_sub(host.started_us) / 1_000_000;
    fields!(text,
        "redis_version": super::REDIS_VERSION,
        "tiermem_version": env!("CARGO_PKG_VERSION"),
        "redis_mode": "standalone",
        "os": std::env::consts::OS,
        "arch_bits": usize::BITS,
        "multiplexing_api": "epoll",
        "process_id": std::process::id(),
        "run_id": host.run_id,
        "tcp_port": host.tcp_port,
        "server_time_usec": host.wall_clock.unix_us(host.now_us),
        "uptime_in_seconds": uptime_s,
        "uptime_in_days": uptime_s / 86_400,
        "hz": 10,
        "configured_hz": 10,
        "executable": std::env::current_exe().unwrap_or_default().display(),
        "config_file": context.host.config_file.as_deref().unwrap_or("".as_ref()).display(),
        "io_threads_active": 0,
    )
}

fn clients(text: &mut String, context: &Context<'_>, facts: &Facts) -> core::fmt::Result {
    let stats = &facts.figures.server;
    fields!(text,
        "connected_clients": stats.clients_connected,
        "cluster_connections": 0,
        "maxclients": context.host.settings.maxclients,
        "client_recent_max_input_buffer": facts.figures.largest_buffers.input_bytes,
        "client_recent_max_output_buffer": facts.figures.largest_buffers.output_bytes,
        "blocked_clients": stats.clients_paused,
        "clients_in_timeout_table": 0,
        "tracking_clients": context.host.clients.tracking().counts().1,
        "clients_blocked_on_output": stats.clients_blocked_on_output,
        "clients_waiting_for_buffer": stats.clients_waiting_for_buffer,
    )
}

fn memory(text: &mut String, context: &Context<'_>, facts: &Facts) -> core::fmt::Result {
    let (stats, engine) = (&facts.figures.server, &facts.figures.engine);
    let buffers = stats.request_buffer_bytes + stats.reply_buffer_bytes;
    let dataset: u64 = engine.tiers.iter().map(|tier| tier.item_bytes).sum();
    let used = facts.figures.used_bytes();
    let peak = context.host.used_bytes_peak;
    let resident = tiermem_sys::memory::resident_bytes().unwrap_or(0);
    let capacity: u64 = engine.tiers.iter().map(|tier| tier.capacity_bytes).sum();
    let total = tiermem_sys::memory::total_bytes().unwrap_or(0);
    let policy = match context.engine.memory().eviction() {
        Eviction::AllKeys => "allkeys-lru",
        Eviction::Forbidden => "noeviction",
    };
    let percent = |part: u64, whole: u64| format!("{:.2}%", 100.0 * part as f64 / whole.max(1) as f64);
    fields!(text,
        "used_memory": used,
        "used_memory_human": Bytes(used),
        "used_memory_rss": resident,
        "used_memory_rss_human": Bytes(resident),
        "used_memory_peak": peak,
        "used_memory_peak_human": Bytes(peak),
        "used_memory_peak_perc": percent(used, peak),
        "used_memory_overhead": engine.metadata_bytes + buffers,
        "used_memory_startup": 0,
        "used_memory_dataset": dataset,
        "used_memory_dataset_perc": percent(dataset, used),
        "total_system_memory": total,
        "total_system_memory_human": Bytes(total),
        "used_memory_lua": 0,
        "used_memory_scripts": 0,
        "number_of_cached_scripts": 0,
        "maxmemory": capacity,
        "maxmemory_human": Bytes(capacity),
        "maxmemory_policy": policy,
        "mem_fragmentation_ratio": format!("{:.2}", resident as f64 / used.max(1) as f64),
        "mem_fragmentation_bytes": resident as i64 - used as i64,
        "mem_not_counted_for_evict": 0,
        "mem_replication_backlog": 0,
        "mem_clients_slaves": 0,
        "mem_clients_normal": buffers,
        "mem_aof_buffer": 0,
        "mem_allocator": "tiers",
        "active_defrag_running": 0,
        "lazyfree_pending_objects": 0,
        "lazyfreed_objects": 0,
        "pinned_bytes": engine.pinned_bytes,
    )
}

/// Snapshots, which Redis calls RDB files; of the log that it calls AOF there is none.
fn persistence(text: &mut String, context: &Context<'_>, facts: &Facts) -> core::fmt::Result {
    let (saves, now_s) = (facts.figures.saves.unwrap_or_default(), context.host.now_us / 1_000_000);
    let running_s = saves.running_since_s.map_or(-1, |since_s| now_s.saturating_sub(since_s) as i64);
    let taken_up = context.engine.kept().taken_up();
    fields!(text,
        "loading": 0,
        "async_loading": 0,
        "rdb_changes_since_last_save": saves.changes,
        "rdb_bgsave_in_progress": u8::from(saves.running_since_s.is_some()),
        "rdb_last_save_time": context.host.wall_clock.unix_s(saves.last_save_s),
        "rdb_last_bgsave_status": if saves.last_failed { "err" } else { "ok" },
        "rdb_last_bgsave_time_sec": saves.last_background_s.map_or(-1, |s| s as i64),
        "rdb_current_bgsave_time_sec": running_s,
        "rdb_saves": saves.saves,
        "rdb_last_cow_size": 0,
        "aof_enabled": 0,
        "aof_rewrite_in_progress": 0,
        "aof_rewrite_scheduled": 0,
        "aof_last_rewrite_time_sec": -1,
        "aof_current_rewrite_time_sec": -1,
        "aof_last_bgrewrite_status": "ok",
        "aof_last_write_status": "ok",
        "aof_last_cow_size": 0,
        "module_fork_in_progress": 0,
        "module_fork_last_cow_size": 0,
        "kept_in_place_items": taken_up.items,
        "kept_in_place_expired": taken_up.expired,
        "kept_in_place_dropped": taken_up.dropped,
        "lost_items": facts.figures.engine.lost,
        "missing_tier_bytes": facts.figures.engine.missing_bytes,
    )
}

fn stats(text: &mut String, context: &Context<'_>, facts: &Facts) -> core::fmt::Result {
    let figures = &facts.figures;
    // Counted from the last CONFIG RESETSTAT on.
    let (stats, stats_base) = (&figures.server, &figures.server_base);
    let (engine, engine_base) = (&figures.engine, &figures.engine_base);
    let misses = |engine: &EngineStats| engine.gets - engine.hits;
    fields!(text,
        "total_connections_received": stats.connections_received - stats_base.connections_received,
        "total_commands_processed": stats.commands_processed - stats_base.commands_processed,
        "instantaneous_ops_per_sec": figures.ops_per_sec,
        "total_net_input_bytes": stats.net_input_bytes - stats_base.net_input_bytes,
        "total_net_output_bytes": stats.net_output_bytes - stats_base.net_output_bytes,
        "instantaneous_input_kbps": format!("{:.2}", figures.input_bytes_per_sec as f64 / 1024.0),
        "instantaneous_output_kbps": format!("{:.2}", figures.output_bytes_per_sec as f64 / 1024.0),
        "rejected_connections": stats.connections_rejected - stats_base.connections_rejected,
        "sync_full": 0,
        "sync_partial_ok": 0,
        "sync_partial_err": 0,
        "expired_keys": engine.expired - engine_base.expired,
        "expired_stale_perc": "0.00",
        "expired_time_cap_reached_count": 0,
        "evicted_keys": engine.evicted - engine_base.evicted,
        "keyspace_hits": engine.hits - engine_base.hits,
        "keyspace_misses": misses(engine) - misses(engine_base),
        "pubsub_channels": context.host.clients.channels().active_channels(None).count(),
        "pubsub_patterns": context.host.clients.channels().pattern_count(),
        "tracking_total_keys": context.host.clients.tracking().counts().0,
        "tracking_total_items": context.host.clients.tracking().total_counts().0,
        "tracking_total_prefixes": context.host.clients.tracking().total_counts().1,
        "latest_fork_usec": 0,
        "migrate_cached_sockets": 0,
        "active_defrag_hits": 0,
        "active_defrag_misses": 0,
        "unexpected_error_replies": 0,
        "total_error_replies": stats.error_replies - stats_base.error_replies,
        "acl_access_denied_auth": stats.access_denied_auth - stats_base.access_denied_auth,
        "acl_access_denied_cmd": stats.access_denied_cmd - stats_base.access_denied_cmd,
        "acl_access_denied_key": stats.access_denied_key - stats_base.access_denied_key,
        "acl_access_denied_channel": stats.access_denied_channel - stats_base.access_denied_channel,
        "refused_replies": stats.replies_refused - stats_base.replies_refused,
        "dropped_clients": stats.clients_dropped - stats_base.clients_dropped,
    )
}

fn replication(text: &mut String, context: &Context<'_>, _: &Facts) -> core::fmt::Result {
    fields!(text,
        "role": "master",
        "connected_slaves": 0,
        "master_failover_state": "no-failover",
        "master_replid": context.host.run_id,
        "master_replid2": format!("{:040}", 0),
        "master_repl_offset": 0,
        "second_repl_offset": -1,
        "repl_backlog_active": 0,
        "repl_backlog_size": 0,
        "repl_backlog_first_byte_offset": 0,
        "repl_backlog_histlen": 0,
    )
}

fn cpu(text: &mut String, _: &Context<'_>, _: &Facts) -> core::fmt::Result {
    let (process, thread) = (cpu_time::process_spent(), cpu_time::thread_spent());
    let seconds = |time: std::time::Duration| format!("{:.6}", time.as_secs_f64());
    fields!(text,
        "used_cpu_sys": seconds(process.system),
        "used_cpu_user": seconds(process.user),
        "used_cpu_sys_children": "0.000000",
        "used_cpu_user_children": "0.000000",
        "used_cpu_sys_main_thread": seconds(thread.system),
        "used_cpu_user_main_thread": seconds(thread.user),
    )
}

fn modules(_: &mut String, _: &Context<'_>, _: &Facts) -> core::fmt::Result {
    Ok(())
}

/// `usec` is estimated from one call in 64 or so.
fn commandstats(text: &mut String, _: &Context<'_>, facts: &Facts) -> core::fmt::Result {
    for (number, spec) in Spec::all(COMMANDS).enumerate() {
        let Some(it) = facts.commands.figures(number) else { continue };
        let usec_per_call = it.usec as f64 / it.calls.max(1) as f64;
        write!(
            text,
            "cmdstat_{}:calls={},usec={},usec_per_call={usec_per_call:.2},rejected_calls={},failed_calls={}\r\n",
            spec.full_name(),
            it.calls,
            it.usec,
            it.rejected,
            it.failed,
        )?;
    }
    Ok(())
}

fn errorstats(text: &mut String, _: &Context<'_>, facts: &Facts) -> core::fmt::Result {
    for (code, count) in facts.commands.errors() {
        write!(text, "errorstat_{code}:count={count}\r\n")?;
    }
    Ok(())
}

fn latencystats(text: &mut String, _: &Context<'_>, facts: &Facts) -> core::fmt::Result {
    for (number, spec) in Spec::all(COMMANDS).enumerate() {
        if let Some([p50, p99, p999]) = facts.commands.percentiles_usec(number) {
            let name = spec.full_name();
            write!(text, "latency_percentiles_usec_{name}:p50={p50:.3},p99={p99:.3},p99.9={p999:.3}\r\n")?;
        }
    }
    Ok(())
}

fn cluster(text: &mut String, _: &Context<'_>, _: &Facts) -> core::fmt::Result {
    fields!(text, "cluster_enabled": 0)
}

/// The engine counts keys that expire over all databases, so the figure stands with the first that has keys.
fn keyspace(text: &mut String, _: &Context<'_>, facts: &Facts) -> core::fmt::Result {
    let mut expires = facts.figures.engine.keys_with_expiry;
    for (db, keys) in facts.figures.keys.into_iter().enumerate() {
        if keys > 0 {
            write!(text, "db{db}:keys={keys},expires={expires},avg_ttl=0\r\n")?;
            expires = 0;
        }
    }
    Ok(())
}

fn tiers(text: &mut String, _: &Context<'_>, facts: &Facts) -> core::fmt::Result {
    for (number, tier) in facts.figures.engine.tiers.iter().enumerate() {
        write!(
            text,
            "tier{number}:name={},kind={},capacity_bytes={},used_bytes={},item_bytes={},items={},hits={},promotions={},\
             demotions={},evictions={},charged_ns={}\r\n",
            tier.name,
            tier.kind,
            tier.capacity_bytes,
            tier.used_bytes,
            tier.item_bytes,
            tier.items,
            tier.hits,
            tier.promotions,
            tier.demotions,
            tier.evictions,
            tier.charged_ns,
        )?;
    }
    facts.figures.engine.flash.as_ref().map_or(Ok(()), |figures| flash(text, figures))
}

/// What each shard has of all that.
fn shards(text: &mut String, context: &Context<'_>, _: &Facts) -> core::fmt::Result {
    let Some(mailboxes) = &context.host.mailboxes else { return fields!(text, "shards": 1) };
    write!(text, "shards:{}\r\nshard:{}\r\n", mailboxes.placement.shards, mailboxes.placement.own)?;
    for (number, shown) in mailboxes.shard_stats.each().enumerate() {
        let figures = if number == mailboxes.placement.own {
            Figures { tail_ages_ms: shown.tail_ages_ms, ..context.host.figures(context.engine) }
        } else {
            shown
        };
        let keys: u64 = figures.keys.iter().sum();
        write!(text, "shard{number}:keys={keys},ops_per_sec={}", figures.ops_per_sec)?;
        for (tier, it) in figures.engine.tiers.iter().enumerate() {
            let age = figures.tail_ages_ms.get(tier).copied().flatten().map_or(-1, |ms| ms as i64);
            write!(
                text,
                ",tier{tier}_capacity_bytes={},tier{tier}_used_bytes={},tier{tier}_tail_age_ms={age}",
                it.capacity_bytes, it.used_bytes
            )?;
        }
        text.push_str("\r\n");
    }
    Ok(())
}

fn flash(text: &mut String, figures: &FlashFigures) -> core::fmt::Result {
    if let Some(years) = figures.lifetime_years {
        write!(text, "flash_lifetime_years:{years:.1}\r\n")?;
    }
    fields!(text,
        "flash_room_bytes": figures.room_bytes,
        "flash_admitted_items": figures.admitted,
        "flash_rejected_items": figures.rejected,
        "flash_unchanged_items": figures.unchanged,
        "flash_refused_items": figures.refused + figures.unindexed,
        "flash_kept_items": figures.kept,
        "flash_recovered_items": figures.recovered_items,
        "flash_recoverable_items": figures.recoverable_items,
        "flash_lost_items": figures.lost_items,
        "flash_reads": figures.reads,
        "flash_read_bytes": figures.read_bytes,
        "flash_written_bytes": figures.written_bytes,
        "flash_write_amplification": format_args!("{:.3}", figures.write_amplification),
        "flash_syncs": figures.syncs,
        "flash_io_errors": figures.io_errors,
        "flash_broken": u8::from(figures.broken),
        "flash_recoverable": u8::from(figures.recoverable),
    )
}
