//! Access control of a server's HTTP port: which requests may carry commands.
//!
//! Every client that reaches the port may read. Commands need more: they must not come from a web page, which
//! can make its reader's browser send requests to this machine. So they carry a header and a content type that
//! make a browser ask for permission first, which it does not get. They also name the server by an address or
//! as `localhost`, which a page of another name cannot do, whatever address that name resolves to. The origin
//! of a request from beyond this machine cannot be verified, so there the operator must have allowed commands.

use std::net::{IpAddr, SocketAddr};

use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};

/// Header that commands must have.
pub const CONTROL_HEADER: &str = "x-tiermem";
/// With this value.
pub const CONTROL_VALUE: &str = "control";

/// Whether commands are taken at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// They are.
    Allowed,
    /// The operator wants none.
    Forbidden,
    /// They could come from beyond this machine, which the operator has not allowed.
    Beyond(SocketAddr),
}

impl Control {
    /// At that address, when the operator has allowed it or not, or has said nothing.
    pub fn at(address: SocketAddr, wanted: Option<bool>) -> Self {
        match wanted {
            Some(true) => Control::Allowed,
            Some(false) => Control::Forbidden,
            None if address.ip().is_loopback() => Control::Allowed,
            None => Control::Beyond(address),
        }
    }

    /// Whether a request with these headers may tell the server anything.
    ///
    /// # Errors
    /// Why it may not.
    pub fn check(self, headers: &HeaderMap) -> Result<(), ControlRefusal> {
        match self {
            Control::Allowed => {}
            Control::Forbidden => return Err(ControlRefusal::Forbidden),
            Control::Beyond(address) => return Err(ControlRefusal::Beyond(address)),
        }
        let is = |name: &str, value: &str| {
            headers.get(name).is_some_and(|given| given.as_bytes() == value.as_bytes())
        };
        if !is(CONTROL_HEADER, CONTROL_VALUE) || !is(CONTENT_TYPE.as_str(), "application/json") {
            return Err(ControlRefusal::Headers);
        }
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        if host.is_some_and(is_plain) { Ok(()) } else { Err(ControlRefusal::Host) }
    }
}

/// Whether a `Host` is an address, or this machine's own name for itself.
pub(crate) fn is_plain(host: &str) -> bool {
    if host.parse::<SocketAddr>().is_ok() {
        return true;
    }
    let name = without_port(host);
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

/// A `Host` without its port.
pub(crate) fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() && !name.contains(':') => name,
        _ => host,
    }
}

/// Why a command is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlRefusal {
    /// The operator wants none.
    #[error("the server takes no commands over HTTP: its configuration says http_control = false")]
    Forbidden,
    /// Every client that reaches the machine could give them.
    #[error(
        "the server takes no commands over HTTP, as it listens at {0}, beyond this machine: have it listen at 127.0.0.1, or let its \
         configuration say http_control = true"
    )]
    Beyond(SocketAddr),
    /// It may come from a web page.
    #[error(
        "commands need the headers `{CONTROL_HEADER}: {CONTROL_VALUE}` and `content-type: application/json`"
    )]
    Headers,
    /// So may this.
    #[error("commands must name the server by its address, or as localhost")]
    Host,
}

impl IntoResponse for ControlRefusal {
    fn into_response(self) -> Response {
        (StatusCode::FORBIDDEN, format!("{self}\n")).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(host: &'static str) -> HeaderMap {
        let pairs = [("host", host), (CONTROL_HEADER, CONTROL_VALUE), ("content-type", "application/json")];
        pairs.into_iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn pages_of_other_names_are_refused() {
        for host in
            ["127.0.0.1:7381", "[::1]:7381", "[::1]", "::1", "localhost:7381", "LOCALHOST", "10.0.0.1"]
        {
            assert_eq!(Control::Allowed.check(&headers(host)), Ok(()), "{host}");
        }
        for host in
            ["", "evil.example", "evil.example:7381", "localhost.evil.example", "127.0.0.1.evil.example"]
        {
            assert_eq!(Control::Allowed.check(&headers(host)), Err(ControlRefusal::Host), "{host}");
        }
        assert_eq!(Control::Allowed.check(&HeaderMap::new()), Err(ControlRefusal::Headers));
    }

    #[test]
    fn what_a_browser_sends_unasked_is_refused() {
        for missing in [CONTROL_HEADER, "content-type"] {
            let mut less = headers("localhost");
            less.remove(missing);
            assert_eq!(Control::Allowed.check(&less), Err(ControlRefusal::Headers));
        }
        let mut form = headers("localhost");
        form.insert("content-type", "text/plain".parse().unwrap());
        assert_eq!(Control::Allowed.check(&form), Err(ControlRefusal::Headers));
    }

    #[test]
    fn beyond_this_machine_the_operator_must_allow_it() {
        let (here, everywhere) = ("127.0.0.1:1".parse().unwrap(), "0.0.0.0:1".parse().unwrap());
        assert_eq!(Control::at(here, None), Control::Allowed);
        assert_eq!(Control::at(everywhere, None), Control::Beyond(everywhere));
        assert_eq!(Control::at(everywhere, Some(true)), Control::Allowed);
        assert_eq!(Control::at(here, Some(false)), Control::Forbidden);
        let words = Control::at(everywhere, None).check(&headers("localhost")).unwrap_err().to_string();
        assert!(words.contains("0.0.0.0:1") && words.contains("http_control = true"), "{words}");
    }
}
