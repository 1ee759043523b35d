//! Server as clients see it: over sockets, well and badly behaved.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;

use common::{Client, request, start};
use tiermem_store::server::{ServeError, Server, ServerConfig};

const MIB: usize = 1 << 20;

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = start(|_| ());
    let mut client = server.client();
    let mut bytes = Vec::new();
    for number in 0..10_000 {
        let (key, value) = (format!("key{}", number % 100), format!("value{number}"));
        bytes.extend(request(&[b"SET", key.as_bytes(), value.as_bytes()]));
        bytes.extend(request(&[b"GET", key.as_bytes()]));
    }
    let mut writer = client.stream.get_ref().try_clone().unwrap();
    let sender = std::thread::spawn(move || writer.write_all(&bytes).unwrap());
    for number in 0..10_000 {
        let value = format!("value{number}");
        assert_eq!(client.reply(), b"+OK\r\n");
        assert_eq!(client.reply(), format!("${}\r\n{value}\r\n", value.len()).as_bytes());
    }
    sender.join().unwrap();
}

#[test]
fn a_request_may_arrive_byte_by_byte() {
    let server = start(|_| ());
    let mut client = server.client();
    for byte in [request(&[b"SET", b"a", b"hello"]), b"GET a\r\nECHO \"x y\"\r\n".to_vec()].concat() {
        client.send(&[byte]);
    }
    assert_eq!(client.reply(), b"+OK\r\n");
    assert_eq!(client.reply(), b"$5\r\nhello\r\n");
    assert_eq!(client.reply(), b"$3\r\nx y\r\n");
}

#[test]
fn large_values_come_back_whole() {
    let server = start(|_| ());
    let mut client = server.client();
    for len in [4095, 4096, 65_535, 65_536, 65_537, MIB, 16 * MIB] {
        let value: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        assert_eq!(client.ask(&[b"SET", b"k", &value]), b"+OK\r\n", "{len}");
        let reply = client.ask(&[b"GET", b"k"]);
        let header = format!("${len}\r\n");
        assert!(reply[header.len()..].starts_with(&value), "{len}");
        assert_eq!(reply.len(), header.len() + len + 2);
    }
    server.wait_for("buffers given back", |snapshot| {
        snapshot.server.request_buffer_bytes == 0 && snapshot.server.reply_buffer_bytes == 0
    });
}

#[test]
fn oversize_keys_and_values_are_refused_and_the_connection_goes_on() {
    let server = start(|_| ());
    let mut client = server.client();
    let key = vec![b'k'; 65_536];
    let reply = client.ask(&[b"SET", &key, b"v"]);
    assert!(reply.starts_with(b"-ERR the key is longer"), "{:?}", String::from_utf8_lossy(&reply));
    for extra in [1, 2000, 20 * MIB] {
        let value = vec![b'v'; 16 * MIB + extra];
        let reply = client.ask(&[b"SET", b"k", &value]);
        assert!(reply.starts_with(b"-ERR the "), "{:?}", String::from_utf8_lossy(&reply));
        assert_eq!(client.words("GET k"), "$-1\r\n");
    }
    // A request that is too large as a whole: none of it is kept, and the error comes at its end.
    let value = vec![b'v'; 8 * MIB];
    let reply = client.ask(&[b"MSET", b"a", &value, b"b", &value, b"c", &value, b"d", &value, b"e", &value]);
    assert!(reply.starts_with(b"-ERR the request is too large"));
    assert_eq!(client.words("EXISTS a b c d e"), ":0\r\n");
    assert_eq!(client.words("SETRANGE k 16777216 x"), client.words("SETRANGE k 16777217 x"));
}

#[test]
fn a_client_that_does_not_read_is_held_and_costs_little() {
    let server = start(|_| ());
    let mut other = server.client();
    let value = vec![b'v'; 10_000];
    assert_eq!(other.ask(&[b"SET", b"k", &value]), b"+OK\r\n");
    let mut slow = server.client();
    let gets = request(&[b"GET", b"k"]).repeat(20_000);
    let mut writer = slow.stream.get_ref().try_clone().unwrap();
    let sender = std::thread::spawn(move || writer.write_all(&gets));
    server.wait_for("a blocked client", |snapshot| snapshot.server.clients_blocked_on_output == 1);
    assert_eq!(other.words("PING"), "+PONG\r\n");
    let held = server.snapshots.borrow().server.reply_buffer_bytes;
    assert!(held < 2 * MIB as u64, "{held} bytes held for one client");
    // Once it reads, everything is there.
    for _ in 0..20_000 {
        assert_eq!(slow.reply().len(), value.len() + 10);
    }
    sender.join().unwrap().unwrap();
    server.wait_for("the client going on", |snapshot| {
        snapshot.server.clients_blocked_on_output == 0 && snapshot.server.reply_buffer_bytes == 0
    });
}

