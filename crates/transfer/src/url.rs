//! Addresses of pools: `farpool://host:port`, and `farpools://host:port` for TLS.

use farpool_model::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// Default port, for addresses without one.
pub const PORT_DEFAULT: u16 = 9797;

/// The address of a node: `farpool://host:port`, or `farpools://host:port` for TLS. The scheme `farpool://` and the
/// port can be left out, and an IPv6 address stands in brackets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolUrl {
    is_encrypted: bool,
    host: String,
    port: u16,
}

impl PoolUrl {
    /// Returns whether the connection uses TLS.
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    /// Returns the host name or address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for PoolUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_encrypted { "farpools" } else { "farpool" };
        if self.host.contains(':') {
            write!(f, "{scheme}://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{scheme}://{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for PoolUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse(text).ok_or_else(|| {
            Error::invalid(format!("{text:?} is not the address of a pool"))
                .advise(format!("write farpool://host:port, for example farpool://localhost:{PORT_DEFAULT}"))
        })
    }
}

fn parse(text: &str) -> Option<PoolUrl> {
    let (is_encrypted, rest) = match text.split_once("://") {
        Some(("farpool", rest)) => (false, rest),
        Some(("farpools", rest)) => (true, rest),
        Some(_) => return None,
        None => (false, text),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = match rest.strip_prefix('[') {
        Some(bracketed) => {
            let (host, after) = bracketed.split_once(']')?;
            (host, if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
        }
        None => match rest.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (rest, None),
        },
    };
    let port = match port {
        Some(digits) => digits.parse().ok()?,
        None => PORT_DEFAULT,
    };
    let bad = |c: char| c.is_whitespace() || c.is_control() || "/@?#[]".contains(c);
    (!host.is_empty() && !host.contains(bad)).then(|| PoolUrl { is_encrypted, host: host.to_string(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, written) in [
            ("farpool://localhost:1234", "farpool://localhost:1234"),
            ("farpool://localhost", "farpool://localhost:9797"),
            ("farpool://localhost/", "farpool://localhost:9797"),
            ("10.0.0.1:80", "farpool://10.0.0.1:80"),
            ("node-7", "farpool://node-7:9797"),
            ("farpool://[::1]:5", "farpool://[::1]:5"),
            ("[::1]", "farpool://[::1]:9797"),
            ("farpools://node-7", "farpools://node-7:9797"),
            ("farpools://[::1]:5/", "farpools://[::1]:5"),
        ] {
            assert_eq!(text.parse::<PoolUrl>().unwrap().to_string(), written);
        }
    }

    #[test]
    fn other_texts_are_refused_with_advice() {
        for text in
            ["", "http://x", "farpool://", "farpool://h:port", "h:70000", "::1", "[::1", "[::1]x", "a b"]
        {
            let error = text.parse::<PoolUrl>().unwrap_err();
            assert!(error.advice.unwrap().contains("farpool://host:port"), "{text}");
        }
    }
}
