"""Users: rules, who may do what, what a user sees of others' keys, and users as tenants."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Iterator

import pytest
import redis

from peer import Redis
from store import PATIENCE_S, SHARDS, Store, eventually, tiermem
from wire import Wire

DENIED_KEY = b"-NOPERM No permissions to access a key"
DENIED_CHANNEL = b"-NOPERM No permissions to access a channel"
WRONG = b"-WRONGPASS invalid username-password pair or user is disabled."

TENANTS = """\
[[user]]
name = "web"
rules = "on >web ~web:* +@all"

[[user]]
name = "crawler"
rules = "on >crawler ~crawler:* %R~web:public:* +@all"

[tenants]
by = "user"

[[tenant]]
name = "web"
share = "40MiB"

[[tier]]
name = "dram"
kind = "dram"
capacity = "64MiB"
"""


def denied_command(user: str, command: str) -> bytes:
    return f"-NOPERM User {user} has no permissions to run the '{command}' command".encode()


def connect(store: Store, **options: object) -> redis.Redis:
    options = {"socket_timeout": PATIENCE_S, "decode_responses": True, **options}
    return redis.Redis(port=store.port, **options)


def start(serve: Callable[..., Store], tmp_path: pathlib.Path, text: str) -> tuple[Store, pathlib.Path]:
    path = tmp_path / "acl.toml"
    path.write_text(text)
    return serve("--config", str(path)), path


def login(store: Store, user: str, password: str) -> Wire:
    wire = Wire(store.connect)
    assert wire.ask("AUTH", user, password) == b"+OK"
    return wire


@pytest.fixture
def admin(store: Store) -> Iterator[redis.Redis]:
    """A client that may do everything; users that a test has made go with it."""
    with connect(store) as client:
        yield client
        for user in client.acl_users():
            if user != "default":
                client.acl_deluser(user)
        client.acl_setuser("default", enabled=True, nopass=True, categories=["+@all"], keys=["*"], channels=["*"])


def make(admin: redis.Redis, name: str, rules: str) -> None:
    assert admin.execute_command("ACL", "SETUSER", name, *rules.split())


def test_users_are_made_shown_and_deleted(admin: redis.Redis) -> None:
    assert admin.acl_users() == ["default"]
    assert admin.acl_list() == ["user default on nopass ~* &* +@all"]
    assert admin.acl_whoami() == "default"
    make(admin, "app", "on >secret ~app:* %R~shared:* &news.* +@all -@dangerous +config|get")
    seen = admin.acl_getuser("app")
    assert seen["flags"] == ["on"]
    assert seen["enabled"] is True
    assert seen["passwords"] == ["2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"]
    assert (seen["categories"], seen["commands"]) == (["+@all", "-@dangerous"], ["+config|get"])
    assert seen["keys"] == ["~app:*", "%R~shared:*"] or seen["keys"] == "~app:* %R~shared:*"
    line = admin.acl_list()[0]
    assert line.startswith("user app on #2bb80d53"), line
    assert line.endswith(" ~app:* %R~shared:* resetchannels &news.* +@all -@dangerous +config|get")
    assert admin.acl_getuser("nobody") is None
    assert admin.acl_deluser("app", "nobody") == 1
    assert admin.acl_users() == ["default"]


def test_rules_that_cannot_be_taken_change_nothing(store: Store, admin: redis.Redis) -> None:
    wire = Wire(store.connect)
    for rule, why in [
        ("+nonsense", "Unknown command or category name in ACL"),
        ("+@nonsense", "Unknown command or category name in ACL"),
        ("nonsense", "Syntax error"),
        ("#12", "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"),
        ("<nothing", "The password you are trying to remove from the user does not exist"),
    ]:
        said = wire.ask("ACL", "SETUSER", "app", "on", rule)
        assert said == f"-ERR Error in ACL SETUSER modifier '{rule}': {why}".encode()
    assert wire.ask("ACL", "SETUSER", "a b", "on") == b"-ERR Usernames can't contain spaces or null characters"
    assert wire.ask("ACL", "DELUSER", "default") == b"-ERR The 'default' user cannot be removed"
    assert wire.ask("ACL", "SAVE").startswith(b"-ERR there is no ACL file here")
    assert b"CONFIG REWRITE" in wire.ask("ACL", "LOAD")
    assert admin.acl_users() == ["default"]


def test_categories_and_passwords_are_given(admin: redis.Redis) -> None:
    assert {"keyspace", "read", "write", "dangerous", "scripting"} <= set(admin.acl_cat())
    assert {"get", "hget"} <= set(admin.acl_cat("read"))
    assert "acl|setuser" in admin.acl_cat("admin")
    assert admin.acl_cat("scripting") == []
    with pytest.raises(redis.ResponseError, match="Unknown category 'nonsense'"):
        admin.acl_cat("nonsense")
    assert len(admin.acl_genpass()) == 64
    assert len(admin.acl_genpass(5)) == 2
    assert admin.acl_genpass() != admin.acl_genpass()
    assert admin.acl_help()[0].startswith("ACL <subcommand>")


def test_the_right_password_lets_in_and_a_wrong_one_is_counted(store: Store, admin: redis.Redis) -> None:
    make(admin, "app", "on >secret ~* +@all")
    make(admin, "off", "off >secret ~* +@all")
    before = admin.info("stats")["acl_access_denied_auth"]
    wire = Wire(store.connect)
    assert wire.ask("AUTH", "app", "wrong") == WRONG
    assert wire.ask("AUTH", "nobody", "secret") == WRONG
    assert wire.ask("AUTH", "off", "secret") == WRONG
    assert wire.ask("ACL", "WHOAMI") == b"default", "it is still who it was"
    assert wire.ask("AUTH", "app", "secret") == b"+OK"
    assert wire.ask("ACL", "WHOAMI") == b"app"
    assert b" user=app " in wire.ask("CLIENT", "INFO")
    assert wire.ask("RESET") == b"+RESET"
    assert wire.ask("ACL", "WHOAMI") == b"default"
    assert wire.ask("HELLO", "3", "AUTH", "app", "wrong") == WRONG
    assert wire.ask("HELLO", "3", "AUTH", "app", "secret")["b'proto'"] == 3
    assert wire.ask("ACL", "WHOAMI") == b"app"
    assert admin.info("stats")["acl_access_denied_auth"] == before + 4
    assert admin.info("errorstats")["errorstat_WRONGPASS"]["count"] >= 4
    with connect(store, username="app", password="secret") as client:
        assert client.acl_whoami() == "app"


def test_commands_are_refused_that_a_user_may_not_run(store: Store, admin: redis.Redis) -> None:
    make(admin, "app", "on >secret ~* +@all -@dangerous -get +config|get")
    wire = login(store, "app", "secret")
    assert wire.ask("SET", "a", "1") == b"+OK"
    assert wire.ask("GET", "a") == denied_command("app", "get")
    assert wire.ask("FLUSHALL") == denied_command("app", "flushall")
    assert wire.ask("FLUSHDB") == denied_command("app", "flushdb")
    assert wire.ask("KEYS", "*") == denied_command("app", "keys")
    assert wire.ask("CONFIG", "SET", "maxclients", "5") == denied_command("app", "config|set")
    assert wire.ask("CONFIG", "GET", "maxclients")[0] == b"maxclients"
    assert wire.ask("ACL", "SETUSER", "app", "+@all") == denied_command("app", "acl|setuser")
    make(admin, "app", "+get")
    assert wire.ask("GET", "a") == b"1", "what changes holds for connections that are there"
    before = admin.info("stats")["acl_access_denied_cmd"]
    make(admin, "app", "nocommands")
    assert wire.ask("GET", "a") == denied_command("app", "get")
    assert wire.ask("AUTH", "app", "secret") == b"+OK"
    assert admin.info("stats")["acl_access_denied_cmd"] == before + 1


def test_keys_are_refused_that_a_user_may_not_touch(store: Store, admin: redis.Redis) -> None:
    make(admin, "app", "on >secret ~app:* %R~shared:* %W~log:* +@all")
    admin.mset({"shared:1": "1", "other": "1", "log:1": "1"})
    wire = login(store, "app", "secret")
    many = [f"app:{number}" for number in range(20)]
    assert wire.ask("MSET", *[word for key in many for word in (key, "1")]) == b"+OK"
    assert wire.ask("MGET", *many) == [b"1"] * 20
    for request in [
        ("GET", "other"),
        ("SET", "other", "2"),
        ("EXISTS", "other"),
        ("MGET", *many, "other"),
        ("DEL", *many, "other"),
        ("EXISTS", *many, "other"),
        ("MSET", "app:1", "2", "other", "2"),
        ("MSETNX", "{app:}x", "2", "app:{app:}", "2"),
        ("WATCH", "app:1", "other"),
        ("COPY", "app:1", "other"),
        ("RENAME", "other", "app:1"),
        ("OBJECT", "ENCODING", "other"),
        ("MEMORY", "USAGE", "other"),
        ("HSET", "other", "f", "v"),
        ("SET", "shared:1", "2"),
        ("GETSET", "shared:1", "2"),
        ("GETDEL", "log:1"),
        ("SET", "log:1", "2", "GET"),
        ("GET", "log:1"),
    ]:
        assert wire.ask(*request) == DENIED_KEY, request
    assert wire.ask("GET", "shared:1") == b"1"
    assert wire.ask("SET", "log:1", "2") == b"+OK"
    assert wire.ask("EXISTS", "log:1") == 1
    assert admin.mget("other", "shared:1", "log:1") == ["1", "1", "2"]
    assert admin.exists(*many) == 20
    # Replies stay in the order of the requests, whoever refuses.
    requests = [("GET", key) for pair in zip(many, ["other"] * 20, strict=True) for key in pair]
    assert wire.ask_all(requests) == [b"1", DENIED_KEY] * 20


def test_a_transaction_is_refused_where_it_is_queued(store: Store, admin: redis.Redis) -> None:
    make(admin, "app", "on >secret ~app:* +@all -append")
    wire = login(store, "app", "secret")
    assert wire.ask("MULTI") == b"+OK"
    assert wire.ask("SET", "app:1", "1") == b"+QUEUED"
    assert wire.ask("SET", "other", "1") == DENIED_KEY
    assert wire.ask("EXEC") == b"-EXECABORT Transaction discarded because of previous errors."
    wire.ask("MULTI")
    assert wire.ask("APPEND", "app:1", "1") == denied_command("app", "append")
    assert wire.ask("DISCARD") == b"+OK"
    assert admin.exists("app:1", "other") == 0
    wire.ask("MULTI")
    assert wire.ask("SET", "app:1", "1") == b"+QUEUED"
    make(admin, "app", "resetkeys ~new:*")
    said = wire.ask("EXEC")
    assert said.startswith(b"-EXECABORT") and said.endswith(b"no permission to touch the specified keys"), said
    assert wire.ask("SET", "new:1", "1") == b"+OK", "the transaction has ended"
    assert wire.ask_all([("MULTI",), ("SET", "new:1", "2"), ("GET", "new:1"), ("EXEC",)])[-1] == [b"+OK", b"2"]
    assert admin.exists("app:1") == 0


def test_a_user_sees_no_names_of_others_keys(store: Store, admin: redis.Redis) -> None:
    own = {f"app:{number}" for number in range(50)}
    for key in own | {f"other:{number}" for number in range(2000)}:
        admin.set(key, "1")
    make(admin, "app", "on >secret ~app:* %W~written:* +@all")
    make(admin, "none", "on >secret +@all")
    admin.set("written:1", "1")
    with connect(store, username="app", password="secret") as client:
        assert set(client.scan_iter(count=100)) == own
        assert set(client.scan_iter(match="other:*")) == set()
        assert set(client.keys("*")) == own
        assert {client.randomkey() for _ in range(20)} <= own
        assert client.dbsize() == 2051
    with connect(store, username="none", password="secret") as client:
        assert (client.keys("*"), client.randomkey(), list(client.scan_iter())) == ([], None, [])
    assert len(admin.keys("*")) == 2051
    # Who logs in as another one sees with other eyes, in every shard.
    wire = login(store, "app", "secret")
    assert {key.decode() for key in wire.ask("KEYS", "*")} == own
    assert wire.ask("AUTH", "none", "secret") == b"+OK"
    assert wire.ask("KEYS", "*") == []
    assert wire.ask("AUTH", "default", "") == b"+OK"
    assert len(wire.ask("KEYS", "*")) == 2051
    # Nor is it told of them.
    wire = login(store, "app", "secret")
    wire.ask("HELLO", "3")
    assert wire.ask("CLIENT", "TRACKING", "ON", "BCAST").startswith(b"-NOPERM No permissions to read all keys")
    assert wire.ask("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "other:").startswith(b"-NOPERM")
    assert wire.ask("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "app:") == b"+OK"


def test_channels_are_refused_that_a_user_may_not_use(store: Store, admin: redis.Redis) -> None:
    make(admin, "app", "on >secret &news.* ~* +@all")
    wire = login(store, "app", "secret")
    assert wire.ask("PUBLISH", "news.1", "x") == 0
    assert wire.ask("PUBLISH", "other", "x") == DENIED_CHANNEL
    assert wire.ask("SUBSCRIBE", "news.1", "other") == DENIED_CHANNEL
    assert wire.ask("PSUBSCRIBE", "news.1*") == DENIED_CHANNEL
    assert wire.ask("SUBSCRIBE", "news.1") == [b"subscribe", b"news.1", 1]
    assert wire.ask("PSUBSCRIBE", "news.*") == [b"psubscribe", b"news.*", 2]
    other = login(store, "app", "secret")
    make(admin, "app", "resetchannels &other")
    assert wire.is_closed(), "it listened to what it may not listen to any more"
    assert other.ask("PUBLISH", "other", "x") == 0
    other.ask("HELLO", "3")
    assert other.ask("CLIENT", "TRACKING", "ON", "BCAST") == b"+OK"
    make(admin, "app", "resetkeys ~app:*")
    assert other.is_closed(), "it was told of keys that it may not read any more"


def test_a_deleted_users_connections_are_closed(store: Store, admin: redis.Redis) -> None:
    make(admin, "app", "on >secret ~* +@all")
    make(admin, "kept", "on >secret ~* +@all")
    wires = [login(store, "app", "secret") for _ in range(4)]
    kept = [login(store, "kept", "secret") for _ in range(4)]
    assert admin.acl_deluser("app") == 1
    assert all(wire.is_closed() for wire in wires)
    assert all(wire.ask("PING") == b"+PONG" for wire in kept)
    assert kept[0].ask("ACL", "DELUSER", "kept") == 1, "who deletes itself is told so"
    assert all(wire.is_closed() for wire in kept)
    assert Wire(store.connect).ask("AUTH", "kept", "secret") == WRONG


def test_clients_are_killed_by_user(store: Store, admin: redis.Redis) -> None:
    make(admin, "app", "on >secret ~* +@all")
    wires = [login(store, "app", "secret") for _ in range(3)]
    assert admin.execute_command("CLIENT", "KILL", "USER", "app") == 3
    assert all(wire.is_closed() for wire in wires)
    with pytest.raises(redis.ResponseError, match="No such user 'nobody'"):
        admin.execute_command("CLIENT", "KILL", "USER", "nobody")


def test_every_connection_knows_the_users(store: Store, admin: redis.Redis) -> None:
    make(admin, "app", "on >secret ~app:* +@all")
    wires = [login(store, "app", "secret") for _ in range(2 * SHARDS)]
    for number, wire in enumerate(wires):
        assert wire.ask("SET", f"app:{number}", "1") == b"+OK"
        assert wire.ask("SET", f"{number}", "1") == DENIED_KEY
        make(admin, "app", f">{number}")
    for number, _ in enumerate(wires):
        login(store, "app", f"{number}").close()
    assert [wire.ask("ACL", "WHOAMI") for wire in wires] == [b"app"] * len(wires)


def test_default_is_as_before_and_can_be_restricted(store: Store, admin: redis.Redis) -> None:
    make(admin, "root", "on >root ~* &* +@all")
    root = login(store, "root", "root")
    wire = Wire(store.connect)
    assert wire.ask("SET", "a", "1") == b"+OK"
    assert wire.ask("AUTH", "anything").startswith(b"-ERR AUTH <password> called without any password")
    make(admin, "default", "resetkeys ~public:* -@all +get +set +scan +acl")
    assert wire.ask("GET", "a") == DENIED_KEY
    assert wire.ask("SET", "public:1", "1") == b"+OK"
    assert wire.ask("DEL", "public:1") == denied_command("default", "del")
    assert wire.ask("SCAN", "0", "COUNT", "100")[1] in ([b"public:1"], [])
    assert root.ask("GET", "a") == b"1"
    assert root.ask("ACL", "SETUSER", "default", "reset") == b"+OK"
    assert Wire(store.connect).ask("GET", "a") == b"-NOAUTH Authentication required."
    assert root.ask("ACL", "SETUSER", "default", "on", "nopass", "~*", "&*", "+@all") == b"+OK"
    assert wire.ask("GET", "a") == b"1"


def test_requirepass_is_the_password_of_default(serve: Callable[..., Store]) -> None:
    store = serve("--requirepass", "secret")
    wire = Wire(store.connect)
    assert wire.ask("GET", "a") == b"-NOAUTH Authentication required."
    assert wire.ask("AUTH", "wrong") == WRONG
    assert wire.ask("AUTH", "default", "secret") == b"+OK"
    assert wire.ask("ACL", "SETUSER", "app", "on", ">app", "~*", "+@all") == b"+OK"
    assert login(store, "app", "app").ask("GET", "a") is None
    assert wire.ask("CONFIG", "SET", "requirepass", "other") == b"+OK"
    assert Wire(store.connect).ask("AUTH", "secret") == WRONG
    assert Wire(store.connect).ask("AUTH", "other") == b"+OK"


def test_passwords_are_shown_to_nobody(store: Store, admin: redis.Redis) -> None:
    admin.config_set("slowlog-log-slower-than", 0)
    make(admin, "app", "on >topsecret ~* +@all")
    entries = admin.execute_command("SLOWLOG", "GET", "-1")
    admin.config_set("slowlog-log-slower-than", 10_000)
    assert "topsecret" not in str(entries)


def test_a_file_declares_users_and_is_rewritten(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    text = """\
# Ours.
[[user]]
name = "app"
rules = "on >secret ~app:* +@all -@dangerous" # as agreed

