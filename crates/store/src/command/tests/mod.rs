//! Tests of every family of commands, through a connection without a socket.
//!
//! `tests/differential.rs` compares with Redis itself. Here are the cases that
//! need a clock that the test controls, or that concern this server only.

mod hash;
mod slow_path;
mod users;
mod wall_clock;

use super::{Context, Output, Resolved, Verdict};
use crate::clients::Peer;
use crate::config::StoreConfig;
use crate::engine::Engine;
use crate::host::{Host, Session};
use crate::resp::{Limits, Parser, Progress};

/// A client, an engine and a clock.
struct Client {
    engine: Engine,
    session: Session,
    host: Host,
    now_ms: u64,
}

const START_MS: u64 = 1_700_000_000_000;

fn engine() -> Engine {
    let config = StoreConfig { tiers: vec!["dram=64MiB".parse().expect("a tier")], ..StoreConfig::default() };
    Engine::new(config.engine_config(0).expect("a configuration")).expect("memory")
}

impl Client {
    fn new() -> Self {
        let started_us = START_MS * 1000;
        let mut host =
            Host { reply_bytes_max: 1 << 20, queue_bytes_max: 1 << 20, started_us, ..Host::default() };
        let session = host.welcome(7, Peer::None);
        let mut client = Client { engine: engine(), session, host, now_ms: START_MS };
        client.pass(0);
        client
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        self.engine.set_clock(self.now_ms);
        self.engine.between_requests().tick();
        self.host.now_us = self.now_ms * 1000;
        super::settle_idle(&mut self.engine, &mut self.host.clients);
        self.host.clients.end_pause(self.host.now_us);
    }

    /// Another client of the same server, which keeps this one's clock.
    fn other(&mut self, id: u64) -> Session {
        self.host.welcome(id, Peer::None)
    }

    /// Runs a request as another client.
    fn ask_as(&mut self, session: &mut Session, line: &str) -> String {
        core::mem::swap(&mut self.session, session);
        let reply = self.ask(line);
        core::mem::swap(&mut self.session, session);
        reply
    }

    /// Bytes that others have pushed to a client.
    fn pushed(&mut self, session: &Session) -> String {
        let pushed = self.host.clients.output_mut().take_pushed(session.slot).unwrap_or_default();
        String::from_utf8_lossy(&pushed).replace("\r\n", " ").trim_end().to_owned()
    }

    /// Runs an inline request and returns the reply with its line ends as blanks.
    fn ask(&mut self, line: &str) -> String {
        let mut parser = Parser::default();
        let mut bytes = format!("{line}\r\n");
        if line.len() > 1 << 15 {
            // Too long for an inline request; such a line has no quotes.
            let words: Vec<_> =
                line.split(' ').map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
            bytes = format!("*{}\r\n{}", words.len(), words.concat());
        }
        let limits = Limits { bulk_bytes_max: 1 << 20, request_bytes_max: 4 << 20, unauthenticated: false };
        assert_eq!(parser.parse(bytes.as_bytes(), &limits), Ok(Progress::Complete));
        let mut output = Output::default();
        let Client { engine, session, host, .. } = self;
        let mut context = Context { engine, session, output: &mut output, host, handlers: &super::HANDLERS };
        let args = parser.args(bytes.as_bytes());
        let verdict = Resolved::of(args).execute(&mut context, args);
        if verdict == Verdict::Later {
            return "later".to_owned();
        }
        let reply = String::from_utf8_lossy(output.plain().unwrap()).replace("\r\n", " ");
        output.clear(&mut self.engine);
        reply.trim_end().to_owned()
    }

    #[track_caller]
    fn all(&mut self, dialogue: &[(&str, &str)]) {
        for (request, reply) in dialogue {
            assert_eq!(self.ask(request), *reply, "{request}");
        }
    }
}

