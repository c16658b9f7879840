//! Findings as cards, and what was not measured.

use super::contents::folded;
use super::{escape, severity};
use crate::findings::{Diagnosis, Finding};
use crate::render::{gaps, numbers};
use crate::rules::Summaries;
use crate::units::{counted, significant};

/// One card per finding; the first is the verdict.
pub fn cards(diagnosis: &Diagnosis) -> String {
    let mut out: String =
        diagnosis.findings.iter().enumerate().map(|(i, finding)| card(finding, i == 0)).collect();
    out.push_str(
        "<p class=\"soft small\">The first finding is the verdict. Each page of <code>biopsy explain ID</code> says how a \
         finding is computed and when it is wrong.</p>\n",
    );
    out
}

/// The verdict's sentence is already the page's title.
fn card(finding: &Finding, is_verdict: bool) -> String {
    let severity = severity(finding.severity);
    let evidence: String =
        finding.evidence.iter().map(|line| format!("<li>{}</li>\n", escape(line))).collect();
    let numbers: String = numbers::all(finding)
        .iter()
        .map(|(label, text)| format!("<span>{} <b>{}</b></span>\n", escape(label), escape(text)))
        .collect();
    let worth = finding.worth.as_ref().map_or(String::new(), |worth| {
        format!(
            "<dt>worth</dt><dd>{} <span class=\"soft\">(estimate)</span></dd>\n",
            escape(&numbers::worth(worth))
        )
    });
    let mut out = format!(
        "<article class=\"card {severity}\">\n<h3>{} <span class=\"soft\">on {} · <span class=\"severity\">{severity}</span> · \
         confidence {}</span></h3>\n",
        escape(finding.id),
        escape(&finding.subject),
        significant(finding.confidence, 2)
    );
    if !is_verdict {
        out.push_str(&format!("<p>{}</p>\n", escape(&finding.sentence)));
    }
    if !evidence.is_empty() {
        out.push_str(&format!("<ul>\n{evidence}</ul>\n"));
    }
    if !numbers.is_empty() {
        out.push_str(&format!("<div class=\"numbers\">\n{numbers}</div>\n"));
    }
    let check = if finding.comparison().is_some() { "test" } else { "check" };
    out.push_str(&format!(
        "<dl>\n<dt>do</dt><dd>{}</dd>\n<dt>{check}</dt><dd><code>{}</code></dd>\n{worth}</dl>\n</article>\n",
        escape(&finding.advice),
        escape(&finding.check)
    ));
    out
}

/// Missing stages with their reasons, and topics that no probe covers.
pub fn gaps(s: &Summaries<'_>, diagnosis: &Diagnosis) -> String {
    let mut out = String::new();
    if !s.envelope.missing.is_empty() {
        let rows: String = s
            .envelope
            .missing
            .iter()
            .map(|m| {
                let stage = gaps::name(m).unwrap_or_else(|| m.reason.name().to_string());
                format!(
                    "<tr><td class=\"text\">{}</td><td class=\"text\">{}</td><td class=\"long\">{}</td>\
                     <td class=\"text\">{}</td><td class=\"long\">{}</td></tr>\n",
                    escape(&stage),
                    escape(m.device.as_deref().unwrap_or("all")),
                    escape(&m.why),
                    escape(m.included_in.as_deref().unwrap_or("-")),
                    escape(m.remedy.as_deref().unwrap_or("-"))
                )
            })
            .collect();
        let table = format!(
            "<div class=\"wide\"><table><thead><tr><th class=\"text\">what</th>\
             <th class=\"text\">device</th><th class=\"text\">why</th><th class=\"text\">its time is in</th>\
             <th class=\"text\">remedy</th></tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n"
        );
        let count = s.envelope.missing.len() as u64;
        out.push_str(&folded(&format!("Missing: {}", counted(count, "item")), &table));
    }
    // Entries of the table above are not repeated.
    let told = |what: &str| {
        let stage = what.strip_prefix("stage ");
        stage.is_some() && s.envelope.missing.iter().any(|m| m.part.is_none() && m.stage.as_deref() == stage)
    };
    let untold: Vec<_> = diagnosis.not_examined.iter().filter(|gap| !told(&gap.what)).collect();
    if !untold.is_empty() {
        let rows: String = untold
            .iter()
            .map(|gap| format!("<dt>{}</dt><dd>{}</dd>\n", escape(&gap.what), escape(&gap.why)))
            .collect();
        let summary = format!("Not examined: {}", counted(untold.len() as u64, "subject"));
        out.push_str(&folded(&summary, &format!("<dl class=\"facts\">\n{rows}</dl>\n")));
    }
    out
}
