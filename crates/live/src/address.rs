//! Addresses to listen on: an IP address or a name such as localhost, with a port.

use std::net::{SocketAddr, ToSocketAddrs};

use serde::{Deserialize, Deserializer};

/// Reads an address. Of several that a name has it takes the first of IPv4, or the first.
///
/// # Errors
/// Says what an address looks like.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    let unknown = |why: String| {
        format!("`{text}` is no address with a port, such as 127.0.0.1:80 or localhost:80{why}")
    };
    let found: Vec<SocketAddr> = match text.parse() {
        Ok(address) => return Ok(address),
        Err(_) if !text.contains(':') => return Err(unknown(String::new())),
        Err(_) => text.to_socket_addrs().map_err(|error| unknown(format!(": {error}")))?.collect(),
    };
    let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
    first.copied().ok_or_else(|| unknown(String::new()))
}

/// Reads one of a configuration.
///
/// # Errors
/// As [`parse`].
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

/// Reads one that may be left out.
///
/// # Errors
/// As [`parse`].
pub fn deserialize_some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_read() {
        for (text, address) in
            [("127.0.0.1:80", "127.0.0.1:80"), ("[::1]:80", "[::1]:80"), ("localhost:80", "127.0.0.1:80")]
        {
            assert_eq!(parse(text), Ok(address.parse().unwrap()), "{text}");
        }
        for text in ["localhost", "127.0.0.1", "", ":80", "localhost:", "localhost:http2", "no such name:80"]
        {
            assert!(parse(text).unwrap_err().contains("localhost:80"), "{text}");
        }
    }
}
