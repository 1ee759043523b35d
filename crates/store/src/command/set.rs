//! `SET` and its relatives: reading or writing a string together with its expiry.

use crate::engine::{Condition, Expiry};
use crate::resp::{Args, parse_i64};

use super::context::Context;
use super::refusal::{Outcome, Refusal};
use super::string::{reply_value, store_or_take_back};

/// A time to live as it was written: the number and what it counts.
#[derive(Clone, Copy)]
pub(super) struct Time<'a> {
    pub(super) text: &'a [u8],
    pub(super) unit: Unit,
    pub(super) base: Base,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    Now,
    Epoch,
}

pub(super) fn invalid_expire_time(name: &str) -> Refusal {
    format!("ERR invalid expire time in '{name}' command").into()
}

impl Time<'_> {
    /// The moment that is meant, in milliseconds of the store's time. It must be positive as written.
    fn resolve(self, context: &Context<'_>, name: &str) -> Result<u64, Refusal> {
        let number = parse_i64(self.text).ok_or(Refusal::NOT_AN_INTEGER)?;
        if number <= 0 {
            return Err(invalid_expire_time(name));
        }
        let at = self.store_ms(number, context).ok_or_else(|| invalid_expire_time(name))?;
        // By a wall clock that is ahead, the first moments after 1970 were before that.
        Ok(at.max(1).cast_unsigned())
    }

    /// The moment in milliseconds of the store's time, if it can be said in an `i64`.
    pub(super) fn store_ms(self, number: i64, context: &Context<'_>) -> Option<i64> {
        let ms = match self.unit {
            Unit::Seconds => number.checked_mul(1000)?,
            Unit::Milliseconds => number,
        };
        match self.base {
            Base::Now => ms.checked_add(context.engine.clock_ms() as i64),
            Base::Epoch => Some(context.host.wall_clock.store_ms(ms)),
        }
    }
}

/// The expiry that an option names, or `None` for any other option.
fn time_option(option: &[u8]) -> Option<(Unit, Base)> {
    let is = |name: &[u8]| option.eq_ignore_ascii_case(name);
    if is(b"ex") {
        Some((Unit::Seconds, Base::Now))
    } else if is(b"px") {
        Some((Unit::Milliseconds, Base::Now))
    } else if is(b"exat") {
        Some((Unit::Seconds, Base::Epoch))
    } else if is(b"pxat") {
        Some((Unit::Milliseconds, Base::Epoch))
    } else {
        None
    }
}

/// The options of `SET`.
#[derive(Default)]
struct SetOptions<'a> {
    condition: Condition,
    keep_ttl: bool,
    get: bool,
    time: Option<Time<'a>>,
}

impl<'a> SetOptions<'a> {
    fn parse(args: Args<'a>) -> Result<Self, Refusal> {
        let mut options = SetOptions::default();
        let mut rest = args.iter_from(3);
        while let Some(option) = rest.next() {
            let is = |name: &[u8]| option.eq_ignore_ascii_case(name);
            if is(b"nx") && options.condition != Condition::IfPresent {
                options.condition = Condition::IfAbsent;
            } else if is(b"xx") && options.condition != Condition::IfAbsent {
                options.condition = Condition::IfPresent;
            } else if is(b"get") {
                options.get = true;
            } else if is(b"keepttl") && options.time.is_none() {
                options.keep_ttl = true;
            } else {
                let (unit, base) = time_option(option).ok_or(Refusal::SYNTAX)?;
                if options.keep_ttl || options.time.is_some_and(|time| (time.unit, time.base) != (unit, base))
                {
                    return Err(Refusal::SYNTAX);
                }
                options.time = Some(Time { text: rest.next().ok_or(Refusal::SYNTAX)?, unit, base });
            }
        }
        Ok(options)
    }
}

pub(super) fn set(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let db = context.session.db;
    if args.len() == 3 {
        context.engine.set(db, &args[1], &args[2], Condition::Always, Expiry::Never)?;
        context.reply().ok();
        return Ok(());
    }
    let options = SetOptions::parse(args)?;
    let expiry = match options.time {
        Some(time) => Expiry::AtUnixMs(time.resolve(context, "set")?),
        None if options.keep_ttl => Expiry::Keep,
        None => Expiry::Never,
    };
    if options.get {
        let mark = context.output.mark();
        reply_value(context, &args[1])?;
        return store_or_take_back(context, mark, &args[1], &args[2], options.condition, expiry).map(drop);
    }
    if context.engine.set(db, &args[1], &args[2], options.condition, expiry)? {
        context.reply().ok();
    } else {
        context.reply().null();
    }
    Ok(())
}

pub(super) fn setex(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    set_for(context, args, Unit::Seconds, "setex")
}

pub(super) fn psetex(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    set_for(context, args, Unit::Milliseconds, "psetex")
}

fn set_for(context: &mut Context<'_>, args: Args<'_>, unit: Unit, name: &str) -> Outcome {
    let at = Time { text: &args[2], unit, base: Base::Now }.resolve(context, name)?;
    let db = context.session.db;
    context.engine.set(db, &args[1], &args[3], Condition::Always, Expiry::AtUnixMs(at))?;
    context.reply().ok();
    Ok(())
}

pub(super) fn getex(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (mut persist, mut time) = (false, None::<Time<'_>>);
    let mut rest = args.iter_from(2);
    while let Some(option) = rest.next() {
        if option.eq_ignore_ascii_case(b"persist") && time.is_none() {
            persist = true;
            continue;
        }
        let (unit, base) = time_option(option).ok_or(Refusal::SYNTAX)?;
        if persist || time.is_some_and(|time| (time.unit, time.base) != (unit, base)) {
            return Err(Refusal::SYNTAX);
        }
        time = Some(Time { text: rest.next().ok_or(Refusal::SYNTAX)?, unit, base });
    }
    let (db, now_ms) = (context.session.db, context.engine.clock_ms());
    let mark = context.output.mark();
    if !reply_value(context, &args[1])? {
        return Ok(());
    }
    if persist {
        context.engine.set_expires_at(db, &args[1], None);
    }
    let Some(time) = time else { return Ok(()) };
    match time.resolve(context, "getex") {
        // A time that is over already deletes the key.
        Ok(at) if at <= now_ms => {
            context.engine.remove(db, &args[1]);
        }
        Ok(at) => {
            context.engine.set_expires_at(db, &args[1], Some(at));
        }
        Err(refusal) => {
            context.output.truncate(mark, context.engine);
            return Err(refusal);
        }
    }
    Ok(())
}
