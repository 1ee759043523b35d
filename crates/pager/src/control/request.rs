//! What can be asked for: one line of text.

use std::str::FromStr;

use tiermem_base::Bytes;
use tiermem_policy::{evict, prefetch};

/// A request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Request {
    /// How it is.
    Status,
    /// A change.
    Set(Change),
}

/// What is to be changed; `None`: it stays.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    /// The limit of DRAM.
    pub dram_bytes: Option<u64>,
    /// The limit of flash.
    pub flash_bytes: Option<u64>,
    /// Who leaves; `Some(None)`: as the kernel's own reclaim chooses.
    pub evict: Option<Option<evict::Named>>,
    /// What is fetched ahead.
    pub prefetch: Option<prefetch::Named>,
    /// Whether sweeps drop what they have passed, where that pays.
    pub drop_behind: Option<bool>,
}

/// Why a line is no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// It begins with no known word.
    #[error("{0:?} is no request; send `status`, or `set dram=2GiB evict=clock prefetch=readahead`")]
    Unknown(String),
    /// A word that sets nothing.
    #[error(
        "{0:?} sets nothing; write dram=SIZE, flash=SIZE, evict=NAME, prefetch=NAME or drop-behind=on|off"
    )]
    Word(String),
    /// A value that cannot be.
    #[error("{name}: {problem}")]
    Value {
        /// What was to be set.
        name: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// One that was named twice.
    #[error("{0} is set twice")]
    Twice(&'static str),
}

impl Change {
    /// Whether it is about what steering does.
    pub fn asks_for_steering(&self) -> bool {
        self.evict.flatten().is_some()
            || self.prefetch.is_some_and(|it| it != prefetch::Named::None)
            || self.drop_behind == Some(true)
    }

    /// A change of words such as `dram=2GiB`.
    ///
    /// # Errors
    /// At the first that sets nothing; without any.
    pub fn of_words<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, RequestError> {
        let mut change = Change::default();
        for word in words {
            let unknown = || RequestError::Word(short(word));
            // The errors of what reads a value quote all of it, and an answer is short.
            let word_is_short = word.chars().count() <= QUOTED_LETTERS;
            let (name, value) = word.split_once('=').filter(|_| word_is_short).ok_or_else(unknown)?;
            match name {
                "dram" => set("dram", &mut change.dram_bytes, value.parse().map(|Bytes(bytes)| bytes))?,
                "flash" => set("flash", &mut change.flash_bytes, value.parse().map(|Bytes(bytes)| bytes))?,
                "evict" if value == "kernel" => set("evict", &mut change.evict, Ok::<_, String>(None))?,
                "evict" => {
                    let named = value.parse().map(Some).map_err(|error: String| format!("{error}, kernel"));
                    set("evict", &mut change.evict, named)?;
                }
                "prefetch" => set("prefetch", &mut change.prefetch, value.parse())?,
                "drop-behind" => set("drop-behind", &mut change.drop_behind, on_or_off(value))?,
                _ => return Err(unknown()),
            }
        }
        if change == Change::default() {
            return Err(RequestError::Word(String::new()));
        }
        Ok(change)
    }
}

fn set<V, E: ToString>(
    name: &'static str,
    to: &mut Option<V>,
    value: Result<V, E>,
) -> Result<(), RequestError> {
    let value = value.map_err(|error| RequestError::Value { name, problem: error.to_string() })?;
    match to.replace(value) {
        None => Ok(()),
        Some(_) => Err(RequestError::Twice(name)),
    }
}

/// Whether something is to be.
///
/// # Errors
/// If the text is neither `on` nor `off`.
pub fn on_or_off(text: &str) -> Result<bool, &'static str> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("it is on or off"),
    }
}

/// How much of a request is quoted in a refusal. No word that sets something is longer.
const QUOTED_LETTERS: usize = 40;

fn short(text: &str) -> String {
    text.chars().take(QUOTED_LETTERS).collect()
}

impl FromStr for Request {
    type Err = RequestError;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("status") if words.next().is_none() => Ok(Request::Status),
            Some("set") => Change::of_words(words).map(Request::Set),
            _ => Err(RequestError::Unknown(short(line))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_question_or_a_change() {
        assert_eq!("status".parse(), Ok(Request::Status));
        let change = Change {
            dram_bytes: Some(2 << 30),
            evict: Some(Some(evict::Named::Lru)),
            prefetch: Some(prefetch::Named::None),
            ..Change::default()
        };
        assert_eq!("set dram=2GiB evict=lru  prefetch=none\n".parse(), Ok(Request::Set(change)));
        assert!(change.asks_for_steering());
        let flash = Change { flash_bytes: Some(1 << 30), drop_behind: Some(false), ..Change::default() };
        assert_eq!("set flash=1GiB drop-behind=off".parse(), Ok(Request::Set(flash)));
        assert!(!flash.asks_for_steering());
        assert!(Change { drop_behind: Some(true), ..flash }.asks_for_steering());
        let kernel = Change { evict: Some(None), ..Change::default() };
        assert_eq!("set evict=kernel".parse(), Ok(Request::Set(kernel)));
        assert!(!kernel.asks_for_steering());
    }

    #[test]
    fn what_is_none_is_refused_with_what_would_do() {
        let said = |line: &str| line.parse::<Request>().unwrap_err().to_string();
        for line in ["", "stop", "status now", "\u{0}"] {
            assert!(said(line).contains("send `status`"), "{line}");
        }
        for line in ["set", "set dram", "set swap=1GiB", "set =", "set dram=1GiB x"] {
            assert!(said(line).contains("dram=SIZE"), "{line}");
        }
        assert!(said("set dram=much").starts_with("dram: "));
        assert!(said("set evict=nobody").contains("kernel"));
        assert!(said("set drop-behind=maybe").contains("on or off"));
        assert!(said("set dram=1GiB dram=2GiB").contains("twice"));
        for name in ["", "dram=", "flash=", "evict=", "prefetch=", "drop-behind="] {
            let long = said(&format!("set {name}{}", "\u{b}".repeat(8000)));
            assert!(long.len() < 1000, "{long}");
        }
        assert!(said(&"x".repeat(1 << 20)).len() < 200);
    }
}