#[test]
fn strings_are_written_read_and_changed() {
    Client::new().all(&[
        ("SET k hello", "+OK"),
        ("GET k", "$5 hello"),
        ("SET k other NX", "$-1"),
        ("SET k other XX GET", "$5 hello"),
        ("GETRANGE k 1 -2", "$3 the"),
        ("SETRANGE k 7 x", ":8"),
        ("STRLEN k", ":8"),
        ("APPEND k yz", ":10"),
        ("GETSET k new", "$10 other\0\0xyz"),
        ("GETDEL k", "$3 new"),
        ("GETDEL k", "$-1"),
        ("SETNX k 1", ":1"),
        ("MSET a 1 b 2", "+OK"),
        ("MGET a nosuch b", "*3 $1 1 $-1 $1 2"),
        ("MSETNX c 3 a 4", ":0"),
        ("EXISTS c", ":0"),
        ("MSETNX c 3 d 4", ":1"),
        ("EXISTS a b c d d", ":5"),
    ]);
}

#[test]
fn counters_count_and_refuse_what_is_no_number() {
    Client::new().all(&[
        ("INCR n", ":1"),
        ("INCRBY n 41", ":42"),
        ("DECR n", ":41"),
        ("DECRBY n -9223372036854775808", "-ERR decrement would overflow"),
        ("SET n 9223372036854775807", "+OK"),
        ("INCR n", "-ERR increment or decrement would overflow"),
        ("SET n 01", "+OK"),
        ("INCR n", "-ERR value is not an integer or out of range"),
        ("INCRBYFLOAT f 3.0", "$1 3"),
        ("INCRBYFLOAT f 0.1", "$3 3.1"),
        ("INCRBYFLOAT f x", "-ERR value is not a valid float"),
    ]);
}

#[test]
fn keys_live_as_long_as_they_were_given() {
    let mut client = Client::new();
    client.all(&[
        ("SET k v PX 1500", "+OK"),
        ("TTL k", ":2"),
        ("PTTL k", ":1500"),
        ("PEXPIRETIME k", ":1700000001500"),
        ("EXPIRETIME k", ":1700000002"),
        ("SET plain v", "+OK"),
        ("TTL plain", ":-1"),
        ("TTL nosuch", ":-2"),
    ]);
    client.pass(1499);
    client.all(&[("GET k", "$1 v"), ("APPEND k w", ":2"), ("PTTL k", ":1")]);
    client.pass(1);
    client.all(&[("GET k", "$-1"), ("EXISTS k", ":0"), ("TTL k", ":-2"), ("INCR k", ":1"), ("TTL k", ":-1")]);
    client.all(&[
        ("EXPIRE k 10 XX", ":0"),
        ("EXPIRE k 10 GT", ":0"),
        ("EXPIRE k 10 NX", ":1"),
        ("EXPIRE k 5 GT", ":0"),
        ("EXPIRE k 20 GT", ":1"),
        ("EXPIRE k 30 LT", ":0"),
        ("GETEX k PERSIST", "$1 1"),
        ("TTL k", ":-1"),
        ("GETEX k EX 7", "$1 1"),
        ("SET k 2 KEEPTTL", "+OK"),
        ("TTL k", ":7"),
        ("PERSIST k", ":1"),
        ("PERSIST k", ":0"),
        ("SETEX k 3 x", "+OK"),
        ("PSETEX k 0 x", "-ERR invalid expire time in 'psetex' command"),
        ("EXPIREAT k 1", ":1"),
        ("EXISTS k", ":0"),
    ]);
}

#[test]
fn a_scan_shows_what_is_there_and_nothing_expired() {
    let mut client = Client::new();
    client.all(&[
        ("MSET a1 x a2 x b1 x", "+OK"),
        ("SET a3 x PX 10", "+OK"),
        ("SCAN 0 MATCH a3", "*2 $1 0 *1 $2 a3"),
    ]);
    // Long enough for the expired key to be collected as well.
    client.pass(200);
    client.all(&[
        ("SCAN 0 MATCH a[13] COUNT 100", "*2 $1 0 *1 $2 a1"),
        ("SCAN 0 MATCH a[23] COUNT 100", "*2 $1 0 *1 $2 a2"),
        ("SCAN 0 TYPE list", "*2 $1 0 *0"),
        ("DBSIZE", ":3"),
        ("SELECT 1", "+OK"),
        ("DBSIZE", ":0"),
        ("SET only here", "+OK"),
        ("FLUSHDB", "+OK"),
        ("SELECT 0", "+OK"),
        ("DEL a1 a2 nosuch", ":2"),
        ("TOUCH b1 b1", ":2"),
        ("TYPE b1", "+string"),
        ("TYPE a1", "+none"),
        ("FLUSHALL ASYNC", "+OK"),
        ("DBSIZE", ":0"),
    ]);
}

