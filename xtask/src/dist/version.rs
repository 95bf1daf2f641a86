//! The version and the time of a release, each from one place.

use super::read;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;

/// Returns the version of the program in `Cargo.toml`.
///
/// # Errors
/// Fails if the newest heading of the changelog has another version.
pub fn agreed(root: &Path) -> Result<String> {
    let metadata = cargo_metadata::MetadataCommand::new().current_dir(root).no_deps().exec()?;
    let package = metadata.packages.into_iter().find(|package| *package.name == "farpool");
    let version = package.context("the workspace has no package farpool")?.version.to_string();
    let newest = newest(&read(&root.join("CHANGELOG.md"))?)?;
    ensure!(
        newest == version,
        "CHANGELOG.md begins with version {newest} and Cargo.toml has {version}: change the one that is wrong"
    );
    Ok(version)
}

/// Returns the version in the first heading of a changelog, such as `## 0.1.0 (2026-11-27)`.
fn newest(changelog: &str) -> Result<String> {
    let heading = changelog.lines().find_map(|line| line.strip_prefix("## "));
    let version = heading.and_then(|heading| heading.split_whitespace().next());
    Ok(version.context("CHANGELOG.md has no heading with a version")?.to_string())
}

/// Returns the modification time of files in packages, in seconds since 1970: `SOURCE_DATE_EPOCH`, or that of the last
/// commit, or 0 outside of a repository.
///
/// # Errors
/// Fails if the variable is not a number.
pub fn time(root: &Path) -> Result<String> {
    if let Ok(time) = std::env::var("SOURCE_DATE_EPOCH") {
        let _: u64 = time.parse().with_context(|| format!("SOURCE_DATE_EPOCH is no time: {time:?}"))?;
        return Ok(time);
    }
    let commit = Command::new("git").current_dir(root).args(["log", "-1", "--format=%ct"]).output();
    let time = commit.ok().filter(|output| output.status.success());
    let time = time.and_then(|output| String::from_utf8(output.stdout).ok());
    Ok(time.map_or_else(|| "0".to_string(), |time| time.trim().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_heading_has_the_version() {
        let changelog =
            "# Changelog\nWhat changed.\n\n## 0.2.0 (not released)\n- x\n\n## 0.1.0 (2026-11-27)\n";
        assert_eq!(newest(changelog).unwrap(), "0.2.0");
        assert!(newest("# Changelog\n").is_err());
    }

    #[test]
    fn changelog_and_crate_agree() {
        agreed(&crate::cargo::root()).unwrap();
    }
}
