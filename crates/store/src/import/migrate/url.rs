//! URL of a Redis server.

use std::fmt;
use std::str::FromStr;

use crate::import::Login;
use crate::replay::Address;

const FORM: &str = "redis://[user:password@]host[:port][/db]";

/// `redis://[user:password@]host[:port][/db]`. User and password may be percent-encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisUrl {
    /// Where it listens.
    pub address: Address,
    /// Login and database.
    pub login: Login,
}

fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or("a % in user or password is followed by two hexadecimal digits")?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| "user and password are UTF-8".to_owned())
}

impl FromStr for RedisUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with("rediss://") {
            return Err(
                "TLS is not supported here; reach the server through a tunnel, as redis://".to_owned()
            );
        }
        let rest = text.strip_prefix("redis://").ok_or_else(|| format!("a Redis is {FORM}"))?;
        let (rest, db) = match rest.split_once('/') {
            Some((rest, "")) => (rest, 0),
            Some((rest, db)) => {
                (rest, db.parse().map_err(|_| format!("the database in {FORM} is a number"))?)
            }
            None => (rest, 0),
        };
        let (login, host) = match rest.rsplit_once('@') {
            Some((login, host)) => (Some(login), host),
            None => (None, rest),
        };
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or(("", login))) {
            Some(("", password)) => (None, Some(decode(password)?)),
            Some((user, password)) => (Some(decode(user)?), Some(decode(password)?)),
            None => (None, None),
        };
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let address = if has_port { host.to_owned() } else { format!("{host}:6379") };
        let address: Address = address.parse().map_err(|_| format!("a Redis is {FORM}"))?;
        Ok(RedisUrl { address, login: Login { user, password, db } })
    }
}

impl fmt::Display for RedisUrl {
    /// Without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "redis://{}/{}", self.address, self.login.db)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_read_as_people_write_them() {
        for (text, wanted) in [
            ("redis://h", Some(("h:6379", None, None, 0))),
            ("redis://h:7/3", Some(("h:7", None, None, 3))),
            ("redis://h/", Some(("h:6379", None, None, 0))),
            ("redis://[::1]/2", Some(("[::1]:6379", None, None, 2))),
            ("redis://[::1]:5", Some(("[::1]:5", None, None, 0))),
            ("redis://:pa%3Ass@h", Some(("h:6379", None, Some("pa:ss"), 0))),
            ("redis://me:p@ss@h:1/15", Some(("h:1", Some("me"), Some("p@ss"), 15))),
            ("redis://secret@h", Some(("h:6379", None, Some("secret"), 0))),
            ("redis://", None),
            ("redis://h/x", None),
            ("redis://:%4@h", None),
            ("rediss://h", None),
            ("h:6379", None),
        ] {
            let url = text.parse::<RedisUrl>().ok();
            let told = url.as_ref().map(|url| {
                let Address::Tcp(address) = &url.address else { panic!("a TCP address") };
                (address.as_str(), url.login.user.as_deref(), url.login.password.as_deref(), url.login.db)
            });
            assert_eq!(told, wanted, "{text}");
        }
        let url: RedisUrl = "redis://me:secret@h:1/2".parse().unwrap();
        assert_eq!(url.to_string(), "redis://h:1/2");
    }
}
