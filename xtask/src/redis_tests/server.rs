//! A node that speaks the Redis protocol, for one unit of tests or one client.

use anyhow::{Context, Result};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A node without a data directory; dropping it ends its process.
pub struct Server {
    child: Child,
    /// The port of the Redis protocol on 127.0.0.1.
    pub port: String,
}

impl Server {
    /// Starts the node and waits until it listens.
    pub fn start(program: &Path) -> Result<Server> {
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--memory", "1GiB"]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let mut server = Server { child, port: String::new() };
        let stdout = server.child.stdout.take().context("the node has no output")?;
        let mut ready = String::new();
        BufReader::new(stdout).read_line(&mut ready)?;
        let port = ready.trim_end().rsplit_once("redis://127.0.0.1:");
        server.port = port.with_context(|| format!("the node is not ready: {ready:?}"))?.1.to_string();
        Ok(server)
    }

    /// Returns the exit status of the process, if it has ended.
    pub fn ended(&mut self) -> Result<Option<String>> {
        Ok(self.child.try_wait()?.map(|status| status.to_string()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Killing fails if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
