//! What a shard's requests and clients do now, for the page and `/metrics`.

use crate::clients::Slot;
use crate::command::{COMMANDS, Spec};
use crate::host::Host;
use crate::stats::{Activity, ClientActivity, SlowRequest};

/// The activity of this shard at `now_us` of the store's time.
pub(super) fn activity(host: &Host, now_us: u64) -> Activity {
    let statistics = &host.command_statistics;
    let called =
        Spec::all(COMMANDS).enumerate().filter_map(|(number, spec)| Some((spec, statistics.total(number)?)));
    let mut activity = Activity {
        commands: called.map(|(spec, calls)| (spec.full_name(), calls)).collect(),
        errors: statistics.error_totals(),
        slow_requests: slow_requests(host, now_us / 1_000_000),
        clients: Vec::new(),
    };
    activity.tell_clients(busiest_clients(host, now_us));
    activity
}

fn slow_requests(host: &Host, now_s: u64) -> Vec<SlowRequest> {
    let newest = host.timing.slowlog.entries.iter().take(Activity::SLOW_REQUESTS_MAX);
    let told = newest.map(|entry| SlowRequest {
        id: entry.id,
        age_s: now_s.saturating_sub(entry.at_s),
        us: entry.us,
        command: entry
            .args
            .first()
            .map_or_else(String::new, |name| String::from_utf8_lossy(name).to_lowercase()),
        address: entry.address.clone(),
    });
    told.collect()
}

/// The clients that hold most. Of many only those are described.
fn busiest_clients(host: &Host, now_us: u64) -> impl Iterator<Item = ClientActivity> {
    let registry = host.clients.registry();
    let held_bytes = |slot: Slot| {
        let (unsent, pushed) = host.clients.output().waiting_for(slot);
        let info = registry.client_info(slot);
        ((info.pending_bytes + info.queued_bytes) as u64, (unsent + pushed) as u64)
    };
    let key = |slot: &Slot| {
        let (request_bytes, reply_bytes) = held_bytes(*slot);
        (u64::MAX - request_bytes - reply_bytes, u64::MAX - registry.client_info(*slot).active_us)
    };
    let mut slots: Vec<Slot> = registry.connected().collect();
    if slots.len() > Activity::CLIENTS_MAX {
        slots.select_nth_unstable_by_key(Activity::CLIENTS_MAX, key);
        slots.truncate(Activity::CLIENTS_MAX);
    }
    let seconds_since = move |us: u64| now_us.saturating_sub(us) / 1_000_000;
    slots.into_iter().map(move |slot| {
        let info = registry.client_info(slot);
        let (request_bytes, reply_bytes) = held_bytes(slot);
        ClientActivity {
            id: info.id,
            address: info.peer.address(),
            name: String::from_utf8_lossy(&info.name).into_owned(),
            user: info.user_name().to_owned(),
            age_s: seconds_since(info.created_us),
            idle_s: seconds_since(info.active_us),
            command: info.command_name(),
            request_bytes,
            reply_bytes,
        }
    })
}