#[test]
fn a_connection_greets_names_and_resets() {
    let mut client = Client::new();
    client.all(&[
        ("PING", "+PONG"),
        ("PING hi", "$2 hi"),
        ("ECHO hi", "$2 hi"),
        ("CLIENT ID", ":7"),
        ("CLIENT SETNAME me", "+OK"),
        ("CLIENT GETNAME", "$2 me"),
        ("CLIENT SETINFO lib-name redis-py", "+OK"),
        ("CLIENT SETINFO lib-colour red", "-ERR Unrecognized option 'lib-colour'"),
        ("CLIENT SETINFO LIB-VER 'a b'", "-ERR lib-ver cannot contain spaces, newlines or special characters."),
        ("SELECT 3", "+OK"),
        (
            "HELLO 3",
            "%7 $6 server $5 redis $7 version $6 7.0.15 $5 proto :3 $2 id :7 $4 mode $10 standalone $4 role $6 master \
             $7 modules *0",
        ),
        ("GET nosuch", "_"),
        ("RESET", "+RESET"),
        ("GET nosuch", "$-1"),
        ("CLIENT GETNAME", "$-1"),
        ("TIME", "*2 $10 1700000000 $1 0"),
    ]);
    assert_eq!((client.session.db, client.session.closing), (0, false));
    client.all(&[("QUIT", "+OK")]);
    assert!(client.session.closing);
}

#[test]
fn the_configuration_is_told_and_what_can_change_changes() {
    Client::new().all(&[
        ("CONFIG GET save", "*2 $4 save $0"),
        ("CONFIG GET appendonly", "*2 $10 appendonly $2 no"),
        ("CONFIG GET maxmemory-p*", "*2 $16 maxmemory-policy $11 allkeys-lru"),
        ("CONFIG SET maxmemory-policy noeviction", "+OK"),
        ("CONFIG GET MAXMEMORY-POLICY", "*2 $16 maxmemory-policy $10 noeviction"),
        (
            "CONFIG SET maxmemory-policy volatile-lru",
            "-ERR CONFIG SET failed (possibly related to argument 'maxmemory-policy') - argument(s) must be one of the \
             following: allkeys-lru, noeviction",
        ),
        (
            "CONFIG SET maxmemory-policy allkeys-lru port 1",
            "-ERR CONFIG SET failed (possibly related to argument 'port') - can't set immutable config",
        ),
        ("CONFIG GET maxmemory-policy", "*2 $16 maxmemory-policy $10 noeviction"),
        ("CONFIG GET timeout max*s", "*4 $10 maxclients $5 10000 $7 timeout $1 0"),
        ("CONFIG SET timeout 30 maxclients 100", "+OK"),
        ("CONFIG GET timeout max*s", "*4 $10 maxclients $3 100 $7 timeout $2 30"),
        (
            "CONFIG SET timeout 1 maxclients many",
            "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - argument couldn't be parsed into an \
             integer",
        ),
        (
            "CONFIG SET policy-low-watermark 0.5 policy-high-watermark 0.1",
            "-ERR CONFIG SET failed (possibly related to argument 'policy-low-watermark') - 0.5 must not be above \
             policy-high-watermark, 0.1",
        ),
        ("CONFIG GET timeout", "*2 $7 timeout $2 30"),
        ("CONFIG SET policy-low-watermark 0.1 policy-high-watermark 0.5", "+OK"),
        ("CONFIG GET policy-low-watermark", "*2 $20 policy-low-watermark $3 0.1"),
        ("CONFIG REWRITE", "-ERR The server is running without a config file"),
    ]);
}

