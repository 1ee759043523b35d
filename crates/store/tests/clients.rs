//! Tests of effects between clients, over sockets: messages, pauses, kills, and clients that do not read.

mod common;

use std::time::Duration;

use common::{Client, request, start};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

#[test]
fn messages_come_between_replies_and_while_nothing_is_asked() {
    let server = start(|_| ());
    let (mut reader, mut writer) = (server.client(), server.client());
    reader.words("HELLO 3");
    assert_eq!(reader.words("SUBSCRIBE c"), format!(">3\r\n{}{}:1\r\n", bulk("subscribe"), bulk("c")));
    for number in 0..100 {
        let text = number.to_string();
        assert_eq!(writer.words(&format!("PUBLISH c {text}")), ":1\r\n");
        let message = format!(">3\r\n{}{}{}", bulk("message"), bulk("c"), bulk(&text));
        assert_eq!(String::from_utf8_lossy(&reader.reply()), message);
        assert_eq!(reader.words("PING"), "+PONG\r\n");
    }
    // Its own message comes behind the reply.
    assert_eq!(reader.words("PUBLISH c own"), ":1\r\n");
    assert!(String::from_utf8_lossy(&reader.reply()).ends_with("own\r\n"));
}

#[test]
fn subscribers_and_monitors_that_do_not_read_are_dropped() {
    let server = start(|_| ());
    let mut writer = server.client();
    let (mut deaf, mut deaf_monitor, mut good) = (server.client(), server.client(), server.client());
    deaf.words("SUBSCRIBE c");
    assert_eq!(deaf_monitor.words("MONITOR"), "+OK\r\n");
    good.words("SUBSCRIBE c");
    let value = vec![b'x'; MIB];
    let (tell, told) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut messages = 0;
        while !good.reply().ends_with(b"end\r\n") {
            messages += 1;
            tell.send(()).unwrap();
        }
        messages
    });
    for number in 0..100 {
        writer.ask(&[b"PUBLISH", b"c", &value]);
        // On a busy machine the reading client would fall as far behind as the others. With only a few
        // messages waiting it is kept: those with more are dropped for the bound over all clients.
        if number >= 8 {
            told.recv().unwrap();
        }
    }
    server.wait_for("both are dropped", |snapshot| snapshot.server.clients_connected == 2);
    // The one that reads is still there, and nothing is held for the others.
    assert_eq!(writer.words("PUBLISH c end"), ":1\r\n");
    assert_eq!(reader.join().unwrap(), 100);
    server.wait_for("nothing is held", |snapshot| snapshot.server.reply_buffer_bytes == 0);
}

#[test]
fn paused_requests_wait_and_are_answered_in_order() {
    let server = start(|_| ());
    let (mut client, mut other) = (server.client(), server.client());
    assert_eq!(client.words("CLIENT PAUSE 60000 WRITE"), "+OK\r\n");
    other.send(b"SET a 1\r\nGET a\r\nINCR a\r\n");
    assert_eq!(client.words("GET a"), "$-1\r\n");
    // What is behind a request that waits, waits as well.
    other.stream.get_ref().set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(std::io::Read::read(&mut other.stream, &mut [0; 10]).is_err());
    other.stream.get_ref().set_read_timeout(Some(common::PATIENCE)).unwrap();
    assert_eq!(client.words("CLIENT UNPAUSE"), "+OK\r\n");
    assert_eq!(other.reply(), b"+OK\r\n");
    assert_eq!(other.reply(), b"$1\r\n1\r\n");
    assert_eq!(other.reply(), b":2\r\n");
    // A pause ends by itself, too.
    assert_eq!(client.words("CLIENT PAUSE 50"), "+OK\r\n");
    assert_eq!(other.words("GET a"), "$1\r\n2\r\n");
}

#[test]
fn a_killed_client_is_gone() {
    let server = start(|_| ());
    let (mut client, mut other) = (server.client(), server.client());
    let id = other.words("CLIENT ID");
    let id = id.trim().trim_start_matches(':');
    assert_eq!(client.words(&format!("CLIENT KILL ID {id}")), ":1\r\n");
    assert!(other.is_closed());
    let mut other = server.client();
    let address = other.stream.get_ref().local_addr().unwrap();
    other.words("PING");
    assert_eq!(client.words(&format!("CLIENT KILL ADDR {address}")), ":1\r\n");
    assert!(other.is_closed());
    let own = client.stream.get_ref().local_addr().unwrap();
    assert_eq!(client.words(&format!("CLIENT KILL {own}")), "+OK\r\n");
    assert!(client.is_closed());
}

#[test]
fn transactions_that_never_end_are_bounded_together() {
    let server = start(|config| config.settings.request_buffer_bytes = 4 * MIB);
    let value = vec![b'v'; 100 * KIB];
    let mut refused = 0;
    let mut clients: Vec<Client> = (0..20).map(|_| server.client()).collect();
    for client in &mut clients {
        assert_eq!(client.words("MULTI"), "+OK\r\n");
        for _ in 0..10 {
            let reply = client.ask(&[b"SET", b"k", &value]);
            refused += usize::from(reply.starts_with(b"-ERR the transaction does not fit"));
        }
    }
    assert!(refused > 10, "{refused}");
    server.wait_for("what is queued is counted", |snapshot| {
        (2 * MIB as u64..5 * MIB as u64).contains(&snapshot.server.request_buffer_bytes)
    });
    // The others' requests come through all the same.
    let mut other = server.client();
    assert_eq!(other.ask(&[b"SET", b"other", &value]), b"+OK\r\n");
    assert_eq!(clients[0].ask(&[b"DISCARD"]), b"+OK\r\n");
    assert!(clients[19].ask(&[b"EXEC"]).starts_with(b"-EXECABORT"));
    drop(clients);
    server.wait_for("all is given back", |snapshot| snapshot.server.request_buffer_bytes == 0);
}

