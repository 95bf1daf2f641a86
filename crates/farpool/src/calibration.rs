//! The measured rates of this machine, stored in a file by `farpool calibrate`.
//!
//! Invariant: a file that is missing, damaged or implausible causes no error: the built-in rates are used
//! instead, and only the choice of what is pushed down can differ.

use crate::{Error, Rates, Result};
use std::path::{Path, PathBuf};

/// Path of the file with the rates of this machine: in the user's cache folder.
pub fn calibration_file() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
    Some(caches.join("farpool").join("calibration.json"))
}

/// Returns the rates of this machine, or the built-in ones; a file that cannot be used is logged as a
/// warning.
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
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::unavailable(format!("cannot read {}: {error}", path.display()))),
    };
    let rates: Option<Rates> = serde_json::from_str(&text).ok();
    let sound = rates.filter(Rates::is_sound);
    sound.map(Some).ok_or_else(|| Error::corrupt(format!("{} is damaged", path.display())))
}

/// Writes `rates` to `path`, for [`calibrated_rates`].
///
/// # Errors
/// `Unavailable` when the file cannot be written.
pub fn keep_rates(rates: &Rates, path: &Path) -> Result<()> {
    let failed =
        |error: std::io::Error| Error::unavailable(format!("cannot write {}: {error}", path.display()));
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(failed)?;
    let text = serde_json::to_string_pretty(rates).map_err(|error| Error::internal(error.to_string()))?;
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
