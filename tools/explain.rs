//! `biopsy explain`: a page per finding.

use anyhow::Result;
use biopsy::refusal::Refusal;
use biopsy::rules;

use crate::cli::Explain;
use crate::output::Sink;

pub fn run(args: &Explain) -> Result<()> {
    let text = match &args.id {
        None => list(),
        Some(id) => page(id)?,
    };
    Sink::Stdout.write(text.as_bytes())
}

fn list() -> String {
    let width = rules::pages().map(|(id, _, _)| id.len()).max().unwrap_or(0);
    rules::pages().map(|(id, summary, _)| format!("{id:width$}  {summary}\n")).collect()
}

fn page(id: &str) -> Result<String, Refusal> {
    match rules::explain(id) {
        Some(page) => Ok(format!("{id}\n\n{page}")),
        None => {
            let known: Vec<&str> = rules::pages().map(|(id, _, _)| id).collect();
            let id = biopsy::render::text::clean(id);
            Err(Refusal::Usage(format!("no finding is called '{id}': use one of {}", known.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_is_listed_and_has_a_page() {
        let list = list();
        for (id, _, _) in rules::pages() {
            assert!(list.lines().any(|line| line.starts_with(id) && line.len() <= 130), "{id}");
            assert!(page(id).is_ok_and(|text| text.starts_with(id)));
        }
    }

    #[test]
    fn an_unknown_id_names_the_known_ones() {
        let refusal = page("no\x1b[2J").expect_err("unknown");
        assert_eq!(refusal.exit_code(), 2);
        assert!(refusal.to_string().contains("device-bound") && !refusal.to_string().contains('\x1b'));
    }
}
