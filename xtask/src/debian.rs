//! Source packages of Debian 12.
//!
//! apt gets separate package lists: on most machines no sources are enabled, and the machine's own settings are not
//! changed. Debian's signature is checked as for every package.

use crate::programs;
use anyhow::Result;
use std::fs;
use std::path::Path;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Downloads the archives of a source package into a folder, in which apt's lists are kept, too.
///
/// # Errors
/// Fails without apt, Debian's keys or the network.
pub fn download_source(folder: &Path, package: &str) -> Result<()> {
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
    let get = ["-q", "source", "--download-only", package];
    programs::run_in(folder, "apt-get", options.iter().copied().chain(get), needs)
}
