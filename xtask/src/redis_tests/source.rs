//! Redis' tests, from the source package of Debian 12, in the folder `redis-tests` of the cache.
//!
//! Without apt, the archive may be put there by hand.

use crate::{cargo, debian, programs};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

const VERSION: &str = "7.0.15";

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
        println!("fetching the sources of redis {VERSION} (3 MB, and 10 MB of lists)");
        debian::download_source(folder, "redis").with_context(|| {
            format!(
                "cannot get the sources of Debian's package redis: put its file {} there by hand",
                archive.display()
            )
        })?;
    }
    let arguments = ["-xzf", &archive.to_string_lossy(), "-C", &folder.to_string_lossy()];
    programs::run("tar", arguments, &format!("remove {} and try again", archive.display()))
}
