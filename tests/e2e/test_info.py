"""INFO as monitoring reads it: the fields that the common exporters turn into metrics and alerts, as numbers where they
expect numbers."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable

import pytest
import redis

from peer import Redis
from store import MIB, Store, eventually

# What oliver006/redis_exporter, telegraf's redis input and Datadog's redisdb read of a server without replicas, cluster,
# modules or persistence. Fields of allocators and forks that there are not here are left out; they skip what is missing.
NUMBERS = """
uptime_in_seconds process_id connected_clients blocked_clients maxclients clients_in_timeout_table
client_recent_max_input_buffer client_recent_max_output_buffer
used_memory used_memory_rss used_memory_peak used_memory_overhead used_memory_startup used_memory_dataset used_memory_lua
used_memory_scripts number_of_cached_scripts maxmemory total_system_memory mem_fragmentation_ratio
mem_fragmentation_bytes mem_clients_normal mem_clients_slaves mem_replication_backlog mem_aof_buffer
mem_not_counted_for_evict lazyfree_pending_objects lazyfreed_objects active_defrag_running
loading async_loading rdb_changes_since_last_save rdb_bgsave_in_progress rdb_last_save_time rdb_last_bgsave_time_sec
rdb_current_bgsave_time_sec rdb_saves rdb_last_cow_size aof_enabled aof_rewrite_in_progress aof_rewrite_scheduled
aof_last_rewrite_time_sec aof_current_rewrite_time_sec aof_last_cow_size module_fork_in_progress
total_connections_received total_commands_processed instantaneous_ops_per_sec total_net_input_bytes
total_net_output_bytes instantaneous_input_kbps instantaneous_output_kbps rejected_connections expired_keys
expired_stale_perc expired_time_cap_reached_count evicted_keys keyspace_hits keyspace_misses pubsub_channels
pubsub_patterns latest_fork_usec unexpected_error_replies total_error_replies sync_full sync_partial_ok
sync_partial_err migrate_cached_sockets active_defrag_hits active_defrag_misses
connected_slaves master_repl_offset second_repl_offset repl_backlog_active repl_backlog_size
repl_backlog_first_byte_offset repl_backlog_histlen
used_cpu_sys used_cpu_user used_cpu_sys_children used_cpu_user_children used_cpu_sys_main_thread
used_cpu_user_main_thread cluster_enabled
""".split()
WORDS = {
    "role": "master",
    "redis_mode": "standalone",
    "maxmemory_policy": "allkeys-lru",
    "rdb_last_bgsave_status": "ok",
    "aof_last_bgrewrite_status": "ok",
    "aof_last_write_status": "ok",
}
NUMBER = re.compile(r"-?\d+(\.\d+)?")


def told(client: redis.Redis, *sections: str) -> dict[str, str]:
    client.set_response_callback("INFO", bytes.decode)
    text = client.execute_command("INFO", *sections)
    return dict(line.split(":", 1) for line in text.splitlines() if line and not line.startswith("#"))


@pytest.mark.parametrize("sections", [(), ("everything",)])
def test_exporters_find_what_they_read(store: Store, sections: tuple[str, ...]) -> None:
    with redis.Redis(port=store.port) as client:
        fields = told(client, *sections)
    for name in NUMBERS:
        assert NUMBER.fullmatch(fields.get(name, "")), f"{name}:{fields.get(name)}"
    for name, word in WORDS.items():
        assert fields.get(name) == word
    assert fields["executable"] and pathlib.Path(fields["executable"]).exists()


def test_statistics_have_the_forms_that_are_parsed(store: Store) -> None:
    with redis.Redis(port=store.port) as client:
        client.config_resetstat()
        client.set("lasting", 1)
        client.set("fleeting", 1, ex=100)
        for _ in range(1000):
            client.get("lasting")
        with pytest.raises(redis.ResponseError):
            client.execute_command("NOSUCH")
        fields = told(client, "all")
    assert fields["db0"] == "keys=2,expires=1,avg_ttl=0"
    calls = re.fullmatch(
        r"calls=(\d+),usec=(\d+),usec_per_call=[\d.]+,rejected_calls=0,failed_calls=0", fields["cmdstat_get"]
    )
    assert calls and calls[1] == "1000" and int(calls[2]) > 0
    assert re.fullmatch(r"p50=[\d.]+,p99=[\d.]+,p99.9=[\d.]+", fields["latency_percentiles_usec_get"])
    assert fields["errorstat_ERR"] == "count=1"


def test_who_waits_and_what_is_tracked_is_counted(serve: Callable[..., Store]) -> None:
    store = serve("--tier", "dram=32MiB", "--shards", "1")
    with redis.Redis(port=store.port) as client, store.connect() as other, store.connect() as tracker:
        assert client.info("clients")["blocked_clients"] == 0
        client.execute_command("CLIENT", "PAUSE", "100000", "WRITE")
        other.sendall(b"SET a 1\r\n")
        eventually(lambda: client.info("clients")["blocked_clients"] == 1, "one waits")
        client.execute_command("CLIENT", "UNPAUSE")
        assert other.recv(100) == b"+OK\r\n"
        assert client.info("clients")["blocked_clients"] == 0
        tracker.sendall(b"HELLO 3\r\nCLIENT TRACKING ON\r\nMGET a b c\r\n")
        eventually(lambda: client.info("stats")["tracking_total_items"] == 3, "three keys may be cached")
        tracker.sendall(b"CLIENT TRACKING OFF\r\nCLIENT TRACKING ON BCAST PREFIX x PREFIX y\r\n")
        eventually(lambda: client.info("stats")["tracking_total_prefixes"] == 2, "two prefixes are followed")
        assert client.info("stats")["tracking_total_items"] == 0


HALVES = [b"PIN", b"*2\r\n$3\r\nGET\r\n$100\r\nhalf", b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$20", b"PING\r\n*2\r\n$3\r\nGE"]


@pytest.mark.parametrize("half", HALVES)
def test_half_a_command_shows_as_with_redis(store: Store, peer: Redis, half: bytes) -> None:
    with store.connect() as ours, peer.connect() as theirs, redis.Redis(port=store.port) as client, peer.client() as other:

        def shown(asked: redis.Redis) -> tuple[str, str]:
            line = next(line for line in asked.client_list() if line["name"] == "half")
            return line["qbuf"], line["argv-mem"]

        for connection in (ours, theirs):
            connection.sendall(b"CLIENT SETNAME half\r\n")
            assert connection.recv(100) == b"+OK\r\n"
        assert shown(client) == shown(other) == ("0", "0")
        for connection in (ours, theirs):
            connection.sendall(half)
        eventually(lambda: shown(other)[0] != "0", "Redis has read it")
        eventually(lambda: shown(client) == shown(other), "it is shown as there")


def test_the_largest_buffers_of_clients_are_shown(store: Store) -> None:
    with redis.Redis(port=store.port) as client, store.connect() as slow, store.connect() as deaf:

        def largest(field: str) -> int:
            return int(told(client, "clients")[f"client_recent_max_{field}_buffer"])

        assert largest("input") < 100_000 and largest("output") < 100_000
        slow.sendall(b"*2\r\n$3\r\nGET\r\n$300000\r\n" + b"x" * 200_000)
        eventually(lambda: 200_000 <= largest("input") < MIB, "the half request counts")
        client.set("k", b"v" * 20_000)
        # More than the kernel takes at once.
        names = b"$1\r\nk\r\n" * 1000
        deaf.sendall(b"*1001\r\n$4\r\nMGET\r\n" + names)
        eventually(lambda: MIB <= largest("output") <= 20 * MIB, "so do replies that wait")
