//! Text for a terminal, in which characters that a terminal would interpret are replaced by escapes. Texts from a peer,
//! a file or a query may contain characters that move the cursor, change the terminal, or reorder the surrounding text.

use std::io::{self, Write};

/// Returns whether a terminal would interpret the character: control characters, of C0 and C1, and those that begin and
/// end a change of direction (Unicode Standard Annex 9, sections 2.1 to 2.5).
pub fn is_obeyed(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The syntax of escapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EscapeStyle {
    /// As in Rust: `\u{1b}`. Line breaks and tabs are not escaped.
    Text,
    /// As in JSON: `\u001b`, so that JSON remains JSON.
    Json,
}

/// A writer that escapes its output, unless `out` is not a terminal: then every byte passes unchanged.
pub struct TerminalText<W> {
    out: W,
    style: Option<EscapeStyle>,
    /// The first bytes of a character whose remaining bytes were not written yet.
    begun: Vec<u8>,
}

impl<W: Write> TerminalText<W> {
    /// Creates a writer to `out`, which escapes in this style if it is a terminal.
    pub fn new(out: W, style: EscapeStyle, is_terminal: bool) -> Self {
        TerminalText { out, style: is_terminal.then_some(style), begun: Vec::new() }
    }

    fn write_text(&mut self, text: &str, style: EscapeStyle) -> io::Result<()> {
        let is_escaped = |c: char| !matches!(c, '\n' | '\t') && is_obeyed(c);
        let mut rest = text;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| is_escaped(*c)) {
            self.out.write_all(&rest.as_bytes()[..at])?;
            match style {
                EscapeStyle::Text => write!(self.out, "{}", c.escape_default())?,
                EscapeStyle::Json => write!(self.out, "\\u{:04x}", u32::from(c))?,
            }
            rest = &rest[at + c.len_utf8()..];
        }
        self.out.write_all(rest.as_bytes())
    }

    /// Writes bytes that may end within a character; invalid UTF-8 is shown as replacement characters.
    fn write_escaped(&mut self, bytes: &[u8], style: EscapeStyle) -> io::Result<()> {
        let mut all = std::mem::take(&mut self.begun);
        all.extend_from_slice(bytes);
        let mut rest = &all[..];
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => return self.write_text(text, style),
                Err(error) => {
                    let (text, broken) = rest.split_at(error.valid_up_to());
                    self.write_text(std::str::from_utf8(text).unwrap_or_default(), style)?;
                    match error.error_len() {
                        None => {
                            self.begun = broken.to_vec();
                            return Ok(());
                        }
                        Some(length) => {
                            self.out.write_all("\u{fffd}".as_bytes())?;
                            rest = &broken[length..];
                        }
                    }
                }
            }
        }
    }
}

impl<W: Write> Write for TerminalText<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.style {
            None => self.out.write(bytes),
            Some(style) => self.write_escaped(bytes, style).map(|()| bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a\u{1b}[2J,\u{202e}txt\u{9b}\u{7f}\r\n東京\t‏עברית\n";

    fn written(style: EscapeStyle, is_terminal: bool, pieces: usize) -> Vec<u8> {
        let mut out = TerminalText::new(Vec::new(), style, is_terminal);
        TEXT.as_bytes().chunks(pieces).for_each(|piece| out.write_all(piece).unwrap());
        out.out
    }

    #[test]
    fn a_terminal_gets_escapes_wherever_writes_end() {
        for pieces in 1..=TEXT.len() {
            let shown = "a\\u{1b}[2J,\\u{202e}txt\\u{9b}\\u{7f}\\r\n東京\t‏עברית\n";
            assert_eq!(String::from_utf8(written(EscapeStyle::Text, true, pieces)).unwrap(), shown);
            let shown = "a\\u001b[2J,\\u202etxt\\u009b\\u007f\\u000d\n東京\t‏עברית\n";
            assert_eq!(String::from_utf8(written(EscapeStyle::Json, true, pieces)).unwrap(), shown);
        }
    }

    #[test]
    fn files_and_pipes_get_every_byte() {
        assert_eq!(written(EscapeStyle::Text, false, 3), TEXT.as_bytes());
    }

    #[test]
    fn what_is_no_text_is_shown_as_such() {
        let mut out = TerminalText::new(Vec::new(), EscapeStyle::Text, true);
        out.write_all(b"a\xffb\xe6\x9d").unwrap();
        out.write_all(b"\xb1c").unwrap();
        assert_eq!(String::from_utf8(out.out).unwrap(), "a\u{fffd}b東c");
    }
}
