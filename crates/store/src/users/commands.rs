//! Commands that a user may run: rules about commands and categories, and the resulting set.

use super::absent::find_absent;
use crate::command::{COMMANDS, Spec, categories};

/// Redis's categories, including those without a command here: rules written for Redis name them.
pub const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// A category's number, by its name without the `@`.
pub(crate) fn find_category(name: &[u8]) -> Option<usize> {
    CATEGORIES.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(name))
}

/// A command of the table, or a subcommand, with its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    pub number: usize,
    pub spec: &'static Spec,
}

impl Command {
    pub fn all() -> impl Iterator<Item = Command> {
        Spec::all(COMMANDS).enumerate().map(|(number, spec)| Command { number, spec })
    }

    /// By its name, or `container|name`, in any case.
    fn find(name: &[u8]) -> Option<Command> {
        Command::all().find(|it| it.spec.full_name().as_bytes().eq_ignore_ascii_case(name))
    }

    pub fn is_in(self, category: usize) -> bool {
        categories(self.spec).any(|name| name.strip_prefix('@') == Some(CATEGORIES[category]))
    }

    /// Whether it is this command or one of its subcommands.
    fn is_of(self, whole: Command) -> bool {
        self.number == whole.number
            || self.spec.container == whole.spec.name && whole.spec.container.is_empty()
    }
}

/// Subject of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    /// By number, with all subcommands.
    Command(usize),
    /// By number.
    Category(usize),
    /// By name, a command of Redis that is not here: the rule is kept for a Redis that reads it.
    Absent(&'static str),
}

/// The commands that a user may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Commands {
    /// Whether the rules begin with all commands, or with none.
    all: bool,
    /// Allowed or forbidden, in order; none is about what a later one is about as a whole.
    rules: Vec<(bool, Subject)>,
    /// The resulting set, a bit for each command number.
    bits: Box<[u64]>,
}

impl Commands {
    fn of(all: bool) -> Self {
        let words = Command::all().count().div_ceil(64);
        Commands { all, rules: Vec::new(), bits: vec![if all { u64::MAX } else { 0 }; words].into() }
    }

    pub fn none() -> Self {
        Commands::of(false)
    }

    pub fn all() -> Self {
        Commands::of(true)
    }

    /// Whether nothing is left out.
    pub fn are_all(&self) -> bool {
        self.bits.iter().all(|word| *word == u64::MAX)
    }

    #[inline]
    pub fn has(&self, number: usize) -> bool {
        self.bits.get(number / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    fn set(&mut self, number: usize, on: bool) {
        let (word, bit) = (&mut self.bits[number / 64], 1 << (number % 64));
        *word = if on { *word | bit } else { *word & !bit };
    }

    /// Applies `+name` (`allow`) or `-name`: a command, `container|name`, or `@category`.
    pub fn apply(&mut self, allow: bool, name: &[u8]) -> Result<(), &'static str> {
        const UNKNOWN: &str = "Unknown command or category name in ACL";
        let Some(category) = name.strip_prefix(b"@") else {
            let Some(command) = Command::find(name) else {
                if let Some(absent) = find_absent(name) {
                    self.keep(allow, absent);
                    return Ok(());
                }
                let first = name.split(|byte| *byte == b'|').next().unwrap_or_default();
                let is_plain = Command::find(first).is_some_and(|it| it.spec.subcommands.is_empty());
                return Err(if is_plain && first.len() < name.len() {
                    "this command has no subcommands, and a rule about its first argument is not supported: allow or \
                     forbid the whole command"
                } else {
                    UNKNOWN
                });
            };
            Command::all().filter(|it| it.is_of(command)).for_each(|it| self.set(it.number, allow));
            let by_number = |number| Command::all().nth(number).is_some_and(|it| it.is_of(command));
            self.rules
                .retain(|(_, subject)| !matches!(subject, Subject::Command(number) if by_number(*number)));
            self.rules.push((allow, Subject::Command(command.number)));
            return Ok(());
        };
        if category.eq_ignore_ascii_case(b"all") {
            *self = Commands::of(allow);
            return Ok(());
        }
        let category = find_category(category).ok_or(UNKNOWN)?;
        Command::all().filter(|it| it.is_in(category)).for_each(|it| self.set(it.number, allow));
        self.rules.retain(|(_, subject)| *subject != Subject::Category(category));
        self.rules.push((allow, Subject::Category(category)));
        Ok(())
    }

    /// Keeps a rule about a command that is not here.
    fn keep(&mut self, allow: bool, absent: &'static str) {
        tracing::warn!(
            command = absent,
            "a rule names a command of Redis that is not here: it is kept without effect"
        );
        let is_of = |other: &str| {
            other == absent || other.split_once('|').is_some_and(|(container, _)| container == absent)
        };
        self.rules.retain(|(_, subject)| !matches!(subject, Subject::Absent(other) if is_of(other)));
        self.rules.push((allow, Subject::Absent(absent)));
    }

    /// The rules that make these commands.
    pub fn describe(&self) -> String {
        let mut text = if self.all { "+@all" } else { "-@all" }.to_owned();
        for (allow, subject) in &self.rules {
            text.push_str(if *allow { " +" } else { " -" });
            match subject {
                Subject::Category(category) => {
                    text.push('@');
                    text.push_str(CATEGORIES[*category]);
                }
                Subject::Absent(name) => text.push_str(name),
                Subject::Command(number) => {
                    text.extend(Command::all().nth(*number).map(|it| it.spec.full_name()));
                }
            }
        }
        text
    }
}
