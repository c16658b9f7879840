//! The envelope of every result: time, kernel, losses, cost and gaps. Its JSON keys are a documented contract.

pub mod reading;
mod reason;

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

pub use reason::Reason;

use crate::merge::{Merge, how, merge, row, weighted, weighted_known};

/// The part of a JSON object that belongs to the view, not the envelope. Both are read from the same object, so a key
/// that both have is shared.
pub trait View: Serialize + DeserializeOwned + JsonSchema + Send {
    /// `biopsy.NAME/VERSION`.
    const SCHEMA: &'static str;

    /// Whether the view has `duration_ns` itself, the only key that it may share with the envelope.
    const HAS_DURATION: bool = false;

    /// Whether this value has it: it may belong to a part that was not measured.
    fn has_duration(&self) -> bool {
        Self::HAS_DURATION
    }
}

/// A view with its envelope, as one object.
#[derive(Debug, Clone, PartialEq)]
pub struct FramedView<V> {
    pub envelope: Envelope,
    pub view: V,
}

impl<V: View> Serialize for FramedView<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        OutputLine::new(&self.envelope, &self.view, None).serialize(serializer)
    }
}

/// A view with its envelope, for writing.
#[derive(Serialize)]
pub struct OutputLine<'a, V> {
    /// First, so that readers can identify the object at once.
    schema: &'static str,
    version: &'a str,
    kernel: &'a str,
    start: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    read_ns: Option<[u64; 2]>,
    lost: &'a Lost,
    cost: &'a Cost,
    missing: &'a [Missing],
    #[serde(flatten)]
    view: &'a V,
    #[serde(skip_serializing_if = "Option::is_none")]
    command_status: Option<i32>,
}

impl<'a, V: View> OutputLine<'a, V> {
    /// `command_status` is set when a command was measured.
    pub fn new(envelope: &'a Envelope, view: &'a V, command_status: Option<i32>) -> Self {
        let Envelope { version, kernel, start, duration_ns, read_ns, lost, cost, missing } = envelope;
        let duration_ns = (!view.has_duration()).then_some(*duration_ns);
        let schema = V::SCHEMA;
        let read_ns = *read_ns;
        Self {
            schema,
            version,
            kernel,
            start,
            duration_ns,
            read_ns,
            lost,
            cost,
            missing,
            view,
            command_status,
        }
    }
}

impl<'de, V: View> Deserialize<'de> for FramedView<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(reading::ObjectSeed::default())
    }
}

impl<V: View> JsonSchema for FramedView<V> {
    fn schema_name() -> Cow<'static, str> {
        V::schema_name()
    }

    // The same schema may include the view without its envelope.
    fn schema_id() -> Cow<'static, str> {
        format!("{} in its envelope", V::schema_id()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = V::json_schema(generator);
        let mut envelope = Envelope::json_schema(generator);
        let more = envelope.ensure_object().remove("properties");
        let all = schema.ensure_object().entry("properties").or_insert_with(|| json!({}));
        if let (Some(all), Some(Value::Object(more))) = (all.as_object_mut(), more) {
            all.extend(more);
            all.insert("schema".to_string(), json!({ "const": V::SCHEMA }));
        }
        schema.insert("title".to_string(), json!(V::SCHEMA));
        schema
    }
}

/// The frame of every `--json` object.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Envelope {
    /// Version of biopsy.
    pub version: String,
    /// Kernel release as `uname -r` prints it.
    pub kernel: String,
    /// Wall clock at the start, RFC 3339, UTC, milliseconds.
    pub start: String,
    /// Length of the measured window.
    pub duration_ns: u64,
    /// When reading the tables behind it began and ended, from `start` on: what was read first is older by at most the
    /// difference. Absent where several were merged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_ns: Option<[u64; 2]>,
    /// What was not counted or not timed.
    pub lost: Lost,
    /// What the probes cost.
    pub cost: Cost,
    /// What cannot be seen here, and where its time falls.
    pub missing: Vec<Missing>,
}

impl Envelope {
    /// Merges the next interval of the same run.
    pub fn follow(&mut self, next: &Self) {
        // A probe's cost is counted from its start: the later figures cover both intervals.
        let cost = match next.cost.ios.is_some() || self.cost.ios.is_none() {
            true => next.cost.clone(),
            false => self.cost.clone(),
        };
        let cpu_percent = self.cpu_percent_with(next);
        self.join(next);
        self.cost = Cost { cpu_percent, ..cost };
    }

