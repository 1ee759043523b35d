//! Pub/sub subscriptions: channels, patterns and their subscribers.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::TooMuch;
use super::output_buffers::OutputBuffers;
use super::registry::{Registry, Slot};
use super::state_budget::StateBudget;
use crate::glob;
use crate::resp::{Version, Writer};

/// What a client is subscribed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A channel by its name.
    Channel = 0,
    /// All channels with matching names.
    Pattern = 1,
}

impl Kind {
    /// Both.
    pub const ALL: [Kind; 2] = [Kind::Channel, Kind::Pattern];
}

/// Subscriptions by channel and by pattern.
#[derive(Debug, Default)]
pub struct Channels {
    /// Subscribers by name: of channels, then of patterns.
    subscribers: [BTreeMap<Rc<[u8]>, BTreeSet<Slot>>; 2],
    /// Each subscriber's channels and patterns. A client without any is not in here.
    subscriptions: BTreeMap<Slot, [BTreeSet<Rc<[u8]>>; 2]>,
}

/// A message in both protocols, each written when it is first needed.
struct Message<'a> {
    write: &'a dyn Fn(&mut Writer<'_>),
    forms: [Option<Vec<u8>>; 2],
}

impl<'a> Message<'a> {
    fn new(write: &'a dyn Fn(&mut Writer<'_>)) -> Self {
        Message { write, forms: [None, None] }
    }

    fn bytes(&mut self, version: Version) -> &[u8] {
        self.forms[usize::from(version == Version::Resp3)].get_or_insert_with(|| {
            let mut bytes = Vec::new();
            (self.write)(&mut Writer::new(&mut bytes, version));
            bytes
        })
    }
}

impl Channels {
    /// Subscribes a client. Once is enough.
    pub(super) fn subscribe(
        &mut self,
        state: &mut StateBudget,
        slot: Slot,
        kind: Kind,
        name: &[u8],
    ) -> Result<(), TooMuch> {
        if self.names_of(slot, kind).is_some_and(|names| names.contains(name)) {
            return Ok(());
        }
        state.take(name.len())?;
        let table = &mut self.subscribers[kind as usize];
        let name: Rc<[u8]> =
            table.get_key_value(name).map_or_else(|| name.into(), |(name, _)| Rc::clone(name));
        table.entry(Rc::clone(&name)).or_default().insert(slot);
        self.subscriptions.entry(slot).or_default()[kind as usize].insert(name);
        Ok(())
    }

    /// Ends a subscription; whether there was one.
    pub(super) fn unsubscribe(
        &mut self,
        state: &mut StateBudget,
        slot: Slot,
        kind: Kind,
        name: &[u8],
    ) -> bool {
        let Some(names) = self.subscriptions.get_mut(&slot) else { return false };
        if !names[kind as usize].remove(name) {
            return false;
        }
        if names.iter().all(BTreeSet::is_empty) {
            self.subscriptions.remove(&slot);
        }
        let table = &mut self.subscribers[kind as usize];
        if let Some(subscribers) = table.get_mut(name) {
            subscribers.remove(&slot);
            if subscribers.is_empty() {
                table.remove(name);
            }
        }
        state.give_back(name.len());
        true
    }

    fn names_of(&self, slot: Slot, kind: Kind) -> Option<&BTreeSet<Rc<[u8]>>> {
        self.subscriptions.get(&slot).map(|names| &names[kind as usize])
    }

    /// The subscriptions of a client, of one kind.
    pub fn subscriptions(&self, slot: Slot, kind: Kind) -> Vec<Rc<[u8]>> {
        self.names_of(slot, kind).into_iter().flatten().cloned().collect()
    }

    /// Number of subscriptions of a client.
    pub fn subscription_count(&self, slot: Slot, kind: Kind) -> usize {
        self.names_of(slot, kind).map_or(0, BTreeSet::len)
    }

    /// Whether a client is subscribed to anything.
    pub fn is_subscriber(&self, slot: Slot) -> bool {
        self.subscriptions.contains_key(&slot)
    }

