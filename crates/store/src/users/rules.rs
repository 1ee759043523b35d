//! Rules of `ACL SETUSER`: one word changes one thing about a user.

use super::commands::Commands;
use super::password::Digest;
use super::user::{Access, KeyPattern, User};

const SYNTAX: &str = "Syntax error";
const NO_DIGEST: &str =
    "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters";
const NO_SUCH_PASSWORD: &str = "The password you are trying to remove from the user does not exist";
const ALL_KEYS_ALREADY: &str = "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not \
                                have any effect. Try 'resetkeys' to start with an empty list of patterns";
const ALL_CHANNELS_ALREADY: &str = "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and \
                                    does not have any effect. Try 'resetchannels' to start with an empty list of \
                                    channels";

impl User {
    /// Applies a rule, or says in Redis's words why not.
    pub(super) fn apply(&mut self, rule: &[u8]) -> Result<(), &'static str> {
        match rule {
            [b'>', password @ ..] => self.add_password(Digest::of(password)),
            [b'#', digest @ ..] => self.add_password(Digest::parse(digest).ok_or(NO_DIGEST)?),
            [b'<', password @ ..] => return self.remove_password(Digest::of(password)),
            [b'!', digest @ ..] => return self.remove_password(Digest::parse(digest).ok_or(NO_DIGEST)?),
            [b'~', pattern @ ..] => return self.add_keys(pattern, Access::BOTH),
            [b'%', rest @ ..] => {
                let tilde = rest.iter().position(|byte| *byte == b'~').ok_or(SYNTAX)?;
                return self.add_keys(&rest[tilde + 1..], access(&rest[..tilde])?);
            }
            [b'&', pattern @ ..] => return self.add_channels(pattern),
            [b'+', name @ ..] => return self.commands.apply(true, name),
            [b'-', name @ ..] => return self.commands.apply(false, name),
            [b'(', ..] => {
                return Err(
                    "selectors are not supported: give the user one list of rules, or make two users",
                );
            }
            word => return self.apply_word(&word.to_ascii_lowercase()),
        }
        Ok(())
    }

    fn apply_word(&mut self, word: &[u8]) -> Result<(), &'static str> {
        match word {
            b"on" => self.on = true,
            b"off" => self.on = false,
            b"nopass" => self.set_password(None),
            b"resetpass" => (self.no_password, self.passwords) = (false, Vec::new()),
            b"allkeys" => (self.all_keys, self.keys) = (true, Vec::new()),
            b"resetkeys" => (self.all_keys, self.keys) = (false, Vec::new()),
            b"allchannels" => (self.all_channels, self.channels) = (true, Vec::new()),
            b"resetchannels" => (self.all_channels, self.channels) = (false, Vec::new()),
            b"allcommands" => self.commands = Commands::all(),
            b"nocommands" => self.commands = Commands::none(),
            b"reset" => *self = User::nothing(self.name()),
            b"sanitize-payload" | b"skip-sanitize-payload" => {
                return Err("there is no RESTORE here whose payload could be looked at: leave this rule out");
            }
            _ => return Err(SYNTAX),
        }
        Ok(())
    }

    fn add_password(&mut self, password: Digest) {
        self.no_password = false;
        if !self.passwords.contains(&password) {
            self.passwords.push(password);
        }
    }

    fn remove_password(&mut self, password: Digest) -> Result<(), &'static str> {
        let place = self.passwords.iter().position(|known| *known == password).ok_or(NO_SUCH_PASSWORD)?;
        self.passwords.remove(place);
        Ok(())
    }

    /// The same pattern again may be read, or written, as well.
    fn add_keys(&mut self, pattern: &[u8], access: Access) -> Result<(), &'static str> {
        let text = readable(pattern)?;
        if text == "*" && access == Access::BOTH {
            (self.all_keys, self.keys) = (true, Vec::new());
        } else if self.all_keys {
            return Err(ALL_KEYS_ALREADY);
        } else if let Some(known) = self.keys.iter_mut().find(|known| *known.text == *text) {
            known.access.read |= access.read;
            known.access.write |= access.write;
        } else {
            self.keys.push(KeyPattern { text: text.into(), access });
        }
        Ok(())
    }

    fn add_channels(&mut self, pattern: &[u8]) -> Result<(), &'static str> {
        let text = readable(pattern)?;
        if text == "*" {
            (self.all_channels, self.channels) = (true, Vec::new());
        } else if self.all_channels {
            return Err(ALL_CHANNELS_ALREADY);
        } else if !self.channels.iter().any(|known| **known == *text) {
            self.channels.push(text.into());
        }
        Ok(())
    }
}

/// The letters between `%` and `~`.
fn access(letters: &[u8]) -> Result<Access, &'static str> {
    let mut access = Access::ASK;
    for letter in letters {
        match letter.to_ascii_uppercase() {
            b'R' if !access.read => access.read = true,
            b'W' if !access.write => access.write = true,
            _ => return Err(SYNTAX),
        }
    }
    if access == Access::ASK { Err(SYNTAX) } else { Ok(access) }
}

/// A pattern that can be written in lists and files, which separate by blanks.
fn readable(pattern: &[u8]) -> Result<&str, &'static str> {
    let text = std::str::from_utf8(pattern)
        .map_err(|_| "patterns are kept as text: name bytes that are no UTF-8 with ? or *")?;
    if text.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
        return Err(SYNTAX);
    }
    Ok(text)
}
