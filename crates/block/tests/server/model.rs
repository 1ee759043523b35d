//! Random requests of many clients against a model of the disks' contents.

use tiermem_block::disks::{SlowDisks, Trouble};
use tiermem_block::nbd::wire::{CommandFlags, STATE_HOLE, STATE_ZERO};
use tiermem_block::nbd::{Command, Context};
use tiermem_block::server::ServerConfig;

use super::client::{Client, Draws};
use super::house::{House, SIZE, memory};

/// A client's own part of a disk, which no other client writes.
const PART: u64 = 512 * 1024;

/// Random requests, many in flight, each alone in its own stretch at a time; every answer is compared with `model`.
fn play(client: &mut Client, base: u64, seed: u64, rounds: usize, may_fail: bool) {
    let mut draws = Draws(seed);
    let mut model = vec![0u8; PART as usize];
    const STRETCHES: u64 = 8;
    let stretch = PART / STRETCHES;
    for _ in 0..rounds {
        // One request for each stretch, all under way at once.
        for n in 0..STRETCHES {
            let begin = n * stretch + draws.below(stretch - 1);
            let len = 1 + draws.below((n + 1) * stretch - begin);
            let (at, end) = (begin as usize, (begin + len) as usize);
            let byte = draws.below(255) as u8 + 1;
            let data: Vec<u8> = (0..len).map(|n| byte.wrapping_add(n as u8)).collect();
            let flags = if draws.below(4) == 0 { CommandFlags::FUA } else { CommandFlags::none() };
            let (offset, len) = (base + begin, len as u32);
            match draws.below(6) {
                0 | 1 => client.send(Command::Read, CommandFlags::none(), offset, &[], len),
                2 | 3 if !may_fail => {
                    model[at..end].copy_from_slice(&data);
                    client.send(Command::Write, flags, offset, &data, len)
                }
                4 if !may_fail => {
                    model[at..end].fill(0);
                    client.send(Command::WriteZeroes, flags, offset, &[], len)
                }
                _ => client.send(Command::Cache, CommandFlags::none(), offset, &[], len),
            };
        }
        client.send(Command::Flush, CommandFlags::none(), 0, &[], 0);
        while client.under_way() > 0 {
            let (request, reply) = client.receive().unwrap();
            if may_fail && reply.error.is_some() {
                continue;
            }
            assert_eq!(reply.error, None, "{request:?} seed {seed}");
            if request.command == Command::Read {
                let at = (request.offset - base) as usize;
                assert!(reply.data == model[at..at + reply.data.len()], "{request:?} seed {seed}");
            }
        }
    }
}

fn play_many(house: &House, clients: u64, may_fail: bool) {
    std::thread::scope(|scope| {
        for n in 0..clients {
            let address = if n % 2 == 0 { &house.unix } else { &house.tcp };
            let name = if n % 4 < 2 { "a" } else { "b" };
            scope.spawn(move || {
                let simple = n % 3 == 0;
                let mut client =
                    if simple { Client::simple(address, name) } else { Client::new(address, name) };
                play(&mut client, n * PART, 100 + n, 20, may_fail);
                client.disconnect();
                assert!(client.receive().is_err(), "it hangs up then");
            });
        }
    });
    house.until(|stats| stats.open() == 0);
}

#[test]
fn many_clients_see_what_they_wrote() {
    let house = House::plain();
    play_many(&house, SIZE / PART, false);
    let exports = house.stats.exports();
    let requests: u64 = exports.iter().map(|export| export.requests_total()).sum();
    assert_eq!(requests, 16 * (20 * 9 + 1));
    assert!(exports.iter().all(|export| export.errors == 0));
}

#[test]
fn outcomes_may_come_late_and_in_any_order() {
    let config = ServerConfig { jobs_max: 5, bytes_max: 100_000, ..ServerConfig::default() };
    let house = House::of(config, || SlowDisks::new(memory(), Trouble { seed: 3, ..Trouble::default() }));
    play_many(&house, SIZE / PART, false);
}

#[test]
fn failures_are_answers_like_others() {
    let trouble = Trouble { seed: 3, fail_one_in: 3, ..Trouble::default() };
    let house = House::of(ServerConfig::default(), || SlowDisks::new(memory(), trouble));
    play_many(&house, 8, true);
    assert!(house.stats.exports()[0].errors > 0);
}

#[test]
fn long_requests_travel_whole() {
    let config = ServerConfig { bytes_max: 1, ..ServerConfig::default() };
    let house = House::of(config, || {
        let mut disks = memory();
        disks.add("large", 80 << 20);
        disks
    });
    for address in [&house.unix, &house.tcp] {
        let mut client = Client::new(address, "large");
        let mut draws = Draws(1);
        let data: Vec<u8> = (0..32 << 20).map(|_| draws.below(256) as u8).collect();
        for offset in [0, 4095, 40_000_001] {
            client.write(offset, &data);
            assert!(client.read(offset, data.len() as u32) == data);
        }
        // Larger than one request may be, and beyond the end: refused, and the connection continues.
        client.write(0, b"still here");
        assert_eq!(client.read(0, 10), b"still here");
    }
}

#[test]
fn extents_are_told_for_each_context() {
    let house = House::plain();
    let mut client = Client::new(&house.unix, "a");
    client.write(70_000, &[1; 10]);
    let hole = STATE_HOLE | STATE_ZERO;
    let reply = client.ask(Command::BlockStatus, 0, &[], 200_000);
    let ids = (Context::Allocation.id(), Context::Cache.id());
    let expected =
        [(ids.0, 65536, hole), (ids.0, 65536, 0), (ids.0, 68928, hole), (ids.1, 200_000, Context::CACHED)];
    assert_eq!((reply.error, &reply.extents[..]), (None, &expected[..]));
    client.send(Command::BlockStatus, CommandFlags::REQ_ONE, 0, &[], 200_000);
    let (_, reply) = client.receive().unwrap();
    assert_eq!(reply.extents, [(ids.0, 65536, hole), (ids.1, 200_000, Context::CACHED)]);
}
