//! Options for the files of a data directory: its master key, and its compression.

use super::stop::{Outcome, Stop};
use farpool::node::{
    Codec, CompressionPolicy, Directory, KeySource, LocalDirectory, MasterKey, Tier, compressing, unlock,
};
use std::path::PathBuf;
use std::sync::Arc;

/// The source of the key of an encrypted data directory.
#[derive(clap::Args, Debug)]
pub struct KeyArgs {
    /// File with the master key of the encrypted data directory: 32 bytes, or 64 hexadecimal digits; must be readable
    /// by its owner only
    #[arg(long, value_name = "FILE", requires = "data_dir")]
    #[arg(conflicts_with_all = ["master_key_env", "master_key_command"])]
    master_key_file: Option<PathBuf>,

    /// Environment variable with the master key, as 64 hexadecimal digits
    #[arg(long, value_name = "VARIABLE", requires = "data_dir", conflicts_with = "master_key_command")]
    master_key_env: Option<String>,

    /// Shell command that writes the master key to standard output, within 30 seconds
    #[arg(long, value_name = "COMMAND", requires = "data_dir")]
    master_key_command: Option<String>,
}

impl KeyArgs {
    /// Reads the key, if an option names one.
    pub fn load(&self) -> Outcome<Option<MasterKey>> {
        let file = self.master_key_file.clone().map(KeySource::File);
        let variable = || self.master_key_env.clone().map(KeySource::Variable);
        let command = || self.master_key_command.clone().map(KeySource::Command);
        let source = file.or_else(variable).or_else(command);
        Ok(source.map(|source| MasterKey::load(&source)).transpose()?)
    }

    /// Opens a data directory with the key, without creating one.
    pub fn unlock_existing(&self, directory: Arc<LocalDirectory>) -> Outcome<Arc<dyn Directory>> {
        Ok(unlock(directory, self.load()?.as_ref(), None)?)
    }
}

/// The encryption of a data directory.
#[derive(clap::Args, Debug)]
pub struct EncryptionArgs {
    #[command(flatten)]
    key: KeyArgs,

    /// Encryption of a new data directory with a master key: standard (AES-128-GCM) or strict (AES-256-GCM); an
    /// existing directory keeps its own [default: standard]
    #[arg(long, value_name = "TIER", value_parser = tier, requires = "data_dir")]
    encryption: Option<Tier>,
}

impl EncryptionArgs {
    /// Returns the key, if an option names one, and the tier of a new directory.
    pub fn load(&self) -> Outcome<(Option<MasterKey>, Tier)> {
        let key = self.key.load()?;
        match (key.is_some(), self.encryption) {
            (false, Some(tier)) => Err(Stop::usage(
                format!("--encryption {} needs a master key", tier.name()),
                "name it: --master-key-file FILE",
            )),
            (_, tier) => Ok((key, tier.unwrap_or(Tier::Standard))),
        }
    }

    /// Opens a data directory with the key, and encrypts it if it is empty.
    pub fn unlock(&self, directory: Arc<LocalDirectory>) -> Outcome<Arc<dyn Directory>> {
        let (key, tier) = self.load()?;
        Ok(unlock(directory, key.as_ref(), Some(tier))?)
    }
}

/// The compression of tables in a data directory.
#[derive(clap::Args, Debug)]
pub struct CompressionArgs {
    /// Compression of large parts of tables when they are written: auto (where it makes reading faster on this disk),
    /// none, lz4, zstd or deflate; existing data is not rewritten [default: auto]
    #[arg(long, value_name = "HOW", value_parser = compression, requires = "data_dir")]
    compression: Option<CompressionPolicy>,
}

impl CompressionArgs {
    /// Returns the option's value, or `auto`.
    pub fn get(&self) -> CompressionPolicy {
        self.compression.unwrap_or_default()
    }

    /// Returns the directory with this compression.
    pub fn apply(&self, directory: Arc<dyn Directory>) -> Arc<dyn Directory> {
        compressing(directory, self.get())
    }
}

fn compression(text: &str) -> Result<CompressionPolicy, String> {
    let codecs = Codec::ALL.map(Codec::name).join(", ");
    CompressionPolicy::named(text).ok_or_else(|| format!("write auto, none, or one of {codecs}"))
}

fn tier(text: &str) -> Result<Tier, String> {
    let named = Tier::ALL.into_iter().find(|tier| tier.name() == text);
    let tier = named.ok_or("write standard or strict")?;
    match tier.authenticates() {
        true => Ok(tier),
        false => Err(format!("it is {}: write standard or strict", tier.describe())),
    }
}
