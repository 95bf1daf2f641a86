//! Runs processes of all sides (farpool and its rivals) in turns; times count only if the answers, and the written
//! files, agree.

use super::data;
use super::definition::{Case, Definition, FileDefinition};
use super::frames::{self, Frames};
use super::side::{Request, Side, Times};
use crate::answers::Answer;
use crate::suite::{Expected, Head, RivalResult, Samples, turns_after_warm_up};
use crate::{disk, stats, text};
use anyhow::{Context, Result};
use serde::Serialize;
use std::path::Path;

/// Results of a run of the suite.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    #[serde(flatten)]
    pub head: Head,
    pub runs: usize,
    pub rivals: Vec<RivalResult>,
    pub files: Vec<FileResult>,
    pub cases: Vec<CaseResult>,
    /// Results of the Python package; `None` if it is not available.
    pub frames: Option<Frames>,
    pub notes: Vec<String>,
}

/// A file that was queried.
#[derive(Clone, Debug, Serialize)]
pub struct FileResult {
    pub name: String,
    pub bytes: u64,
}

/// Results of a case over a file, or without one.
#[derive(Clone, Debug, Serialize)]
pub struct CaseResult {
    pub name: String,
    pub file: Option<String>,
    /// Whether the file was dropped from the system's cache before each run.
    pub is_cold: bool,
    pub sides: Vec<SideResult>,
    /// Ratio of the time of farpool's process to that of the fastest rival's process.
    pub of_fastest: Option<f64>,
    /// Upper bound of this ratio.
    pub goal: Option<f64>,
    /// Ratio of the time of farpool's process to the fastest rival's time without starting Python and importing the
    /// rival.
    pub of_fastest_started: Option<f64>,
}

/// A side's times of a case, in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct SideResult {
    pub side: String,
    pub whole_ms: Vec<f64>,
    pub own_ms: Vec<f64>,
    pub whole_median_ms: f64,
    pub whole_best_ms: f64,
    pub own_median_ms: f64,
    pub own_best_ms: f64,
}

struct Run<'a> {
    definition: &'a Definition,
    sides: Vec<Side>,
    scratch: &'a Path,
    results: Results,
}

/// Runs the whole suite.
pub fn run(definition: &Definition) -> Result<Results> {
    let mut sides = vec![Side::farpool()?];
    let mut rivals = Vec::new();
    for name in &definition.rivals {
        let rival = Side::rival(name);
        rivals.push(RivalResult::of(name, &rival, |rival| rival.version().to_string()));
        sides.extend(rival);
    }
    let results = Results {
        head: Head::of("first-minute"),
        runs: definition.runs,
        rivals,
        files: Vec::new(),
        cases: Vec::new(),
        frames: None,
        notes: Vec::new(),
    };
    let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
    let mut run = Run { definition, sides, scratch: scratch.path(), results };
    for case in definition.cases.iter().filter(|case| !case.reads()) {
        run.case(case, None, false)?;
    }
    for file in &definition.files {
        if !definition.cases.iter().any(|case| case.takes(file)) {
            continue;
        }
        let path = data::file(file)?;
        let bytes = path.metadata()?.len();
        run.results.files.push(FileResult { name: file.name.clone(), bytes });
        for case in definition.cases.iter().filter(|case| case.takes(file)) {
            for is_cold in [true, false] {
                run.case(case, Some((file, &path)), is_cold)?;
            }
        }
    }
    match frames::interpreters(&definition.frames) {
        Ok(interpreters) => run.results.frames = Some(frames::run(&definition.frames, &interpreters)?),
        Err(error) => run.results.notes.push(format!("without data frames: {error:#}")),
    }
    text::progress("");
    Ok(run.results)
}

