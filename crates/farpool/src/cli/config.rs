//! The configuration file, `farpool/config.toml` in the user's configuration folder.
//!
//! Its settings have lower precedence than options and environment variables, and take precedence over built-in
//! defaults. Its token and authorities are for the node that it names, and are not sent to others.

use super::output::Format;
use super::stop::{Outcome, Stop, file_error};
use clap::ValueEnum;
use farpool::model::limits;
use farpool::{Error, PoolUrl};
use serde::{Deserialize, Deserializer, de};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The settings of the configuration file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The URL of the memory node.
    #[serde(default, deserialize_with = "pool_url")]
    pub pool: Option<PoolUrl>,
    /// A file with the token for the node `pool`.
    pub token_file: Option<PathBuf>,
    /// The token for the node `pool`.
    pub token: Option<String>,
    /// A file with the certificate authorities that sign the certificate of the node `pool`.
    pub tls_ca: Option<PathBuf>,
    /// The initial settings of the shell.
    #[serde(default)]
    pub shell: ShellConfig,
    /// The path of the configuration file.
    #[serde(skip)]
    pub path: PathBuf,
}

/// The initial settings of the shell.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShellConfig {
    /// The output format of results.
    #[serde(default, deserialize_with = "mode")]
    pub mode: Option<Format>,
    /// Maximum number of rows of a result that are shown; 0 for all.
    pub max_rows: Option<usize>,
    /// Maximum number of characters of a line that are shown; 0 for any number.
    pub max_width: Option<usize>,
    /// Whether the elapsed times of statements are shown.
    pub timer: Option<bool>,
    /// The setting of the pager: whether to use one, or its command.
    pub pager: Option<PagerConfig>,
}

/// The setting of the pager.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "true, false or the command of a pager is expected")]
pub enum PagerConfig {
    /// The default pager if true, no pager if false.
    Is(bool),
    /// A command of the system's shell.
    Program(String),
}

impl Config {
    /// Reads the file; a missing file sets nothing.
    pub fn read() -> Outcome<Config> {
        match farpool::user_folder("XDG_CONFIG_HOME", ".config") {
            Some(folder) => Config::of(&folder.join("config.toml")),
            None => Ok(Config::default()),
        }
    }

    fn of(path: &Path) -> Outcome<Config> {
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Config::default()),
            Err(error) => return Err(file_error("read", path, &error).into()),
        };
        let mut text = String::new();
        let read = file.by_ref().take(limits::CONFIG_FILE_BYTES_MAX + 1).read_to_string(&mut text);
        let read = read.map_err(|error| file_error("read", path, &error))?;
        if farpool::model::cast::u64_from(read) > limits::CONFIG_FILE_BYTES_MAX {
            let most = limits::CONFIG_FILE_BYTES_MAX;
            return Err(wrong(path, &format!("it has more than {most} bytes"), "it has a few settings only"));
        }
        let mut config: Config = toml::from_str(&text).map_err(|error| {
            let line =
                error.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
            wrong(path, &format!("line {line}: {}", error.message()), "docs/shell.md lists the settings")
        })?;
        if config.token.is_some() {
            refuse_readable_by_others(&file, path)?;
        }
        let folder = path.parent().unwrap_or(Path::new("."));
        config.token_file = config.token_file.map(|file| folder.join(file));
        config.tls_ca = config.tls_ca.map(|file| folder.join(file));
        config.path = path.to_path_buf();
        Ok(config)
    }
}

fn wrong(path: &Path, what: &str, advice: &str) -> Stop {
    Stop::Usage(Error::invalid(format!("{}: {what}", path.display())).advise(advice))
}

/// Checks that other users of this machine cannot read a file with a token.
#[cfg(unix)]
fn refuse_readable_by_others(file: &File, path: &Path) -> Outcome {
    use std::os::unix::fs::PermissionsExt;
    let metadata = file.metadata().map_err(|error| file_error("read", path, &error))?;
    match metadata.permissions().mode() & 0o077 {
        0 => Ok(()),
        _ => Err(wrong(
            path,
            "others on this machine may read the token in it",
            &format!(
                "chmod 600 {}\nor keep the token in a file of its own, and name that: token_file",
                path.display()
            ),
        )),
    }
}

#[cfg(not(unix))]
fn refuse_readable_by_others(_: &File, _: &Path) -> Outcome {
    Ok(())
}

fn pool_url<'de, D: Deserializer<'de>>(value: D) -> Result<Option<PoolUrl>, D::Error> {
    let text = String::deserialize(value)?;
    text.parse().map(Some).map_err(|error: Error| de::Error::custom(error.message))
}

fn mode<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Format>, D::Error> {
    let text = String::deserialize(value)?;
    Format::from_str(&text, false).map(Some).map_err(|_| {
        let names: Vec<String> = Format::value_variants().iter().map(|format| format.name()).collect();
        de::Error::custom(format!("there is no mode {text:?}; the modes are {}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Outcome<Config> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::fs::write(&path, text).unwrap();
        Config::of(&path)
    }

    #[test]
    fn settings_are_read_and_files_lie_beside_them() {
        let config = read(
            "pool = \"farpool://node7\"\ntoken_file = \"token\"\ntls_ca = \"/etc/ca.pem\"\n\
             [shell]\nmode = \"box\"\nmax_rows = 100\ntimer = false\npager = \"less -S\"\n",
        )
        .unwrap();
        assert_eq!(config.pool.map(|url| url.to_string()).as_deref(), Some("farpool://node7:9797"));
        assert!(config.token_file.is_some_and(|file| file.is_absolute() && file.ends_with("token")));
        assert_eq!(config.tls_ca, Some(PathBuf::from("/etc/ca.pem")));
        let ShellConfig { mode, max_rows, timer, pager, max_width } = config.shell;
        assert_eq!((mode, max_rows, timer, max_width), (Some(Format::Box), Some(100), Some(false), None));
        assert!(matches!(pager, Some(PagerConfig::Program(program)) if program == "less -S"));
        assert!(read("").unwrap().pool.is_none());
        assert!(Config::of(Path::new("/no/such/config.toml")).unwrap().pool.is_none());
    }

    #[test]
    fn wrong_settings_say_which_and_where() {
        let large = format!("# {}\n", "x".repeat(100_000));
        for (text, parts) in [
            ("pol = \"x\"", &["line 1", "unknown field `pol`", "`pool`"][..]),
            ("\n[shell]\nmode = \"duck\"", &["line 3", "no mode \"duck\"", "markdown"]),
            ("pool = \"http://x\"", &["line 1", "not the address of a pool"]),
            ("[shell]\ntimer = 1", &["line 2", "expected a boolean"]),
            ("[shell]\npager = 1", &["line 2", "the command of a pager"]),
            ("pool = ", &["line 1"]),
            (large.as_str(), &["more than 65536 bytes"]),
        ] {
            match read(text) {
                Err(Stop::Usage(error)) => {
                    assert!(parts.iter().all(|part| error.message.contains(part)), "{error:?}");
                    assert!(error.message.contains("config.toml"), "{error:?}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_token_is_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::fs::write(&path, "token = \"secret\"").unwrap();
        for (mode, is_read) in [(0o644, false), (0o640, false), (0o600, true), (0o400, true)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            match Config::of(&path) {
                Ok(config) => assert!(is_read && config.token.as_deref() == Some("secret")),
                Err(Stop::Usage(error)) => {
                    assert!(!is_read && error.message.contains("may read the token"), "{error:?}");
                    assert!(!format!("{error:?}").contains("secret"));
                }
                Err(other) => panic!("{other:?}"),
            }
        }
    }
}
