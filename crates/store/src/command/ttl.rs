//! Expiry commands: setting, removing and reading a key's time to live.

use crate::resp::{Args, parse_i64};

use super::context::Context;
use super::refusal::{Outcome, Refusal, printable};
use super::set::{Base, Time, Unit, invalid_expire_time};

pub(super) fn expire(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    change(context, args, Unit::Seconds, Base::Now, "expire")
}

pub(super) fn pexpire(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    change(context, args, Unit::Milliseconds, Base::Now, "pexpire")
}

pub(super) fn expireat(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    change(context, args, Unit::Seconds, Base::Epoch, "expireat")
}

pub(super) fn pexpireat(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    change(context, args, Unit::Milliseconds, Base::Epoch, "pexpireat")
}

/// Under which condition an expiry is set.
#[derive(Default)]
struct When {
    absent: bool,
    present: bool,
    later: bool,
    earlier: bool,
}

impl When {
    fn parse(args: Args<'_>) -> Result<Self, Refusal> {
        let mut when = When::default();
        for option in args.iter_from(3) {
            let is = |name: &[u8]| option.eq_ignore_ascii_case(name);
            let chosen = if is(b"nx") {
                &mut when.absent
            } else if is(b"xx") {
                &mut when.present
            } else if is(b"gt") {
                &mut when.later
            } else if is(b"lt") {
                &mut when.earlier
            } else {
                let mut text = b"ERR Unsupported option ".to_vec();
                text.extend_from_slice(printable(option, option.len()));
                return Err(Refusal::Built(text));
            };
            *chosen = true;
        }
        if when.absent && (when.present || when.later || when.earlier) {
            return Err(Refusal::Text("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if when.later && when.earlier {
            return Err(Refusal::Text("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(when)
    }

    /// Whether a key with this expiry may get that one. No expiry counts as the latest.
    fn allows(&self, old: Option<u64>, new: i64) -> bool {
        let old = old.map(|at| i64::try_from(at).unwrap_or(i64::MAX));
        match old {
            Some(_) if self.absent => false,
            None if self.present || self.later => false,
            Some(old) if self.later && new <= old => false,
            Some(old) if self.earlier && new >= old => false,
            _ => true,
        }
    }
}

fn change(context: &mut Context<'_>, args: Args<'_>, unit: Unit, base: Base, name: &str) -> Outcome {
    let when = When::parse(args)?;
    let (db, now_ms) = (context.session.db, context.engine.clock_ms());
    let number = parse_i64(&args[2]).ok_or(Refusal::NOT_AN_INTEGER)?;
    let at = Time { text: &args[2], unit, base }
        .store_ms(number, context)
        .ok_or_else(|| invalid_expire_time(name))?;
    let changed = match context.engine.expires_at(db, &args[1]) {
        Some(old) if when.allows(old, at) => match u64::try_from(at) {
            Ok(at) if at > now_ms => context.engine.set_expires_at(db, &args[1], Some(at)),
            // A time that is over deletes the key.
            _ => context.engine.remove(db, &args[1]),
        },
        _ => false,
    };
    context.reply().integer(i64::from(changed));
    Ok(())
}

pub(super) fn persist(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let db = context.session.db;
    let changed = matches!(context.engine.expires_at(db, &args[1]), Some(Some(_)))
        && context.engine.set_expires_at(db, &args[1], None);
    context.reply().integer(i64::from(changed));
    Ok(())
}

/// Replies -2 without a key, -1 without an expiry, else what `show` makes of its milliseconds: what is left of them, or Unix time.
fn show(context: &mut Context<'_>, key: &[u8], base: Base, show: impl FnOnce(u64) -> u64) -> Outcome {
    let reply = match context.engine.expires_at(context.session.db, key) {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => i64::try_from(show(ms(context, at, base))).unwrap_or(i64::MAX),
    };
    context.reply().integer(reply);
    Ok(())
}

/// A moment of the store's time, in milliseconds from now or as Unix time.
pub(super) fn ms(context: &Context<'_>, at_ms: u64, base: Base) -> u64 {
    match base {
        Base::Now => at_ms.saturating_sub(context.engine.clock_ms()),
        Base::Epoch => context.host.wall_clock.unix_ms(at_ms),
    }
}

/// Milliseconds as the nearest number of seconds.
fn seconds(ms: u64) -> u64 {
    ms.saturating_add(500) / 1000
}

pub(super) fn ttl(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    show(context, &args[1], Base::Now, seconds)
}

pub(super) fn pttl(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    show(context, &args[1], Base::Now, |left_ms| left_ms)
}

pub(super) fn expiretime(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    show(context, &args[1], Base::Epoch, seconds)
}

pub(super) fn pexpiretime(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    show(context, &args[1], Base::Epoch, |unix_ms| unix_ms)
}