#[test]
fn calls_and_errors_are_counted_by_kind() {
    let mut client = Client::new();
    client.all(&[
        ("SET a x", "+OK"),
        ("INCR a", "-ERR value is not an integer or out of range"),
        ("GET a", "$1 x"),
    ]);
    client.all(&[
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        ("CONFIG GET port", "*2 $4 port $1 0"),
    ]);
    let told = client.ask("INFO commandstats errorstats");
    for part in [
        "cmdstat_set:calls=1,",
        "cmdstat_config|get:calls=1,",
        "rejected_calls=1,failed_calls=0 cmdstat_incr:calls=1,",
        "errorstat_ERR:count=2",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!client.ask("INFO").contains("cmdstat"), "they are many, and only told when asked for");
    assert!(client.ask("INFO all").contains("cmdstat_info:calls=3"));
    client.all(&[("CONFIG RESETSTAT", "+OK")]);
    assert!(!client.ask("INFO commandstats").contains("cmdstat_set"));
}

#[test]
fn a_password_can_be_set_and_taken_away() {
    let mut client = Client::new();
    client.all(&[("CONFIG SET requirepass secret", "+OK"), ("PING", "+PONG")]);
    client.session = client.host.new_session(8);
    client.all(&[
        ("PING", "-NOAUTH Authentication required."),
        ("AUTH secret", "+OK"),
        ("CONFIG GET requirepass", "*2 $11 requirepass $6 secret"),
    ]);
    let waiting = client.host.new_session(9);
    client.all(&[("CONFIG SET requirepass ''", "+OK")]);
    client.session = waiting;
    client.all(&[("PING", "+PONG")]);
}

#[test]
fn statistics_begin_anew() {
    let mut client = Client::new();
    client.all(&[
        ("SET a 1", "+OK"),
        ("GET a", "$1 1"),
        ("GET b", "$-1"),
        ("FOO", "-ERR unknown command 'FOO', with args beginning with:"),
    ]);
    for line in ["keyspace_hits:1", "keyspace_misses:1", "total_error_replies:1"] {
        assert!(client.ask("INFO stats").contains(line), "{line}");
    }
    client.all(&[("CONFIG RESETSTAT", "+OK"), ("GET a", "$1 1")]);
    for line in ["keyspace_hits:1", "keyspace_misses:0", "total_error_replies:0", "total_commands_processed:"]
    {
        assert!(client.ask("INFO stats").contains(line), "{line}");
    }
    assert_eq!(client.engine.stats().gets, 3, "monitoring's counters never fall");
}

#[test]
fn the_server_describes_itself() {
    let mut client = Client::new();
    client.pass(3000);
    client.all(&[
        ("SET k v", "+OK"),
        ("MEMORY USAGE nosuch", "$-1"),
        ("COMMAND DOCS get", "*0"),
        (
            "COMMAND INFO get nosuch",
            "*2 *10 $3 get :2 *2 +readonly +fast :1 :1 :1 *3 +@string +@read +@fast *0 *0 *0 $-1",
        ),
    ]);
    assert!(client.ask("MEMORY USAGE k").starts_with(':'));
    let commands = super::COMMANDS.len();
    assert_eq!(client.ask("COMMAND COUNT"), format!(":{commands}"));
    assert!(client.ask("COMMAND").starts_with(&format!("*{commands} *10 ")));
    let info = client.ask("INFO");
    for part in
        ["redis_version:7.0.15", "uptime_in_seconds:3 ", "maxmemory_policy:allkeys-lru", "db0:keys=1,"]
    {
        assert!(info.contains(part), "{part} in {info}");
    }
    let server = client.ask("INFO server");
    assert!(server.contains("# Server") && !server.contains("# Memory"));
}

#[test]
fn a_reply_beyond_the_limit_is_taken_back() {
    let mut client = Client::new();
    client.all(&[("SETRANGE k 29999 x", ":30000")]);
    let many = format!("MGET{}", " k".repeat(40));
    assert!(client.ask(&many).starts_with("-ERR the reply is longer than the limit"));
    assert!(client.ask("MGET k k k").starts_with("*3 $30000"));
}

#[test]
fn the_password_stands_before_everything() {
    let mut client = Client::new();
    client.host.settings.users.set_requirepass(Some("secret"));
    client.session = client.host.welcome(1, Peer::None);
    client.all(&[
        ("GET k", "-NOAUTH Authentication required."),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        ("AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("AUTH default secret", "+OK"),
        ("GET k", "$-1"),
        ("RESET", "+RESET"),
        ("GET k", "-NOAUTH Authentication required."),
    ]);
}
