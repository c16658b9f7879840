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
    #[arg(value_name = "VIEW", help = views())]
    pub view: String,
}

fn views() -> String {
    let views: Vec<&str> = biopsy::render::json::schemas().collect();
    format!("One of {}", views.join(", "))
}