#[test]
fn a_client_that_leaves_amid_replies_leaves_nothing_behind() {
    let server = start(|_| ());
    let mut other = server.client();
    assert_eq!(other.ask(&[b"SET", b"k", &vec![b'v'; 10 * MIB]]), b"+OK\r\n");
    for _ in 0..5 {
        let mut client = server.client();
        client.send(&request(&[b"GET", b"k"]).repeat(10));
        let mut some = [0; 1000];
        client.stream.read_exact(&mut some).unwrap();
    }
    server.wait_for("all given back", |snapshot| {
        snapshot.server.clients_connected == 1
            && snapshot.server.reply_buffer_bytes == 0
            && snapshot.engine.pinned_bytes == 0
    });
}

#[test]
fn thousands_of_idle_clients_disturb_nobody() {
    let server = start(|_| ());
    let mut idle: Vec<_> = (0..2000).map(|_| server.client()).collect();
    let mut busy = server.client();
    for client in &mut idle {
        assert_eq!(client.words("PING"), "+PONG\r\n");
    }
    assert_eq!(busy.words("SET a b"), "+OK\r\n");
    server.wait_for("2001 clients without buffers", |snapshot| {
        let stats = &snapshot.server;
        stats.clients_connected == 2001 && stats.request_buffer_bytes + stats.reply_buffer_bytes == 0
    });
    drop(idle);
    server.wait_for("one client", |snapshot| snapshot.server.clients_connected == 1);
}

#[test]
fn one_client_too_many_is_told_so() {
    let server = start(|config| config.settings.maxclients = 2);
    let (mut first, mut second) = (server.client(), server.client());
    assert_eq!((first.words("PING"), second.words("PING")), ("+PONG\r\n".into(), "+PONG\r\n".into()));
    let mut third = server.client();
    assert_eq!(third.reply(), b"-ERR max number of clients reached\r\n");
    assert!(third.is_closed());
    // Else what is waited for then might be from before the second came.
    server.wait_for("two clients", |snapshot| snapshot.server.clients_connected == 2);
    drop(first);
    server.wait_for("room", |snapshot| snapshot.server.clients_connected == 1);
    assert_eq!(server.client().words("PING"), "+PONG\r\n");
}

#[test]
fn a_broken_request_ends_its_own_connection_only() {
    let server = start(|_| ());
    let (mut broken, mut other) = (server.client(), server.client());
    broken.send(b"PING\r\n*1\r\n$abc\r\n");
    assert_eq!(broken.reply(), b"+PONG\r\n");
    assert_eq!(broken.reply(), b"-ERR Protocol error: invalid bulk length\r\n");
    assert!(broken.is_closed());
    assert_eq!(other.words("PING"), "+PONG\r\n");
}

#[test]
fn without_the_password_nothing_is_done() {
    let server = start(|config| config.settings.users.set_requirepass(Some("secret")));
    let mut client = server.client();
    let noauth = "-NOAUTH Authentication required.\r\n";
    assert_eq!(client.words("GET a"), noauth);
    assert_eq!(client.words("PING"), noauth);
    for wrong in ["AUTH wrong", "AUTH secre", "AUTH secretsecret", "AUTH other secret"] {
        assert!(client.words(wrong).starts_with("-WRONGPASS"), "{wrong}");
    }
    assert!(client.words("HELLO 3").starts_with("-NOAUTH HELLO"));
    assert_eq!(client.words("AUTH secret"), "+OK\r\n");
    assert_eq!(client.words("PING"), "+PONG\r\n");
    assert_eq!(client.words("RESET"), "+RESET\r\n");
    assert_eq!(client.words("PING"), noauth);
    assert!(client.words("HELLO 3 AUTH default secret SETNAME me").starts_with("%7\r\n"));
    assert_eq!(client.words("CLIENT GETNAME"), "$2\r\nme\r\n");
    assert_eq!(client.words("GET nosuch"), "_\r\n");
    let mut greedy = server.client();
    greedy.send(b"*100\r\n");
    assert_eq!(greedy.reply(), b"-ERR Protocol error: unauthenticated multibulk length\r\n");
}

#[test]
fn large_requests_that_do_not_fit_together_all_come_in() {
    let server = start(|config| {
        config.settings.request_buffer_bytes = 2 * MIB;
        // A client that gets no processor time on a busy machine must not be taken for one that stalls.
        config.settings.stall_timeout_ms = 600_000;
    });
    let value = vec![b'v'; MIB];
    let bytes = request(&[b"SET", b"k", &value]);
    let (most, last) = bytes.split_at(bytes.len() - 10);
    // Twelve clients hold parts of a request; they want six times what there is.
    let mut clients: Vec<_> = (0..12).map(|_| server.client()).collect();
    std::thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(|| {
                client.send(most);
                client.send(last);
                assert_eq!(client.reply(), b"+OK\r\n");
            });
        }
    });
    server.wait_for("nothing held", |snapshot| snapshot.server.request_buffer_bytes == 0);
}

