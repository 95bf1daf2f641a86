//! A control group that limits the memory of processes, including the page cache used for them.

use anyhow::{Context, Result, bail};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup";

/// A control group, which is removed on drop. Processes must have ended by then.
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// Creates a group whose processes have `mib` MiB of memory in total.
    ///
    /// # Errors
    /// Fails if the system does not permit it.
    pub fn new(name: &str, mib: u64) -> Result<Cgroup> {
        let root = Path::new(ROOT);
        // Version 1 of control groups has a separate hierarchy for memory.
        let (parent, file) = match root.join("memory/memory.limit_in_bytes").exists() {
            true => (root.join("memory"), "memory.limit_in_bytes"),
            false if root.join("cgroup.controllers").exists() => (root.to_path_buf(), "memory.max"),
            false => bail!("there are no control groups for memory in {ROOT}"),
        };
        let folder = parent.join(format!("farpool-bench-{name}-{}", std::process::id()));
        fs::create_dir(&folder)
            .with_context(|| format!("cannot make {}: this needs root", folder.display()))?;
        let group = Cgroup(folder);
        let limit = group.0.join(file);
        fs::write(&limit, (mib << 20).to_string())
            .with_context(|| format!("cannot write {}", limit.display()))?;
        Ok(group)
    }

    /// Returns a command line that runs `program` within the group.
    pub fn wrap(&self, program: &OsStr) -> (OsString, Vec<OsString>) {
        let script = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
        (
            OsString::from("sh"),
            vec!["-c".into(), script.into(), self.0.clone().into(), program.to_os_string()],
        )
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The system takes a moment to notice that the last process has ended.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
