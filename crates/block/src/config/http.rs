//! Configuration of the HTTP port with the live page.

use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer};
use tiermem_live::address;

/// The port beside the store's.
const PORT: u16 = 7381;

/// The address of the live page; none for no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpAddress(pub Option<SocketAddr>);

impl Default for HttpAddress {
    fn default() -> Self {
        HttpAddress(Some(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT))))
    }
}

impl FromStr for HttpAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(HttpAddress(None));
        }
        let address = address::parse(text).map_err(|error| format!("{error}; `none` is no port at all"))?;
        Ok(HttpAddress(Some(address)))
    }
}

impl<'de> Deserialize<'de> for HttpAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_or_none() {
        assert_eq!("none".parse(), Ok(HttpAddress(None)));
        assert_eq!("[::1]:80".parse(), Ok(HttpAddress("[::1]:80".parse().ok())));
        assert!("localhost".parse::<HttpAddress>().unwrap_err().contains("127.0.0.1:80"));
        assert_eq!("localhost:80".parse(), Ok(HttpAddress("127.0.0.1:80".parse().ok())));
    }
}
