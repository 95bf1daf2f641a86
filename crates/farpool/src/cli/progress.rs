//! Progress bars on standard error: only on a terminal, and only for operations that take more than half a second.

use super::terminal::printable;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_millis(500);
const REFRESH: Duration = Duration::from_millis(100);

/// The unit of a bar's counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of files.
    Bytes,
    /// Rows.
    Rows,
    /// Rows of a stream, whose total is not known.
    Stream,
    /// Bytes whose total is not known.
    Copied,
}

/// A progress bar that follows a counter. Dropping this erases the bar from the screen.
pub struct Progress {
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
    painter: Option<JoinHandle<()>>,
}

impl Progress {
    /// Shows a bar labelled `label` with the value of the counter `done`, out of `total`. If `rows` is given, that
    /// counter is shown, too.
    pub fn follow(
        label: impl Into<Cow<'static, str>>,
        unit: Unit,
        total: u64,
        done: Arc<AtomicU64>,
        rows: Option<Arc<AtomicU64>>,
    ) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        bar.set_style(style(unit, rows.is_some()));
        bar.set_prefix(printable(&label.into()).into_owned());
        let stop = Arc::new(AtomicBool::new(false));
        let painter = console_is_there().then(|| {
            let (bar, stop) = (bar.clone(), stop.clone());
            std::thread::spawn(move || paint(&bar, &stop, &done, rows.as_deref()))
        });
        Progress { bar, stop, painter }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(painter) = self.painter.take() {
            painter.thread().unpark();
            // A panic of the painter thread is ignored.
            painter.join().unwrap_or_default();
        }
        self.bar.finish_and_clear();
    }
}

fn console_is_there() -> bool {
    use std::io::IsTerminal;
    std::io::stderr().is_terminal()
}

fn paint(bar: &ProgressBar, stop: &AtomicBool, done: &AtomicU64, rows: Option<&AtomicU64>) {
    let start = Instant::now();
    let mut visible = false;
    while !stop.load(Ordering::Relaxed) {
        if !visible && start.elapsed() >= PATIENCE {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            visible = true;
        }
        bar.set_position(done.load(Ordering::Relaxed));
        if let Some(rows) = rows {
            bar.set_message(super::size::counted(rows.load(Ordering::Relaxed), "row"));
        }
        std::thread::park_timeout(REFRESH);
    }
}

fn style(unit: Unit, with_rows: bool) -> ProgressStyle {
    let amounts = match unit {
        Unit::Bytes => "{binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}",
        Unit::Copied => "{binary_bytes} {binary_bytes_per_sec}",
        Unit::Rows | Unit::Stream => "{human_pos}/{human_len} rows, {per_sec}",
    };
    let of_unknown = match unit {
        Unit::Stream => Some("{prefix} {human_pos} rows, {per_sec}".to_string()),
        Unit::Copied => Some(format!("{{prefix}} {amounts}")),
        Unit::Bytes | Unit::Rows => None,
    };
    if let Some(template) = of_unknown {
        return ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_spinner());
    }
    let rows = if with_rows { " {msg}" } else { "" };
    let template = format!("{{prefix}} [{{bar:24}}] {amounts}{rows} {{eta}} left");
    ProgressStyle::with_template(&template)
        .map_or_else(|_| ProgressStyle::default_bar(), |style| style.progress_chars("=> "))
}
