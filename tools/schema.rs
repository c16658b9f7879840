//! `biopsy schema`: the JSON Schema of a view.

use anyhow::Result;
use biopsy::refusal::Refusal;
use biopsy::render::{json, text};

use crate::cli::Schema;
use crate::output::Sink;

pub fn run(args: &Schema) -> Result<()> {
    let Some(schema) = json::schema(&args.view) else {
        let known: Vec<&str> = json::schemas().collect();
        let why = format!("'{}' has no schema: use one of {}", text::clean(&args.view), known.join(", "));
        return Err(Refusal::Usage(why).into());
    };
    Sink::Stdout.write(format!("{schema:#}\n").as_bytes())
}
