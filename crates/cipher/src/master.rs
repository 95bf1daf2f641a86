//! The master key of a node, which encrypts all other keys of its data directory: 32 bytes from a file, an environment
//! variable, or the output of a command.

use crate::keys::Secret;
use crate::locked::Slot;
use crate::sys;
use farpool_model::limits::KEY_COMMAND_WAIT_MAX;
use farpool_model::{Error, ErrorKind, Result};
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Bytes of a master key.
pub const MASTER_KEY_BYTES: usize = 32;

/// Maximum bytes of the text form of a key: hexadecimal digits and a line end.
const TEXT_BYTES: usize = 2 * MASTER_KEY_BYTES + 2;

/// Bytes of the fingerprint that identifies a master key.
pub(crate) const FINGERPRINT_BYTES: usize = 8;

const FORMS: &str = "32 bytes (openssl rand 32), or 64 hexadecimal digits (openssl rand -hex 32)";

/// The place from which a master key is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A file with the key, which only its owner may read.
    File(PathBuf),
    /// The name of an environment variable whose value is the key, as 64 hexadecimal digits.
    Variable(String),
    /// A command for `sh -c` that prints the key on its standard output.
    Command(String),
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySource::File(path) => write!(f, "file {}", path.display()),
            KeySource::Variable(name) => write!(f, "variable {name}"),
            KeySource::Command(command) => write!(f, "command {command:?}"),
        }
    }
}

/// The key that wraps (encrypts) all other keys of a data directory.
pub struct MasterKey {
    secret: Secret,
    fingerprint: [u8; FINGERPRINT_BYTES],
}

impl MasterKey {
    /// Reads the key from its source.
    ///
    /// # Errors
    /// `Invalid`, `NotFound` or `Denied` with the problem of the source; `TimedOut` if a command does not end within
    /// [`KEY_COMMAND_WAIT_MAX`]; `OverLimit` if the process may not lock more memory.
    pub fn load(source: &KeySource) -> Result<MasterKey> {
        MasterKey::load_within(source, KEY_COMMAND_WAIT_MAX)
    }

    fn load_within(source: &KeySource, wait: Duration) -> Result<MasterKey> {
        // Read directly into locked memory. The slot has room for one byte more than a key, by which a text that is too
        // long is detected.
        let mut text = Slot::new(TEXT_BYTES + 1)?;
        let read = match source {
            KeySource::File(path) => read_file(path, "master key", &mut text)?,
            KeySource::Variable(name) => read_variable(name, &mut text)?,
            KeySource::Command(command) => read_command(command, &mut text, wait)?,
        };
        let takes_bytes = !matches!(source, KeySource::Variable(_));
        match key_of(&text[..read], takes_bytes)? {
            Some(secret) => MasterKey::new(secret),
            None => {
                let what = if read > TEXT_BYTES { "more bytes".to_string() } else { format!("{read} bytes") };
                Err(Error::invalid(format!("the master key of {source} has {what} that are no key"))
                    .advise(format!("a key is {FORMS}")))
            }
        }
    }

    /// Creates a master key from 32 bytes.
    ///
    /// # Errors
    /// `Invalid` for another length; `OverLimit` if the process may not lock more memory.
    pub fn new(secret: Secret) -> Result<MasterKey> {
        if secret.bytes().len() != MASTER_KEY_BYTES {
            return Err(Error::invalid(format!("a master key of {} bytes", secret.bytes().len()))
                .advise(format!("a key is {FORMS}")));
        }
        let derived = secret.derive(b"", b"farpool fingerprint of a master key", FINGERPRINT_BYTES)?;
        let mut fingerprint = [0; FINGERPRINT_BYTES];
        fingerprint.copy_from_slice(derived.bytes());
        Ok(MasterKey { secret, fingerprint })
    }

    /// Returns a fingerprint that identifies the key without revealing it.
    pub fn fingerprint(&self) -> String {
        hex(&self.fingerprint)
    }

    pub(crate) fn fingerprint_bytes(&self) -> &[u8; FINGERPRINT_BYTES] {
        &self.fingerprint
    }

    pub(crate) fn secret(&self) -> &Secret {
        &self.secret
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKey({})", self.fingerprint())
    }
}

/// Returns `bytes` as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses a key: hexadecimal digits, or raw bytes if `takes_bytes`. Returns `None` if the text is no key.
fn key_of(text: &[u8], takes_bytes: bool) -> Result<Option<Secret>> {
    let mut secret = Secret::zero(MASTER_KEY_BYTES)?;
    if takes_bytes && text.len() == MASTER_KEY_BYTES {
        secret.bytes_mut().copy_from_slice(text);
        return Ok(Some(secret));
    }
    let digits = text.strip_suffix(b"\n").unwrap_or(text);
    let digits = digits.strip_suffix(b"\r").unwrap_or(digits);
    if digits.len() != 2 * MASTER_KEY_BYTES {
        return Ok(None);
    }
    for (byte, pair) in secret.bytes_mut().iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else { return Ok(None) };
        *byte = (high << 4 | low) as u8;
    }
    Ok(Some(secret))
}