    /// Merges another run, of the same machine or of another one.
    pub fn join(&mut self, other: &Self) {
        let cpu_percent = self.cpu_percent_with(other);
        let Self { version: _, kernel: _, start: _, duration_ns, read_ns, lost, cost, missing } = self;
        *read_ns = None;
        cost.join(&other.cost);
        cost.cpu_percent = cpu_percent;
        *duration_ns = duration_ns.saturating_add(other.duration_ns);
        lost.add(&other.lost);
        // The same gap may have different numbers in each interval: only the last is kept, or a run of days would
        // collect them all.
        missing.retain(|old| !other.missing.iter().any(|new| new.replaces(old)));
        how::each(missing, &other.missing);
    }

    /// CPU share over both intervals; where one of them was too short to measure, that of the other.
    fn cpu_percent_with(&self, other: &Self) -> Option<f64> {
        let (mine, theirs) = (self.cost.cpu_percent, other.cost.cpu_percent);
        weighted_known(mine, self.duration_ns, theirs, other.duration_ns)
    }
}

/// Loss by kind. Every number is exact unless `probes` says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Lost {
    /// I/Os that the block layer finished and that have no stages here. Disjoint from `ios`.
    pub ios: u64,
    /// Records that did not fit into a ring buffer.
    pub events: u64,
    /// Stack samples that were dropped.
    pub samples: u64,
    /// Per probe, per kind.
    pub probes: BTreeMap<String, BTreeMap<String, u64>>,
}

impl Merge for Lost {
    fn merge_with(&mut self, later: &Self) {
        self.add(later);
    }
}

impl Lost {
    /// Adds the losses of another interval.
    pub fn add(&mut self, other: &Self) {
        self.combine(other, u64::saturating_add);
    }

    /// Adds the losses of another view of the same interval: what both lost counts once.
    pub fn overlay(&mut self, other: &Self) {
        self.combine(other, u64::max);
    }

    fn combine(&mut self, other: &Self, both: fn(u64, u64) -> u64) {
        self.ios = both(self.ios, other.ios);
        self.events = both(self.events, other.events);
        self.samples = both(self.samples, other.samples);
        for (probe, kinds) in &other.probes {
            let all = self.probes.entry(probe.clone()).or_default();
            for (kind, n) in kinds {
                let sum = all.entry(kind.clone()).or_default();
                *sum = both(*sum, *n);
            }
        }
    }

    /// The kinds that are not zero.
    pub fn kinds(&self) -> impl Iterator<Item = (&str, u64)> {
        self.probes.values().flatten().filter(|(_, n)| **n > 0).map(|(kind, n)| (kind.as_str(), *n))
    }
}

/// What the probes cost while they ran.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Cost {
    /// Σ over programs of (run time − empty-program baseline × runs) / ios; absent when the kernel's
    /// program statistics could not be switched on or no I/O was seen.
    pub ns_per_io: Option<f64>,
    /// Net run time of what runs with interrupts, per interrupt of the machine: those of other devices pass it
    /// quickly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_per_interrupt: Option<f64>,
    /// Net run time of the lock programs per wait that ended, stacks included; shown in place of `ns_per_io`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_per_contention: Option<f64>,
    /// What calling them adds to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attach_ns_per_contention: Option<f64>,
    /// Time that the tracepoint itself adds around the programs, per I/O (17 ns a run, measured on
    /// 6.18); shown beside `ns_per_io`, not hidden in it.
    pub attach_ns_per_io: Option<f64>,
    /// Run time of all programs, of one CPU.
    pub cpu_percent: Option<f64>,
    /// Memory of all maps.
    pub map_bytes: u64,
    /// I/Os while the kernel's program statistics were on; absent where they never were.
    pub ios: Option<u64>,
    /// The empty-program baseline that was subtracted, per run.
    pub baseline_ns_per_run: Option<f64>,
    /// Raw figures per program.
    pub programs: Vec<ProgramCost>,
}

impl Cost {
    /// With fewer I/Os while the statistics were on, the cost is that of cold caches and not representative.
    pub const LEAST_IOS: u64 = 200;

