//! `biopsy schema`: the JSON Schema of a view.

use anyhow::Result;
use biopsy::refusal::Refusal;
use biopsy::render::{json, text};

use crate::cli::Schema;
use crate::output::Sink;

pub fn run(args: &Schema) -> Result<()> {
    let Some(schema) = json::schema(&args.view) else {
        let views: Vec<&str> = json::schemas().collect();
        let view = text::clean(&args.view);
        let why = format!("there is no JSON Schema of '{view}': these views have one: {}", views.join(", "));
        return Err(Refusal::Usage(why).into());
    };
    Sink::Stdout.write(format!("{schema:#}\n").as_bytes())
}
