//! Clients of other systems' protocols in four languages, installed at pinned versions into a folder of the cache.
//! Their lists of packages stand beside their scripts in `testdata`.

use crate::cargo;
use crate::programs::{self, installed, is_installed};
use crate::python;
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;

/// The scripts in a folder of `testdata`, and the folder of the cache for what they need.
pub struct Clients {
    /// The folder of the cache.
    pub cache: &'static str,
    /// The folder with the scripts, relative to `testdata`.
    pub scripts: &'static str,
}

impl Clients {
    /// Returns the folder with the scripts.
    pub fn scripts(&self) -> PathBuf {
        cargo::root().join("testdata").join(self.scripts)
    }

    /// Returns a folder of the cache for one language.
    ///
    /// # Errors
    /// Fails if there is no folder for a cache.
    pub fn folder(&self, language: &str) -> Result<PathBuf> {
        Ok(cargo::cache(self.cache)?.join(language))
    }

    /// Returns the interpreter of a virtual environment that has the packages.
    pub fn python(&self, packages: &[String]) -> Result<PathBuf> {
        python::environment(&self.folder("python")?, packages)
    }

    /// Returns the folder with the libraries listed in `pom.xml`.
    pub fn java(&self) -> Result<PathBuf> {
        programs::install(&["mvn", "javac"], &["maven", "default-jdk-headless"])?;
        let folder = self.folder("java")?;
        let list = self.scripts().join("pom.xml");
        let wanted = fs::read_to_string(&list).context("cannot read pom.xml of the clients")?;
        if !is_installed(&folder, &wanted) {
            let into = format!("-DoutputDirectory={}", folder.display());
            let copy = ["-q", "-B", "-f", &list.to_string_lossy(), "dependency:copy-dependencies", &into];
            programs::run("mvn", copy, "is the package registry reachable?")?;
            installed(&folder, &wanted)?;
        }
        Ok(folder)
    }

    /// Returns the folder with the packages listed in `package-lock.json`, and these scripts.
    pub fn node_js(&self, scripts: &[&str]) -> Result<PathBuf> {
        programs::install(&["node", "npm"], &["nodejs", "npm"])?;
        let folder = self.folder("node")?;
        let from = self.scripts().join("node");
        let wanted =
            fs::read_to_string(from.join("package-lock.json")).context("cannot read package-lock.json")?;
        let is_there = is_installed(&folder, &wanted);
        fs::create_dir_all(&folder)?;
        for name in ["package.json", "package-lock.json"].iter().chain(scripts) {
            fs::copy(from.join(name), folder.join(name))?;
        }
        if !is_there {
            let install = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
            let otherwise = "is the package registry reachable? Node.js 20 is needed";
            programs::run_in(&folder, "npm", install, otherwise)?;
            installed(&folder, &wanted)?;
        }
        Ok(folder)
    }

    /// Builds one of the programs in the folder `go` of the scripts, with the packages listed in `go.sum`.
    pub fn go(&self, name: &str) -> Result<PathBuf> {
        self.go_in(self.scripts().join("go"), name)
    }

    /// Builds a Go program in a folder of the module `folder`.
    pub fn go_in(&self, folder: PathBuf, name: &str) -> Result<PathBuf> {
        programs::install(&["go"], &["golang-go"])?;
        let built = self.folder("go")?.join(name);
        let build = ["build", "-buildvcs=false", "-o", &built.to_string_lossy(), &format!("./{name}")];
        let otherwise = "is the module proxy reachable, and Go as new as go.mod says?";
        programs::run_in(&folder, "go", build, otherwise)?;
        Ok(built)
    }
}
