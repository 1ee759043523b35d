//! Clients that die, stall, break the protocol or are too many, and a server that ends.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tiermem_block::disks::{Gate, SlowDisks, Trouble};
use tiermem_block::nbd::wire::CommandFlags;
use tiermem_block::nbd::{Address, Command, Errno, Request};
use tiermem_block::server::ServerConfig;

use super::client::{Client, Draws, connect};
use super::house::{House, memory};

fn read_request(cookie: u64, offset: u64, len_bytes: u32) -> Vec<u8> {
    let flags = CommandFlags::none();
    Request { cookie, command: Command::Read, flags, offset, len_bytes }.encode().to_vec()
}

fn write_request(cookie: u64, offset: u64, data: &[u8], len_bytes: u32) -> Vec<u8> {
    let flags = CommandFlags::none();
    let head = Request { cookie, command: Command::Write, flags, offset, len_bytes }.encode();
    [&head, data].concat()
}

/// A server with a disk `a` that answers when the gate opens.
fn gated(config: ServerConfig) -> (House, Gate) {
    let (tell, told) = std::sync::mpsc::channel();
    let house = House::of(config, move || {
        let gated = HashSet::from([0]);
        let disks = SlowDisks::new(memory(), Trouble { gated, ..Trouble::default() });
        tell.send(disks.gate()).unwrap();
        disks
    });
    (house, told.recv().unwrap())
}

/// Waits until this number of requests for disk `a` were submitted.
fn taken(house: &House, requests: u64) {
    house.until(|stats| stats.exports().first().is_some_and(|export| export.requests_total() == requests));
}

#[test]
fn clients_that_die_at_any_byte_leave_nothing() {
    let house = House::plain();
    let mut witness = Client::new(&house.unix, "a");
    witness.write(0, &[5; 4096]);
    let request = [write_request(1, 100_000, &[9; 9000], 9000), read_request(2, 0, 4096)].concat();
    for cut in (0..request.len()).step_by(97).chain([27, 28, 29]) {
        let mut client = Client::simple(if cut % 2 == 0 { &house.unix } else { &house.tcp }, "a");
        client.wire.write_all(&request[..cut]).unwrap();
        drop(client);
    }
    assert_eq!(witness.read(0, 4096), [5; 4096]);
    house.until(|stats| stats.open() == 1);
    assert_eq!(house.stats.connections().len(), 1);
}

#[test]
fn clients_that_die_with_much_under_way_hurt_nobody() {
    let (house, gate) = gated(ServerConfig::default());
    let mut witness = Client::new(&house.unix, "b");
    for n in 0..10 {
        let mut dying = Client::simple(&house.unix, "a");
        for offset in 0..32 {
            dying.send(Command::Write, CommandFlags::none(), offset * 4096, &[n; 4096], 4096);
            dying.send(Command::Read, CommandFlags::none(), offset * 4096, &[], 4096);
        }
        house.until(|stats| stats.connections().iter().any(|c| c.traffic.totals().requests_total() == 64));
        drop(dying);
        witness.write(0, &[n; 100]);
        assert_eq!(witness.read(0, 100), [n; 100]);
    }
    gate.open();
    // Their jobs end one by one, and other clients continue with the same disk.
    let mut after = Client::new(&house.unix, "a");
    assert_eq!(after.read(0, 4096), [9; 4096]);
}

#[test]
fn nonsense_ends_who_talks_it() {
    let house = House::plain();
    let mut witness = Client::new(&house.tcp, "a");
    let mut draws = Draws(7);
    for round in 0..60 {
        let noise: Vec<u8> = (0..draws.below(3000)).map(|_| draws.below(256) as u8).collect();
        if round % 2 == 0 {
            let mut raw = connect(&house.unix);
            // It may hang up before it has read all.
            let _ = raw.write_all(&noise);
        } else {
            let mut client = Client::simple(&house.tcp, "a");
            let _ = client.wire.write_all(&noise);
        }
        assert_eq!(witness.read(0, 16), [0; 16]);
    }
    let mut client = Client::simple(&house.unix, "a");
    let good = read_request(1, 0, 4);
    client.wire.write_all(&[&good[..], &[0; 28]].concat()).unwrap();
    let mut all = Vec::new();
    client.wire.read_to_end(&mut all).unwrap();
    assert_eq!(all.len(), 16 + 4, "what was asked before the nonsense is answered");
    house.until(|stats| stats.open() == 1);
}