#[test]
fn a_holder_that_stalls_makes_way_for_others() {
    let server = start(|config| {
        config.settings.request_buffer_bytes = MIB;
        config.settings.stall_timeout_ms = 300;
    });
    let bytes = request(&[b"SET", b"k", &vec![b'v'; MIB]]);
    // The second wants more than the first leaves, and has the privilege to exceed the limit. No client waits yet.
    let mut stalled = [server.client(), server.client()];
    for (client, sent, held) in [(0, MIB / 10, MIB / 10), (1, bytes.len() - 10, MIB)] {
        stalled[client].send(&bytes[..sent]);
        server.wait_for("it is held", |snapshot| snapshot.server.request_buffer_bytes >= held as u64);
    }
    // It waits for both, and no client waits for it: however slowly it sends, it is not taken for one that stalls.
    let mut honest = server.client();
    honest.send(&bytes);
    assert_eq!(honest.reply(), b"+OK\r\n");
    // The limit, one request, and the read that crossed the limit.
    let held = server.snapshots.borrow().server.request_buffer_bytes;
    assert!(held <= (2 * MIB + 128 * 1024) as u64, "{held}");
}

#[test]
fn a_silent_client_is_dropped_if_that_is_configured() {
    let server = start(|_| ());
    let (mut waiting, mut client) = (server.client(), server.client());
    assert_eq!(waiting.words("PING"), "+PONG\r\n");
    // Not from the start: on a busy machine this thread's first request might come late enough to count as silence.
    assert_eq!(client.words("CONFIG SET timeout 1"), "+OK\r\n");
    assert!(client.is_closed());
    // A client that was already waiting when the setting changed must be dropped as well.
    assert!(waiting.is_closed());
    let mut unread = server.client();
    let requests =
        [request(&[b"SET", b"k", &vec![b'v'; 10 * MIB]]), request(&[b"GET", b"k"]).repeat(3)].concat();
    // On a busy machine it may be dropped before it has sent all, or anything.
    let _ = unread.stream.get_mut().write_all(&requests);
    server.wait_for("dropped clients", |snapshot| snapshot.server.clients_dropped == 3);
    server.wait_for("no replies held", |snapshot| snapshot.server.reply_buffer_bytes == 0);
}

#[test]
fn quit_answers_and_closes() {
    let server = start(|_| ());
    let mut client = server.client();
    client.send(b"SET a 1\r\nQUIT\r\nSET a 2\r\n");
    assert_eq!((client.reply(), client.reply()), (b"+OK\r\n".to_vec(), b"+OK\r\n".to_vec()));
    assert!(client.is_closed());
    assert_eq!(server.client().words("GET a"), "$1\r\n1\r\n");
    // A client that is done sending still gets its replies.
    let mut client = server.client();
    client.send(b"GET a\r\n");
    client.stream.get_ref().shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.reply(), b"$1\r\n1\r\n");
}

#[test]
fn a_unix_socket_serves_as_well() {
    let path = std::env::temp_dir().join(format!("tiermem-unix-{}", std::process::id()));
    let server = start(|config| config.unix_socket = Some(path.clone()));
    let mut client = Client { stream: std::io::BufReader::new(UnixStream::connect(&path).unwrap()) };
    assert_eq!(client.ask(&[b"SET", b"a", b"b"]), b"+OK\r\n");
    let again = ServerConfig { listen: None, unix_socket: Some(path.clone()), ..ServerConfig::default() };
    assert!(matches!(Server::bind(again, common::engine()), Err(ServeError::UnixSocketInUse(_))));
    drop(server);
    assert!(!path.exists(), "the socket is removed");
}

#[test]
fn a_port_in_use_is_told() {
    let server = start(|_| ());
    let config = ServerConfig { listen: Some(server.address), ..ServerConfig::default() };
    let error = Server::bind(config, common::engine()).unwrap_err();
    assert!(error.to_string().contains("is in use: stop what listens there"), "{error}");
    let nothing = ServerConfig { listen: None, ..ServerConfig::default() };
    assert!(matches!(Server::bind(nothing, common::engine()), Err(ServeError::NothingToListenOn)));
}

#[test]
fn figures_are_published() {
    let server = start(|_| ());
    let mut client = server.client();
    for _ in 0..100 {
        client.words("PING");
    }
    server.wait_for("a hundred requests", |snapshot| {
        snapshot.latency.requests == 100 && snapshot.server.commands_processed == 100
    });
    let snapshot = server.snapshots.borrow().clone();
    assert!(snapshot.latency.p50_ns > 0 && snapshot.latency.p50_ns <= snapshot.latency.max_ns);
    assert_eq!(snapshot.latency.buckets.last().map(|bucket| bucket.1), Some(100));
    assert_eq!(snapshot.server.net_output_bytes, 700);
    let info = client.words("INFO");
    for field in ["redis_version:7.0.15", "connected_clients:1", "total_commands_processed:101", "# Keyspace"]
    {
        assert!(info.contains(field), "{field} in {info}");
    }
    drop(TcpStream::connect(server.address));
}
