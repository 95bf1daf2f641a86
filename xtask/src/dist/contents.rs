//! The files that the packages install, as a tree below one prefix (`/usr` or `/usr/local`), from which all packages
//! are made.

use super::program::Program;
use super::{Release, copy, create_parent, licences, write};
use crate::{cargo, programs};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folder of the documentation, below the prefix.
pub const DOCUMENTATION: &str = "share/doc/farpool";

/// Folder of the completions for zsh, below the prefix. Debian uses another folder.
pub const ZSH: &str = "share/zsh/site-functions";

/// The shells for which there are completions, and the paths of these.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/farpool"),
    ("zsh", "share/zsh/site-functions/_farpool"),
    ("fish", "share/fish/vendor_completions.d/farpool.fish"),
];

/// Files of the tree that are installed as they are.
const FILES: [(&str, &str); 6] = [
    ("packaging/systemd/farpool.service", "lib/systemd/system/farpool.service"),
    ("packaging/systemd/farpool.sysusers", "lib/sysusers.d/farpool.conf"),
    ("packaging/systemd/farpool.default", "share/doc/farpool/farpool.default"),
    ("README.md", "share/doc/farpool/README.md"),
    ("ARCHITECTURE.md", "share/doc/farpool/ARCHITECTURE.md"),
    ("CHANGELOG.md", "share/doc/farpool/CHANGELOG.md"),
];

/// Folders of the tree whose pages and pictures are installed below [`DOCUMENTATION`].
const PAGES: [&str; 3] = ["docs", "docs/decisions", "docs/internals"];

/// The tree of installed files.
pub struct Contents {
    /// The folder that contains the tree; it has the name of the archive.
    pub prefix: PathBuf,
}

/// Builds the tree of the installed files.
pub fn gather(release: &Release, program: &Program) -> Result<Contents> {
    let name = format!("farpool-{}-{}-linux", release.version, program.architecture.name());
    let prefix = release.scratch.join(name);
    copy(&program.path, &prefix.join("bin/farpool"))?;
    said_by_itself(&program.path, &prefix)?;
    let root = cargo::root();
    for (from, to) in FILES {
        copy(&root.join(from), &prefix.join(to))?;
    }
    let documentation = prefix.join(DOCUMENTATION);
    for folder in PAGES {
        for path in pages(&root.join(folder))? {
            copy(&path, &documentation.join(folder).join(path.file_name().unwrap_or_default()))?;
        }
    }
    copy(&root.join("LICENSE"), &documentation.join("LICENSE"))?;
    write(&documentation.join("THIRD-PARTY"), licences::of_dependencies(&root, program.architecture)?)?;
    set_modes(&prefix)?;
    Ok(Contents { prefix })
}

/// Lets the program write its manual pages and completions, which also shows that it runs here.
fn said_by_itself(program: &Path, prefix: &Path) -> Result<()> {
    let run = |arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        let output = output.with_context(|| format!("{} does not run here", program.display()))?;
        ensure!(output.status.success(), "`farpool {}` failed ({})", arguments.join(" "), output.status);
        Ok(output.stdout)
    };
    for (shell, path) in COMPLETIONS {
        write(&prefix.join(path), run(&["completions", shell])?)?;
    }
    let pages = prefix.join("share/man/man1");
    create_parent(&pages)?;
    run(&["man", "--dir", &pages.to_string_lossy()])?;
    let pages: Vec<String> = fs::read_dir(&pages)?
        .map(|entry| Ok(entry?.path().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    let arguments = ["-n", "-9"].into_iter().chain(pages.iter().map(String::as_str));
    programs::run("gzip", arguments, "install the package gzip")
}

/// Returns the pages of documentation and the pictures that they refer to.
fn pages(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let is_page = |path: &PathBuf| path.extension().is_some_and(|e| e == "md" || e == "svg" || e == "png");
    Ok(paths.into_iter().filter(is_page).collect())
}

/// Sets the modes of all files for installation, independently of the source tree and the umask.
pub fn set_modes(folder: &Path) -> Result<()> {
    programs::run("chmod", ["-R", "u=rwX,go=rX", &folder.to_string_lossy()], "is the folder yours?")
}
