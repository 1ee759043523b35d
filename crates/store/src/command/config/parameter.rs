//! Parameter of `CONFIG`: its kind, and how text of that kind is parsed.

use tiermem_base::{Bytes, Nanos};
use tiermem_policy::ladder::Tuning;

use crate::command::Context;
use crate::engine::Division;
use crate::settings::Settings;

/// Everything that can change while the server runs, put together to be checked as a whole before any of it holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Live {
    /// The server's part.
    pub server: Settings,
    /// The ladder's part.
    pub policy: Tuning,
    /// How memory is divided among tenants.
    pub division: Division,
    /// Bytes of the flash tier's device; 0 where there is none.
    pub flash_bytes: u64,
}

/// Why a value was not taken; what Redis says behind the dash.
pub type Problem = String;

/// How a configuration file holds a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A number.
    Number,
    /// A number with a fraction.
    Share,
    /// A text.
    Word,
    /// Bytes with their unit.
    Size,
    /// A time with its unit.
    Seconds,
    /// Yes or no, which a file calls true or false.
    Switch,
}

/// How a parameter is read and changed.
#[derive(Clone, Copy)]
pub(super) enum Access {
    /// It holds from start to end.
    Fixed(fn(&Context<'_>) -> String),
    /// It can change. What is not worth a place in a file has no form.
    Live { form: Form, get: fn(&Live) -> String, set: fn(&mut Live, &str) -> Result<(), Problem> },
}

/// One parameter.
#[derive(Clone, Copy)]
pub(super) struct Parameter {
    /// Its name for clients: Redis's where Redis has it.
    pub(super) name: &'static str,
    /// Its section and key in a configuration file. A parameter
    /// without a place of its own is in `[config]`, under its name.
    pub(super) place: (&'static str, &'static str),
    pub(super) access: Access,
}

/// The section of a file for parameters without a place of their own.
pub(super) const CONFIG_SECTION: &str = "config";

/// The section of a file with the tiers, each of which is a table of its own.
pub(super) const TIER_SECTION: &str = "tier";

/// A parameter that clients can see.
pub(super) const fn fixed(name: &'static str, get: fn(&Context<'_>) -> String) -> Parameter {
    Parameter { name, place: (CONFIG_SECTION, name), access: Access::Fixed(get) }
}

/// A parameter that clients can change. In a file it is in `[config]`.
pub(super) const fn live(
    name: &'static str,
    form: Form,
    get: fn(&Live) -> String,
    set: fn(&mut Live, &str) -> Result<(), Problem>,
) -> Parameter {
    Parameter { name, place: (CONFIG_SECTION, name), access: Access::Live { form, get, set } }
}

impl Parameter {
    /// The same with a place of its own in a file.
    pub(super) const fn at(mut self, section: &'static str, key: &'static str) -> Parameter {
        self.place = (section, key);
        self
    }
}

/// Reads a whole number between two bounds into `field`.
pub(super) fn number<T: TryFrom<i64>>(
    field: &mut T,
    text: &str,
    (least, most): (i64, i64),
) -> Result<(), Problem> {
    let value = text.trim().parse::<i64>().map_err(|_| "argument couldn't be parsed into an integer")?;
    let value = Some(value).filter(|value| (least..=most).contains(value)).and_then(|it| it.try_into().ok());
    *field = value.ok_or_else(|| format!("argument must be between {least} and {most} inclusive"))?;
    Ok(())
}

/// Reads a share above 0 and at most 1 into `field`.
pub(super) fn share(field: &mut f64, text: &str) -> Result<(), Problem> {
    let value = text.trim().parse::<f64>().map_err(|_| "argument couldn't be parsed into a number")?;
    if !(value > 0.0 && value <= 1.0) {
        return Err("argument must be above 0 and at most 1".to_owned());
    }
    *field = value;
    Ok(())
}

/// Reads a size, such as 1048576 or 1MiB, between two bounds into `field`.
pub(super) fn size(field: &mut usize, text: &str, (least, most): (u64, u64)) -> Result<(), Problem> {
    let Bytes(value) = text.parse::<Bytes>().map_err(|error| error.to_string())?;
    if !(least..=most).contains(&value) {
        return Err(format!("argument must be between {} and {}", Bytes(least), Bytes(most)));
    }
    *field = usize::try_from(value).map_err(|_| "argument is too large")?;
    Ok(())
}

/// Reads a time, in seconds or with its unit, into `field`, which counts milliseconds.
pub(super) fn seconds(field: &mut u64, text: &str) -> Result<(), Problem> {
    let mut ms = 0u64;
    match text.parse::<Nanos>() {
        Ok(Nanos(ns)) => ms = ns.div_ceil(1_000_000),
        Err(_) => number(&mut ms, text, (0, i32::MAX.into())).map(|()| ms *= 1000)?,
    }
    *field = ms;
    Ok(())
}

/// A time in seconds, or with its unit where it is not whole.
pub(super) fn in_seconds(ms: u64) -> String {
    if ms.is_multiple_of(1000) { (ms / 1000).to_string() } else { format!("{ms}ms") }
}

/// Reads `yes` or `no` into `field`.
pub(super) fn switch(field: &mut bool, text: &str) -> Result<(), Problem> {
    *field = match text {
        _ if text.eq_ignore_ascii_case("yes") => true,
        _ if text.eq_ignore_ascii_case("no") => false,
        _ => return Err("argument must be 'yes' or 'no'".to_owned()),
    };
    Ok(())
}

/// `yes` or `no`.
pub(super) fn yes_or_no(field: bool) -> String {
    if field { "yes" } else { "no" }.to_owned()
}

/// Reads one of the words of `known` into `field`.
pub(super) fn word<T: Copy>(field: &mut T, text: &str, known: &[(T, &str)]) -> Result<(), Problem> {
    let found = known.iter().find(|(_, name)| name.eq_ignore_ascii_case(text));
    *field = found
        .ok_or_else(|| {
            let names: Vec<_> = known.iter().map(|(_, name)| *name).collect();
            format!("argument(s) must be one of the following: {}", names.join(", "))
        })?
        .0;
    Ok(())
}

/// The word of `known` for a value.
pub(super) fn word_for<T: Copy + PartialEq>(field: T, known: &[(T, &str)]) -> String {
    known.iter().find(|(value, _)| *value == field).map_or("", |(_, name)| name).to_owned()
}
