//! URI of an export (`doc/uri.md` of the NetworkBlockDevice project, and RFC 3986).

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::str::FromStr;

use super::address::{self, Address, AddressError, PORT};
use super::percent;

/// An export somewhere: `nbd://HOST[:PORT]/EXPORT` or `nbd+unix:///EXPORT?socket=PATH`, with `nbds` for TLS.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NbdUri {
    /// Whether the connection must be TLS.
    pub tls: bool,
    /// Where the server is.
    pub address: Address,
    /// The export's name; the empty one means the server's default.
    pub export: String,
    /// The name that the server's certificate must be for, where it is not the host's.
    pub tls_hostname: Option<String>,
    /// Whether the server's certificate is looked at.
    pub tls_verify_peer: bool,
}

/// Errors of a text that is not such a URI.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UriError {
    /// It does not begin with `nbd://` or one of its kin.
    #[error("`{0}` begins with none of nbd://, nbds://, nbd+unix:// and nbds+unix://")]
    Scheme(String),
    /// `nbd://` without a host.
    #[error("`{0}` names no host")]
    NoHost(String),
    /// Host and port cannot be separated.
    #[error("`{0}` is no host with a port")]
    Authority(String),
    /// A user in front of the host.
    #[error("`{0}` names a user, which is of no use here")]
    User(String),
    /// The port is none.
    #[error(transparent)]
    Port(#[from] AddressError),
    /// A host where the scheme speaks of a socket in the file system.
    #[error("`{0}` names a host, and a socket besides")]
    HostAndSocket(String),
    /// A socket in the file system without its path.
    #[error("`{0}` lacks ?socket=PATH")]
    NoSocket(String),
    /// A `%` without two hexadecimal digits, or bytes that are not UTF-8.
    #[error("`{0}` is badly encoded")]
    Encoding(String),
    /// A parameter that is not known, that comes twice, or that has no place here.
    #[error("parameter `{0}` has no place here")]
    Parameter(String),
    /// A parameter with a value that it cannot have.
    #[error("`{value}` is no value for parameter `{name}`")]
    Value {
        /// The parameter.
        name: String,
        /// What it was given.
        value: String,
    },
    /// A fragment.
    #[error("`{0}` has a fragment, which is of no use here")]
    Fragment(String),
}

fn text(encoded: &str) -> Result<String, UriError> {
    percent::decode(encoded)
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or_else(|| UriError::Encoding(encoded.to_owned()))
}

/// The query, behind the question mark.
#[derive(Default)]
struct Parameters {
    socket: Option<PathBuf>,
    tls_hostname: Option<String>,
    tls_verify_peer: Option<bool>,
}

impl Parameters {
    fn read(query: &str, unix: bool, tls: bool) -> Result<Self, UriError> {
        let mut parameters = Parameters::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let misplaced = || UriError::Parameter(name.to_owned());
            let bad = || UriError::Value { name: name.to_owned(), value: value.to_owned() };
            let again = match name {
                "socket" if unix => {
                    let path = percent::decode(value).ok_or_else(|| UriError::Encoding(value.to_owned()))?;
                    // Only the abstract namespace begins with a zero byte, and no path has one elsewhere.
                    if path.is_empty() || path == [0] || path[1..].contains(&0) {
                        return Err(bad());
                    }
                    parameters.socket.replace(PathBuf::from(OsString::from_vec(path))).is_some()
                }
                "tls-hostname" if tls => {
                    if value.is_empty() {
                        return Err(bad());
                    }
                    parameters.tls_hostname.replace(text(value)?).is_some()
                }
                "tls-verify-peer" if tls => {
                    let verify = match value {
                        "0" => false,
                        "1" => true,
                        _ => return Err(bad()),
                    };
                    parameters.tls_verify_peer.replace(verify).is_some()
                }
                _ => return Err(misplaced()),
            };
            if again {
                return Err(misplaced());
            }
        }
        Ok(parameters)
    }
}

impl FromStr for NbdUri {
    type Err = UriError;

