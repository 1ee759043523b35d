//! Address that a server listens on.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A TCP address or the path of a unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `host:port`; the host is a name or a number, an IPv6 number in brackets.
    Tcp(String),
    /// A unix socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    /// `unix:PATH` or anything with a slash is a unix socket, else it must be `host:port`.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:").or_else(|| text.contains('/').then_some(text)) {
            if path.is_empty() {
                return Err("the path of the unix socket is empty".to_owned());
            }
            return Ok(Address::Unix(path.into()));
        }
        match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) => {
                Ok(Address::Tcp(text.to_owned()))
            }
            _ => Err("an address is HOST:PORT, such as 127.0.0.1:7379, or unix:PATH".to_owned()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => f.write_str(address),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_as_people_write_them() {
        for (text, wanted) in [
            ("127.0.0.1:7379", Some(Address::Tcp("127.0.0.1:7379".into()))),
            ("[::1]:6379", Some(Address::Tcp("[::1]:6379".into()))),
            ("localhost:1", Some(Address::Tcp("localhost:1".into()))),
            ("unix:s", Some(Address::Unix("s".into()))),
            ("./s", Some(Address::Unix("./s".into()))),
            ("localhost", None),
            (":7379", None),
            ("host:0", None),
            ("host:70000", None),
            ("unix:", None),
            ("", None),
        ] {
            assert_eq!(text.parse::<Address>().ok(), wanted, "{text}");
        }
    }
}