/// Reads until the end of the input or until `text` is full; returns the number of bytes read.
fn read_all(mut from: impl Read, text: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < text.len() {
        match from.read(&mut text[read..]) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// Reads a key of 32 bytes, or of 64 hexadecimal digits, from a file that only its owner may read. `what` names the key
/// in messages.
pub(crate) fn read_key_file(path: &Path, what: &str) -> Result<Secret> {
    let mut text = Slot::new(TEXT_BYTES + 1)?;
    let read = read_file(path, what, &mut text)?;
    key_of(&text[..read], true)?.ok_or_else(|| {
        Error::invalid(format!("{what} file {} has no key in it", path.display()))
            .advise(format!("a key is {FORMS}"))
    })
}

fn read_file(path: &Path, what: &str, text: &mut [u8]) -> Result<usize> {
    let failed = |error: &io::Error| {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::PermissionDenied => ErrorKind::Denied,
            _ => ErrorKind::Unavailable,
        };
        Error::new(kind, format!("cannot read {what} file {}: {error}", path.display()))
            .advise(format!("name a file with a key: {FORMS}"))
    };
    // A named pipe without a writer would keep the open waiting for ever.
    let opened = File::options().read(true).custom_flags(sys::OPEN_AT_ONCE).open(path);
    let file = opened.map_err(|error| failed(&error))?;
    let metadata = file.metadata().map_err(|error| failed(&error))?;
    if !metadata.is_file() {
        return Err(Error::invalid(format!("{what} file {} is not a file", path.display()))
            .advise("name a file, or have a command write the key"));
    }
    if metadata.mode() & 0o077 != 0 {
        let mode = metadata.mode() & 0o777;
        let message = format!("{what} file {} may be read by others (mode {mode:o})", path.display());
        return Err(Error::new(ErrorKind::Denied, message).advise(format!("chmod 600 {}", path.display())));
    }
    read_all(file, text).map_err(|error| failed(&error))
}

fn read_variable(name: &str, text: &mut [u8]) -> Result<usize> {
    let Some(value) = std::env::var_os(name) else {
        return Err(Error::not_found(format!("there is no variable {name} with the master key"))
            .advise("set it to 64 hexadecimal digits (openssl rand -hex 32)"));
    };
    let mut value = OsString::into_encoded_bytes(value);
    let read = value.len().min(text.len());
    text[..read].copy_from_slice(&value[..read]);
    zeroize::Zeroize::zeroize(&mut value[..]);
    Ok(read)
}

fn read_command(command: &str, text: &mut [u8], wait: Duration) -> Result<usize> {
    let failed = |what: String| {
        Error::unavailable(format!("the command for the master key {what}: {command}"))
            .advise("run it by hand: it must write the key to its standard output and end")
    };
    let spawned = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // Run in its own process group, so that its children are killed with it.
        .process_group(0)
        .spawn();
    let mut running = RunningCommand {
        child: spawned.map_err(|error| failed(format!("cannot start ({error})")))?,
        is_done: false,
    };
    let out = running.child.stdout.take().ok_or_else(|| Error::internal("a command without output"))?;
    let deadline = now() + wait;
    let ended = read_until(out, text, deadline).and_then(|read| Ok((read, running.wait(deadline)?)));
    match ended {
        Ok((_, status)) if !status.success() => Err(failed(format!("has failed ({status})"))),
        Ok((read, _)) => Ok(read),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            let message = format!(
                "the command for the master key has not ended after {} seconds: {command}",
                wait.as_secs()
            );
            Err(Error::new(ErrorKind::TimedOut, message)
                .advise("run it by hand: it must write the key to its standard output and end"))
        }
        Err(error) => Err(failed(format!("cannot be read ({error})"))),
    }
}

/// A running command. Dropping this kills all processes of its process group.
struct RunningCommand {
    child: Child,
    is_done: bool,
}

impl RunningCommand {
    fn wait(&mut self, deadline: Instant) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.is_done = true;
                return Ok(status);
            }
            left(deadline)?;
            pause();
        }
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        sys::kill_group(self.child.id());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads as [`read_all`] does, but gives up at `deadline`.
fn read_until(mut out: ChildStdout, text: &mut [u8], deadline: Instant) -> io::Result<usize> {
    let mut read = 0;
    while read < text.len() {
        if !sys::wait_readable(out.as_fd(), left(deadline)?)? {
            continue;
        }
        match out.read(&mut text[read..])? {
            0 => break,
            more => read += more,
        }
    }
    Ok(read)
}

