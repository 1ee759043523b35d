//! Address that an NBD server listens on.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The port that is the protocol's own.
pub const PORT: u16 = 10809;

/// A place to listen at or to connect to. As text it is `unix:PATH` or `HOST:PORT`, an IPv6 address in brackets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(try_from = "String")]
pub enum Address {
    /// A host's name or address, without brackets, and a port.
    Tcp {
        /// Name or address.
        host: String,
        /// Port; 0 lets the system choose when listening.
        port: u16,
    },
    /// A socket in the file system. A path that begins with a zero byte is in the abstract namespace.
    Unix(PathBuf),
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// `unix:` and nothing behind it.
    #[error("a path must follow `unix:`")]
    NoPath,
    /// No colon, or nothing in front of it.
    #[error("`{0}` is neither unix:PATH nor HOST:PORT")]
    Form(String),
    /// The port is no number of 16 bits.
    #[error("`{0}` is no port")]
    Port(String),
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() {
                Err(AddressError::NoPath)
            } else {
                Ok(Address::Unix(PathBuf::from(path)))
            };
        }
        let form = || AddressError::Form(text.to_owned());
        let (host, port) = host_and_port(text).ok_or_else(form)?;
        let port = port.ok_or_else(form)?;
        if host.is_empty() {
            return Err(form());
        }
        Ok(Address::Tcp { host: host.to_owned(), port: parse_port(port)? })
    }
}

impl TryFrom<String> for Address {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, AddressError> {
        text.parse()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp { host, port } => write!(f, "{}:{port}", bracketed(host)),
        }
    }
}

/// A host as written before a port.
pub(super) fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// Splits a host, freed of its brackets, from the port behind it, if there is one. `None` when brackets do not close
/// or there are colons outside of them.
pub(super) fn host_and_port(text: &str) -> Option<(&str, Option<&str>)> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(inside) => inside.split_once(']').filter(|(host, _)| host.contains(':'))?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    match rest.strip_prefix(':') {
        Some(port) if port.contains(':') => None,
        Some(port) => Some((host, Some(port))),
        None if rest.is_empty() => Some((host, None)),
        None => None,
    }
}

/// Reads a port: digits only.
pub(super) fn parse_port(text: &str) -> Result<u16, AddressError> {
    let error = || AddressError::Port(text.to_owned());
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(error());
    }
    text.parse().map_err(|_| error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_and_print() {
        let tcp = |host: &str, port| Address::Tcp { host: host.to_owned(), port };
        for (text, address) in [
            ("unix:/run/nbd.sock", Address::Unix("/run/nbd.sock".into())),
            ("unix:a:b", Address::Unix("a:b".into())),
            ("localhost:10809", tcp("localhost", 10809)),
            ("0.0.0.0:0", tcp("0.0.0.0", 0)),
            ("[::1]:65535", tcp("::1", 65535)),
        ] {
            assert_eq!(text.parse(), Ok(address.clone()));
            assert_eq!(address.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_address_says_why() {
        let form = |text: &str| AddressError::Form(text.to_owned());
        let port = |text: &str| AddressError::Port(text.to_owned());
        for (text, error) in [
            ("unix:", AddressError::NoPath),
            ("", form("")),
            ("host", form("host")),
            (":1", form(":1")),
            ("::1", form("::1")),
            ("::1:5", form("::1:5")),
            ("[::1", form("[::1")),
            ("[::1]5", form("[::1]5")),
            ("[host]:5", form("[host]:5")),
            ("host:", port("")),
            ("host:65536", port("65536")),
            ("host:+1", port("+1")),
        ] {
            assert_eq!(text.parse::<Address>(), Err(error), "{text}");
        }
    }
}
