//! Tests of the client registry without sockets: delivery of messages, and the bounds on memory.

use super::*;
use crate::engine::Engine;
use crate::resp::Version;

fn clients(count: u64) -> (Clients, Vec<Slot>) {
    let mut clients = Clients::default();
    let slots = (1..=count).map(|id| clients.enter(id, Peer::None, 0)).collect();
    (clients, slots)
}

fn pushed(clients: &mut Clients, slot: Slot) -> String {
    let pushed = clients.output_mut().take_pushed(slot).unwrap_or_default();
    String::from_utf8_lossy(&pushed).replace("\r\n", " ").trim_end().to_owned()
}

/// Changes as an engine notes them.
fn changes(run: impl FnOnce(&mut Engine)) -> Changes {
    use crate::config::StoreConfig;
    let config = StoreConfig { tiers: vec!["dram=16MiB".parse().unwrap()], ..StoreConfig::default() };
    let mut engine = Engine::new(config.engine_config(0).unwrap()).unwrap();
    engine.changes().want(true);
    run(&mut engine);
    engine.changes().take()
}

fn set(engine: &mut Engine, key: &str) {
    use crate::engine::{Condition, Expiry};
    engine.set(0, key.as_bytes(), b"v", Condition::Always, Expiry::Never).unwrap();
}

#[test]
fn messages_reach_subscribers_in_their_protocol() {
    let (mut clients, slots) = clients(3);
    clients.subscribe(slots[0], Kind::Channel, b"news").unwrap();
    clients.subscribe(slots[0], Kind::Channel, b"news").unwrap();
    clients.subscribe(slots[1], Kind::Pattern, b"n*").unwrap();
    clients.registry_mut().set_version(slots[1], Version::Resp3);
    assert_eq!(clients.publish(b"news", b"hi"), 2);
    assert_eq!(pushed(&mut clients, slots[0]), "*3 $7 message $4 news $2 hi");
    assert_eq!(pushed(&mut clients, slots[1]), ">4 $8 pmessage $2 n* $4 news $2 hi");
    assert_eq!(pushed(&mut clients, slots[2]), "");
    assert!(clients.unsubscribe(slots[0], Kind::Channel, b"news"));
    assert!(!clients.unsubscribe(slots[0], Kind::Channel, b"news"));
    clients.leave(slots[1]);
    assert_eq!(clients.publish(b"news", b"hi"), 0);
    assert_eq!(
        (clients.channels().pattern_count(), clients.channels().active_channels(None).count()),
        (0, 0)
    );
}

#[test]
fn whoever_does_not_read_is_dropped_and_costs_nothing_then() {
    let (mut clients, slots) = clients(2);
    clients.subscribe(slots[0], Kind::Channel, b"c").unwrap();
    let message = vec![b'x'; 1 << 20];
    while !clients.output().is_killed(slots[0]) {
        clients.publish(b"c", &message);
        assert!(clients.output().waiting_bytes() <= PUSH_BYTES_MAX);
    }
    assert_eq!((clients.output().waiting_bytes(), clients.output_mut().take_dropped()), (0, 1));
    clients.publish(b"c", &message);
    assert_eq!(clients.output().waiting_bytes(), 0);
}

#[test]
fn what_clients_have_remembered_is_bounded_and_given_back() {
    let (mut clients, slots) = clients(2);
    let name = |at: usize| format!("{at:01000}");
    let fit = (0..).take_while(|at| clients.subscribe(slots[0], Kind::Channel, name(*at).as_bytes()).is_ok());
    assert!((STATE_BYTES_MAX / 1200..STATE_BYTES_MAX / 1000).contains(&fit.count()));
    assert_eq!(clients.watch(slots[1], 0, name(0).as_bytes(), true), Err(TooMuch));
    clients.leave(slots[0]);
    assert_eq!(clients.watch(slots[1], 0, name(0).as_bytes(), true), Ok(()));
    clients.set_name(slots[1], b"me").unwrap();
    clients.leave(slots[1]);
    assert_eq!((clients.state.bytes(), clients.attention()), (0, 0));
}

#[test]
fn a_change_is_told_once_to_those_who_read_it() {
    let (mut clients, slots) = clients(3);
    let no_loop = TrackingMode { no_loop: true, ..TrackingMode::default() };
    for (slot, mode) in slots.iter().zip([TrackingMode::default(), no_loop.clone(), no_loop]) {
        clients.registry_mut().set_version(*slot, Version::Resp3);
        clients.start_tracking(*slot, mode, Prefixes::new()).unwrap();
        clients.remember_read(*slot, b"k");
    }
    let told = changes(|engine| {
        set(engine, "k");
        set(engine, "k");
    });
    let author = Author { client: 2, ..Author::STORE };
    clients.settle(&told, &author);
    assert_eq!(pushed(&mut clients, slots[0]), ">2 $10 invalidate *1 $1 k");
    assert_eq!(pushed(&mut clients, slots[1]), "", "its own change");
    assert_eq!(pushed(&mut clients, slots[2]), ">2 $10 invalidate *1 $1 k");
    assert_eq!(clients.tracking().counts().0, 0);
    clients.settle(&changes(|engine| engine.flush(None)), &author);
    assert_eq!(pushed(&mut clients, slots[0]), ">2 $10 invalidate _");
}

#[test]
fn a_flush_concerns_watched_keys_that_were_there() {
    let (mut clients, slots) = clients(2);
    clients.watch(slots[0], 0, b"there", true).unwrap();
    clients.watch(slots[1], 0, b"not there", false).unwrap();
    clients.settle(&changes(|engine| engine.flush(Some(1))), &Author::STORE);
    assert!(!clients.watched().is_dirty(slots[0]));
    clients.settle(&changes(|engine| engine.flush(None)), &Author::STORE);
    assert!(clients.watched().is_dirty(slots[0]) && !clients.watched().is_dirty(slots[1]));
    clients.settle(&changes(|engine| set(engine, "not there")), &Author::STORE);
    assert!(clients.watched().is_dirty(slots[1]));
    slots.iter().for_each(|slot| clients.unwatch(*slot));
    assert!(!clients.wants_changes());
}
