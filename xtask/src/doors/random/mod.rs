//! Random statements from a seed, over the same rows in a table of PostgreSQL, in a foreign table of it, and through the
//! door of a node. PostgreSQL's own answer is right: the others are to have the same rows, or an error with its code.
//!
//! Invariant: `testdata/doors.toml` is true. Each of its statements differs as it says, and a random statement that
//! differs contains a form that is listed there.

pub mod answers;
mod rows;
pub mod statements;

use super::list::{Form, List, Tally};
use super::node::{Node, execute};
use super::{Servers, foreign};
use crate::postgres::Endpoint;
use answers::{Said, Verdict};
use anyhow::{Result, ensure};
use statements::{Forms, Statement};
use std::collections::BTreeMap;
use std::fmt::Write;

/// SplitMix64: Guy L. Steele Jr., Doug Lea, Christine H. Flood: Fast splittable pseudorandom number generators, 2014.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`, which is small.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Returns a number from `first` to `last`.
    fn between(&mut self, first: i64, last: i64) -> i64 {
        first + (self.next() % (last - first + 1) as u64) as i64
    }
}

/// Options of this part.
#[derive(clap::Args, Default)]
pub struct Options {
    /// The first seed of random statements.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of seeds; each makes all forms and 500 statements of forms within each other.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
}

/// Statements of forms within each other, for each seed.
const COMPOSED: usize = 500;

/// Settings of both servers: rows of a statement that does not end are not waited for.
const SETTINGS: &str = "SET statement_timeout = '20s'; SET extra_float_digits = 1; SET TIME ZONE 'UTC';\n";

/// Runs random statements, and those of the list.
pub fn run(servers: &Servers, list: &List, options: &Options) -> Result<Vec<Tally>> {
    let forms = Forms::read()?;
    let mut listed = Tally::new("listed");
    for unknown in list.forms(true).filter(|form| !forms.has(form)) {
        listed.fail(format!("testdata/doors.toml: there is no form {unknown:?}"));
    }
    let (mut direct, mut foreign) = (Tally::new("random"), Tally::new("random, fdw"));
    for seed in options.seed..options.seed + options.seeds {
        let mut random = Random::new(seed);
        let node = Node::start(&servers.program)?;
        let heap = servers.filled(&node)?;
        let (created, filled) = rows::tables(&mut random);
        for endpoint in [&node.postgres, &heap] {
            execute(endpoint, &format!("{created}{filled}"))?;
        }
        foreign::import(&heap, &node)?;
        if seed == options.seed {
            check_list(list, &heap, &node.postgres, &mut listed)?;
        }
        let mut statements = forms.sweep(&mut random);
        statements.extend((0..COMPOSED).map(|_| forms.composed(&mut random)));
        let expected = answers(&heap, "public", &statements)?;
        for (tally, endpoint, path) in
            [(&mut direct, &node.postgres, "public"), (&mut foreign, &heap, foreign::SCHEMA)]
        {
            let got = answers(endpoint, path, &statements)?;
            compare(&statements, &expected, &got, list, path == foreign::SCHEMA, tally);
        }
    }
    Ok(vec![listed, direct, foreign])
}

/// Checks that the statements of the list differ as they are said to.
fn check_list(list: &List, heap: &Endpoint, door: &Endpoint, tally: &mut Tally) -> Result<()> {
    for (forms, is_refusal) in [(&list.differs, false), (&list.refused, true)] {
        for is_foreign in [false, true] {
            let listed =
                forms.iter().filter(|form| form.foreign == is_foreign).flat_map(|form| &form.statements);
            let statements: Vec<Statement> = listed.map(|sql| Statement::of_list(sql)).collect();
            let (endpoint, path) = if is_foreign { (heap, foreign::SCHEMA) } else { (door, "public") };
            let expected = answers(heap, "public", &statements)?;
            let got = answers(endpoint, path, &statements)?;
            for ((statement, expected), got) in statements.iter().zip(&expected).zip(&got) {
                check_listed(&statement.sql, answers::compare(statement, expected, got), is_refusal, tally);
            }
        }
    }
    Ok(())
}

fn check_listed(sql: &str, verdict: Verdict, is_refusal: bool, tally: &mut Tally) {
    match (verdict, is_refusal) {
        (Verdict::Differs(_), false) | (Verdict::Refused(_), true) => tally.pass(),
        (Verdict::Same, _) => tally.fail(format!("listed, and the answer is the same: {sql}")),
        (Verdict::Differs(how), true) => tally.fail(format!("listed as refused, and differs: {sql}\n{how}")),
        (Verdict::Refused(how), false) => {
            tally.fail(format!("listed as differing, and refused: {sql}\n{how}"))
        }
    }
}

/// Counts the verdicts; of statements that differ for the same form, only the first few are told.
fn compare(
    statements: &[Statement],
    expected: &[Said],
    got: &[Said],
    list: &List,
    is_foreign: bool,
    tally: &mut Tally,
) {
    let mut told: BTreeMap<String, usize> = BTreeMap::new();
    for ((statement, expected), got) in statements.iter().zip(expected).zip(got) {
        let how = match answers::compare(statement, expected, got) {
            Verdict::Same => {
                tally.pass();
                continue;
            }
            Verdict::Refused(how) | Verdict::Differs(how) => how,
        };
        if statement.forms.iter().any(|form| list.forms(is_foreign).any(|listed| listed == form)) {
            tally.list();
            continue;
        }
        let cause = statement.forms.first().cloned().unwrap_or_default();
        let count = told.entry(cause).or_default();
        *count += 1;
        match *count <= 2 {
            true => tally.fail(format!("{}: {}\n{how}", tally.part, statement.sql)),
            false => tally.fail(String::new()),
        }
    }
}

/// Asks a server for all statements.
fn answers(endpoint: &Endpoint, path: &str, statements: &[Statement]) -> Result<Vec<Said>> {
    let mut script = format!("{SETTINGS}SET search_path = {path};\n");
    for (number, statement) in statements.iter().enumerate() {
        writeln!(script, "{};\n{}", statement.sql, answers::marked(number))?;
    }
    let output = endpoint.psql(&script)?;
    let said = Said::all(&output);
    let next = statements.get(said.len()).map_or("", |statement| statement.sql.as_str());
    ensure!(said.len() == statements.len(), "psql ended before it had the answer of: {next}");
    Ok(said)
}

impl List {
    /// Returns the forms that are known to differ or to be refused: through the door, and over foreign tables, too.
    fn forms(&self, is_foreign: bool) -> impl Iterator<Item = &str> {
        let listed = self.differs.iter().chain(&self.refused).filter(move |form| is_foreign || !form.foreign);
        listed.flat_map(|form: &Form| form.forms.iter().map(String::as_str))
    }
}
