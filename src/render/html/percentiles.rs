//! Percentiles of stages and operations: a table per device and I/O class, each with one unit of time.

use std::collections::BTreeMap;

use super::escape;
use super::tables::{Cell, header, table, text};
use crate::analyze::latency::{OpLatency, Unit};
use crate::analyze::parts::{Part, Parts};
use crate::analyze::stage::Stage;
use crate::hist::Histogram;
use crate::render::svg;
use crate::rules::Summaries;
use crate::units::{common_time, count, significant};

type Figure = fn(&Histogram) -> Option<f64>;

/// The columns of a row.
const FIGURES: [(&str, Figure); 8] = [
    ("mean", Histogram::mean),
    ("min", |hist| ns(hist.min())),
    ("p50", |hist| ns(hist.quantile(0.5))),
    ("p90", |hist| ns(hist.quantile(0.9))),
    ("p99", |hist| ns(hist.quantile(0.99))),
    ("p99.9", |hist| ns(hist.quantile(0.999))),
    ("p99.99", |hist| ns(hist.quantile(0.9999))),
    ("max", |hist| ns(hist.max())),
];

fn ns(value: Option<u64>) -> Option<f64> {
    value.map(|ns| ns as f64)
}

/// The rows of one table.
#[derive(Default)]
struct Rows<'a>(Vec<(&'static str, Cell, &'a Histogram)>);

impl<'a> Rows<'a> {
    fn add(&mut self, unit: Unit, what: Cell, hist: &'a Histogram) {
        if !hist.is_empty() {
            self.0.push((unit.name(), what, hist));
        }
    }

    /// Adds each stage, followed by its measured parts.
    fn add_stages(&mut self, unit: Unit, stages: &'a BTreeMap<Stage, Histogram>, parts: &'a Parts) {
        for (stage, hist) in stages {
            self.add(unit, name(*stage, None), hist);
            for (part, hist) in parts.get(stage).into_iter().flatten() {
                self.add(unit, name(*stage, Some(*part)), hist);
            }
        }
    }

    /// Renders all times in a unit that suits the means.
    fn render(self) -> String {
        let (scale, unit) = common_time(self.0.iter().filter_map(|(_, _, hist)| hist.mean()));
        let mut header = header(&["<per", "<stage", "count"]);
        header.extend(FIGURES.map(|(name, _)| format!("{name} {unit}")));
        let row = |(per, what, hist): (&str, Cell, &Histogram)| {
            let figures = FIGURES.map(|(_, figure)| {
                Cell::Number(figure(hist).map_or("-".to_string(), |ns| number(ns / scale)))
            });
            [text(per), what, Cell::Number(count(hist.count()))].into_iter().chain(figures).collect()
        };
        table(&header, self.0.into_iter().map(row).collect())
    }
}

/// Three significant digits; a whole number if that is more.
fn number(value: f64) -> String {
    if value >= 1000.0 { count(value.round() as u64) } else { significant(value, 3) }
}

fn name(stage: Stage, part: Option<Part>) -> Cell {
    let part = part.map_or(String::new(), |part| format!(" / {}", part.name()));
    Cell::Raw(format!("<i class=\"swatch {}\"></i>{}{part}", svg::stage_class(stage), stage.name()))
}

/// The rows of one I/O class on one device.
fn of_class<'a>(latency: &'a OpLatency, none: &'a Parts) -> Rows<'a> {
    let mut rows = Rows::default();
    if let Some(all) = &latency.operations {
        rows.add_stages(Unit::Operation, &all.stages, &latency.parts);
        rows.add(Unit::Operation, text("total"), &all.total);
    }
    rows.add_stages(Unit::Io, &latency.request_stages, &latency.request_parts);
    rows.add_stages(Unit::UnownedIo, &latency.unowned_stages, none);
    for (unit, bio) in [(Unit::Io, &latency.bio), (Unit::UnownedIo, &latency.unowned_bio)] {
        bio.iter().for_each(|bio| rows.add(unit, text("bio"), bio));
    }
    rows
}

/// Per device, class and stage, and the operations of biopsy's own load.
pub fn percentiles(s: &Summaries<'_>) -> String {
    let none = Parts::new();
    let mut out = String::new();
    let mut add = |heading: &str, rows: Rows<'_>| {
        if !rows.0.is_empty() {
            out.push_str(&format!("<h3>{}</h3>\n{}", escape(heading), rows.render()));
        }
    };
    for device in &s.latency.devices {
        for (op, latency) in &device.ops {
            add(&format!("{} {}", device.name, op.name()), of_class(latency, &none));
        }
    }
    if let Some(load) = s.load {
        let latency = load.latency();
        let mut rows = Rows::default();
        rows.add(Unit::Operation, text("submit to reap"), &latency);
        add(&format!("load: {}, as the generator measured it", load.job.rw.name()), rows);
    }
    if !out.is_empty() {
        out.push_str(
            "<p class=\"soft small\">Percentiles are exact to 3.2 %; count, mean, min and max are exact. A \
             dash: too few I/Os are above. Percentiles of stages do not add up to those of the total.</p>\n",
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_one_unit() {
        let (short, long): (Histogram, Histogram) =
            ([1_200, 1_300].into_iter().collect(), [250_000, 41_003_000].into_iter().collect());
        let mut rows = Rows::default();
        rows.add(Unit::Io, name(Stage::Queue, None), &short);
        rows.add(Unit::Io, name(Stage::Device, None), &long);
        let html = rows.render();
        for (name, _) in FIGURES {
            assert!(html.contains(&format!("<th>{name} µs</th>")), "{html}");
        }
        assert!(html.contains("<td>41,003</td>") && html.contains("<td>1.25</td>"), "{html}");
    }
}
