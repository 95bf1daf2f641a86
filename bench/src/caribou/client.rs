//! A simple client of the Redis protocol (RESP), for commands whose time is not measured: settings, sizes, loading
//! rows.

use super::protocol::command;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// A connection to a server that speaks RESP.
pub struct Client(BufReader<TcpStream>);

impl Client {
    /// Connects to the server at `address`.
    pub fn connect(address: SocketAddr) -> Result<Client> {
        Ok(Client(BufReader::new(TcpStream::connect(address)?)))
    }

    /// Sends a command and returns its reply: an array as its elements, one per line; `None` for a null reply and for
    /// an array of nulls.
    pub fn ask(&mut self, arguments: &[&str]) -> Result<Option<String>> {
        let mut bytes = Vec::new();
        let arguments: Vec<&[u8]> = arguments.iter().map(|argument| argument.as_bytes()).collect();
        command(&arguments, &mut bytes);
        self.0.get_mut().write_all(&bytes)?;
        self.reply()
    }

    /// Sends `count` encoded commands at once, and then reads their replies.
    ///
    /// # Errors
    /// Fails if the connection breaks, or if a reply is an error.
    pub fn pipeline(&mut self, commands: &[u8], count: u64) -> Result<()> {
        self.0.get_mut().write_all(commands)?;
        (0..count).try_for_each(|_| self.reply().map(drop))
    }

    /// Waits for the next reply and returns it.
    ///
    /// # Errors
    /// Fails if the connection breaks, or if the reply is an error.
    fn reply(&mut self) -> Result<Option<String>> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            bail!("the server closed the connection");
        }
        let (kind, rest) = line.trim_end().split_at_checked(1).context("an empty reply")?;
        match kind {
            "+" | ":" => Ok(Some(rest.to_string())),
            "$" | "*" if rest == "-1" => Ok(None),
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>()? + 2];
                self.0.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
            }
            "*" => {
                let elements = (0..rest.parse::<usize>()?).map(|_| self.reply());
                let elements = elements.collect::<Result<Vec<Option<String>>>>()?;
                let is_nothing = elements.iter().all(Option::is_none);
                Ok((!is_nothing).then(|| elements.into_iter().flatten().collect::<Vec<_>>().join("\n")))
            }
            _ => bail!("{}", line.trim_end()),
        }
    }

    /// Returns the numeric field `field` in a section of `INFO`.
    pub fn info(&mut self, section: &str, field: &str) -> Result<u64> {
        let text = self.ask(&["INFO", section])?.context("INFO says nothing")?;
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let (_, value) =
            lines.find(|(name, _)| *name == field).with_context(|| format!("INFO has no {field}"))?;
        Ok(value.trim().parse()?)
    }
}