[[user]]
name = "old"
rules = "on #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b ~* +@all"
"""
    store, path = start(serve, tmp_path, text)
    wire = login(store, "app", "secret")
    assert wire.ask("GET", "other") == DENIED_KEY
    assert wire.ask("KEYS", "*") == denied_command("app", "keys")
    login(store, "old", "secret")
    with connect(store) as client:
        client.config_rewrite()
        assert path.read_text() == text, "nothing has changed"
        client.acl_deluser("old")
        make(client, "new", "on >new ~new:* +@all")
        make(client, "default", "-@dangerous +config +acl")
        client.config_rewrite()
    written = path.read_text()
    assert 'rules = "on >secret ~app:* +@all -@dangerous" # as agreed' in written
    assert 'name = "old"' not in written
    store.close()
    again = serve("--config", str(path))
    assert login(again, "new", "new").ask("SET", "new:1", "1") == b"+OK"
    assert Wire(again.connect).ask("AUTH", "old", "secret") == WRONG
    assert Wire(again.connect).ask("FLUSHALL") == denied_command("default", "flushall")


def test_mistakes_in_a_file_are_named(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "acl.toml"
    for text, part in [
        ('[[user]]\nname = "a"\nrules = "on +nonsense"\n', 'user: "a", rule "+nonsense": Unknown command or category'),
        ('[[user]]\nname = "a b"\nrules = "on"\n', "is not a valid name: use one without blanks"),
        ('[[user]]\nname = "a"\nrules = "on"\n[[user]]\nname = "a"\nrules = "on"\n', "is there twice"),
        (TENANTS.replace("~crawler:*", "~web:*"), "would both own the keys that begin with \"web:\""),
    ]:
        path.write_text(text)
        refused = tiermem("store", "serve", "--config", str(path))
        assert refused.returncode != 0
        assert part in refused.stderr, refused.stderr


# As `app`, whose rules are those of the first line.
DIALOGUE = """\
ACL SETUSER app on >secret ~app:* %R~sh:* %W~w:* &news.* +@all -@dangerous +config|get
ACL GETUSER app
ACL LIST
ACL SETUSER app +config|nonsense
ACL SETUSER app %X~a
ACL SETUSER app allkeys ~b
ACL SETUSER app allchannels &b
ACL SETUSER app @read
ACL SETUSER other
ACL GETUSER other
ACL SETUSER other +acl -acl|list nopass >a
ACL GETUSER other
ACL DELUSER other nobody
ACL CAT read write
ACL GENPASS 0
ACL GENPASS 1 2
ACL FOO
AUTH app wrong
AUTH app secret
ACL WHOAMI
GET app:1
GET sh:1
GET w:1
GET other
SET sh:1 x
SET w:1 x
SET w:1 x GET
SET app:1 x GET
EXISTS sh:1 w:1 app:1
EXISTS other
STRLEN w:1
TTL w:1
TYPE w:1
OBJECT ENCODING other
MEMORY USAGE other
WATCH other
GETEX sh:1
GETEX app:1
APPEND w:1 x
SETRANGE w:1 0 y
GETRANGE w:1 0 1
INCR w:1
GETSET w:1 x
GETDEL w:1
EXPIRE w:1 100
EXPIRETIME w:1
PERSIST w:1
RENAME sh:1 app:1
RENAME w:1 app:1
COPY w:1 app:1
COPY app:1 sh:1
MGET w:1
MSET app:1 x other y
TOUCH w:1
DEL w:1
HSET w:1 a b
HGET w:1 a
HDEL w:1 a
HLEN w:1
HEXISTS w:1 a
HINCRBY w:1 a 1
HSETNX w:1 x y
HSCAN w:1 0
HSTRLEN w:1 x
UNLINK w:1
PUBLISH news.1 x
PUBLISH other x
SUBSCRIBE other
PSUBSCRIBE news.1*
FLUSHALL
KEYS *
ACL LIST
CONFIG SET maxclients 100
MULTI
SET other 1
EXEC
AUTH default x
ACL DELUSER app
"""


def test_the_dialogue_is_redis_own(store: Store, admin: redis.Redis, peer: Redis) -> None:
    ours, theirs = Wire(store.connect), Wire(peer.connect)
    for line in DIALOGUE.splitlines():
        said = [wire.ask(*line.split()) for wire in (ours, theirs)]
        if isinstance(said[1], bytes) and said[1].startswith(b"-NOPERM"):
            # Its words are those of a later Redis.
            said = [reply[:8] if isinstance(reply, bytes) else reply for reply in said]
        assert said[0] == said[1], line


def fill(client: redis.Redis, keys: list[str]) -> None:
    for at in range(0, len(keys), 1000):
        with client.pipeline(transaction=False) as pipe:
            for key in keys[at : at + 1000]:
                pipe.set(key, "x" * 900)
            pipe.execute()


def figures(client: redis.Redis) -> dict[str, dict]:
    return {tenant["name"]: tenant for tenant in json.loads(client.execute_command("TENANTS", "JSON"))["tenants"]}


def test_users_are_tenants(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    store, _ = start(serve, tmp_path, TENANTS)
    with (
        connect(store) as admin,
        connect(store, username="web", password="web") as web,
        connect(store, username="crawler", password="crawler") as crawler,
    ):
        keys = [f"web:{number}" for number in range(25_000)]
        fill(web, keys)
        fill(crawler, [f"crawler:{number}" for number in range(100_000)])
        assert web.exists(*keys) == len(keys), "the flood has taken nothing of it"
        seen = figures(admin)
        assert (seen["web"]["sets"], seen["crawler"]["sets"]) == (25_000, 100_000)
        assert seen["web"]["tiers"][0]["evictions"] == 0
        assert seen["crawler"]["tiers"][0]["evictions"] > 50_000
        # Nobody can be another tenant.
        with pytest.raises(redis.exceptions.NoPermissionError):
            crawler.set("web:forged", "x")
        with pytest.raises(redis.exceptions.NoPermissionError):
            crawler.set("web:public:1", "x")
        web.set("web:public:1", "x")
        assert crawler.get("web:public:1") == "x"
        assert figures(admin)["web"]["sets"] == 25_001, "who reads there does not own it"
        # Whose a key is says the key, whoever writes it.
        admin.set("web:2", "x")
        admin.set("alone", "x")
        seen = figures(admin)
        assert (seen["web"]["sets"], seen["(others)"]["sets"]) == (25_002, 1)


def test_tenants_come_and_go_with_their_users(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    store, path = start(serve, tmp_path, TENANTS)
    with connect(store) as admin:
        with pytest.raises(redis.ResponseError, match="would both own the keys that begin with \"web:\""):
            make(admin, "other", "on nopass ~web:* +@all")
        assert "other" not in admin.acl_users()
        make(admin, "late", "on nopass ~late:* ~web:inner:* +@all")
        admin.set("late:1", "x")
        admin.set("web:inner:1", "x")
        admin.set("web:1", "x")
        seen = figures(admin)
        assert (seen["late"]["sets"], seen["web"]["sets"]) == (2, 1)
        admin.acl_deluser("late")
        admin.set("late:2", "x")
        admin.set("web:inner:2", "x")
        seen = figures(admin)
        assert (seen["late"]["sets"], seen["web"]["sets"], seen["(others)"]["sets"]) == (2, 2, 1)
        make(admin, "heir", "on nopass ~late:* +@all")
        admin.set("late:1", "x")
        seen = figures(admin)
        assert seen["heir"]["tiers"][0]["items"] == 1, "an item goes over when it is written"
        admin.config_rewrite()
    store.close()
    again = serve("--config", str(path))
    with connect(again) as admin:
        admin.set("late:1", "x")
        assert figures(admin)["heir"]["sets"] == 1


def test_what_a_snapshot_brings_back_is_its_owners(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    text = f'snapshot = "{tmp_path}/items"\n' + TENANTS
    store, path = start(serve, tmp_path, text)
    with connect(store) as admin:
        fill(admin, [f"web:{number}" for number in range(100)] + ["crawler:1", "alone"])
    store.close()
    again = serve("--config", str(path))
    with connect(again) as admin:
        held = {name: tenant["tiers"][0]["items"] for name, tenant in figures(admin).items()}
        assert held == {"web": 100, "crawler": 1, "(others)": 1}
