//! The program in a terminal: a pseudo-terminal, and the screen as a terminal would show it.

use super::{GUARD, until, wait};
use pty_process::Size;
use pty_process::blocking::{Command, Pty};
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Number of lines that are kept after they have scrolled off the top of the screen.
const SCROLLBACK: usize = 2000;

/// The program in a pseudo-terminal, and the screen that it shows.
pub struct Terminal {
    pub child: Child,
    pty: Arc<Pty>,
    screen: Arc<Mutex<vt100::Parser>>,
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    /// Starts the program with `args` in a terminal of 80 columns and 24 rows, with its files in `home`.
    pub fn start(home: &Path, args: &[&str], variables: &[(&str, &str)]) -> Terminal {
        let (pty, pts) = pty_process::blocking::open().unwrap();
        pty.resize(Size::new(24, 80)).unwrap();
        let mut command =
            Command::new(env!("CARGO_BIN_EXE_farpool")).args(args).env("HOME", home).current_dir(home);
        for name in ["FARPOOL_POOL", "FARPOOL_TOKEN", "FARPOOL_LOG", "FARPOOL_PAGER", "PAGER", "NO_COLOR"] {
            command = command.env_remove(name);
        }
        for name in ["XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"] {
            command = command.env_remove(name);
        }
        let command = command.env("TERM", "xterm-256color").envs(variables.iter().copied());
        let child = command.spawn(pts).unwrap();
        let size = |number| NonZeroU16::new(number).unwrap();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(size(24), size(80), SCROLLBACK)));
        let pty = Arc::new(pty);
        let (of_reader, drawn) = (pty.clone(), screen.clone());
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 64 << 10];
            // Reading from the pseudo-terminal fails once the program has ended.
            while let Ok(count) = (&*of_reader).read(&mut bytes) {
                if count == 0 {
                    break;
                }
                drawn.lock().unwrap().process(&bytes[..count]);
            }
        });
        Terminal { child, pty, screen, reader: Some(reader) }
    }

    /// Starts the shell and waits for its prompt.
    pub fn shell(home: &Path, args: &[&str], variables: &[(&str, &str)]) -> Terminal {
        let terminal = Terminal::start(home, &[&["shell"], args].concat(), variables);
        terminal.until("farpool>");
        terminal
    }

    /// Types `text`; `\r` is Enter.
    pub fn press(&self, text: &str) {
        (&*self.pty).write_all(text.as_bytes()).unwrap();
    }

    /// Presses Ctrl-C after a long statement has started: a key that is pressed earlier is lost.
    #[track_caller]
    pub fn interrupt(&self) {
        std::thread::sleep(std::time::Duration::from_secs(1));
        self.press("\x03");
        self.until("interrupted");
    }

    /// Types a line and Enter on an empty screen. Waits until the screen shows `expected` and a new prompt, and returns
    /// its contents.
    #[track_caller]
    pub fn run(&self, line: &str, expected: &str) -> String {
        self.until_screen(&format!("a prompt before {line}"), |screen| {
            screen.trim_end().ends_with("farpool>")
        });
        self.press("\x0c");
        self.until_screen(&format!("an empty screen before {line}"), |screen| screen.trim() == "farpool>");
        self.press(&format!("{line}\r"));
        self.until_screen(&format!("{expected:?} after {line}"), |screen| {
            screen.contains(expected) && screen.trim_end().ends_with("\nfarpool>")
        })
    }

    /// Waits until the screen shows `text`, and returns all contents of the screen.
    #[track_caller]
    pub fn until(&self, text: &str) -> String {
        self.until_screen(&format!("{text:?}"), |screen| screen.contains(text))
    }

    #[track_caller]
    fn until_screen(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let start = std::time::Instant::now();
        loop {
            let screen = self.screen();
            if holds(&screen) {
                return screen;
            }
            assert!(start.elapsed() < GUARD, "{what} did not come about on this screen:\n{screen}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Returns the contents of the screen, without white space at the ends of lines.
    pub fn screen(&self) -> String {
        let contents = self.screen.lock().unwrap().screen().contents();
        contents.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
    }

    /// Resizes the terminal.
    pub fn resize(&self, rows: u16, columns: u16) {
        let size = |number| NonZeroU16::new(number).unwrap();
        self.screen.lock().unwrap().screen_mut().set_size(size(rows), size(columns));
        self.pty.resize(Size::new(rows, columns)).unwrap();
    }

    /// Presses Ctrl-D as soon as there is a prompt, because the key has no effect earlier. Returns the exit status of
    /// the program.
    #[track_caller]
    pub fn leave(mut self) -> ExitStatus {
        self.until_screen("a prompt before the end", |screen| screen.trim_end().ends_with("farpool>"));
        self.press("\x04");
        let status = wait(&mut self.child);
        self.reader.take().unwrap().join().unwrap();
        status
    }

    /// Waits for the end of the program, and returns its status and the last screen.
    pub fn end(mut self) -> (Option<i32>, String) {
        let status = wait(&mut self.child);
        let reader = self.reader.take().unwrap();
        until("the end of the output", || reader.is_finished());
        (status.code(), self.screen())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Killing fails if the program has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
