"""A full store in a control group of version 2 whose limits are lowered while it runs: the tiers shrink, and nobody is killed."""

from __future__ import annotations

import re

from machine import Machine
from store import binary

# The store is in `outer/inner`, and what binds is set on the group around its own. The tiers have 256 MiB, the process keeps 192 MiB
# beside them. First memory.high, above which the kernel only slows down, then memory.max.
SCRIPT = """
groups=/sys/fs/cgroup
grep -q "^[^ ]* $groups cgroup2 " /proc/mounts || mount -t cgroup2 none $groups || exit 1
ip link set lo up
echo +memory >$groups/cgroup.subtree_control && mkdir $groups/outer && echo +memory >$groups/outer/cgroup.subtree_control
mkdir $groups/outer/inner || exit 2
sh -c "echo \\$\\$ >$groups/outer/inner/cgroup.procs; exec tiermem store serve --listen 127.0.0.1:7000 --http 127.0.0.1:0 \
    --tier dram=64MiB --tier emulated=192MiB" >log 2>&1 &
waits=0
ask() { (echo "$1"; echo QUIT) | nc 127.0.0.1 7000; }
until ask PING | grep -q PONG; do
    waits=$((waits + 1)); [ $waits -lt 300 ] || { cat log; exit 3; }; sleep 1
done
(i=0; while [ $i -lt 300 ]; do echo "SETRANGE key:$i 999999 x"; i=$((i + 1)); done; echo QUIT) | nc 127.0.0.1 7000 >/dev/null
capacity() { ask "INFO tiers" | sed -n 's/^tier[0-9]*:.*capacity_bytes=\\([0-9]*\\).*/\\1/p' | tr '\\n' ' '; }
settles() {
    waits=0
    until [ "$(capacity)" = "$1" ] && [ $(cat $groups/outer/memory.current) -lt $3 ]; do
        waits=$((waits + 1)); [ $waits -lt 60 ] || { echo "capacities $(capacity)"; cat log; exit 4; }; sleep 1
    done
    echo "$2: current $(cat $groups/outer/memory.current) keys $(ask DBSIZE | tr -d '\\r\\n')"
}
settles "67108864 201326592 " full $((1 << 30))
echo $((256 << 20)) >$groups/outer/memory.high
settles "16777216 50331648 " high $((200 << 20))
echo $((256 << 20)) >$groups/outer/memory.max
echo max >$groups/outer/memory.high
settles "16777216 50331648 " max $((200 << 20))
cat $groups/outer/memory.events $groups/outer/inner/memory.events
cat log
"""


def test_tiers_follow_the_limits_of_the_groups_around(guest: type[Machine]) -> None:
    result = guest("two-nodes", (1024, 64)).run(SCRIPT, files={"/bin/tiermem": binary()})
    assert result.exit_code == 0, result.output
    current = {name: int(bytes_) for name, bytes_ in re.findall(r"^(\w+): current (\d+)", result.output, re.M)}
    assert current["full"] > 256 << 20 > current["high"], result.output
    assert current["max"] < 256 << 20, result.output
    assert set(re.findall(r"^oom_kill (\d+)", result.output, re.M)) == {"0"}, result.output
    assert "the memory limit was lowered: the memory tiers shrink" in result.output
