//! Addresses that servers listen on, and the certificate of their connections.

use super::stop::{Outcome, Stop, reason};
use farpool::Error;
use farpool::node::{Followed, ServerTls, certificate};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::net::{TcpListener, TcpSocket, lookup_host};

/// The certificate of a server.
#[derive(clap::Args, Debug)]
pub struct TlsArgs {
    /// PEM file with the TLS certificate; all connections then use TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// PEM file with the private key of the certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl TlsArgs {
    /// Opens the files of the certificate and the key, if both are set, and reads the TLS configuration from them.
    pub fn files(&self) -> Outcome<Option<(Followed<ServerTls>, ServerTls)>> {
        let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) else { return Ok(None) };
        let paths = vec![certificate.clone(), key.clone()];
        Ok(Some(Followed::open(paths, |paths| certificate::read(&paths[0], &paths[1]))?))
    }
}

/// Maximum number of connections that the operating system queues before they are accepted.
const BACKLOG: u32 = 1024;

/// Binds a socket to the address that the option `flag` names, and returns both. Clients cannot connect before
/// [`listen`].
pub async fn bind(flag: &str, address: &str) -> Outcome<(TcpSocket, SocketAddr)> {
    if !address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()) {
        return Err(Stop::usage(
            format!("{address:?} is not an address to listen on"),
            format!("write HOST:PORT, for example {flag} 127.0.0.1:9797"),
        ));
    }
    let resolved = lookup_host(address).await.map_err(|error| cannot_listen(address, &error))?;
    let mut bound = Err(io::ErrorKind::AddrNotAvailable.into());
    for address in resolved {
        bound = bind_to(address);
        if bound.is_ok() {
            break;
        }
    }
    Ok(bound.map_err(|error| cannot_listen(address, &error))?)
}

fn bind_to(address: SocketAddr) -> io::Result<(TcpSocket, SocketAddr)> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Otherwise a node could not be restarted while connections of the previous process are being closed.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

/// Starts to accept connections.
pub fn listen(socket: TcpSocket, address: SocketAddr) -> Outcome<TcpListener> {
    Ok(socket.listen(BACKLOG).map_err(|error| cannot_listen(&address.to_string(), &error))?)
}

fn cannot_listen(address: &str, error: &io::Error) -> Error {
    let failed = Error::unavailable(format!("cannot listen on {address}: {}", reason(error)));
    match error.kind() {
        io::ErrorKind::AddrInUse => failed.advise(
            "another program has this port, perhaps another 'farpool serve'\n\
             stop it, or choose another port: --listen 127.0.0.1:9798 (0 takes any free one)",
        ),
        io::ErrorKind::PermissionDenied => {
            failed.advise("choose a port from 1024 up: --listen 127.0.0.1:9797")
        }
        io::ErrorKind::AddrNotAvailable => {
            failed.advise("this machine does not have that address; 0.0.0.0 stands for all that it has")
        }
        _ => failed.advise("choose another address: --listen 127.0.0.1:9797"),
    }
}
