//! The stages of an operation or I/O, one after another on a common time axis.

use super::{charts, escape};
use crate::analyze::latency::{DeviceLatency, OpLatency};
use crate::analyze::op::Op;
use crate::analyze::stage::Stage;
use crate::findings::Diagnosis;
use crate::render::shares::{self, StageShare, StageShares};
use crate::render::{parts, svg};
use crate::rules::Summaries;
use crate::units::{common_time, count, counted, figure, in_percent, time};

/// Each device with the stages that its verdict refers to, and each I/O class if a device has several.
pub fn stages(s: &Summaries<'_>, diagnosis: &Diagnosis) -> String {
    let subject = shares::subject(s, diagnosis).map(|device| &device.name);
    let (drawn, left) = charts::drawn(s);
    let mut out = String::new();
    for device in s.latency.devices.iter().filter(|device| drawn.iter().any(|one| one.0.name == device.name))
    {
        // A verdict states shares of its own subject only.
        let verdict = diagnosis.findings.first().filter(|_| subject == Some(&device.name));
        let first = shares::of(device, s.load.is_some(), verdict);
        out.push_str(&first.as_ref().map_or(String::new(), |shares| group(device, shares)));
        for (_, op, latency) in drawn.iter().filter(|one| one.0.name == device.name) {
            let shares = shares::of_class(device, *op).filter(|shares| Some(shares) != first.as_ref());
            out.push_str(&shares.map_or(String::new(), |shares| group(device, &shares)));
            out.push_str(&parts_of(*op, latency, device.ops.len() > 1));
        }
    }
    if out.is_empty() {
        return out;
    }
    out.push_str(
        "<p class=\"soft small\">Means are exact and add up; percentiles do not. A stage that cannot be \
         measured here is not drawn.</p>\n",
    );
    if left > 0 {
        let is = if left == 1 { "class of I/O is" } else { "classes of I/O are" };
        out.push_str(&format!("<p class=\"soft small\">{left} more {is} in the tables below.</p>\n"));
    }
    out
}

/// The mean, with the slowest next to it.
fn group(device: &DeviceLatency, shares: &StageShares) -> String {
    let classes: Vec<&str> = shares.ops.iter().map(|op| op.name()).collect();
    let heading = format!("{} {}", device.name, classes.join(", "));
    let unit = shares.unit.name();
    let all = waterfall(&format!("mean of {}", counted(shares.count, unit)), shares);
    let slowest = shares.slowest(device).map(|(of, slowest)| {
        let share = slowest.operations as f64 / shares.count.max(1) as f64;
        let text = format!(
            "mean of the slowest {}: {} of {} or more",
            in_percent(share),
            count(slowest.operations),
            time(slowest.from_ns)
        );
        waterfall(&text, &of)
    });
    format!(
        "<h3>{}</h3>\n<div class=\"pair\">\n{all}{}</div>\n",
        escape(&heading),
        slowest.unwrap_or_default()
    )
}

/// A row per stage, in time order.
fn waterfall(caption: &str, shares: &StageShares) -> String {
    let mut rows: Vec<&StageShare> = shares.rows.iter().collect();
    rows.sort_by_key(|row| row.stage);
    let (scale, unit) = common_time(rows.iter().map(|row| row.mean_ns));
    let mut start = 0.0;
    let row = |row: &&StageShare| {
        let (class, name) = (svg::stage_class(row.stage), row.stage.name());
        let bar = format!(
            "<i class=\"{class}\" style=\"margin-left:{:.2}%;width:{:.2}%\"></i>",
            start * 100.0,
            row.share * 100.0
        );
        start += row.share;
        format!(
            "<tr><th>{name}</th><td class=\"track\">{bar}</td><td>{} {unit}</td><td>{}</td></tr>\n",
            figure(row.mean_ns / scale),
            in_percent(row.share)
        )
    };
    let body: String = rows.iter().map(row).collect();
    format!(
        "<table class=\"waterfall\"><caption>{}</caption>\n<tbody>\n{body}</tbody>\n\
         <tfoot><tr><th>all</th><td></td><td>{} {unit}</td><td>100 %</td></tr></tfoot></table>\n",
        escape(caption),
        figure(shares.mean_ns() / scale)
    )
}

/// The measured parts of the stages.
fn parts_of(op: Op, latency: &OpLatency, is_one_of_several: bool) -> String {
    let class = if is_one_of_several { format!("{}, ", op.name()) } else { String::new() };
    let line = |(stage, words): (Stage, Vec<String>)| {
        format!("<p class=\"soft small\">{class}of {}: {}</p>\n", stage.name(), words.join(", "))
    };
    parts::of_stages(latency).into_iter().map(line).collect()
}

#[cfg(test)]
mod tests;
