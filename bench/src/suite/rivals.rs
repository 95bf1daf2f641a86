//! The rivals of a suite (the systems that farpool is compared with): those that are installed are started, and the
//! report names all.

use crate::rival::{Rival, RivalDefinition};
use anyhow::Result;
use serde::Serialize;

/// A rival in a record, and the reason if it did not take part.
#[derive(Clone, Debug, Serialize)]
pub struct RivalResult {
    pub name: String,
    pub version: String,
    pub missing: Option<String>,
}

impl RivalResult {
    /// Returns the entry of a rival that was started with this version, or could not be started.
    pub fn of<T>(name: &str, started: &Result<T>, version: impl FnOnce(&T) -> String) -> RivalResult {
        let (version, missing) = match started {
            Ok(started) => (version(started), None),
            Err(error) => (String::new(), Some(format!("{error:#}"))),
        };
        RivalResult { name: name.to_string(), version, missing }
    }

    /// Formats the name and the version, or why the rival is missing.
    pub fn text(&self) -> String {
        match &self.missing {
            Some(why) => format!("without {}: {why}", self.name),
            None => format!("{} {}", self.name, self.version),
        }
    }
}

/// Starts rivals by name; returns those that are installed, and the entries of all.
pub fn start(names: &[String], threads: usize) -> Result<(Vec<Rival>, Vec<RivalResult>)> {
    let (mut rivals, mut results) = (Vec::new(), Vec::new());
    for name in names {
        let started = Rival::start(RivalDefinition::named(name)?, threads);
        results.push(RivalResult::of(name, &started, |rival| rival.version.clone()));
        rivals.extend(started);
    }
    Ok((rivals, results))
}

/// Lists rivals for a report, one in a line.
pub fn list(rivals: &[RivalResult]) -> String {
    rivals.iter().map(|rival| rival.text() + "\n").collect()
}