    /// Channels with subscribers and matching names.
    pub fn active_channels<'a>(&'a self, pattern: Option<&'a [u8]>) -> impl Iterator<Item = &'a [u8]> {
        let names = self.subscribers[Kind::Channel as usize].keys().map(|name| &**name);
        names.filter(move |name| pattern.is_none_or(|pattern| glob::matches(pattern, name, false)))
    }

    /// Subscribers of a channel by its name.
    pub fn subscriber_count(&self, channel: &[u8]) -> usize {
        self.subscribers[Kind::Channel as usize].get(channel).map_or(0, BTreeSet::len)
    }

    /// Number of patterns with at least one subscriber.
    pub fn pattern_count(&self) -> usize {
        self.subscribers[Kind::Pattern as usize].len()
    }

    /// Sends a message to all subscribers of a channel and returns how many times it was
    /// delivered. A client that is subscribed by name and by pattern gets it once for each.
    pub(super) fn publish(
        &self,
        registry: &Registry,
        output: &mut OutputBuffers,
        channel: &[u8],
        text: &[u8],
    ) -> usize {
        let mut reached = 0;
        if let Some(slots) = self.subscribers[Kind::Channel as usize].get(channel) {
            reached += send_all(registry, output, slots, &|writer| {
                writer.push(3);
                [b"message", channel, text].iter().for_each(|part| writer.bulk(part));
            });
        }
        for (pattern, slots) in &self.subscribers[Kind::Pattern as usize] {
            if glob::matches(pattern, channel, false) {
                reached += send_all(registry, output, slots, &|writer| {
                    writer.push(4);
                    [b"pmessage", &**pattern, channel, text].iter().for_each(|part| writer.bulk(part));
                });
            }
        }
        reached
    }
}

fn send_all(
    registry: &Registry,
    output: &mut OutputBuffers,
    slots: &BTreeSet<Slot>,
    write: &dyn Fn(&mut Writer<'_>),
) -> usize {
    let mut message = Message::new(write);
    for slot in slots {
        let client_info = registry.client_info(*slot);
        output.push(*slot, registry, message.bytes(client_info.version));
    }
    slots.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscription_is_counted_once_and_leaves_nothing_behind() {
        let (mut channels, mut state) = (Channels::default(), StateBudget::default());
        for (slot, kind) in [(4, Kind::Channel), (4, Kind::Channel), (4, Kind::Pattern), (2, Kind::Channel)] {
            channels.subscribe(&mut state, slot, kind, b"n").unwrap();
        }
        assert_eq!((channels.subscriber_count(b"n"), channels.pattern_count()), (2, 1));
        assert_eq!(channels.subscription_count(4, Kind::Channel), 1);
        assert!(!channels.unsubscribe(&mut state, 2, Kind::Pattern, b"n"), "it has none");
        assert!(channels.unsubscribe(&mut state, 4, Kind::Channel, b"n"));
        assert!(channels.is_subscriber(4), "to a pattern");
        assert!(channels.unsubscribe(&mut state, 4, Kind::Pattern, b"n"));
        assert!(!channels.is_subscriber(4) && channels.is_subscriber(2));
        assert_eq!(channels.active_channels(Some(b"?")).collect::<Vec<_>>(), [b"n"]);
        assert!(channels.unsubscribe(&mut state, 2, Kind::Channel, b"n"));
        assert_eq!((state.bytes(), channels.active_channels(None).count()), (0, 0));
    }

    #[test]
    fn what_does_not_fit_is_not_subscribed() {
        let (mut channels, mut state) = (Channels::default(), StateBudget::default());
        let long = vec![b'x'; super::super::STATE_BYTES_MAX];
        assert_eq!(channels.subscribe(&mut state, 1, Kind::Channel, &long), Err(TooMuch));
        assert!(!channels.is_subscriber(1) && channels.subscriber_count(&long) == 0);
    }
}
