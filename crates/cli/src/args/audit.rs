//! Arguments of `audit`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};

use super::interval;

/// What to look at, or to sign.
#[derive(ClapArgs, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AuditArgs {
    /// Control socket of the router.
    #[arg(long, value_name = "PATH", default_value = "/run/evenkeel/control.sock")]
    pub(crate) socket: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Option<AuditCommand>,
}

/// What else to do with audits.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Make a key for certificates in a new file that only its owner may read, and print the public
    /// key.
    Keygen {
        /// The file.
        file: PathBuf,
    },
    /// Watch a router for a while, and write a signed certificate of what its links were told and
    /// what they delivered.
    Certify {
        /// Control socket of the router.
        #[arg(long, value_name = "PATH", default_value = "/run/evenkeel/control.sock")]
        socket: PathBuf,
        /// The period: 60s, 200ms.
        #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = interval)]
        period: Duration,
        /// Also what this subscriber was told and had, for whom the certificate may be; may be
        /// given several times.
        #[arg(long = "subscriber", value_name = "NAME")]
        subscribers: Vec<String>,
        /// The key that signs.
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// The certificate, which may be there already and is replaced.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Say what a certificate says, if this key has signed it; else end with 1.
    Verify {
        /// The certificate.
        file: PathBuf,
        /// The public key as `keygen` printed it: not the one in the file.
        #[arg(long, value_name = "HEX")]
        key: String,
        /// Print the signed JSON.
        #[arg(long)]
        json: bool,
    },
}
