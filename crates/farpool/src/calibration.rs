//! Measurements that `farpool calibrate` stores in files: the rates of this machine for the cost model, and the best
//! way to request column chunks over the links to nodes.
//!
//! Invariant: a file that is missing, corrupted or implausible causes no error; built-in numbers are used instead. Only
//! the choice of operators to push down, and the duration of transfers, depend on them.

use crate::{Error, Rates, Result, Transfer, processors, user_folder};
use farpool_transfer::{PoolUrl, RemotePool};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Factor, and minimum difference, by which the latency of a link must have changed for the link to count as another
/// one.
const LATENCY_FACTOR: f64 = 4.0;
const LATENCY_S: f64 = 0.001;

/// The measurements of the link to a node.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct CalibratedLink {
    /// The machine that measured the link: see [`machine_name`].
    pub machine: String,
    /// Time from a small request to its answer, in seconds.
    pub latency_s: f64,
    /// Encoded bytes of columns received per second.
    pub bytes_per_s: f64,
    /// The parameters of the requests.
    pub transfer: Transfer,
}

impl CalibratedLink {
    /// Returns whether the measurements are valid for this machine and a link with this latency.
    pub fn is_of(&self, machine: &str, latency: Duration) -> bool {
        let (now, then) = (latency.as_secs_f64(), self.latency_s);
        let is_near = (now - then).abs() <= LATENCY_S || now.max(then) <= LATENCY_FACTOR * now.min(then);
        self.machine == machine && is_near && self.transfer.is_sound()
    }
}

/// Returns a text that identifies this machine: its name, and the number and model of its processors.
pub fn machine_name() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or("unknown", |(_, model)| model.trim());
    format!("{}, {} × {model}", read("/proc/sys/kernel/hostname").trim(), processors())
}

/// Returns the path of the file with the measurements of links, in the user's cache folder; `None` if there is no such
/// folder.
pub fn link_file() -> Option<PathBuf> {
    Some(calibration_file()?.with_file_name("links.json"))
}

/// Adds the measurements of the link to `url` to the file at `path`. A corrupted file is replaced.
///
/// # Errors
/// `Unavailable` if the file cannot be written.
pub fn keep_link(url: &PoolUrl, link: CalibratedLink, path: &Path) -> Result<()> {
    let mut links: BTreeMap<String, CalibratedLink> = read_json(path).ok().flatten().unwrap_or_default();
    links.insert(url.to_string(), link);
    write_json(&links, path)
}

/// Returns the measured best parameters for requesting column chunks over the link to a node. If the measurements are
/// of another machine or link, returns the built-in ones and logs a warning.
///
/// # Errors
/// `Unavailable` if the node does not answer.
pub async fn transfer_over(url: &PoolUrl, pool: &RemotePool) -> Result<Transfer> {
    let Some(path) = link_file() else { return Ok(Transfer::default()) };
    let links: BTreeMap<String, CalibratedLink> = match read_json(&path) {
        Ok(links) => links.unwrap_or_default(),
        Err(error) => {
            tracing::warn!("{error}; 'farpool calibrate --pool {url}' measures the link again");
            return Ok(Transfer::default());
        }
    };
    let Some(link) = links.get(&url.to_string()) else { return Ok(Transfer::default()) };
    let latency = pool.latency().await?;
    if link.is_of(&machine_name(), latency) {
        return Ok(link.transfer);
    }
    tracing::warn!(
        "the link to {url} was measured by another machine, or is another one by now; 'farpool calibrate --pool {url}' \
         measures it again"
    );
    Ok(Transfer::default())
}

/// Returns the path of the file with the rates of this machine, in the user's cache folder; `None` if there is no such
/// folder.
pub fn calibration_file() -> Option<PathBuf> {
    Some(user_folder("XDG_CACHE_HOME", ".cache")?.join("calibration.json"))
}

/// Returns the measured rates of this machine, or the built-in ones. Logs a warning if there is a file that cannot be
/// used.
pub fn calibrated_rates() -> Rates {
    let Some(path) = calibration_file() else { return Rates::default() };
    match read(&path) {
        Ok(rates) => rates.unwrap_or_default(),
        Err(error) => {
            tracing::warn!("{error}; built-in speeds are used, 'farpool calibrate' measures them again");
            Rates::default()
        }
    }
}

