//! Memory nodes behind a loopback socket: in this process, or in a separate one.

use crate::process::Process;
use crate::suite;
use anyhow::{Context, Result, anyhow};
use farpool::node::{Node, NodeConfig, PrivateKey, certificate, native};
use farpool::{ClientOptions, ClientTls, Pool, Proof, PublicKey, ResultForm};
use rcgen::{CertificateParams, KeyPair};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Memory that a node may use: enough for TPC-H at scale 10.
const NODE_BYTES: usize = 16 << 30;

/// Starts a node with `threads` workers.
pub fn start(threads: usize) -> Result<Arc<Node>> {
    Ok(Node::start(NodeConfig { memory_bytes: NODE_BYTES, workers: threads, ..NodeConfig::default() })?)
}

/// Serves a node on separate threads until the process ends.
pub fn serve(node: Arc<Node>, threads: usize) -> Result<SocketAddr> {
    Ok(serve_until(node, threads, std::future::pending())?.0)
}

/// A node that this process serves over TCP as long as the value exists.
pub struct Served {
    /// URL at which the node listens.
    pub url: String,
    node: Arc<Node>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Served {
    /// Serves a node on `threads` threads.
    pub fn new(node: Arc<Node>, threads: usize) -> Result<Served> {
        let (stop, stopped) = oneshot::channel();
        let stopped = async move { stopped.await.unwrap_or(()) };
        let (address, thread) = serve_until(node.clone(), threads, stopped)?;
        Ok(Served { url: format!("farpool://{address}"), node, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the node that is served.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // If the server's thread has failed, its clients have seen the error already.
            let _ = thread.join();
        }
        self.node.shutdown();
    }
}

fn serve_until(
    node: Arc<Node>,
    threads: usize,
    stopped: impl Future<Output = ()> + Send + 'static,
) -> Result<(SocketAddr, JoinHandle<Result<()>>)> {
    let (ready, address) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || -> Result<()> {
        suite::runtime(threads)?.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            ready.send(listener.local_addr()?)?;
            Ok(native::serve(node, listener, stopped).await?)
        })
    });
    let address = address.recv().map_err(|_| anyhow!("the node could not listen on a loopback port"))?;
    Ok((address, thread))
}

/// Serves until the standard input ends: the body of a node's process.
pub fn serve_until_input_ends(threads: usize, without_taps: bool, tls: Option<&[PathBuf]>) -> Result<()> {
    let node = start(threads)?;
    if let Some([certificate, key]) = tls {
        node.set_tls(certificate::read(certificate, key)?);
    }
    if without_taps {
        node.close_taps();
    }
    let key = PrivateKey::random()?;
    let public = key.public();
    node.set_node_key(key);
    let address = serve(node, threads)?;
    println!("{address} {public}");
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// A node in a separate process, which ends when this value is dropped, and with this process in any case.
pub struct NodeProcess {
    process: Process,
    /// URL at which the node listens.
    pub url: String,
    tls: Option<ClientTls>,
    key: PublicKey,
}

impl NodeProcess {
    /// Starts this program again, as a node.
    pub fn start(threads: usize) -> Result<NodeProcess> {
        NodeProcess::start_with(threads, &[])
    }

    /// Starts a node that does not compute profiles (statistics of columns) of rows while they are loaded, but only when
    /// a client asks for one.
    pub fn start_without_taps(threads: usize) -> Result<NodeProcess> {
        NodeProcess::start_with(threads, &["--without-taps"])
    }

    /// Starts a node that speaks TLS.
    pub fn start_with_tls(threads: usize) -> Result<NodeProcess> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(["127.0.0.1".to_string()])?.self_signed(&key)?.pem();
        let folder = tempfile::tempdir()?;
        let files = [("cert.pem", &certificate), ("key.pem", &key.serialize_pem())].map(|(name, pem)| {
            let path = folder.path().join(name);
            std::fs::write(&path, pem).map(|()| path.display().to_string())
        });
        let [certificate_file, key_file] = files;
        let mut node = NodeProcess::start_with(threads, &["--tls", &certificate_file?, &key_file?])?;
        node.url = node.url.replace("farpool://", "farpools://");
        node.tls = Some(ClientTls::trusting(certificate.as_bytes())?);
        Ok(node)
    }

    /// Connects a client to the node.
    pub async fn connect(&self) -> Result<Arc<dyn Pool>> {
        self.connect_as(None).await
    }

    /// Connects a client to the node, with results that the node encrypts.
    pub async fn connect_sealed(&self) -> Result<Arc<dyn Pool>> {
        self.connect_as(Some(Proof::NodeKey(self.key))).await
    }

    async fn connect_as(&self, sealed: Option<Proof>) -> Result<Arc<dyn Pool>> {
        let options = ClientOptions { tls: self.tls.clone(), sealed, ..ClientOptions::default() };
        Ok(farpool::connect_for(&self.url, options, ResultForm::default()).await?)
    }

    fn start_with(threads: usize, options: &[&str]) -> Result<NodeProcess> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["node", "--threads", &threads.to_string()]).args(options);
        let mut process = Process::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let line = process.first_line()?;
        let (address, key) = line.trim().split_once(' ').context("the node did not start")?;
        let key = PublicKey::from_hex(key).context("the node has no public key")?;
        Ok(NodeProcess { process, url: format!("farpool://{address}"), tls: None, key })
    }

    /// Returns the id of the node's process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }
}