impl Run<'_> {
    fn case(&mut self, case: &Case, file: Option<(&FileDefinition, &Path)>, is_cold: bool) -> Result<()> {
        let name = file.map(|(file, _)| file.name.clone());
        text::progress(&format!("{}, {} ", case.name, name.as_deref().unwrap_or("no file")));
        let path = file.map(|(_, path)| path);
        let samples = self.times(case, path, is_cold);
        let samples =
            samples.with_context(|| format!("{}, {}", case.name, name.as_deref().unwrap_or("no file")))?;
        let sides = self.sides.iter().enumerate();
        let sides: Vec<SideResult> =
            sides.map(|(place, side)| SideResult::new(side, samples.of(place))).collect();
        let own = sides.first().map(|side| side.whole_median_ms);
        let of_fastest = |time: fn(&SideResult) -> f64| {
            let fastest = sides.iter().skip(1).map(time).min_by(f64::total_cmp);
            own.zip(fastest).map(|(own, fastest)| own / fastest)
        };
        self.results.cases.push(CaseResult {
            name: case.name.clone(),
            file: name,
            is_cold,
            of_fastest: of_fastest(|side| side.whole_median_ms),
            goal: file.and_then(|(file, _)| case.at_most(file.format)),
            of_fastest_started: of_fastest(|side| side.own_median_ms),
            sides,
        });
        Ok(())
    }

    /// Returns the times of all sides, after a warm-up run that does not count.
    fn times(&mut self, case: &Case, file: Option<&Path>, is_cold: bool) -> Result<Samples<Times>> {
        let mut samples = Samples::new(self.sides.len());
        let mut expected = Expected::default();
        for turn in turns_after_warm_up(self.sides.len(), self.definition.runs) {
            if turn.side == 0 {
                expected = Expected::default();
            }
            if let Some(file) = file.filter(|_| is_cold) {
                self.forget(file);
            }
            let side = &self.sides[turn.side];
            let (took, answer) = self.run(side, case, file, !turn.counts)?;
            samples.add(turn, took);
            if let Some(answer) = answer {
                expected.check(side.name(), &answer)?;
            }
        }
        Ok(samples)
    }

    /// Drops a file from the system's page cache, or notes once that this is not possible.
    fn forget(&mut self, file: &Path) {
        if let Err(error) = disk::forget(file) {
            let note = format!("files are not cold: {error:#}");
            if !self.results.notes.contains(&note) {
                self.results.notes.push(note);
            }
        }
    }

    /// Runs a process and returns its answer. For a case that writes a file, the answer is that of a query over the
    /// file, if it is to be compared.
    fn run(
        &self,
        side: &Side,
        case: &Case,
        file: Option<&Path>,
        looks: bool,
    ) -> Result<(Times, Option<Answer>)> {
        let out = case.out.as_ref().map(|ending| self.scratch.join(format!("written.{ending}")));
        if let Some(out) = &out {
            // The file does not exist before the first run.
            let _ = std::fs::remove_file(out);
        }
        let request = Request { sql: &case.sql, file, out: out.as_deref(), scratch: self.scratch };
        let (times, answer) = side.run(&request)?;
        let answer = match (&out, looks) {
            (Some(out), true) => Some(self.written(out)?),
            _ => answer,
        };
        Ok((times, answer))
    }

    fn written(&self, out: &Path) -> Result<Answer> {
        let farpool = self.sides.first().context("farpool is the first side")?;
        let sql = &self.definition.written.sql;
        let (_, answer) = farpool.run(&Request { sql, file: Some(out), out: None, scratch: self.scratch })?;
        answer.context("a query has an answer")
    }
}

impl SideResult {
    fn new(side: &Side, times: &[Times]) -> Self {
        let whole_ms: Vec<f64> = times.iter().map(|times| times.whole).collect();
        let own_ms: Vec<f64> = times.iter().map(|times| times.own).collect();
        let best = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
        SideResult {
            side: side.name().to_string(),
            whole_median_ms: stats::median(&whole_ms),
            whole_best_ms: best(&whole_ms),
            own_median_ms: stats::median(&own_ms),
            own_best_ms: best(&own_ms),
            whole_ms,
            own_ms,
        }
    }
}
