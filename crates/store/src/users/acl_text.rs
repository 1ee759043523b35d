//! ACL text: describes a user by rules that produce it.

use super::DEFAULT;
use super::user::{Access, KeyPattern, User};

impl KeyPattern {
    fn describe(&self) -> String {
        let mark = match self.access {
            Access::READ => "%R~",
            Access::WRITE => "%W~",
            _ => "~",
        };
        format!("{mark}{}", self.text)
    }
}

impl User {
    /// Its flags, in Redis's words.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> + Clone {
        let nopass = self.no_password.then_some("nopass");
        [Some(if self.on { "on" } else { "off" }), nopass].into_iter().flatten()
    }

    /// Its passwords' digests, in hexadecimal digits.
    pub fn digests(&self) -> Vec<String> {
        self.passwords.iter().map(|digest| digest.hex()).collect()
    }

    /// The rules about commands.
    pub fn command_rules(&self) -> String {
        self.commands.describe()
    }

    /// The rules about keys.
    pub fn key_rules(&self) -> String {
        if self.all_keys {
            return "~*".to_owned();
        }
        self.keys.iter().map(KeyPattern::describe).collect::<Vec<_>>().join(" ")
    }

    /// The rules about channels.
    pub fn channel_rules(&self) -> String {
        if self.all_channels {
            return "&*".to_owned();
        }
        self.channels.iter().map(|pattern| format!("&{pattern}")).collect::<Vec<_>>().join(" ")
    }

    /// The rules that make this user of one that can do nothing.
    pub fn describe(&self) -> String {
        let mut words: Vec<String> = self.flags().map(str::to_owned).collect();
        words.extend(self.digests().into_iter().map(|digest| format!("#{digest}")));
        words.push(self.key_rules());
        words.extend((!self.all_channels).then(|| "resetchannels".to_owned()));
        words.push(self.channel_rules());
        words.push(self.command_rules());
        words.retain(|word| !word.is_empty());
        words.join(" ")
    }

    /// The rules that make this user in a configuration file, where `default` is there before.
    pub fn describe_for_file(&self) -> String {
        let first = if **self.name() == *DEFAULT { "reset " } else { "" };
        format!("{first}{}", self.describe())
    }
}
