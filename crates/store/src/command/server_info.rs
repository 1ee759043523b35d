//! `INFO` in Redis's layout, so that exporters and dashboards read it, with a section of our own for the tiers.

use core::fmt::Write;

use tiermem_base::Bytes;

use crate::engine::{DATABASES, EngineStats, Eviction};
use crate::resp::Args;

use super::context::{Context, Outcome};

pub(super) fn time(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let now_us = context.host.now_us;
    let mut reply = context.reply();
    reply.array(2);
    for part in [now_us / 1_000_000, now_us % 1_000_000] {
        reply.bulk(itoa::Buffer::new().format(part).as_bytes());
    }
    Ok(())
}

type Section = fn(&mut String, &Context<'_>, &EngineStats) -> core::fmt::Result;

/// The sections in their order.
const SECTIONS: [(&str, Section); 9] = [
    ("Server", server),
    ("Clients", clients),
    ("Memory", memory),
    ("Persistence", persistence),
    ("Stats", stats),
    ("Replication", replication),
    ("Cluster", cluster),
    ("Keyspace", keyspace),
    ("Tiers", tiers),
];

pub(super) fn info(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let wanted = |name: &str| {
        args.len() == 1
            || args.iter_from(1).any(|section| {
                [name.as_bytes(), b"default", b"all", b"everything"]
                    .into_iter()
                    .any(|known| known.eq_ignore_ascii_case(section))
            })
    };
    let engine_stats = context.engine.stats();
    let mut text = String::new();
    for (name, write) in SECTIONS {
        if wanted(name) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            // Writing to a string does not fail.
            let _ = write!(text, "# {name}\r\n");
            let _ = write(&mut text, context, &engine_stats);
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

fn server(text: &mut String, context: &Context<'_>, _: &EngineStats) -> core::fmt::Result {
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
        "server_time_usec": host.now_us,
        "uptime_in_seconds": uptime_s,
        "uptime_in_days": uptime_s / 86_400,
        "hz": 10,
    )
}

fn clients(text: &mut String, context: &Context<'_>, _: &EngineStats) -> core::fmt::Result {
    let stats = &context.host.stats;
    fields!(text,
        "connected_clients": stats.clients_connected,
        "cluster_connections": 0,
        "maxclients": context.host.settings.maxclients,
        "blocked_clients": 0,
        "clients_blocked_on_output": stats.clients_blocked_on_output,
        "clients_waiting_for_buffer": stats.clients_waiting_for_buffer,
    )
}

fn memory(text: &mut String, context: &Context<'_>, engine: &EngineStats) -> core::fmt::Result {
    let stats = &context.host.stats;
    let buffers = stats.request_buffer_bytes + stats.reply_buffer_bytes;
    let tiers_used: u64 = engine.tiers.iter().map(|tier| tier.used_bytes).sum();
    let dataset: u64 = engine.tiers.iter().map(|tier| tier.item_bytes).sum();
    let used = tiers_used + buffers;
    let capacity: u64 = engine.tiers.iter().map(|tier| tier.capacity_bytes).sum();
    let total = tiermem_sys::memory::total_bytes().unwrap_or(0);
    let policy = match context.engine.eviction() {
        Eviction::AllKeys => "allkeys-lru",
        Eviction::Forbidden => "noeviction",
    };
    fields!(text,
        "used_memory": used,
        "used_memory_human": Bytes(used),
        "used_memory_rss": tiermem_sys::memory::resident_bytes().unwrap_or(0),
        "used_memory_overhead": engine.metadata_bytes + buffers,
        "used_memory_dataset": dataset,
        "total_system_memory": total,
        "total_system_memory_human": Bytes(total),
        "maxmemory": capacity,
        "maxmemory_human": Bytes(capacity),
        "maxmemory_policy": policy,
        "mem_clients_normal": buffers,
        "pinned_bytes": engine.pinned_bytes,
    )
}

/// Nothing is persisted, and monitoring that asks is told so in Redis's terms.
fn persistence(text: &mut String, _: &Context<'_>, _: &EngineStats) -> core::fmt::Result {
    fields!(text,
        "loading": 0,
        "rdb_bgsave_in_progress": 0,
        "rdb_last_bgsave_status": "ok",
        "aof_enabled": 0,
    )
}

fn stats(text: &mut String, context: &Context<'_>, engine: &EngineStats) -> core::fmt::Result {
    let stats = &context.host.stats;
    // Counted from the last CONFIG RESETSTAT on.
    let (stats_base, engine_base) = &*context.host.stats_base;
    let misses = |engine: &EngineStats| engine.gets - engine.hits;
    fields!(text,
        "total_connections_received": stats.connections_received - stats_base.connections_received,
        "total_commands_processed": stats.commands_processed - stats_base.commands_processed,
        "instantaneous_ops_per_sec": context.host.ops_per_sec,
        "total_net_input_bytes": stats.net_input_bytes - stats_base.net_input_bytes,
        "total_net_output_bytes": stats.net_output_bytes - stats_base.net_output_bytes,
        "rejected_connections": stats.connections_rejected - stats_base.connections_rejected,
        "expired_keys": engine.expired - engine_base.expired,
        "evicted_keys": engine.evicted - engine_base.evicted,
        "keyspace_hits": engine.hits - engine_base.hits,
        "keyspace_misses": misses(engine) - misses(engine_base),
        "total_error_replies": stats.error_replies - stats_base.error_replies,
        "dropped_clients": stats.clients_dropped - stats_base.clients_dropped,
    )
}

fn replication(text: &mut String, _: &Context<'_>, _: &EngineStats) -> core::fmt::Result {
    fields!(text, "role": "master", "connected_slaves": 0)
}

fn cluster(text: &mut String, _: &Context<'_>, _: &EngineStats) -> core::fmt::Result {
    fields!(text, "cluster_enabled": 0)
}

/// The engine counts keys that expire over all databases, so the figure stands with the first that has keys.
fn keyspace(text: &mut String, context: &Context<'_>, engine: &EngineStats) -> core::fmt::Result {
    let mut expires = engine.keys_with_expiry;
    for db in 0..DATABASES {
        let keys = context.engine.len(db);
        if keys > 0 {
            write!(text, "db{db}:keys={keys},expires={expires},avg_ttl=0\r\n")?;
            expires = 0;
        }
    }
    Ok(())
}

fn tiers(text: &mut String, _: &Context<'_>, engine: &EngineStats) -> core::fmt::Result {
    for (number, tier) in engine.tiers.iter().enumerate() {
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
    Ok(())
}
