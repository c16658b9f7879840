//! The command lines of `biopsy explain` and `biopsy schema`.

use clap::Args;

#[derive(Debug, Args)]
pub struct Explain {
    /// Finding ID; without it, all IDs are listed.
    #[arg(value_name = "ID")]
    pub id: Option<String>,
}

#[derive(Debug, Args)]
pub struct Schema {
    /// View, by the name of its command.
    #[arg(value_name = "VIEW")]
    pub view: String,
}
