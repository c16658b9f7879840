//! `biopsy compare A B`: compares two saved results.

use std::fs::{self, File};
use std::io::{BufRead as _, Read as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use biopsy::experiment::compare::{Difference, MetricKind, SampleSource, offline};
use biopsy::recording::source;
use biopsy::refusal::{Refusal, reason};
use biopsy::render::text::clean;
use biopsy::session::wall_clock;
use serde_json::Value;

use super::Sinks;
use crate::cli::Compare;

/// Maximum size of a file of results.
const MOST_BYTES: u64 = 256 << 20;

pub fn run(args: &Compare, a: &Path, b: &Path) -> Result<()> {
    super::beside(args, &[(a, "one of the results"), (b, "one of the results")])?;
    let (a, b) = (read(a)?, read(b)?);
    // The same default as for live rounds: bandwidth if the block sizes differ.
    let is_alike = a.setup.get("block size") == b.setup.get("block size");
    let primary = args.metric.unwrap_or(if is_alike { MetricKind::Iops } else { MetricKind::Bandwidth });
    let comparison = offline(&a, &b, primary, args.margin);
    refuse(args, &a.name, &b.name, &comparison.differences)?;
    Sinks::open(args)?.write(args, &wall_clock::envelope(), &comparison, &[])?;
    super::exit(args, &comparison)
}

/// Refuses two results of different setups, unless `--across` allows it.
pub fn refuse(args: &Compare, a: &str, b: &str, differences: &[Difference]) -> Result<()> {
    let Some(one) = differences.first().filter(|_| !args.across) else { return Ok(()) };
    let value = |value: &Option<String>| value.as_deref().map_or("unknown".to_string(), clean);
    Err(Refusal::Refused(format!(
        "{} and {} differ in {} ({}, {}): use --across to compare them anyway",
        clean(a),
        clean(b),
        clean(&one.what),
        value(&one.a),
        value(&one.b)
    ))
    .into())
}

pub fn read(path: &Path) -> Result<SampleSource> {
    let name = path.display().to_string();
    let values = values(path)?;
    SampleSource::of(&name, &values).with_context(|| {
        Refusal::Refused(format!(
            "{} has nothing to compare: give JSON of biopsy load, compare or latency, or of fio, or a recording",
            clean(&name)
        ))
    })
}

/// The JSON values of a file, or the `latency` results of a recording.
fn values(path: &Path) -> Result<Vec<Value>> {
    let name = clean(&path.display().to_string());
    let refused = |error: &std::io::Error| cannot_read(path, error);
    let mut head = [0];
    let is_json = !fs::metadata(path).map_err(|error| refused(&error))?.is_dir()
        && File::open(path).and_then(|mut file| file.read(&mut head)).map_err(|error| refused(&error))? > 0
        && (head[0] == b'{' || head[0].is_ascii_whitespace());
    if !is_json {
        let lines = source::open(path, "latency")?;
        let line = |line: std::io::Result<String>| -> Result<Value> { Ok(serde_json::from_str(&line?)?) };
        return lines.lines().map(line).collect::<Result<_>>().with_context(|| format!("{name} is damaged"));
    }
    let text = self::text(path)?;
    let values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    values
        .collect::<Result<_, _>>()
        .map_err(|error| Refusal::Refused(format!("{name} is not JSON: {error}")).into())
}

/// Reads a file, up to the maximum size.
pub fn text(path: &Path) -> Result<String> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(MOST_BYTES).read_to_string(&mut text))
        .map_err(|error| cannot_read(path, &error))?;
    Ok(text)
}

fn cannot_read(path: &Path, error: &std::io::Error) -> Refusal {
    Refusal::Refused(format!(
        "cannot read {}: {}; name a recording or saved --json output",
        clean(&path.display().to_string()),
        reason(error)
    ))
}