#[test]
fn a_transaction_that_stands_still_makes_way_for_requests_that_wait() {
    let server = start(|config| {
        config.settings.request_buffer_bytes = MIB;
        config.settings.stall_timeout_ms = 300;
    });
    let value = vec![b'v'; 100 * KIB];
    let mut idle: Vec<Client> = (0..9).map(|_| server.client()).collect();
    for client in &mut idle {
        client.words("MULTI");
        assert_eq!(client.ask(&[b"SET", b"k", &value]), b"+QUEUED\r\n");
    }
    // Two large requests at once: one has the privilege to exceed the limit, the other waits until a queue is dropped.
    let large = request(&[b"SET", b"large", &vec![b'v'; MIB]]);
    let (mut first, mut second) = (server.client(), server.client());
    first.send(&large[..large.len() - 10]);
    server.wait_for("the first holds its part", |snapshot| snapshot.server.request_buffer_bytes > MIB as u64);
    let mut writer = second.stream.get_ref().try_clone().unwrap();
    let bytes = large.clone();
    let sender = std::thread::spawn(move || std::io::Write::write_all(&mut writer, &bytes).unwrap());
    assert_eq!(second.reply(), b"+OK\r\n");
    sender.join().unwrap();
    assert!(idle.iter_mut().any(Client::is_closed) || first.is_closed());
}

#[test]
fn slow_requests_are_logged_and_passwords_are_not() {
    // On a busy machine any request may take longer than the default.
    let server = start(|config| config.settings.slowlog_slower_than_us = 3_600_000_000);
    let mut client = server.client();
    client.words("SET k v");
    assert_eq!(client.words("SLOWLOG LEN"), ":0\r\n");
    client.words("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 3");
    client.words("SLOWLOG RESET");
    client.words("CLIENT SETNAME me");
    client.words("AUTH default secret");
    client.send(b"SET a 1\r\nGET a\r\n");
    assert_eq!((client.reply(), client.reply()), (b"+OK\r\n".to_vec(), b"$1\r\n1\r\n".to_vec()));
    let log = client.words("SLOWLOG GET");
    assert!(log.starts_with("*3\r\n"), "{log}");
    let places = ["GET", "SET", "AUTH"].map(|name| log.find(&format!("\r\n{name}\r\n")).expect(name));
    assert!(places.is_sorted(), "the newest first: {log}");
    assert!(log.contains("(redacted)") && !log.contains("secret") && log.contains("\r\nme\r\n"));
    client.words("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 1");
    client.ask(&[b"SET", b"k", &[b'x'; 200]]);
    assert!(client.words("SLOWLOG GET").contains("xxx... (72 more bytes)"));
    let many: Vec<&[u8]> = core::iter::once(&b"DEL"[..]).chain([&b"k"[..]; 40]).collect();
    client.ask(&many);
    assert!(client.words("SLOWLOG GET").contains("... (10 more arguments)"));
    client.words("CONFIG SET slowlog-log-slower-than -1 latency-tracking yes");
    client.words("GET k");
    assert!(
        client.words("LATENCY HISTOGRAM get").starts_with("*2\r\n$3\r\nget\r\n*4\r\n$5\r\ncalls\r\n:1\r\n")
    );
}

#[test]
fn a_long_request_is_seen_in_the_latencies() {
    let server = start(|_| ());
    let mut client = server.client();
    client.words("CONFIG SET latency-monitor-threshold 1 slowlog-log-slower-than 1000");
    let mut pairs: Vec<Vec<u8>> = vec![b"MSET".to_vec()];
    for number in 0..100_000 {
        pairs.push(format!("key:{number}").into_bytes());
        pairs.push(vec![b'v'; 10]);
    }
    let pairs: Vec<&[u8]> = pairs.iter().map(Vec::as_slice).collect();
    assert_eq!(client.ask(&pairs), b"+OK\r\n");
    client.ask(&[b"KEYS", b"*"]);
    let log = client.words("SLOWLOG GET");
    assert!(log.contains("MSET") && log.contains("KEYS"), "{log}");
    let latest = client.words("LATENCY LATEST");
    // On a busy machine other things take long as well.
    assert!(latest.contains("\r\n*4\r\n$7\r\ncommand\r\n:"), "{latest}");
    assert!(client.words("LATENCY HISTORY command").starts_with('*'));
    assert!(client.words("LATENCY DOCTOR").contains("command:"));
    // What was noted stays; that resetting it took long itself on a busy machine is not noted.
    assert_eq!(client.words("CONFIG SET latency-monitor-threshold 3600000"), "+OK\r\n");
    assert_eq!(client.words("LATENCY RESET command"), ":1\r\n");
    assert!(!client.words("LATENCY LATEST").contains("command"));
}
