//! Notifies a service manager such as systemd when the node is ready and when it stops: `sd_notify(3)`, datagrams to
//! the socket that the environment variable `NOTIFY_SOCKET` names. Without the variable nothing is sent.

/// The environment variable that names the socket; a name that begins with `@` is a Linux abstract socket.
#[cfg(target_os = "linux")]
const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";

/// Reports that the node accepts connections, with a line that contains its address.
pub fn ready(status: &str) {
    tell(&format!("READY=1\nSTATUS={}", status.trim_end()));
}

/// Reports that the node was asked to stop.
pub fn stopping() {
    tell("STOPPING=1\nSTATUS=stopping");
}

/// Sends a message. A failure is only logged as a warning, because the node serves nevertheless; a manager that waits
/// for the message will end it.
#[cfg(target_os = "linux")]
fn tell(message: &str) {
    let Some(name) = std::env::var_os(SOCKET_VARIABLE).filter(|name| !name.is_empty()) else { return };
    if let Err(error) = send(&name, message) {
        let reason = super::stop::reason(&error);
        eprintln!("warning: cannot tell the service manager at {}: {reason}", name.display());
    }
}

#[cfg(not(target_os = "linux"))]
fn tell(_: &str) {}

#[cfg(target_os = "linux")]
fn send(name: &std::ffi::OsStr, message: &str) -> std::io::Result<()> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address).map(drop)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    #[track_caller]
    fn arrives(socket: &UnixDatagram, name: &OsString) {
        send(name, "READY=1").unwrap();
        let mut bytes = [0; 64];
        let length = socket.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..length], b"READY=1");
    }

    #[test]
    fn messages_reach_sockets_with_a_path_and_abstract_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        arrives(&UnixDatagram::bind(&path).unwrap(), &path.into_os_string());

        let name = format!("farpool-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        arrives(&UnixDatagram::bind_addr(&address).unwrap(), &format!("@{name}").into());
    }

    #[test]
    fn a_socket_that_nobody_has_is_an_error() {
        assert!(send("/nonexistent/notify".as_ref(), "READY=1").is_err());
        assert!(send("@".repeat(200).as_ref(), "READY=1").is_err());
    }
}
