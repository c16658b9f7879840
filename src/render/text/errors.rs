//! Renders `biopsy errors` as text.

use super::{bytes, clean, count, counted, fit, footer, table};
use crate::analyze::errors::{ErrorEvent, ErrorRow, ErrorSummary};
use crate::envelope::Envelope;

/// The whole view; `brief`: without what is the same in every interval; `width`: characters per line.
pub fn render(
    envelope: &Envelope,
    summary: &ErrorSummary,
    command_status: Option<i32>,
    brief: bool,
    width: Option<usize>,
) -> String {
    let mut out = match summary.rows.is_empty() {
        true => format!("No errors, retries or requeues in {}.\n", counted(summary.ios, "I/O")),
        false => table(
            &["device", "class", "event", "cause", "count", "bytes"],
            &summary.rows.iter().map(cells).collect::<Vec<_>>(),
        ),
    };
    out.push('\n');
    out.push_str(&footer::lost(envelope));
    out.push_str(&footer::cost(envelope));
    if !brief {
        out.push_str(&footer::missing(&envelope.missing, &[]));
    }
    if let Some(status) = command_status {
        out.push_str(&format!("command ended with status {status}\n"));
    }
    fit(&out, width)
}

fn cells(row: &ErrorRow) -> Vec<String> {
    let cause = match (row.event, row.cause, row.status) {
        (_, Some(cause), _) => cause.name().to_string(),
        (ErrorEvent::Error, None, Some(status)) => format!("status {status}"),
        _ => "-".to_string(),
    };
    vec![
        row.device.as_deref().map_or("(no disk)".to_string(), clean),
        row.op.name().to_string(),
        row.event.name().to_string(),
        cause,
        count(row.events),
        bytes(row.bytes as f64),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::errors::Cause;
    use crate::analyze::op::Op;

    #[test]
    fn a_row_has_the_words_of_the_kernel_log() {
        let row = ErrorRow {
            device: Some("sd\x1ba".to_string()),
            op: Op::Write,
            event: ErrorEvent::Error,
            cause: Some(Cause::Medium),
            status: Some(7),
            events: 12,
            bytes: 49_152,
        };
        let odd = ErrorRow { cause: None, status: Some(17), device: None, ..row };
        let summary = ErrorSummary { rows: vec![row, odd], ..ErrorSummary::default() };
        let text = render(&Envelope::default(), &summary, None, false, None);
        let lines: Vec<&str> = text.lines().collect();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(lines[1]), "sd\\u{1b}a write error critical medium 12 48.0 KiB", "{text}");
        assert!(lines[2].starts_with("(no disk)") && lines[2].contains("status 17"), "{text}");
        let none = render(
            &Envelope::default(),
            &ErrorSummary { ios: 5, ..ErrorSummary::default() },
            None,
            true,
            None,
        );
        assert!(none.starts_with("No errors, retries or requeues in 5 I/Os.\n"), "{none}");
    }
}