    fn from_str(uri: &str) -> Result<Self, UriError> {
        let whole = || uri.to_owned();
        let (scheme, rest) = uri.split_once("://").ok_or_else(|| UriError::Scheme(whole()))?;
        let (tls, unix) = match scheme.to_ascii_lowercase().as_str() {
            "nbd" => (false, false),
            "nbds" => (true, false),
            "nbd+unix" => (false, true),
            "nbds+unix" => (true, true),
            _ => return Err(UriError::Scheme(whole())),
        };
        if rest.contains('#') {
            return Err(UriError::Fragment(whole()));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let parameters = Parameters::read(query, unix, tls)?;
        if authority.contains('@') {
            return Err(UriError::User(whole()));
        }
        let address = if unix {
            if !authority.is_empty() {
                return Err(UriError::HostAndSocket(whole()));
            }
            Address::Unix(parameters.socket.ok_or_else(|| UriError::NoSocket(whole()))?)
        } else {
            let (host, port) =
                address::host_and_port(authority).ok_or_else(|| UriError::Authority(authority.to_owned()))?;
            if host.is_empty() {
                return Err(UriError::NoHost(whole()));
            }
            // RFC 3986 lets the colon stand without a port.
            let port = port.filter(|port| !port.is_empty()).map_or(Ok(PORT), address::parse_port)?;
            Address::Tcp { host: text(host)?, port }
        };
        Ok(NbdUri {
            tls,
            address,
            export: text(path)?,
            tls_hostname: parameters.tls_hostname,
            tls_verify_peer: parameters.tls_verify_peer.unwrap_or(true),
        })
    }
}

impl fmt::Display for NbdUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "nbds" } else { "nbd" };
        let export = percent::encode(self.export.as_bytes());
        let mut parameters = Vec::new();
        match &self.address {
            Address::Tcp { host, port } => {
                // An IPv6 address is written in brackets unchanged; a name may need encoding.
                let host = if host.contains(':') {
                    address::bracketed(host)
                } else {
                    percent::encode(host.as_bytes()).replace('/', "%2F")
                };
                write!(f, "{scheme}://{host}")?;
                if *port != PORT {
                    write!(f, ":{port}")?;
                }
                write!(f, "/{export}")?;
            }
            Address::Unix(path) => {
                write!(f, "{scheme}+unix:///{export}")?;
                parameters.push(format!("socket={}", percent::encode(path.as_os_str().as_bytes())));
            }
        }
        if let Some(name) = &self.tls_hostname {
            parameters.push(format!("tls-hostname={}", percent::encode(name.as_bytes())));
        }
        if self.tls && !self.tls_verify_peer {
            parameters.push("tls-verify-peer=0".to_owned());
        }
        if parameters.is_empty() { Ok(()) } else { write!(f, "?{}", parameters.join("&")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tcp(host: &str, port: u16, export: &str) -> NbdUri {
        NbdUri {
            tls: false,
            address: Address::Tcp { host: host.to_owned(), port },
            export: export.to_owned(),
            tls_hostname: None,
            tls_verify_peer: true,
        }
    }

    #[test]
    fn uris_read_and_print() {
        let unix =
            |path: &str, export: &str| NbdUri { address: Address::Unix(path.into()), ..tcp("", 0, export) };
        for (text, uri, printed) in [
            ("nbd://example.com/disk", tcp("example.com", PORT, "disk"), "nbd://example.com/disk"),
            ("nbd://example.com", tcp("example.com", PORT, ""), "nbd://example.com/"),
            ("NBD://example.com:/", tcp("example.com", PORT, ""), "nbd://example.com/"),
            ("nbd://example.com//disk", tcp("example.com", PORT, "/disk"), "nbd://example.com//disk"),
            ("nbd://h:1/hello%20world", tcp("h", 1, "hello world"), "nbd://h:1/hello%20world"),
            ("nbd://[::1]:10810/a", tcp("::1", 10810, "a"), "nbd://[::1]:10810/a"),
            ("nbd+unix:///?socket=/a%26b", unix("/a&b", ""), "nbd+unix:///?socket=/a%26b"),
            ("nbd+unix:///d?socket=s", unix("s", "d"), "nbd+unix:///d?socket=s"),
            ("nbd+unix://?socket=%00x", unix("\0x", ""), "nbd+unix:///?socket=%00x"),
        ] {
            assert_eq!(text.parse(), Ok(uri.clone()), "{text}");
            assert_eq!(uri.to_string(), printed);
        }
        let text = "nbds+unix:///a?socket=s&tls-hostname=h&tls-verify-peer=0";
        let uri = NbdUri {
            tls: true,
            tls_hostname: Some("h".to_owned()),
            tls_verify_peer: false,
            ..unix("s", "a")
        };
        assert_eq!(text.parse(), Ok(uri.clone()));
        assert_eq!(uri.to_string(), text);
        assert_eq!("nbds://h/a".parse(), Ok(NbdUri { tls: true, ..tcp("h", PORT, "a") }));
    }

    #[test]
    fn what_is_no_uri_says_why() {
        let whole = |text: &str| text.to_owned();
        for (text, error) in [
            ("", UriError::Scheme(whole(""))),
            ("nbd:a", UriError::Scheme(whole("nbd:a"))),
            ("http://a/", UriError::Scheme(whole("http://a/"))),
            ("nbd:///a", UriError::NoHost(whole("nbd:///a"))),
            ("nbd://:1/a", UriError::NoHost(whole("nbd://:1/a"))),
            ("nbd://u@h/a", UriError::User(whole("nbd://u@h/a"))),
            ("nbd://::1/a", UriError::Authority(whole("::1"))),
            ("nbd://h:x/a", UriError::Port(AddressError::Port(whole("x")))),
            ("nbd://h/%zz", UriError::Encoding(whole("%zz"))),
            ("nbd://h/%ff", UriError::Encoding(whole("%ff"))),
            ("nbd://h/a#b", UriError::Fragment(whole("nbd://h/a#b"))),
            ("nbd://h/?socket=s", UriError::Parameter(whole("socket"))),
            ("nbd://h/?tls-hostname=s", UriError::Parameter(whole("tls-hostname"))),
            ("nbds://h/?what", UriError::Parameter(whole("what"))),
            (
                "nbds://h/?tls-verify-peer=2",
                UriError::Value { name: whole("tls-verify-peer"), value: whole("2") },
            ),
            ("nbd+unix:///a", UriError::NoSocket(whole("nbd+unix:///a"))),
            ("nbd+unix:///a?socket=s&socket=t", UriError::Parameter(whole("socket"))),
            ("nbd+unix:///a?socket=", UriError::Value { name: whole("socket"), value: whole("") }),
            ("nbd+unix:///a?socket=%00", UriError::Value { name: whole("socket"), value: whole("%00") }),
            ("nbd+unix://h/a?socket=s", UriError::HostAndSocket(whole("nbd+unix://h/a?socket=s"))),
        ] {
            assert_eq!(text.parse::<NbdUri>(), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(
            tls: bool,
            host in "[a-z0-9.-]{1,8}|::[0-9a-f]{1,4}",
            port in 1u16..,
            path in prop::option::of(prop::collection::vec(1u8.., 1..12)),
            export: String,
            tls_hostname in prop::option::of(".{1,8}"),
            verify: bool,
        ) {
            let address = match path {
                Some(path) => Address::Unix(OsString::from_vec(path).into()),
                None => Address::Tcp { host, port },
            };
            let tls_hostname = tls_hostname.filter(|_| tls);
            let uri = NbdUri { tls, address, export, tls_hostname, tls_verify_peer: verify || !tls };
            prop_assert_eq!(uri.to_string().parse(), Ok(uri));
        }

        #[test]
        fn any_text_is_a_uri_or_an_error(text: String) {
            let _ = text.parse::<NbdUri>();
            let _ = format!("nbd://{text}").parse::<NbdUri>();
            let _ = format!("nbds+unix://{text}").parse::<NbdUri>();
            let _ = text.parse::<Address>();
        }
    }
}