    /// Merges the cost of the same probes in another run. A figure that either lacks is dropped.
    fn join(&mut self, other: &Self) {
        let (a, b) = (self.ios.unwrap_or(0), other.ios.unwrap_or(0));
        let each = |of: fn(&Self) -> Option<f64>| weighted(of(self), a, of(other), b);
        let mut programs = self.programs.clone();
        how::rows(&mut programs, &other.programs);
        *self = Self {
            ns_per_io: each(|cost| cost.ns_per_io),
            ns_per_interrupt: each(|cost| cost.ns_per_interrupt),
            ns_per_contention: each(|cost| cost.ns_per_contention),
            attach_ns_per_contention: each(|cost| cost.attach_ns_per_contention),
            attach_ns_per_io: each(|cost| cost.attach_ns_per_io),
            cpu_percent: None,
            map_bytes: self.map_bytes.max(other.map_bytes),
            ios: self.ios.zip(other.ios).map(|(a, b)| a.saturating_add(b)),
            baseline_ns_per_run: each(|cost| cost.baseline_ns_per_run),
            programs,
        };
    }

    /// The sum for two probes that were attached at once. A figure that either lacks is dropped: half of a cost is no
    /// cost.
    pub fn plus(self, other: Self) -> Self {
        let both = |a: Option<f64>, b: Option<f64>| Some(a? + b?);
        Self {
            ns_per_io: both(self.ns_per_io, other.ns_per_io),
            ns_per_interrupt: self.ns_per_interrupt.or(other.ns_per_interrupt),
            ns_per_contention: self.ns_per_contention.or(other.ns_per_contention),
            attach_ns_per_contention: self.attach_ns_per_contention.or(other.attach_ns_per_contention),
            attach_ns_per_io: both(self.attach_ns_per_io, other.attach_ns_per_io),
            cpu_percent: both(self.cpu_percent, other.cpu_percent),
            map_bytes: self.map_bytes + other.map_bytes,
            ios: self.ios.zip(other.ios).map(|(a, b)| a.min(b)),
            baseline_ns_per_run: self.baseline_ns_per_run,
            programs: [self.programs, other.programs].concat(),
        }
    }

    /// For probes that were attached only for a share of the time, in which `self` was measured; `others` is the cost
    /// of the remaining ones. If that has too few I/Os, it is assumed to be no more than this.
    pub fn in_turn(self, share: f64, others: Self) -> Self {
        let each = |of: fn(&Self) -> Option<f64>| {
            let with = of(&self)?;
            Some(of(&others).map_or(with, |without| share * with + (1.0 - share) * without))
        };
        let mut programs = self.programs.clone();
        how::rows(&mut programs, &others.programs);
        Self {
            ns_per_io: each(|cost| cost.ns_per_io),
            attach_ns_per_io: each(|cost| cost.attach_ns_per_io),
            cpu_percent: each(|cost| cost.cpu_percent),
            ios: self.ios.map(|ios| ios.saturating_add(others.ios.unwrap_or(0))),
            programs,
            ..self
        }
    }

    /// Adds a probe that may have been used too rarely to be measured: then only its maps and programs are added, and
    /// the second value is false.
    pub fn beside(self, other: Self) -> (Self, bool) {
        if other.cpu_percent.is_some() || self.cpu_percent.is_none() {
            return (self.plus(other), true);
        }
        let map_bytes = self.map_bytes + other.map_bytes;
        let programs = [self.programs.clone(), other.programs].concat();
        (Self { map_bytes, programs, ..self }, false)
    }

    /// Spreads the cost of programs on lock waits over I/Os, by the counts of both in the interval. If the statistics
    /// covered fewer than [`Self::LEAST_IOS`] waits, it counts as zero: within slices of a tenth of the time that is
    /// less than a microsecond for each of 2,000 waits a second, 0.2 % of a CPU.
    pub fn spread(mut self, contentions: u64, ios: u64) -> Self {
        if ios > 0 {
            let each = |ns: Option<f64>| ns.unwrap_or(0.0) * contentions as f64 / ios as f64;
            self.ns_per_io = Some(each(self.ns_per_contention));
            self.attach_ns_per_io = Some(each(self.attach_ns_per_contention));
            self.cpu_percent = Some(self.cpu_percent.unwrap_or(0.0));
            self.ios = Some(ios);
        }
        self
    }

    /// Net run time of these programs together, per run of the first; None where the statistics were off, or it did not
    /// run.
    pub fn net_per_run(&self, programs: &[&str]) -> Option<f64> {
        let baseline = self.baseline_ns_per_run?;
        let of = |name: &&str| self.programs.iter().find(|program| program.name == **name);
        let runs = of(programs.first()?)?.runs;
        let net: f64 = programs.iter().filter_map(of).map(|p| p.ns as f64 - baseline * p.runs as f64).sum();
        (runs > 0).then(|| net.max(0.0) / runs as f64)
    }