#[test]
fn what_cannot_be_done_is_refused_and_the_connection_goes_on() {
    let house = House::plain();
    let mut client = Client::simple(&house.unix, "look");
    let far = u64::MAX - 100;
    for (bytes, errno) in [
        (write_request(5, 0, &[1; 5000], 5000), Errno::Perm),
        (read_request(5, far, 4096), Errno::Inval),
        (read_request(5, 0, 0), Errno::Inval),
        (read_request(5, 0, u32::MAX), Errno::Inval),
        (write_request(5, 0, &vec![1; 32 << 20], 32 << 20), Errno::Perm),
    ] {
        client.wire.write_all(&bytes).unwrap();
        let mut reply = [0; 16];
        client.wire.read_exact(&mut reply).unwrap();
        assert_eq!(reply[4..8], errno.to_wire().to_be_bytes());
    }
    assert_eq!(client.read(0, 3), [0; 3]);
    // The server does not wait for 4 GiB that are not wanted, nor does it answer before they came.
    client.wire.write_all(&write_request(5, 0, &[], u32::MAX)).unwrap();
    let mut rest = Vec::new();
    client.wire.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
}

#[test]
fn a_cookie_may_be_used_twice_at_once() {
    let (house, gate) = gated(ServerConfig::default());
    let mut client = Client::simple(&house.unix, "a");
    client.wire.write_all(&[read_request(7, 0, 8), read_request(7, 4096, 8)].concat()).unwrap();
    taken(&house, 2);
    gate.open();
    let mut replies = [0; 2 * 24];
    client.wire.read_exact(&mut replies).unwrap();
    assert!(replies.chunks(24).all(|reply| reply[8..16] == 7u64.to_be_bytes()));
}

#[test]
fn who_does_not_read_stalls_alone() {
    let config = ServerConfig { bytes_max: 1 << 20, ..ServerConfig::default() };
    let house = House::of(config, memory);
    let Address::Unix(path) = &house.unix else { panic!("it is a unix socket") };
    let mut stalled = Client::simple(&house.unix, "a");
    // More than the socket and the bound take together: some of it must stay unread.
    let sent = 4096;
    let requests: Vec<u8> = (0..sent).flat_map(|n| read_request(n, 0, 64 << 10)).collect();
    stalled.wire.write_all(&requests).unwrap();
    let mut witness = Client::new(&house.unix, "a");
    for n in 0..200u64 {
        witness.write(n * 512, &[n as u8; 512]);
        assert_eq!(witness.read(n * 512, 512), [n as u8; 512]);
    }
    let taken = house.stats.connections()[0].traffic.totals().requests_total();
    assert!(taken < sent / 2, "{taken} requests were taken in");
    // It may read on, and gets everything.
    let mut rest = vec![0; sent as usize * (16 + (64 << 10))];
    stalled.wire.read_exact(&mut rest).unwrap();
    assert!(UnixStream::connect(path).is_ok());
}

#[test]
fn a_disk_that_hangs_stops_its_own_clients_only() {
    let config = ServerConfig { jobs_max: 4, ..ServerConfig::default() };
    let (house, gate) = gated(config);
    let mut hanging = Client::simple(&house.unix, "a");
    for n in 0..20 {
        hanging.send(Command::Read, CommandFlags::none(), n * 100, &[], 100);
    }
    let mut witness = Client::new(&house.unix, "b");
    witness.write(0, b"words");
    taken(&house, 4);
    assert_eq!(witness.read(0, 5), b"words");
    assert_eq!(house.stats.exports()[0].requests_total(), 4, "no more is taken in");
    gate.open();
    while hanging.under_way() > 0 {
        assert_eq!(hanging.receive().unwrap().1.error, None);
    }
}

#[test]
fn a_client_that_dies_while_its_disk_hangs_is_noticed() {
    let config =
        ServerConfig { jobs_max: 4, stall_timeout: Duration::from_millis(50), ..ServerConfig::default() };
    let (house, gate) = gated(config);
    let mut dying = Client::simple(&house.unix, "a");
    for n in 0..20 {
        dying.send(Command::Read, CommandFlags::none(), n * 100, &[], 100);
    }
    taken(&house, 4);
    drop(dying);
    house.until(|stats| stats.open() == 0);
    gate.open();
    assert_eq!(Client::simple(&house.unix, "a").read(0, 100), [0; 100]);
}

#[test]
fn who_keeps_large_buffers_in_use_gives_way_to_those_who_wait() {
    const HALF: usize = 4 << 20;
    let config = ServerConfig {
        buffers_bytes_max: 64 << 20,
        stall_timeout: Duration::from_millis(50),
        ..ServerConfig::default()
    };
    let house = House::of(config, memory);
    // Clients that send half a write and stop there, and clients that do not read their replies, keep all of it in use.
    let mut stalled: Vec<Client> = (0..10).map(|_| Client::simple(&house.unix, "a")).collect();
    for (client, at) in stalled.iter_mut().zip(0..) {
        let request = match at {
            0..5 => write_request(1, 0, &vec![1; HALF], 2 * HALF as u32),
            _ => read_request(1, 0, 2 * HALF as u32),
        };
        client.wire.write_all(&request).unwrap();
    }
    house.until(|stats| stats.exports().first().is_some_and(|export| export.requests_total() == 10));
    // Small requests get on all the time, large ones as soon as those have gone.
    let mut witness = Client::new(&house.tcp, "b");
    for n in 0..20u64 {
        witness.write(n * 4096, &[7; 4096]);
    }
    witness.write(0, &vec![9; 2 * HALF]);
    assert_eq!(witness.read(0, 2 * HALF as u32), vec![9; 2 * HALF]);
    let mut after = Client::new(&house.unix, "a");
    assert_eq!(after.read(0, 4096), [0; 4096], "a write that was never whole has done nothing");
}

