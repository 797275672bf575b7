//! Arguments of the commands that make pages from saved results.

use std::path::PathBuf;

use clap::Args as ClapArgs;

/// Arguments of `report`.
#[derive(ClapArgs, Debug)]
pub(crate) struct ReportArgs {
    /// Folders that `evenkeel sim` and `evenkeel lab` have written; all results below them are
    /// taken.
    #[arg(required = true, value_name = "DIR")]
    pub(crate) folders: Vec<PathBuf>,
    /// Folder for the pages; open its index.html.
    #[arg(long, value_name = "DIR", default_value = "out/report")]
    pub(crate) out: PathBuf,
    /// Heading of the index.
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,
}

/// Arguments of `compare`.
#[derive(ClapArgs, Debug)]
pub(crate) struct CompareArgs {
    /// Folders that `evenkeel sim` and `evenkeel lab` have written, in the order in which they
    /// shall stand; the results of several seeds or repeats below one are one run with intervals.
    #[arg(required = true, value_name = "DIR")]
    pub(crate) folders: Vec<PathBuf>,
    /// Folder for the page; open its index.html.
    #[arg(long, value_name = "DIR", default_value = "out/compare")]
    pub(crate) out: PathBuf,
    /// Heading of the page.
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,
}

/// Arguments of `pack`.
#[derive(ClapArgs, Debug)]
pub(crate) struct PackArgs {
    /// A folder that `evenkeel sim` or `evenkeel lab` has written.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// The file [default: the folder's name, with .tar, here].
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// Arguments of `rerun`.
#[derive(ClapArgs, Debug)]
pub(crate) struct RerunArgs {
    /// A file that `evenkeel pack` has written.
    #[arg(value_name = "FILE")]
    pub(crate) archive: PathBuf,
    /// Folder for what it holds and for the results of now; new or empty.
    #[arg(long, value_name = "DIR", default_value = "out/rerun")]
    pub(crate) out: PathBuf,
}
