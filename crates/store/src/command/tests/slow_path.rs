//! Tests of transactions and of effects between clients.

use super::*;
use crate::command::COMMANDS;

#[test]
fn a_transaction_runs_as_one_or_not_at_all() {
    let mut client = Client::new();
    client.all(&[
        ("EXEC", "-ERR EXEC without MULTI"),
        ("DISCARD", "-ERR DISCARD without MULTI"),
        ("MULTI", "+OK"),
        ("MULTI", "-ERR MULTI calls can not be nested"),
        ("WATCH a", "-ERR WATCH inside MULTI is not allowed"),
        ("SET a 1", "+QUEUED"),
        ("INCR a", "+QUEUED"),
        ("INCR a b", "-ERR wrong number of arguments for 'incr' command"),
        ("GET a", "+QUEUED"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
        ("GET a", "$-1"),
        ("MULTI", "+OK"),
        ("SET a x", "+QUEUED"),
        ("INCR a", "+QUEUED"),
        ("SELECT 1", "+QUEUED"),
        ("SET a 1", "+QUEUED"),
        ("EXEC", "*4 +OK -ERR value is not an integer or out of range +OK +OK"),
        ("DBSIZE", ":1"),
        ("SELECT 0", "+OK"),
        ("GET a", "$1 x"),
        ("MULTI", "+OK"),
        ("DEL a", "+QUEUED"),
        ("DISCARD", "+OK"),
        ("EXISTS a", ":1"),
        ("MULTI", "+OK"),
        (
            "EXEC x",
            "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command",
        ),
        ("EXEC", "-ERR EXEC without MULTI"),
        ("MULTI", "+OK"),
        ("RESET", "+RESET"),
        ("GET a", "$1 x"),
        ("MULTI", "+OK"),
        ("EXEC", "*0"),
    ]);
}

#[test]
fn a_transaction_that_never_ends_is_bounded() {
    let mut client = Client::new();
    client.host.queue_bytes_max = 100_000;
    client.all(&[("MULTI", "+OK")]);
    let request = format!("SET k {}", "v".repeat(1000));
    let queued = (0..1000).take_while(|_| client.ask(&request) == "+QUEUED").count();
    assert!((40..100).contains(&queued), "{queued}");
    // It is void, and holds nothing any more.
    assert!(client.session.transaction.as_ref().unwrap().memory_bytes() < 100);
    assert_eq!(client.ask(&request), "+QUEUED");
    assert!(client.session.transaction.as_ref().unwrap().is_empty());
    client
        .all(&[("EXEC", "-EXECABORT Transaction discarded because of previous errors."), ("EXISTS k", ":0")]);
}

#[test]
fn what_happens_to_a_watched_key_voids_the_transaction() {
    for (before, act, ms, void) in [
        ("SET k 1", "SET k 1", 0, true),
        ("SET k 1", "DEL k", 0, true),
        ("SET k 1", "EXPIRE k 100", 0, true),
        ("SET k 1 PX 50", "PING", 60, true),
        ("SET k 1 PX 50", "PING", 10, false),
        ("SET k 1", "FLUSHALL", 0, true),
        ("PING", "FLUSHALL", 0, false),
        ("PING", "SET k 1", 0, true),
        ("PING", "SET other 1", 0, false),
        ("SET k 1", "GET k", 0, false),
        ("SET k 1", "RENAME k other", 0, true),
        ("SET other 1", "COPY other k", 0, true),
    ] {
        for by_other in [true, false] {
            let mut client = Client::new();
            let mut other = client.other(8);
            client.ask(before);
            client.all(&[("WATCH k", "+OK")]);
            if by_other {
                client.ask_as(&mut other, act);
            } else {
                client.ask(act);
            }
            client.pass(ms);
            client.all(&[("MULTI", "+OK"), ("PING", "+QUEUED")]);
            let wanted = if void { "*-1" } else { "*1 +PONG" };
            assert_eq!(client.ask("EXEC"), wanted, "{before}, {act}");
            // No client watches any more, so nothing is recorded.
            assert_eq!(client.host.clients.attention(), 0);
            client.ask("SET k 1");
            assert!(client.engine.changes().is_empty());
        }
    }
}

#[test]
fn an_evicted_key_counts_as_changed() {
    let mut client = Client::new();
    let mut other = client.other(8);
    let value = "v".repeat(60_000);
    client.ask(&format!("SET k {value}"));
    client.all(&[("WATCH k", "+OK")]);
    for number in 0..3000 {
        client.ask_as(&mut other, &format!("SET fill{number} {value}"));
    }
    client.all(&[("EXISTS k", ":0"), ("MULTI", "+OK"), ("EXEC", "*-1")]);
}

#[test]
fn subscribers_hear_and_may_say_little_in_resp2() {
    let mut client = Client::new();
    let mut other = client.other(8);
    client.all(&[
        ("SUBSCRIBE a b", "*3 $9 subscribe $1 a :1 *3 $9 subscribe $1 b :2"),
        ("PSUBSCRIBE x*", "*3 $10 psubscribe $2 x* :3"),
        (
            "CLIENT ID",
            "-ERR Can't execute 'client|id': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
             this context",
        ),
        ("PING", "*2 $4 pong $0"),
        ("PING x", "*2 $4 pong $1 x"),
    ]);
    assert_eq!(client.ask_as(&mut other, "PUBLISH a 1"), ":1");
    assert_eq!(client.ask_as(&mut other, "PUBLISH xy 2"), ":1");
    assert_eq!(client.ask_as(&mut other, "PUBSUB CHANNELS"), "*2 $1 a $1 b");
    assert_eq!(client.ask_as(&mut other, "PUBSUB NUMSUB a c"), "*4 $1 a :1 $1 c :0");
    assert_eq!(client.ask_as(&mut other, "PUBSUB NUMPAT"), ":1");
    let info = client.ask_as(&mut other, "INFO stats");
    assert!(info.contains("pubsub_channels:2 pubsub_patterns:1 tracking_total_keys:0"), "{info}");
    let session = core::mem::take(&mut client.session);
    assert_eq!(client.pushed(&session), "*3 $7 message $1 a $1 1 *4 $8 pmessage $2 x* $2 xy $1 2");
    client.session = session;
    client.all(&[
        ("UNSUBSCRIBE", "*3 $11 unsubscribe $1 a :2 *3 $11 unsubscribe $1 b :1"),
        ("UNSUBSCRIBE", "*3 $11 unsubscribe $-1 :1"),
        ("PUNSUBSCRIBE x*", "*3 $12 punsubscribe $2 x* :0"),
        ("GET nosuch", "$-1"),
    ]);
}

#[test]
fn tracking_tells_of_changes_of_what_was_read() {
    let mut client = Client::new();
    let mut other = client.other(8);
    client.all(&[
        ("HELLO 3 SETNAME c", client_hello().as_str()),
        ("CLIENT TRACKING on", "+OK"),
        ("GET k", "_"),
    ]);
    client.ask_as(&mut other, "SET k 1");
    client.ask_as(&mut other, "SET k 2");
    client.ask_as(&mut other, "SET unread 2");
    let session = core::mem::take(&mut client.session);
    assert_eq!(client.pushed(&session), ">2 $10 invalidate *1 $1 k", "once, and only what was read");
    client.session = session;
    client.all(&[
        ("CLIENT TRACKING off", "+OK"),
        ("CLIENT TRACKING on OPTIN", "+OK"),
        ("GET a", "_"),
        ("CLIENT CACHING yes", "+OK"),
        ("GET k", "$1 2"),
        ("GET unread", "$1 2"),
        (
            "CLIENT CACHING no",
            "-ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
        ),
    ]);
    client.ask_as(&mut other, "MSET a 1 k 3 unread 3");
    let session = core::mem::take(&mut client.session);
    assert_eq!(client.pushed(&session), ">2 $10 invalidate *1 $1 k");
    client.session = session;
}

fn client_hello() -> String {
    "%7 $6 server $5 redis $7 version $6 7.0.15 $5 proto :3 $2 id :7 $4 mode $10 standalone $4 role $6 master $7 modules \
     *0"
        .to_owned()
}

#[test]
fn tracking_in_resp2_goes_to_another_connection() {
    let mut client = Client::new();
    let (mut told, mut writer) = (client.other(8), client.other(9));
    client.all(&[
        ("CLIENT TRACKING on REDIRECT 99", "-ERR The client ID you want redirect to does not exist"),
        ("CLIENT TRACKING on BCAST PREFIX user: PREFIX job: REDIRECT 8", "+OK"),
        ("CLIENT GETREDIR", ":8"),
        (
            "CLIENT TRACKINGINFO",
            "*6 $5 flags *2 $2 on $5 bcast $8 redirect :8 $8 prefixes *2 $4 job: $5 user:",
        ),
    ]);
    client.ask_as(&mut writer, "SET user:1 x");
    assert_eq!(client.pushed(&told), "", "it does not listen yet");
    client.ask_as(&mut told, "SUBSCRIBE __redis__:invalidate");
    client.ask_as(&mut writer, "MSET user:1 x other:1 x job:2 x");
    assert_eq!(
        client.pushed(&told),
        "*3 $7 message $20 __redis__:invalidate *1 $6 user:1 *3 $7 message $20 __redis__:invalidate *1 $5 job:2"
    );
    client.host.clients.leave(told.slot);
    client.ask_as(&mut writer, "DEL user:1");
    assert!(client.ask("CLIENT TRACKINGINFO").contains("$15 broken_redirect"));
}

#[test]
fn events_are_published_under_redis_names() {
    let mut client = Client::new();
    let listener = client.other(8);
    client.host.clients.subscribe(listener.slot, crate::clients::Kind::Pattern, b"__keyevent@0__:*").unwrap();
    client.all(&[("CONFIG SET notify-keyspace-events KEAnm", "+OK")]);
    for (request, events) in [
        ("SET a 1", "new a, set a"),
        ("SET a 1 EX 100", "set a, expire a"),
        ("SETEX b 100 x", "new b, set b, expire b"),
        ("SETNX a 2", ""),
        ("MSET d 1 a 2", "new d, set d, set a"),
        ("INCR d", "incrby d"),
        ("DECRBY d 2", "incrby d"),
        ("INCRBYFLOAT d 1", "incrbyfloat d"),
        ("APPEND d 9", "append d"),
        ("SETRANGE d 0 x", "setrange d"),
        ("EXPIRE d 100", "expire d"),
        ("PERSIST d", "persist d"),
        ("PERSIST d", ""),
        ("GETEX d EX 100", "expire d"),
        ("GETEX d PERSIST", "persist d"),
        ("EXPIRE d -1", "del d"),
        ("GETDEL a", "del a"),
        ("GET a", "keymiss a"),
        ("MGET a b", "keymiss a"),
        ("COPY b c", "new c, copy_to c"),
        ("RENAME b e", "new e, rename_to e, rename_from b"),
        ("FLUSHALL", ""),
        ("SET f 1 PX 10", "new f, set f, expire f"),
    ] {
        client.ask(request);
        assert_eq!(events_of(&mut client, &listener), events, "{request}");
    }
    client.pass(200);
    assert_eq!(events_of(&mut client, &listener), "expired f");
    client.all(&[("CONFIG SET notify-keyspace-events Kx", "+OK"), ("SET g 1", "+OK")]);
    assert_eq!(events_of(&mut client, &listener), "");
    client.all(&[("CONFIG SET notify-keyspace-events ''", "+OK")]);
    assert_eq!(client.host.clients.attention(), 0);
}

/// The events published since the last call: name and key.
fn events_of(client: &mut Client, listener: &Session) -> String {
    let pushed = client.pushed(listener);
    let words: Vec<&str> = pushed.split(' ').collect();
    let events = words.chunks(9).filter(|words| words.len() == 9).map(|words| {
        let event = words[6].rsplit(':').next().unwrap_or_default();
        format!("{event} {}", words[8])
    });
    events.collect::<Vec<_>>().join(", ")
}

#[test]
fn a_monitor_sees_everything_but_passwords() {
    let mut client = Client::new();
    let mut watcher = client.other(8);
    assert_eq!(client.ask_as(&mut watcher, "MONITOR"), "+OK");
    client.ask("SET k \"a\\\"b\\x00\\n\"");
    client.ask("AUTH default secret");
    client.ask("HELLO 2 AUTH default secret SETNAME me");
    client.ask("CONFIG GET port");
    client.ask("NOSUCH x");
    client.ask("MULTI");
    client.ask("GET k");
    client.ask("EXEC");
    let seen = client.pushed(&watcher);
    let lines: Vec<&str> =
        seen.split('+').skip(1).map(|line| line.split_once("] ").unwrap().1.trim_end()).collect();
    assert_eq!(
        lines,
        [
            r#""SET" "k" "a\"b\x00\n""#,
            r#""AUTH" "(redacted)" "(redacted)""#,
            r#""HELLO" "2" "AUTH" "(redacted)" "(redacted)" "SETNAME" "me""#,
            r#""MULTI""#,
            r#""GET" "k""#,
            r#""EXEC""#,
        ]
    );
    assert!(seen.starts_with("+1700000000.000000 [0 ?:0] "));
    assert_eq!(client.ask_as(&mut watcher, "RESET"), "+RESET");
    assert_eq!(client.host.clients.attention(), 0);
}

#[test]
fn replies_are_left_out_on_demand() {
    Client::new().all(&[
        ("CLIENT REPLY skip", ""),
        ("SET k 1", ""),
        ("GET k", "$1 1"),
        ("CLIENT REPLY off", ""),
        ("SET k 2", ""),
        ("NOSUCH", ""),
        ("CLIENT REPLY skip", ""),
        ("CLIENT REPLY on", "+OK"),
        ("GET k", "$1 2"),
        ("CLIENT REPLY maybe", "-ERR syntax error"),
        ("CLIENT REPLY skip", ""),
        ("CLIENT REPLY on", "+OK"),
        ("GET k", "$1 2"),
        ("CLIENT REPLY skip", ""),
        ("CLIENT REPLY skip", ""),
        ("GET k", ""),
        ("CLIENT REPLY skip", ""),
        ("CLIENT REPLY maybe", ""),
        ("GET k", "$1 2"),
        ("CLIENT REPLY skip", ""),
        ("RESET", ""),
        ("CLIENT REPLY off", ""),
        ("RESET", "+RESET"),
        ("CLIENT REPLY skip", ""),
        ("MULTI", ""),
        ("CLIENT REPLY on", "+QUEUED"),
        ("EXEC", "*1 +OK"),
        ("CLIENT REPLY skip", ""),
        ("SUBSCRIBE c", "*3 $9 subscribe $1 c :1"),
        ("UNSUBSCRIBE c", "*3 $11 unsubscribe $1 c :0"),
        ("CLIENT REPLY off", ""),
        ("PSUBSCRIBE p", "*3 $10 psubscribe $1 p :1"),
        ("PUNSUBSCRIBE", "*3 $12 punsubscribe $1 p :0"),
        ("GET k", ""),
    ]);
}

#[test]
fn a_pause_holds_requests_up_until_it_ends() {
    let mut client = Client::new();
    client.all(&[
        ("CLIENT PAUSE 1000 WRITE", "+OK"),
        ("GET k", "$-1"),
        ("SET k 1", "later"),
        ("PUBLISH c x", "later"),
        ("MULTI", "+OK"),
        ("SET k 1", "later"),
        ("GET k", "+QUEUED"),
        ("EXEC", "*1 $-1"),
        ("CLIENT PAUSE 10 ALL", "+OK"),
        ("PING", "later"),
        ("CLIENT UNPAUSE", "later"),
    ]);
    client.pass(999);
    client.all(&[("PING", "later")]);
    client.pass(1);
    client.all(&[
        ("SET k 1", "+OK"),
        ("CLIENT PAUSE 1000 WRITE", "+OK"),
        ("CLIENT UNPAUSE", "+OK"),
        ("SET k 2", "+OK"),
    ]);
    assert_eq!(client.host.clients.attention(), 0);
}

#[test]
fn clients_are_listed_and_killed() {
    let mut client = Client::new();
    let mut other = client.other(8);
    let third = client.other(9);
    client.ask_as(&mut other, "SUBSCRIBE c");
    client.all(&[("CLIENT SETNAME me", "+OK"), ("SELECT 2", "+OK"), ("MULTI", "+OK"), ("PING", "+QUEUED")]);
    let list = client.ask("CLIENT LIST");
    assert_eq!(list, "+QUEUED");
    let list = client.ask("EXEC");
    for part in [
        "id=7 addr=?:0",
        " name=me ",
        " db=2 ",
        " cmd=client|list ",
        "id=8 ",
        " flags=P ",
        " sub=1 ",
        "id=9 ",
    ] {
        assert!(list.contains(part), "{part} in {list}");
    }
    client.all(&[
        ("CLIENT KILL ID 99", ":0"),
        ("CLIENT KILL TYPE pubsub", ":1"),
        ("CLIENT KILL ID 7", ":0"),
        ("CLIENT KILL ID 9 TYPE pubsub", ":0"),
        ("CLIENT KILL ID 9 SKIPME no", ":1"),
        ("CLIENT KILL USER nosuch", "-ERR No such user 'nosuch'"),
        ("CLIENT KILL 1.2.3.4:5", "-ERR No such client"),
    ]);
    assert!(
        client.host.clients.output().is_killed(other.slot)
            && client.host.clients.output().is_killed(third.slot)
    );
    assert!(!client.session.closing);
    client.all(&[("CLIENT KILL ?:0", "+OK")]);
    assert!(client.session.closing);
}

#[test]
fn keys_are_found_copied_and_described() {
    let mut client = Client::new();
    client.all(&[
        ("RANDOMKEY", "$-1"),
        ("SET k 12 EX 100", "+OK"),
        ("RANDOMKEY", "$1 k"),
        ("KEYS *", "*1 $1 k"),
        ("KEYS x*", "*0"),
        ("COPY k k", "-ERR source and destination objects are the same"),
        ("COPY k l", ":1"),
        ("TTL l", ":100"),
        ("COPY k l", ":0"),
        ("COPY k k DB 3", ":1"),
        ("RENAME nosuch x", "-ERR no such key"),
        ("RENAMENX k l", ":0"),
        ("RENAME k l", "+OK"),
        ("EXISTS k", ":0"),
        ("RENAME l l", "+OK"),
        ("RENAMENX l l", ":0"),
        ("RENAMENX l m", ":1"),
        ("TTL m", ":100"),
        ("OBJECT ENCODING m", "$3 int"),
        ("OBJECT REFCOUNT m", ":1"),
        ("OBJECT IDLETIME m", ":0"),
        ("OBJECT FREQ nosuch", "$-1"),
        ("OBJECT ENCODING nosuch", "$-1"),
        ("WAIT 0 0", ":0"),
        ("WAIT 0 -1", "-ERR timeout is negative"),
    ]);
    assert!(client.ask("OBJECT FREQ m").starts_with("-ERR An LFU maxmemory policy is not selected"));
    for number in 0..2000 {
        client.ask(&format!("SET key:{number:0100} x"));
    }
    client.host.reply_bytes_max = 10_000;
    assert!(client.ask("KEYS *").starts_with("-ERR the reply is longer than the limit"));
}

#[test]
fn reads_that_leave_no_trace_leave_none() {
    let mut client = Client::new();
    client.all(&[("SET k v", "+OK"), ("CLIENT NO-TOUCH on", "+OK"), ("GET k", "$1 v")]);
    let hits = client.engine.stats().hits;
    client.all(&[("GET k", "$1 v"), ("CLIENT NO-TOUCH off", "+OK")]);
    assert_eq!(client.engine.stats().hits, hits);
    client.ask("GET k");
    assert_eq!(client.engine.stats().hits, hits + 1);
}

#[test]
fn every_container_tells_of_its_subcommands() {
    let mut client = Client::new();
    for spec in COMMANDS.iter().filter(|spec| spec.subcommands.iter().any(|sub| sub.name == "help")) {
        let help = client.ask(&format!("{} HELP", spec.name));
        for sub in spec.subcommands.iter().filter(|sub| sub.name != "setinfo") {
            assert!(help.contains(&format!("+{}", sub.name.to_uppercase())), "{} in {help}", sub.name);
        }
    }
}

#[test]
fn snapshots_are_not_for_transactions_and_need_a_place() {
    let mut client = Client::new();
    let nowhere = "-ERR no snapshot is configured: start the store with --snapshot (snapshot in its file)";
    client.all(&[
        ("SAVE", nowhere),
        ("BGSAVE", nowhere),
        ("BGSAVE NOW", "-ERR syntax error"),
        ("SHUTDOWN SAVE", nowhere),
        ("SHUTDOWN SAVE NOSAVE", "-ERR syntax error"),
        ("SHUTDOWN ABORT", "-ERR No shutdown in progress."),
        ("MULTI", "+OK"),
        ("SHUTDOWN", "-ERR Command not allowed inside a transaction"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
    ]);
}
