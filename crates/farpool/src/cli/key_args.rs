//! Options about the files of a data directory: its master key, and how it is compressed.

use super::stop::{Outcome, Stop};
use farpool::node::{
    Codec, CompressionPolicy, Directory, KeySource, LocalDirectory, MasterKey, Tier, compressing, unlock,
};
use std::path::PathBuf;
use std::sync::Arc;

/// Where the key of an encrypted data directory comes from.
#[derive(clap::Args, Debug)]
pub struct KeyArgs {
    /// The data directory is encrypted under the master key in this file, which only its owner may read: 32 bytes, or
    /// 64 hexadecimal digits
    #[arg(long, value_name = "FILE", requires = "data_dir")]
    #[arg(conflicts_with_all = ["master_key_env", "master_key_command"])]
    master_key_file: Option<PathBuf>,

    /// As --master-key-file, with 64 hexadecimal digits in a variable of the environment
    #[arg(long, value_name = "VARIABLE", requires = "data_dir", conflicts_with = "master_key_command")]
    master_key_env: Option<String>,

    /// As --master-key-file, with what this shell command writes to its standard output, within 30 seconds
    #[arg(long, value_name = "COMMAND", requires = "data_dir")]
    master_key_command: Option<String>,
}

impl KeyArgs {
    /// Reads the key, if one is named.
    pub fn load(&self) -> Outcome<Option<MasterKey>> {
        let file = self.master_key_file.clone().map(KeySource::File);
        let variable = || self.master_key_env.clone().map(KeySource::Variable);
        let command = || self.master_key_command.clone().map(KeySource::Command);
        let source = file.or_else(variable).or_else(command);
        Ok(source.map(|source| MasterKey::load(&source)).transpose()?)
    }

    /// Opens a data directory with the key, and does not make one.
    pub fn unlock_existing(&self, directory: Arc<LocalDirectory>) -> Outcome<Arc<dyn Directory>> {
        Ok(unlock(directory, self.load()?.as_ref(), None)?)
    }
}

/// How a data directory is encrypted.
#[derive(clap::Args, Debug)]
pub struct EncryptionArgs {
    #[command(flatten)]
    key: KeyArgs,

    /// How strong a new data directory is encrypted, where there is a master key: standard is AES-128-GCM, strict
    /// AES-256-GCM; one that is there keeps what it has [default: standard]
    #[arg(long, value_name = "TIER", value_parser = tier, requires = "data_dir")]
    encryption: Option<Tier>,
}

impl EncryptionArgs {
    /// The key, if one is named, and what a new directory is encrypted with.
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

    /// Opens a data directory with the key, and makes one that is empty an encrypted one.
    pub fn unlock(&self, directory: Arc<LocalDirectory>) -> Outcome<Arc<dyn Directory>> {
        let (key, tier) = self.load()?;
        Ok(unlock(directory, key.as_ref(), Some(tier))?)
    }
}

/// How tables are compressed in a data directory.
#[derive(clap::Args, Debug)]
pub struct CompressionArgs {
    /// How large parts of tables are compressed when they are written: auto (where that makes reading them faster on
    /// this disk), none, lz4, zstd or deflate; what is there stays as it is [default: auto]
    #[arg(long, value_name = "HOW", value_parser = compression, requires = "data_dir")]
    compression: Option<CompressionPolicy>,
}

impl CompressionArgs {
    /// What is said, or `auto`.
    pub fn get(&self) -> CompressionPolicy {
        self.compression.unwrap_or_default()
    }

    /// The directory that compresses so.
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
