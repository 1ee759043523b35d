//! Activity: which commands run and fail, what was slow lately, and which clients hold most. For people who look, beside the counters.

use std::collections::BTreeMap;

use serde::Serialize;

use super::CallFigures;

/// What runs, and for whom.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Activity {
    /// Commands that were called or refused since the start, by name.
    pub commands: BTreeMap<String, CallFigures>,
    /// Error replies by code, likewise.
    pub errors: BTreeMap<Box<str>, u64>,
    /// Slow requests, the newest first.
    pub slow_requests: Vec<SlowRequest>,
    /// Clients that hold most bytes of requests and replies, those with most first.
    pub clients: Vec<ClientActivity>,
}

/// A request in the slow log, without its arguments: those may be secrets, and the page asks for no password.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SlowRequest {
    /// Its number in the slow log.
    pub id: u64,
    /// Seconds since it ran.
    pub age_s: u64,
    /// Duration in microseconds.
    pub us: u64,
    /// The command.
    pub command: String,
    /// Address of the client.
    pub address: String,
}

/// A connected client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClientActivity {
    /// Its number.
    pub id: u64,
    /// Its address.
    pub address: String,
    /// The name that it has given itself, or none.
    pub name: String,
    /// The user that it has logged in as.
    pub user: String,
    /// Seconds since it connected.
    pub age_s: u64,
    /// Seconds since its last request.
    pub idle_s: u64,
    /// Its last command.
    pub command: String,
    /// Bytes of requests that it has begun.
    pub request_bytes: u64,
    /// Bytes of replies that it has not read.
    pub reply_bytes: u64,
}

impl ClientActivity {
    fn held_bytes(&self) -> u64 {
        self.request_bytes + self.reply_bytes
    }
}

impl Activity {
    /// Slow requests that may be told of.
    pub const SLOW_REQUESTS_MAX: usize = 10;
    /// Clients that may be told of.
    pub const CLIENTS_MAX: usize = 10;

    /// Tells of the clients that hold most.
    pub fn tell_clients(&mut self, clients: impl Iterator<Item = ClientActivity>) {
        self.clients.extend(clients);
        self.clients.sort_by_key(|client| (u64::MAX - client.held_bytes(), client.idle_s, client.id));
        self.clients.truncate(Self::CLIENTS_MAX);
    }

    /// Adds another shard's.
    pub fn add(&mut self, other: Activity) {
        let Activity { commands, errors, slow_requests, clients } = other;
        for (name, calls) in commands {
            self.commands.entry(name).or_default().add(calls);
        }
        for (code, count) in errors {
            *self.errors.entry(code).or_default() += count;
        }
        self.slow_requests.extend(slow_requests);
        self.slow_requests.sort_by_key(|slow| (slow.age_s, u64::MAX - slow.id));
        self.slow_requests.truncate(Self::SLOW_REQUESTS_MAX);
        self.tell_clients(clients.into_iter());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(id: u64, reply_bytes: u64) -> ClientActivity {
        ClientActivity { id, reply_bytes, ..ClientActivity::default() }
    }

    #[test]
    fn those_that_hold_most_are_told_of_whichever_shard_they_are_at() {
        let mut one = Activity::default();
        one.tell_clients((0..20).map(|id| client(id, id)));
        assert_eq!(one.clients.first().map(|client| client.id), Some(19));
        let mut other = Activity::default();
        other.tell_clients((100..103).map(|id| client(id, 1 << 20)));
        one.add(other);
        let told: Vec<u64> = one.clients.iter().map(|client| client.id).collect();
        assert_eq!(told, [100, 101, 102, 19, 18, 17, 16, 15, 14, 13]);
    }

    #[test]
    fn calls_errors_and_slow_requests_of_shards_are_told_together() {
        let shard = |slow_id, age_s| {
            let calls = CallFigures { calls: 3, usec: 30, failed: 1, rejected: 2 };
            Activity {
                commands: [("get".to_owned(), calls)].into(),
                errors: [("ERR".into(), 3)].into(),
                slow_requests: vec![SlowRequest { id: slow_id, age_s, ..SlowRequest::default() }; 6],
                clients: Vec::new(),
            }
        };
        let mut sum = shard(1, 9);
        sum.add(shard(2, 5));
        assert_eq!(sum.commands["get"], CallFigures { calls: 6, usec: 60, failed: 2, rejected: 4 });
        assert_eq!(sum.errors["ERR"], 6);
        let ages: Vec<u64> = sum.slow_requests.iter().map(|slow| slow.age_s).collect();
        assert_eq!(ages, [5, 5, 5, 5, 5, 5, 9, 9, 9, 9]);
    }
}
