//! Locations of files: in the tree, and in the cache outside it.

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Returns the root of the tree.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Returns the cache: FARPOOL_CACHE, or `~/.cache/farpool`.
pub fn cache() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("FARPOOL_CACHE") {
        return Ok(folder.into());
    }
    let home = std::env::var_os("HOME").context("neither FARPOOL_CACHE nor HOME is set")?;
    Ok(Path::new(&home).join(".cache/farpool"))
}

/// Returns the folder in which `cargo xtask rivals` installs: FARPOOL_RIVALS, or `~/.cache/farpool/rivals`.
pub fn rivals() -> Result<PathBuf> {
    match std::env::var_os("FARPOOL_RIVALS") {
        Some(folder) => Ok(folder.into()),
        None => Ok(cache()?.join("rivals")),
    }
}

/// Formats a scale factor as in names of folders: `1`, `0.01`.
pub fn scale_name(scale: f64) -> String {
    format!("{scale}")
}

/// Formats the name of a query: `q01`, `q2.1`.
pub fn query_name(query: impl Display) -> String {
    format!("q{:0>2}", query.to_string())
}

/// Returns the text of a query of a suite.
pub fn query(suite: &str, query: impl Display) -> Result<String> {
    read(&root().join(format!("testdata/{suite}/queries/{}.sql", query_name(query))))
}

/// Returns DuckDB's recorded answer to a query of a suite, if there is one for the scale.
pub fn recorded_answer(suite: &str, scale: f64, query: impl Display) -> Option<String> {
    let folder = root().join(format!("testdata/{suite}/answers/sf{}", scale_name(scale)));
    std::fs::read_to_string(folder.join(format!("{}.tsv", query_name(query)))).ok()
}

/// Returns the `farpool` program, which is next to this one.
pub fn program() -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("farpool");
    ensure!(program.exists(), "{} is not there: build it with --bin farpool", program.display());
    Ok(program)
}

/// Returns a file in a folder of the cache. `make` creates it if it does not exist, next to the target: it is renamed
/// when it is complete, so that an interrupted run leaves no incomplete file.
pub fn made(folder: &str, name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let folder = cache()?.join(folder);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let file = folder.join(name);
    if !file.exists() {
        eprintln!("making {}", file.display());
        let partial = file.with_extension("partial");
        make(&partial).with_context(|| format!("cannot write {}", file.display()))?;
        std::fs::rename(&partial, &file)?;
    }
    Ok(file)
}

/// Reads `bench/definitions/NAME.toml`, without its settings for `--quick`.
pub fn definition<T: DeserializeOwned>(name: &str) -> Result<T> {
    definition_for(name, false, None)
}

/// Reads `bench/definitions/NAME.toml`. If `is_quick`, the settings in its table `quick` replace those of the same
/// names, also in nested tables; `runs` replaces the number of runs.
pub fn definition_for<T: DeserializeOwned>(name: &str, is_quick: bool, runs: Option<usize>) -> Result<T> {
    let path = root().join(format!("bench/definitions/{name}.toml"));
    let parsed = || -> Result<T> {
        let mut settings: Table = toml::from_str(&read(&path)?)?;
        if let (Some(Value::Table(quick)), true) = (settings.remove("quick"), is_quick) {
            replace(&mut settings, quick);
        }
        if let (Some(runs), Some(setting)) = (runs, settings.get_mut("runs")) {
            *setting = Value::Integer(i64::try_from(runs)?.max(1));
        }
        Ok(Value::Table(settings).try_into()?)
    };
    parsed().with_context(|| path.display().to_string())
}

fn replace(settings: &mut Table, others: Table) {
    for (name, other) in others {
        match (settings.get_mut(&name), other) {
            (Some(Value::Table(nested)), Value::Table(other)) => replace(nested, other),
            (_, other) => _ = settings.insert(name, other),
        }
    }
}

/// Returns the text of a file; an error contains its path.
pub fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::replace;
    use toml::Table;

    #[test]
    fn quick_settings_replace_those_of_the_same_names() {
        let parse = |text: &str| text.parse::<Table>().expect("it is TOML");
        let mut settings = parse("rows = 9\nruns = 5\n[scan]\nrows = 7\nname = \"s\"");
        replace(&mut settings, parse("rows = 1\nmost = 2\n[scan]\nrows = 3"));
        assert_eq!(settings, parse("rows = 1\nruns = 5\nmost = 2\n[scan]\nrows = 3\nname = \"s\""));
    }
}
