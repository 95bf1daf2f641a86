//! An empty root file system, in which programs run with nothing of this machine but its kernel.

use crate::programs;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

/// Devices that programs need, with their minor numbers. Once the first can be read, the second returns secure random
/// bytes.
const DEVICES: [(&str, &str); 2] = [("dev/random", "8"), ("dev/urandom", "9")];

/// Runs a program in the root `$1` without being root: in a user namespace, with the devices of this machine.
const AS_USER: &str = r#"root=$1; shift
for device in dev/random dev/urandom; do mount --bind "/$device" "$root/$device" || exit; done
exec chroot "$root" "$@""#;

/// A folder that programs use as their root.
pub struct Root {
    pub folder: PathBuf,
    /// Whether this process is root and may create devices.
    is_privileged: bool,
}

/// The user that runs a program.
#[derive(Clone, Copy)]
pub enum User<'a> {
    Root,
    /// The user with this id, in the group with the same id.
    Other(&'a str),
}

impl Root {
    /// Creates a folder that contains only what every container has: random devices, `/tmp` and a hosts file.
    ///
    /// # Errors
    /// Fails if this process may not run programs there.
    pub fn make(folder: PathBuf) -> Result<Root> {
        for name in ["dev", "etc", "tmp"] {
            let path = folder.join(name);
            fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        }
        super::write(&folder.join("etc/hosts"), "127.0.0.1 localhost node7\n")?;
        let user = Command::new("id").arg("-u").output().context("cannot start id")?;
        let make_device = |(name, number): &(&str, &str)| {
            let device = folder.join(name);
            let arguments = ["-m", "666", &*device.to_string_lossy(), "c", "1", *number];
            programs::run("mknod", arguments, "a namespace for users is tried in its place").is_ok()
        };
        let is_privileged = user.stdout == b"0\n" && DEVICES.iter().all(make_device);
        if !is_privileged {
            for (name, _) in DEVICES {
                super::write(&folder.join(name), "")?;
            }
        }
        programs::run("chmod", ["1777", &folder.join("tmp").to_string_lossy()], "is the folder yours?")?;
        Ok(Root { folder, is_privileged })
    }

    /// Returns whether this process may use a folder as a root without a user namespace, with owners of files and users
    /// of programs.
    pub fn is_privileged(&self) -> bool {
        self.is_privileged
    }

    /// Unpacks an archive into a folder of the root without the first components of its paths, and with its owners if
    /// that is permitted.
    pub fn unpack(&self, archive: &Path, folder: &Path, without: usize) -> Result<()> {
        let strip = format!("--strip-components={without}");
        let owner = if self.is_privileged { "--numeric-owner" } else { "--no-same-owner" };
        let (archive, folder) = (archive.to_string_lossy(), folder.to_string_lossy());
        let arguments = [&*strip, owner, "-xzf", &archive, "-C", &folder];
        programs::run("tar", arguments, "install the package tar")
    }

    /// Returns a command that runs a program in the root. Users other than root are used only if that is permitted.
    pub fn command(&self, user: User, program: &str, arguments: &[&str]) -> Command {
        let mut command = if self.is_privileged {
            let mut command = Command::new("chroot");
            if let User::Other(number) = user {
                command.arg(format!("--userspec={number}:{number}"));
            }
            command
        } else {
            let mut command = Command::new("unshare");
            command.args(["--map-root-user", "--mount", "sh", "-c", AS_USER, "sh"]);
            command
        };
        command.arg(&self.folder).arg(program).args(arguments).env_clear();
        // The path on which chroot, unshare and mount are found.
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.stdin(Stdio::null());
        command
    }

    /// Runs a command to completion and returns its output.
    ///
    /// # Errors
    /// Fails if the command fails; the message contains its error output.
    pub fn output(command: &mut Command) -> Result<String> {
        let shown = format!("{command:?}");
        let output = command.output().with_context(|| {
            format!("cannot start {shown}: chroot (coreutils) or unshare and mount (util-linux) are needed")
        })?;
        let Output { status, stdout, stderr } = output;
        let stderr = String::from_utf8_lossy(&stderr);
        let advice = match (stderr.starts_with("chroot:"), stderr.starts_with("unshare:")) {
            (true, _) => "\nthis sandbox does not let root use a folder as the root; run it elsewhere",
            (_, true) => "\nthis system has no namespaces for users; run it as root",
            _ => "",
        };
        ensure!(status.success(), "{shown} failed ({status})\n{}{advice}", stderr.trim_end());
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    }
}

/// A node in a root; dropping it ends its process.
pub struct Node {
    child: Child,
    stderr: Option<ChildStderr>,
    /// Address of the node, `HOST:PORT`.
    pub address: String,
}

impl Node {
    /// Starts a node and waits until it listens.
    pub fn start(command: &mut Command) -> Result<Node> {
        let shown = format!("{command:?}");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().context("the node has no output")?;
        let stderr = child.stderr.take();
        let mut node = Node { child, stderr, address: String::new() };
        let mut ready = String::new();
        BufReader::new(stdout).read_line(&mut ready)?;
        let address = ready.split_once("farpool://").and_then(|(_, rest)| rest.split(',').next());
        match address {
            Some(address) => node.address = address.to_string(),
            None => {
                // The output ends with the process. Killing fails if the process has ended already.
                let _ = node.child.kill();
                bail!("{shown} is not ready:\n{}", node.said())
            }
        }
        Ok(node)
    }

    /// Asks the node to stop, as a service manager does.
    ///
    /// # Errors
    /// Fails if the node does not end as expected.
    pub fn stop(mut self) -> Result<()> {
        programs::run("kill", ["-TERM", &self.child.id().to_string()], "the node is gone")?;
        let status = self.child.wait()?;
        let said = self.said();
        ensure!(status.success() && said.ends_with("stopped\n"), "the node ended badly ({status}):\n{said}");
        Ok(())
    }

    /// Returns the node's output on standard error; waits for its end.
    fn said(&mut self) -> String {
        let mut bytes = Vec::new();
        if let Some(mut stderr) = self.stderr.take() {
            // Output before a read error is still reported.
            let _ = stderr.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Killing fails if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