#[test]
fn a_thousand_connections_are_served_and_more_are_closed() {
    let config = ServerConfig { connections_max: 1000, ..ServerConfig::default() };
    let house = House::of(config, memory);
    let mut clients: Vec<Client> =
        (0..1000).map(|n| Client::simple(if n % 2 == 0 { &house.unix } else { &house.tcp }, "a")).collect();
    assert_eq!(connect(&house.unix).read(&mut [0; 18]).unwrap(), 0, "it is closed without a greeting");
    assert_eq!((house.stats.open(), house.stats.refused()), (1000, 1));
    for (client, n) in clients.iter_mut().zip(0u64..) {
        client.send(Command::Write, CommandFlags::none(), n * 512, &[n as u8; 512], 512);
    }
    for client in &mut clients {
        assert_eq!(client.receive().unwrap().1.error, None);
    }
    for (client, n) in clients.iter_mut().zip(0u64..) {
        assert_eq!(client.read(n * 512, 512), [n as u8; 512]);
    }
    drop(clients);
    house.until(|stats| stats.open() == 0);
    Client::simple(&house.unix, "a").write(0, b"x");
}

#[test]
fn who_negotiates_without_end_is_let_go() {
    let config = ServerConfig {
        options_max: 10,
        handshake_timeout: Duration::from_millis(50),
        ..ServerConfig::default()
    };
    let house = House::of(config, memory);
    let mut mute = connect(&house.unix);
    let mut all = Vec::new();
    mute.read_to_end(&mut all).unwrap();
    assert_eq!(all.len(), 18, "a greeting, and nothing more");
    let mut chatty = connect(&house.tcp);
    let list = b"IHAVEOPT\0\0\0\x03\0\0\0\0";
    let _ = chatty.write_all(&[&b"\0\0\0\x03"[..], &list.repeat(50)].concat());
    all.clear();
    // It is closed while some of what was sent is unread, which the system may call a reset.
    let _ = chatty.read_to_end(&mut all);
    let acks = all.windows(8).filter(|window| *window == b"\0\0\0\x03\0\0\0\x01").count();
    assert!(acks <= 11, "{acks}");
    house.until(|stats| stats.open() == 0);
}

#[test]
fn goodbye_waits_for_what_is_under_way() {
    let (house, gate) = gated(ServerConfig::default());
    let mut client = Client::new(&house.tcp, "a");
    for n in 0..10 {
        client.send(Command::Write, CommandFlags::none(), n * 4096, &[3; 4096], 4096);
    }
    client.disconnect();
    taken(&house, 11);
    gate.open();
    while client.under_way() > 0 {
        assert_eq!(client.receive().unwrap().1.error, None);
    }
    assert!(client.receive().is_err());
}

#[test]
fn a_server_that_ends_finishes_what_it_has() {
    // Longer than this thread may take to open the gate on a busy machine.
    let (mut house, gate) = gated(ServerConfig { grace: Duration::from_secs(120), ..Default::default() });
    let (unix, Address::Unix(path)) = (house.unix.clone(), house.unix.clone()) else { panic!("unix") };
    let mut client = Client::new(&unix, "a");
    let negotiating = connect(&house.tcp);
    for n in 0..10 {
        client.send(Command::Write, CommandFlags::none(), n * 4096, &[3; 4096], 4096);
    }
    taken(&house, 10);
    house.stop();
    while path.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    gate.open();
    while client.under_way() > 0 {
        assert_eq!(client.receive().unwrap().1.error, None);
    }
    assert!(client.receive().is_err());
    house.join();
    assert_eq!(house.stats.open(), 0);
    drop(negotiating);
}

#[test]
fn a_server_that_ends_does_not_wait_forever() {
    let (mut house, gate) = gated(ServerConfig { grace: Duration::from_millis(20), ..Default::default() });
    let mut client = Client::new(&house.unix, "a");
    client.send(Command::Read, CommandFlags::none(), 0, &[], 1);
    taken(&house, 1);
    house.stop();
    assert!(client.receive().is_err());
    gate.open();
    house.join();
}
