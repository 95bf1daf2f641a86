//! Redis' tests, from the source package of Debian 12, in the folder `redis-tests` of the cache.
//!
//! apt gets separate package lists: on most machines no sources are enabled, and the machine's own settings are not
//! changed. Debian's signature is checked as for every package. Without apt, the archive may be put there by hand.

use crate::cargo;
use crate::programs;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

const VERSION: &str = "7.0.15";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The line before which `testdata/redis/external.tcl` is inserted into the harness: after all its procedures.
const BEFORE: &str = "# parse arguments\n";
const INSERTED: &str = "source tests/external.tcl\n";

/// Installs tclsh and the tests, and returns the folder with the harness.
///
/// # Errors
/// Fails if something is missing that cannot be installed; the message tells what to do.
pub fn install() -> Result<PathBuf> {
    programs::install(&["tclsh"], &["tcl"])?;
    let folder = cargo::cache("redis-tests")?;
    let harness = folder.join(format!("redis-{VERSION}"));
    let helper = harness.join("tests/test_helper.tcl");
    if !helper.exists() {
        unpack(&folder)?;
    }
    let text = fs::read_to_string(&helper).with_context(|| format!("cannot read {}", helper.display()))?;
    if !text.contains(INSERTED) {
        fs::write(&helper, text.replacen(BEFORE, &format!("{INSERTED}{BEFORE}"), 1))?;
    }
    fs::copy(cargo::root().join("testdata/redis/external.tcl"), harness.join("tests/external.tcl"))?;
    Ok(harness)
}

fn unpack(folder: &Path) -> Result<()> {
    let archive = folder.join(format!("redis_{VERSION}.orig.tar.gz"));
    if !archive.exists() {
        download(folder).with_context(|| {
            format!(
                "cannot get the sources of Debian's package redis: put its file {} there by hand",
                archive.display()
            )
        })?;
    }
    let arguments = ["-xzf", &archive.to_string_lossy(), "-C", &folder.to_string_lossy()];
    programs::run("tar", arguments, &format!("remove {} and try again", archive.display()))
}

fn download(folder: &Path) -> Result<()> {
    println!("fetching the sources of redis {VERSION} (3 MB, and 10 MB of lists)");
    let apt = folder.join("apt");
    fs::create_dir_all(apt.join("lists/partial"))?;
    fs::create_dir_all(apt.join("parts"))?;
    let source = format!(
        "Types: deb-src\nURIs: http://deb.debian.org/debian\nSuites: bookworm\nComponents: main\nSigned-By: {KEYRING}\n"
    );
    fs::write(apt.join("parts/debian.sources"), source)?;
    let shown = apt.display();
    let options = [
        "Dir::Etc::SourceList=/dev/null".to_string(),
        format!("Dir::Etc::SourceParts={shown}/parts"),
        format!("Dir::State::Lists={shown}/lists"),
        format!("Dir::Cache={shown}"),
        // apt's own user may not write to the cache.
        "APT::Sandbox::User=root".to_string(),
    ];
    let options: Vec<&str> = options.iter().flat_map(|option| ["-o", option]).collect();
    let needs = "this needs apt, Debian's keys (debian-archive-keyring) and the network";
    programs::run("apt-get", options.iter().copied().chain(["-q", "update"]), needs)?;
    let get = ["-q", "source", "--download-only", "redis"];
    programs::run_in(folder, "apt-get", options.iter().copied().chain(get), needs)
}