fn left(deadline: Instant) -> io::Result<Duration> {
    match deadline.saturating_duration_since(now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a command of the operator's that hangs must not keep the program waiting"
)]
fn now() -> Instant {
    Instant::now()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a command that has closed its output ends at once, or is looked at again"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(2));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const DIGITS: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F";

    fn load(source: &KeySource) -> Result<MasterKey> {
        MasterKey::load_within(source, Duration::from_secs(20))
    }

    fn file(folder: &Path, contents: &[u8], mode: u32) -> KeySource {
        let path = folder.join(format!("key-{}-{mode:o}", contents.len()));
        std::fs::write(&path, contents).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        KeySource::File(path)
    }

    fn command(text: &str) -> KeySource {
        KeySource::Command(text.to_string())
    }

    #[test]
    fn a_key_is_the_same_from_everywhere() {
        let folder = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..32).collect();
        let text = format!("{DIGITS}\n");
        let sources = [
            file(folder.path(), &bytes, 0o600),
            file(folder.path(), DIGITS.as_bytes(), 0o400),
            file(folder.path(), text.as_bytes(), 0o600),
            command(&format!("echo {DIGITS}")),
            command(&format!("cat '{}'", folder.path().join("key-32-600").display())),
            command(&format!("printf {}; sleep 0.1; printf {}", &DIGITS[..9], &DIGITS[9..])),
        ];
        let expected = MasterKey::new(Secret::take(&mut bytes.clone()).unwrap()).unwrap();
        for source in sources {
            let key = load(&source).unwrap();
            assert_eq!(key.secret().bytes(), bytes, "{source}");
            assert_eq!(key.fingerprint(), expected.fingerprint());
            let shown = format!("{key:?} {:?}", key.secret());
            assert!(!shown.contains("0001") && !shown.contains("0, 1"), "{shown}");
        }
    }

    #[test]
    fn what_is_no_key_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let missing = KeySource::File(folder.path().join("none"));
        let wrong = DIGITS.replace(['f', 'F'], "g");
        let cases = [
            (missing, ErrorKind::NotFound, "none"),
            (KeySource::File(folder.path().to_path_buf()), ErrorKind::Invalid, "is not a file"),
            (file(folder.path(), &[7; 32], 0o640), ErrorKind::Denied, "mode 640"),
            (file(folder.path(), &[7; 31], 0o600), ErrorKind::Invalid, "31 bytes"),
            (file(folder.path(), &[], 0o600), ErrorKind::Invalid, "0 bytes"),
            (file(folder.path(), &[7; 5000], 0o600), ErrorKind::Invalid, "more bytes"),
            (file(folder.path(), wrong.as_bytes(), 0o600), ErrorKind::Invalid, "64 bytes"),
            (KeySource::Variable("FARPOOL_NO_SUCH".into()), ErrorKind::NotFound, "FARPOOL_NO_SUCH"),
            // `PATH` stands for an existing variable whose value is no key.
            (KeySource::Variable("PATH".into()), ErrorKind::Invalid, "no key"),
            (command("exit 3"), ErrorKind::Unavailable, "exit status: 3"),
            (command(&format!("echo {DIGITS}; exit 1")), ErrorKind::Unavailable, "exit status: 1"),
            (command("true"), ErrorKind::Invalid, "0 bytes"),
            (command("head -c 100000 /dev/zero"), ErrorKind::Invalid, "more bytes"),
        ];
        for (source, kind, part) in cases {
            let error = load(&source).unwrap_err();
            // Not checked for a command with more output than a key: it may be killed by a closed pipe first, which is
            // another error.
            assert!(
                error.kind == kind && error.message.contains(part) || part == "more bytes",
                "{source}: {error}"
            );
            assert!(!error.to_string().contains(&DIGITS[..8]) || matches!(source, KeySource::Command(_)));
        }
    }

    #[test]
    fn a_command_that_hangs_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("mark");
        for text in [
            format!("sleep 600 & sleep 1.5; touch '{}'", mark.display()),
            "exec >&-; sleep 600".to_string(),
            format!("echo {DIGITS}; sleep 600"),
        ] {
            let error = MasterKey::load_within(&command(&text), Duration::from_secs(1)).unwrap_err();
            assert!(error.kind == ErrorKind::TimedOut && error.message.contains("1 seconds"), "{error}");
        }
        assert!(!mark.exists());
    }
}
