//! The examples of `docs/clients.md`: what is shown is what is run, and what is said to be printed is printed.
//!
//! A fence whose language has a name behind it (```` ```python psycopg ````) is an example; a fence `text` right behind it
//! is its output, in which a line `...` stands for any lines. The examples run in their order against one node, whose
//! port replaces the one on the page.

use super::list::{List, Tally};
use super::node::Node;
use super::{CLIENTS, OPENED, Servers, python};
use crate::cargo;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const PAGE: &str = "docs/clients.md";

/// Returns the ports on the page, each with that of the same door of a node.
fn ports(node: &Node) -> [(&'static str, &str); 2] {
    [("5433", &node.postgres.port), ("32010", &node.flight)]
}

/// An example.
struct Snippet<'a> {
    language: &'a str,
    name: &'a str,
    text: String,
    /// The lines that it prints.
    output: Vec<&'a str>,
}

/// Runs all examples.
pub fn run(servers: &Servers, list: &List) -> Result<Tally> {
    let page = fs::read_to_string(cargo::root().join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let node = Node::start(&servers.program)?;
    let (listed, mut tally) = (list.checks("snippets"), Tally::new("snippets"));
    for snippet in snippets(&page) {
        let printed = snippet.run(&node)?;
        let lines: Vec<&str> = printed.trim_end().lines().collect();
        let problem = (!matches(&snippet.output, &lines))
            .then(|| format!("  printed:\n{printed}\n  {PAGE} has:\n{}", snippet.output.join("\n")));
        tally.check(&listed, snippet.name, problem);
    }
    Ok(tally)
}

impl Snippet<'_> {
    /// Runs the example, and returns what it prints on both streams.
    fn run(&self, node: &Node) -> Result<String> {
        let replaced = |text: String, (written, port): (&str, &str)| text.replace(written, port);
        let text = ports(node).into_iter().fold(self.text.clone(), replaced);
        let folder = CLIENTS.folder("snippets")?.join(self.name.replace(' ', "-"));
        fs::create_dir_all(&folder)?;
        let file = |name: &str| -> Result<()> { Ok(fs::write(folder.join(name), &text)?) };
        let mut command = match self.language {
            "sh" => shell(&text),
            "python" => {
                file("example.py")?;
                let mut command = Command::new(python()?);
                command.arg("example.py");
                command
            }
            "java" => {
                file("Example.java")?;
                let mut command = Command::new("java");
                // pgjdbc has no such module, of which Java would warn.
                command.args(self.name.starts_with("flight").then_some(OPENED));
                command.arg("-cp").arg(CLIENTS.java()?.join("*")).arg("Example.java");
                command
            }
            "go" => {
                let module = CLIENTS.folder("go-module")?;
                fs::create_dir_all(module.join("example"))?;
                for name in ["go.mod", "go.sum"] {
                    fs::copy(CLIENTS.scripts().join("go").join(name), module.join(name))?;
                }
                fs::write(module.join("example/main.go"), &text)?;
                Command::new(CLIENTS.go_in(module, "example")?)
            }
            "js" => {
                // Packages are found from the folder of the script.
                let packages = CLIENTS.node_js(&[])?;
                fs::write(packages.join("example.mjs"), &text)?;
                let mut command = Command::new("node");
                command.arg(packages.join("example.mjs"));
                command
            }
            other => bail!("{PAGE}: an example in {other:?} cannot be run"),
        };
        run_in(&folder, &mut command)
    }
}

fn shell(text: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-e", "-c", &format!("exec 2>&1\n{text}")]);
    command
}

fn run_in(folder: &Path, command: &mut Command) -> Result<String> {
    let done = command.current_dir(folder).stdin(Stdio::null()).output();
    let done = done.with_context(|| format!("cannot start {command:?}"))?;
    let (printed, errors) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    Ok(format!("{printed}{errors}"))
}

fn snippets(page: &str) -> Vec<Snippet<'_>> {
    let mut all: Vec<Snippet<'_>> = Vec::new();
    let mut parts = page.split("\n```");
    let mut between = parts.next().unwrap_or_default();
    let mut was_example = false;
    while let Some(block) = parts.next() {
        let (head, body) = block.split_once('\n').unwrap_or((block, ""));
        match head.split_once(' ') {
            Some((language, name)) => {
                all.push(Snippet { language, name, text: format!("{body}\n"), output: Vec::new() });
                was_example = true;
            }
            None => {
                if let (true, "text", Some(example)) =
                    (was_example && between.trim().is_empty(), head, all.last_mut())
                {
                    example.output = body.lines().collect();
                }
                was_example = false;
            }
        }
        between = parts.next().unwrap_or_default();
    }
    all
}

fn matches(shown: &[&str], printed: &[&str]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((&"...", rest)) => (0..=printed.len()).any(|skipped| matches(rest, &printed[skipped..])),
        Some((line, rest)) => printed.first() == Some(line) && matches(rest, &printed[1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_have_names_and_their_output_stands_behind_them() {
        let page = "x\n```sh psql\na\nb\n```\n```text\n1\n...\n```\n\n```sql\nn\n```\n```python p q\nc\n```\nwords\n```text\nno\n```\n";
        let all = snippets(page);
        let shown: Vec<_> =
            all.iter().map(|s| (s.language, s.name, s.text.as_str(), s.output.len())).collect();
        assert_eq!(shown, [("sh", "psql", "a\nb\n", 2), ("python", "p q", "c\n", 0)]);
        assert!(matches(&all[0].output, &["1", "2", "3"]) && !matches(&all[0].output, &["2"]));
    }
}
