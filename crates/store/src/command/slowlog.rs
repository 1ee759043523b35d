//! `SLOWLOG`: the requests that took longest lately.

use std::collections::VecDeque;

use crate::resp::{Args, Writer, parse_i64};
use crate::shards::Placement;

use super::context::{Context, Outcome, Refusal};
use super::monitor::{REDACTED, is_secret};

/// Arguments kept of an entry, and bytes of each.
const ARGS_MAX: usize = 32;
const ARG_BYTES_MAX: usize = 128;

#[derive(Debug)]
struct Entry {
    id: u64,
    unix_s: u64,
    us: u64,
    args: Vec<Vec<u8>>,
    address: String,
    name: Box<[u8]>,
}

/// The log.
#[derive(Debug)]
pub struct Slowlog {
    /// The newest first.
    entries: VecDeque<Entry>,
    next_id: u64,
    /// From one entry's number to the next: shards have numbers of their own.
    id_step: u64,
    /// Requests slower than this are logged, in microseconds; below 0 none (`slowlog-log-slower-than`).
    pub slower_than_us: i64,
    /// Entries kept (`slowlog-max-len`).
    pub entries_max: usize,
}

impl Default for Slowlog {
    fn default() -> Self {
        Slowlog { entries: VecDeque::new(), next_id: 0, id_step: 1, slower_than_us: -1, entries_max: 0 }
    }
}

/// What is kept of the arguments: 32 of them, and 128 bytes of each, as in Redis.
fn excerpt(args: Args<'_>) -> Vec<Vec<u8>> {
    let count = args.len().min(ARGS_MAX);
    let kept = (0..count).map(|at| {
        if at + 1 == count && args.len() > count {
            return format!("... ({} more arguments)", args.len() - count + 1).into_bytes();
        }
        let arg = if is_secret(args, at) { REDACTED } else { &args[at] };
        match arg.len().checked_sub(ARG_BYTES_MAX) {
            None | Some(0) => arg.to_vec(),
            Some(more) => [&arg[..ARG_BYTES_MAX], format!("... ({more} more bytes)").as_bytes()].concat(),
        }
    });
    kept.collect()
}

impl Slowlog {
    /// Numbers entries so that none of another shard has the same number.
    pub fn number_for(&mut self, placement: Placement) {
        (self.next_id, self.id_step) = (placement.own as u64, placement.shards as u64);
    }

    /// Logs a request if it took long enough.
    pub fn note(&mut self, us: u64, unix_s: u64, args: Args<'_>, address: String, name: &[u8]) {
        if !u64::try_from(self.slower_than_us).is_ok_and(|least| us >= least) {
            return;
        }
        let entry = Entry { id: self.next_id, unix_s, us, args: excerpt(args), address, name: name.into() };
        self.next_id += self.id_step;
        self.entries.push_front(entry);
        self.forget_surplus();
    }

    /// Forgets the oldest entries beyond [`Self::entries_max`].
    pub fn forget_surplus(&mut self) {
        self.entries.truncate(self.entries_max);
    }
}

pub(super) fn get(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    const DEFAULT: i64 = 10;
    let refusal = Refusal::Text("ERR count should be greater than or equal to -1");
    let count = match args.get(2) {
        None => DEFAULT,
        Some(_) if args.len() > 3 => return Err(Refusal::SYNTAX),
        Some(text) => parse_i64(text).filter(|count| *count >= -1).ok_or(refusal)?,
    };
    let Context { session, host, output, .. } = context;
    let log = &host.timing.slowlog;
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(log.entries.len());
    let mut reply = Writer::new(output.bytes(), session.version);
    reply.array(count);
    for entry in log.entries.iter().take(count) {
        reply.array(6);
        [entry.id, entry.unix_s, entry.us].into_iter().for_each(|number| reply.integer(number as i64));
        reply.array(entry.args.len());
        entry.args.iter().for_each(|arg| reply.bulk(arg));
        reply.bulk(entry.address.as_bytes());
        reply.bulk(&entry.name);
    }
    Ok(())
}

pub(super) fn len(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let len = context.host.timing.slowlog.entries.len();
    context.reply().integer(len as i64);
    Ok(())
}

pub(super) fn reset(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    context.host.timing.slowlog.entries.clear();
    context.reply().ok();
    Ok(())
}
