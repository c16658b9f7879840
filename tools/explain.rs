//! `biopsy explain`: prints the page of a finding.

use anyhow::Result;
use biopsy::refusal::Refusal;
use biopsy::rules::{self, GROUPS, Group};

use crate::cli::Explain;
use crate::output::Sink;

pub fn run(args: &Explain) -> Result<()> {
    let text = match &args.id {
        None => list(),
        Some(id) => page(id)?,
    };
    Sink::Stdout.write(text.as_bytes())
}

/// Groups are separated by a blank line. Only the lines of findings are indented: `  id  summary`.
fn list() -> String {
    let width = rules::pages().map(|(id, _, _)| id.len()).max().unwrap_or(0);
    let group = |group: &Group| {
        let lines = group.ids.iter().filter_map(|id| {
            let (_, summary, _) = rules::pages().find(|(known, _, _)| known == id)?;
            Some(format!("  {id:width$}  {summary}\n"))
        });
        format!("{}\n{}", group.heading, lines.collect::<String>())
    };
    GROUPS.iter().map(group).collect::<Vec<_>>().join("\n")
}

fn page(id: &str) -> Result<String, Refusal> {
    match rules::explain(id) {
        Some(page) => Ok(format!("{id}\n\n{page}")),
        None => {
            let known = || rules::pages().map(|(id, _, _)| id);
            let like: Vec<&str> = known().filter(|known| known.contains(id) || id.contains(known)).collect();
            let id = biopsy::render::text::clean(id);
            let remedy = match like[..] {
                [] => format!("use one of {}", known().collect::<Vec<_>>().join(", ")),
                [one] => format!("use {one}"),
                _ => format!("use one of {}", like.join(", ")),
            };
            Err(Refusal::Usage(format!("no finding is named '{id}': {remedy}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_is_listed_and_has_a_page() {
        let list = list();
        assert!(list.lines().all(|line| line.chars().count() <= 80), "{list}");
        for (id, summary, _) in rules::pages() {
            let of_id = |line: &&str| line.split_whitespace().next() == Some(id);
            let lines: Vec<&str> = list.lines().filter(of_id).collect();
            assert!(matches!(lines.as_slice(), [line] if line.starts_with("  ")), "{id}: {lines:?}");
            assert!(lines[0].ends_with(&format!("  {summary}")));
            assert!(page(id).is_ok_and(|text| text.starts_with(id)));
        }
        let headings: Vec<&str> =
            list.lines().filter(|line| !line.is_empty() && !line.starts_with(' ')).collect();
        assert_eq!(headings, GROUPS.iter().map(|group| group.heading).collect::<Vec<_>>());
    }

    #[test]
    fn an_unknown_id_names_the_known_ones() {
        let refusal = page("no\x1b[2J").expect_err("unknown");
        assert_eq!(refusal.exit_code(), 2);
        assert!(refusal.to_string().contains("device-bound") && !refusal.to_string().contains('\x1b'));
    }
}
