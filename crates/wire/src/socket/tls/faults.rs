//! Failures of TLS connections, and the error messages about them for clients and for the node's log.

use farpool_model::Error;
use rustls::{AlertDescription, CertificateError};
use std::io::{self, ErrorKind};

/// Maximum number of the certificate's names that an error message lists.
const NAMES_SHOWN: usize = 5;

/// The reason why a TLS connection cannot be established, or ends.
#[derive(Debug)]
pub(super) enum Fault {
    /// The socket below failed, or would block.
    Socket(io::Error),
    /// The socket below ended without the peer's `close_notify`, as if the connection had been cut.
    CutOff,
    /// The peer speaks another protocol, which the text names.
    NoTls(String),
    /// One side rejected a message of the other.
    Tls(rustls::Error),
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Socket(error) => error,
            Fault::CutOff => io::Error::new(
                ErrorKind::UnexpectedEof,
                "the connection was cut off: it ended without the end mark of TLS (close_notify)",
            ),
            Fault::NoTls(who) => io::Error::new(ErrorKind::InvalidData, who),
            Fault::Tls(rustls::Error::DecryptError) => io::Error::new(
                ErrorKind::InvalidData,
                "bytes were changed on their way: TLS cannot decrypt them",
            ),
            Fault::Tls(error) => io::Error::new(ErrorKind::InvalidData, format!("TLS failed: {error}")),
        }
    }
}

/// Returns the error for a client that cannot connect to a node. The text is shown after the node's address.
pub(super) fn refused_by_client(fault: &Fault, host: &str) -> Error {
    let (message, advice) = match fault {
        Fault::Socket(error) => (
            format!("the connection failed while TLS was agreed on: {error}"),
            "check host, port and network, and try again",
        ),
        Fault::CutOff => (
            "it hangs up while TLS is agreed on".into(),
            "check that a farpool pool with a certificate listens there, and what its log says",
        ),
        Fault::NoTls(who) => (
            format!("it does not speak TLS: {who}"),
            "check host and port, or use farpool:// for a pool without a certificate",
        ),
        Fault::Tls(rustls::Error::InvalidCertificate(why)) => certificate_refused(why, host),
        Fault::Tls(rustls::Error::AlertReceived(alert)) => alert_of_node(*alert),
        Fault::Tls(error) => (
            format!("TLS cannot be agreed on: {error}"),
            "check that a farpool pool with a certificate listens there, and what its log says",
        ),
    };
    Error::unavailable(message).advise(advice)
}

fn certificate_refused(why: &CertificateError, host: &str) -> (String, &'static str) {
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => (
            format!("its certificate has expired{}", days_ago(why)),
            "have a new certificate put in place of the node's, which it reads by itself; \
             or set the clock of this machine",
        ),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => (
            "its certificate is not valid yet".into(),
            "compare the clock of this machine with that of the one where the certificate was made",
        ),
        CertificateError::UnknownIssuer => (
            "its certificate was signed by nobody whom this program trusts".into(),
            "give the certificate of the authority that signed it with --tls-ca FILE; \
             without, those count that the system trusts",
        ),
        CertificateError::BadSignature => (
            "its certificate was not signed by the authority that this program trusts, but by another of the same name"
                .into(),
            "give the newest certificate of the authority with --tls-ca FILE",
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => (
            format!("its certificate is not for {host:?}{}", names(why)),
            "use a name of the node that stands in its certificate, or have one made for this name",
        ),
        other if other.to_string().contains("CaUsedAsEndEntity") => (
            "its certificate is that of an authority, not of a node".into(),
            "have a certificate made for the node (with basicConstraints=CA:FALSE) and signed by the authority",
        ),
        other => {
            (format!("its certificate cannot be accepted: {other}"), "have another one made for the node")
        }
    }
}

fn days_ago(why: &CertificateError) -> String {
    let CertificateError::ExpiredContext { time, not_after } = why else { return String::new() };
    match time.as_secs().saturating_sub(not_after.as_secs()) / 86_400 {
        0 => " (today)".into(),
        1 => " (a day ago)".into(),
        days => format!(" ({days} days ago)"),
    }
}

fn names(why: &CertificateError) -> String {
    let CertificateError::NotValidForNameContext { presented, .. } = why else { return String::new() };
    // rustls formats names as `DnsName("node7")` and `IpAddress(10.0.0.1)`.
    let bare = |name: &String| {
        name.split_once('(').map_or(name.as_str(), |(_, name)| name).trim_matches(['"', ')']).to_string()
    };
    let shown: Vec<String> = presented.iter().take(NAMES_SHOWN).map(bare).collect();
    match shown.is_empty() {
        true => ", nor for any other name".into(),
        false => {
            format!(
                ", but for {}{}",
                shown.join(", "),
                if presented.len() > NAMES_SHOWN { " and others" } else { "" }
            )
        }
    }
}

fn alert_of_node(alert: AlertDescription) -> (String, &'static str) {
    match alert {
        AlertDescription::ProtocolVersion => (
            "it speaks no TLS, or an older version than 1.2".into(),
            "if it is a pool without a certificate, use farpool:// or start it with --tls-cert and --tls-key",
        ),
        AlertDescription::NoApplicationProtocol => {
            ("it speaks TLS, but is no farpool pool".into(), "check host and port")
        }
        other => (format!("it does not agree on TLS: {other:?}"), "see what its log says"),
    }
}

/// Returns the error, for the node's log, of a client whose handshake failed.
pub(super) fn refused_by_node(fault: &Fault) -> Error {
    Error::unavailable(match fault {
        Fault::Socket(error) => format!("the connection failed while TLS was agreed on: {error}"),
        Fault::CutOff => "the client hung up while TLS was agreed on".into(),
        Fault::NoTls(who) => format!("the client does not speak TLS: {who}"),
        Fault::Tls(rustls::Error::AlertReceived(alert)) => match alert {
            AlertDescription::CertificateExpired => {
                "the client says that the node's certificate has expired, or is not valid yet: put a new one in its file".into()
            }
            AlertDescription::UnknownCA => {
                "the client does not trust who signed the node's certificate: it needs --tls-ca with that authority"
                    .into()
            }
            AlertDescription::DecryptError => {
                "the client trusts another authority of the same name as the one that signed the node's certificate"
                    .into()
            }
            AlertDescription::BadCertificate => {
                "the client does not accept the node's certificate, perhaps because it is for another name".into()
            }
            other => format!("the client does not agree on TLS: {other:?}"),
        },
        Fault::Tls(rustls::Error::NoApplicationProtocol) => {
            "the client speaks TLS, but wants another protocol than farpool".into()
        }
        Fault::Tls(error) => format!("TLS cannot be agreed on: {error}"),
    })
}
