//! A simple client of the Redis protocol, for operations that are not measured: settings, sizes, tables.

use super::protocol::command;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// A connection.
pub struct Client(BufReader<TcpStream>);

impl Client {
    /// Connects to a server that speaks RESP.
    pub fn connect(address: SocketAddr) -> Result<Client> {
        Ok(Client(BufReader::new(TcpStream::connect(address)?)))
    }

    /// Sends a command and returns its reply; an array as its elements, one per line, and `None` for a null reply.
    pub fn ask(&mut self, arguments: &[&str]) -> Result<Option<String>> {
        let mut bytes = Vec::new();
        let arguments: Vec<&[u8]> = arguments.iter().map(|argument| argument.as_bytes()).collect();
        command(&arguments, &mut bytes);
        self.send(&bytes)?;
        self.reply()
    }

    /// Sends commands whose replies are read later.
    pub fn send(&mut self, commands: &[u8]) -> Result<()> {
        Ok(self.0.get_mut().write_all(commands)?)
    }

    /// Reads one reply.
    ///
    /// # Errors
    /// Fails if the connection breaks, and for replies that are errors.
    pub fn reply(&mut self) -> Result<Option<String>> {
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

    /// Returns a number from INFO.
    pub fn info(&mut self, section: &str, field: &str) -> Result<u64> {
        let text = self.ask(&["INFO", section])?.context("INFO says nothing")?;
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let (_, value) =
            lines.find(|(name, _)| *name == field).with_context(|| format!("INFO has no {field}"))?;
        Ok(value.trim().parse()?)
    }
}
