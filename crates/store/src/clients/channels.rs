//! Channels, patterns, and who is subscribed to them.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::{Clients, Slot, TooMuch};
use crate::glob;
use crate::resp::{Version, Writer};

/// What a client is subscribed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A channel by its name.
    Channel = 0,
    /// All channels whose names match.
    Pattern = 1,
}

impl Kind {
    /// Both.
    pub const ALL: [Kind; 2] = [Kind::Channel, Kind::Pattern];
}

/// Who is subscribed: channels, then patterns.
#[derive(Debug, Default)]
pub(super) struct Channels([BTreeMap<Rc<[u8]>, BTreeSet<u64>>; 2]);

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

impl Clients {
    /// Subscribes a client. Once is enough.
    pub fn subscribe(&mut self, slot: Slot, kind: Kind, name: &[u8]) -> Result<(), TooMuch> {
        if self.entry(slot).subscribed[kind as usize].contains(name) {
            return Ok(());
        }
        self.remember(name.len())?;
        let table = &mut self.channels.0[kind as usize];
        let name: Rc<[u8]> =
            table.get_key_value(name).map_or_else(|| name.into(), |(name, _)| Rc::clone(name));
        table.entry(Rc::clone(&name)).or_default().insert(self.entries[slot as usize].id);
        self.entry_mut(slot).subscribed[kind as usize].insert(name);
        Ok(())
    }

    /// Ends a subscription; whether there was one.
    pub fn unsubscribe(&mut self, slot: Slot, kind: Kind, name: &[u8]) -> bool {
        let entry = self.entry_mut(slot);
        if !entry.subscribed[kind as usize].remove(name) {
            return false;
        }
        let id = entry.id;
        let table = &mut self.channels.0[kind as usize];
        if let Some(subscribers) = table.get_mut(name) {
            subscribers.remove(&id);
            if subscribers.is_empty() {
                table.remove(name);
            }
        }
        self.unremember(name.len());
        true
    }

    /// What a client is subscribed to.
    pub fn subscriptions(&self, slot: Slot, kind: Kind) -> Vec<Rc<[u8]>> {
        self.entry(slot).subscribed[kind as usize].iter().cloned().collect()
    }

    /// How many that are.
    pub fn subscription_count(&self, slot: Slot, kind: Kind) -> usize {
        self.entry(slot).subscribed[kind as usize].len()
    }

    /// Whether a client is subscribed to anything.
    pub fn is_subscriber(&self, slot: Slot) -> bool {
        Kind::ALL.iter().any(|kind| self.subscription_count(slot, *kind) > 0)
    }

    /// Channels with subscribers whose names match.
    pub fn active_channels<'a>(&'a self, pattern: Option<&'a [u8]>) -> impl Iterator<Item = &'a [u8]> {
        let names = self.channels.0[Kind::Channel as usize].keys().map(|name| &**name);
        names.filter(move |name| pattern.is_none_or(|pattern| glob::matches(pattern, name, false)))
    }

    /// Subscribers of a channel by its name.
    pub fn subscriber_count(&self, channel: &[u8]) -> usize {
        self.channels.0[Kind::Channel as usize].get(channel).map_or(0, BTreeSet::len)
    }

    /// Patterns that somebody is subscribed to.
    pub fn pattern_count(&self) -> usize {
        self.channels.0[Kind::Pattern as usize].len()
    }

    /// Sends a message to all subscribers of a channel; to how many. Who is subscribed twice gets it twice.
    pub fn publish(&mut self, channel: &[u8], text: &[u8]) -> usize {
        let mut reached = 0;
        if let Some(ids) = self.channels.0[Kind::Channel as usize].get(channel).cloned() {
            reached += self.send_all(&ids, &|writer| {
                writer.push(3);
                [b"message", channel, text].iter().for_each(|part| writer.bulk(part));
            });
        }
        let patterns = &self.channels.0[Kind::Pattern as usize];
        let matching = patterns.iter().filter(|(pattern, _)| glob::matches(pattern, channel, false));
        for (pattern, ids) in matching.map(|(p, ids)| (Rc::clone(p), ids.clone())).collect::<Vec<_>>() {
            reached += self.send_all(&ids, &|writer| {
                writer.push(4);
                [b"pmessage", &*pattern, channel, text].iter().for_each(|part| writer.bulk(part));
            });
        }
        reached
    }

    fn send_all(&mut self, ids: &BTreeSet<u64>, write: &dyn Fn(&mut Writer<'_>)) -> usize {
        let mut message = Message::new(write);
        for id in ids {
            if let Some(slot) = self.find(*id) {
                let version = self.entry(slot).client_info.version;
                self.push(slot, message.bytes(version));
            }
        }
        ids.len()
    }
}