/// Reads the rates at `path`; `None` if there is no such file.
fn read(path: &Path) -> Result<Option<Rates>> {
    match read_json(path)? {
        Some(rates) if !Rates::is_sound(&rates) => Err(damaged(path)),
        rates => Ok(rates),
    }
}

/// Reads a file written by [`write_json`]; `None` if there is no such file.
fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::unavailable(format!("cannot read {}: {error}", path.display()))),
    };
    serde_json::from_str(&text).map(Some).map_err(|_| damaged(path))
}

fn damaged(path: &Path) -> Error {
    Error::corrupt(format!("{} is damaged", path.display()))
}

/// Writes `rates` to `path`, for [`calibrated_rates`].
///
/// # Errors
/// `Unavailable` if the file cannot be written.
pub fn keep_rates(rates: &Rates, path: &Path) -> Result<()> {
    write_json(rates, path)
}

fn write_json(value: &impl Serialize, path: &Path) -> Result<()> {
    let failed =
        |error: std::io::Error| Error::unavailable(format!("cannot write {}: {error}", path.display()));
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(failed)?;
    let text = serde_json::to_string_pretty(value).map_err(|error| Error::internal(error.to_string()))?;
    // Written to a temporary file and renamed: another process may be reading.
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    std::io::Write::write_all(&mut file, (text + "\n").as_bytes()).map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_other_machines_and_other_links_are_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("links.json");
        let (one, other): (PoolUrl, PoolUrl) =
            ("farpool://a:1".parse().unwrap(), "farpool://b:1".parse().unwrap());
        let link = |latency_s, request_bytes| CalibratedLink {
            machine: machine_name(),
            latency_s,
            bytes_per_s: 1e9,
            transfer: Transfer { request_bytes, requests: 2 },
        };
        keep_link(&one, link(0.02, 1 << 20), &path).unwrap();
        keep_link(&other, link(0.0001, 2 << 20), &path).unwrap();
        keep_link(&one, link(0.02, 3 << 20), &path).unwrap();
        let links: BTreeMap<String, CalibratedLink> = read_json(&path).unwrap().unwrap();
        assert_eq!(links.len(), 2);
        let kept = &links[&one.to_string()];
        assert_eq!(kept.transfer.request_bytes, 3 << 20);
        let here = machine_name();
        assert!(kept.is_of(&here, Duration::from_millis(20)) && kept.is_of(&here, Duration::from_millis(60)));
        assert!(
            !kept.is_of(&here, Duration::from_millis(2)) && !kept.is_of(&here, Duration::from_millis(200))
        );
        assert!(!kept.is_of("another", Duration::from_millis(20)));
        assert!(links[&other.to_string()].is_of(&here, Duration::from_micros(900)), "a busy moment");
        for request_bytes in [0, usize::MAX] {
            assert!(!link(0.02, request_bytes).is_of(&here, Duration::from_millis(20)));
        }
        std::fs::write(&path, "[").unwrap();
        assert!(read_json::<BTreeMap<String, CalibratedLink>>(&path).is_err());
        keep_link(&one, link(0.02, 1 << 20), &path).unwrap();
    }

    #[test]
    fn rates_are_kept_and_damaged_ones_are_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new").join("calibration.json");
        assert_eq!(read(&path).unwrap(), None);
        let rates = Rates { pool_match_rows: 12.5, ..Rates::default() };
        keep_rates(&rates, &path).unwrap();
        assert_eq!(read(&path).unwrap(), Some(rates));
        std::fs::write(&path, "{\"decode_bytes\": 7.0}").unwrap();
        assert_eq!(read(&path).unwrap().unwrap().decode_bytes, 7.0, "what is missing is built in");
        for damaged in ["", "{", "{\"decode_bytes\": 0}", "{\"decode_bytes\": \"fast\"}"] {
            std::fs::write(&path, damaged).unwrap();
            assert!(read(&path).is_err(), "{damaged}");
        }
    }
}