    /// Whether there were enough I/Os while the statistics were on.
    pub fn saw_enough(&self) -> bool {
        self.ios.is_some_and(|ios| ios >= Self::LEAST_IOS)
    }
}

/// Runs and raw run time of one program, as the kernel counted them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ProgramCost {
    pub name: String,
    pub runs: u64,
    /// Includes the statistics' own clock reads; the baseline is not subtracted here.
    pub ns: u64,
}

merge!(ProgramCost { first: name; add: runs ns; });
row!(ProgramCost, String, |program| program.name.clone());

/// A stage or part that has no key in this result.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Missing {
    /// None: on every device.
    pub device: Option<String>,
    pub stage: Option<String>,
    pub part: Option<String>,
    #[serde(deserialize_with = "reason::read")]
    pub reason: Reason,
    /// The stage that contains the time which this one would show.
    pub included_in: Option<String>,
    /// One sentence.
    pub why: String,
    pub remedy: Option<String>,
}

impl Missing {
    /// Whether it is the same gap as `old`, with other numbers in its sentence.
    fn replaces(&self, old: &Self) -> bool {
        let words = |missing: &Self| -> Vec<u8> {
            missing.why.bytes().filter(|byte| !byte.is_ascii_digit()).collect()
        };
        self.why != old.why
            && words(self) == words(old)
            && Self { why: old.why.clone(), ..self.clone() } == *old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the last interval's sentence is kept, next to another gap of the same stage.
    #[test]
    fn gaps_of_intervals_do_not_pile_up() {
        let gap = |why: &str| Missing { stage: Some("layer".into()), why: why.into(), ..Missing::default() };
        let of = |gaps: &[&str]| Envelope {
            missing: gaps.iter().map(|why| gap(why)).collect(),
            ..Envelope::default()
        };
        let mut all = of(&["read: 7 of 9 I/Os", "write: 1 of 2 I/Os"]);
        all.follow(&of(&["read: 123 of 9 I/Os"]));
        all.follow(&of(&["read: 8 of 1000 I/Os"]));
        assert_eq!(all.missing, of(&["write: 1 of 2 I/Os", "read: 8 of 1000 I/Os"]).missing);
        let elsewhere = Missing { device: Some("sda".into()), ..gap("read: 1 of 1 I/Os") };
        all.follow(&Envelope { missing: vec![elsewhere], ..Envelope::default() });
        assert_eq!(all.missing.len(), 3);
    }

    #[test]
    fn losses_of_intervals_add_up_and_those_of_views_do_not() {
        let lost = |ios, missed| Lost {
            ios,
            probes: [("latency".to_string(), [("missed".to_string(), missed)].into())].into(),
            ..Lost::default()
        };
        let (mut intervals, mut views) = (lost(3, 1), lost(3, 1));
        intervals.add(&lost(2, 5));
        views.overlay(&lost(2, 5));
        assert_eq!((intervals, views), (lost(5, 6), lost(3, 5)));
    }

    #[test]
    fn waits_are_spread_over_ios() {
        let measured = Cost {
            ns_per_contention: Some(400.0),
            attach_ns_per_contention: Some(34.0),
            baseline_ns_per_run: Some(20.0),
            cpu_percent: Some(1.0),
            ..Cost::default()
        };
        let spread = measured.clone().spread(50, 1_000);
        assert_eq!(
            (spread.ns_per_io, spread.attach_ns_per_io, spread.ios),
            (Some(20.0), Some(1.7), Some(1_000))
        );
        let of_ios = Cost { ns_per_io: Some(100.0), ios: Some(400), ..Cost::default() };
        assert_eq!(of_ios.plus(spread).ns_per_io, Some(120.0));
        let few = Cost { ns_per_contention: None, ..measured.clone() }.spread(3, 1_000);
        assert_eq!(few.ns_per_io, Some(0.0));
        // A probe without a measured cost does not discard a measured one.
        let other = Cost { map_bytes: 7, ..Cost::default() };
        let (both, known) = measured.clone().beside(other.clone());
        assert_eq!(
            (both.ns_per_contention, both.cpu_percent, both.map_bytes, known),
            (Some(400.0), Some(1.0), 7, false)
        );
        assert!(other.beside(measured.clone()).1);
        assert_eq!(measured.spread(50, 0).ns_per_io, None, "over no I/Os nothing can be spread");
        // Without statistics the cost of the others is also unknown.
        assert_eq!(Cost::default().plus(Cost::default().spread(50, 1_000)).ns_per_io, None);
    }
}
