//! The command lines of what is read: `biopsy explain` and `biopsy schema`.

use clap::Args;

#[derive(Debug, Args)]
pub struct Explain {
    /// A finding id; without it all ids are listed.
    #[arg(value_name = "ID")]
    pub id: Option<String>,
}

#[derive(Debug, Args)]
pub struct Schema {
    /// A view: the name of its command.
    #[arg(value_name = "VIEW")]
    pub view: String,
}
