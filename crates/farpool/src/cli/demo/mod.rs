//! `farpool demo`: generated data, a memory node, and queries with and without push-down.

mod data;
mod measure;
mod node;
mod queries;
mod report;

use super::size;
use super::stop::{Outcome, Stop};
use farpool::{Error, Session, SessionOptions};
use std::io::Write;
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  farpool demo
  farpool demo --scale 1 --runs 5
  farpool demo --keep              keeps the node running for queries of your own";

/// Measure what push-down saves: TPC-H queries with and without it, on a node on this machine
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Scale factor of the TPC-H data; 1 is about 1 GB before compression
    #[arg(long, default_value_t = 0.1)]
    scale: f64,

    /// Measured runs of each query in each mode, after one warm-up run
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,

    /// Memory of the node, such as 4GiB [default: half of the machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory: Option<usize>,

    /// Keep the node running until Ctrl-C
    #[arg(long)]
    keep: bool,
}

/// Runs the demo and prints its results.
pub fn run(args: Args) -> Outcome {
    if !(args.scale >= 0.001 && args.scale <= 1000.0) {
        return Err(Stop::usage(
            format!("a scale of {} makes no sense here", args.scale),
            "choose one from 0.001 to 1000; 0.1 is 100 MB of data, more or less",
        ));
    }
    super::run_until_interrupted(show(args))
}

async fn show(args: Args) -> Outcome {
    let memory = args.memory.unwrap_or_else(farpool::memory_bytes_default);
    let node = node::LocalNode::start(memory)?;
    eprintln!("a memory node listens on {}", node.url);
    load(&node.url, args.scale).await?;
    let runs = usize::from(args.runs);
    let results = queries(&node.url, runs).await?;
    let mut text = format!("\n{}\n{}", report::costs(&results), report::legend(runs));
    text.push('\n');
    text.push_str(&report::next(args.keep.then_some(node.url.as_str())));
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Stop::output)?;
    if args.keep {
        std::future::pending::<()>().await;
    }
    Ok(())
}

async fn load(url: &str, scale: f64) -> Outcome {
    let start = Instant::now();
    eprintln!("making TPC-H data at scale {scale} and loading it …");
    let pool = farpool::connect(url, None).await?;
    let tables = data::load(&*pool, scale).await.map_err(|stop| match stop {
        Stop::Failed(error) if error.kind == farpool::ErrorKind::OverLimit => {
            Stop::Failed(Error { advice: Some("choose a smaller --scale, or more --memory".into()), ..error })
        }
        other => other,
    })?;
    eprintln!("{}, in {}", report::loaded(&tables), size::duration(start.elapsed()));
    Ok(())
}

async fn queries(url: &str, runs: usize) -> Outcome<Vec<(&'static queries::DemoQuery, measure::Measured)>> {
    let off = session(url, false).await?;
    let on = session(url, true).await?;
    let mut results = Vec::new();
    for query in &queries::QUERIES {
        eprintln!("{}: {}", query.title, query.about);
        results.push((query, measure::measure(query, &off, &on, runs).await?));
    }
    Ok(results)
}

/// Opens a session with a separate connection.
async fn session(url: &str, pushdown: bool) -> Outcome<Session> {
    let session = Session::new(SessionOptions { pushdown, ..SessionOptions::default() });
    session.register_pool("farpool", farpool::connect(url, None).await?).await?;
    Ok(session)
}
