//! Compares the traced I/Os with the kernel's own counters.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::op::{KernelClass, Op};
use crate::host::BlockDevice;
use crate::host::counters::Counters;
use crate::merge::merge;
use crate::names::names;
use crate::wire::reading::DeviceSample;

/// What the kernel's counters allow: `min` between the inner readings, `max` between the outer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Bracket {
    pub min: u64,
    pub max: u64,
}

impl Bracket {
    pub fn holds(self, seen: u64) -> bool {
        self.min <= seen && seen <= self.max
    }
}

/// What the kernel counted of a class, and what was seen of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct KernelCount {
    #[serde(flatten)]
    pub kernel: Bracket,
    pub seen: u64,
}

// Merged intervals keep both bounds, but are wider than a single interval of the same length.
merge!(Bracket { add: min max; });
merge!(KernelCount { add: kernel seen; });

impl From<Bracket> for KernelCount {
    fn from(kernel: Bracket) -> Self {
        Self { kernel, seen: 0 }
    }
}

/// Serializes a bracket as two keys of the object around it, or as none.
macro_rules! bounds {
    ($name:ident $min:literal $max:literal) => {
        pub mod $name {
            use schemars::JsonSchema;
            use serde::{Deserialize, Deserializer, Serialize, Serializer};

            use super::Bracket;

            #[derive(Serialize, Deserialize, JsonSchema)]
            pub struct Form {
                #[serde(rename = $min, default, skip_serializing_if = "Option::is_none")]
                min: Option<u64>,
                #[serde(rename = $max, default, skip_serializing_if = "Option::is_none")]
                max: Option<u64>,
            }

            pub fn serialize<S: Serializer>(of: &Option<Bracket>, serializer: S) -> Result<S::Ok, S::Error> {
                Form { min: of.map(|of| of.min), max: of.map(|of| of.max) }.serialize(serializer)
            }

            pub fn deserialize<'de, D: Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Option<Bracket>, D::Error> {
                let Form { min, max } = Form::deserialize(deserializer)?;
                Ok(min.zip(max).map(|(min, max)| Bracket { min, max }))
            }
        }
    };
}

bounds!(all_ios "all_ios_min" "all_ios_max");
bounds!(kernel_ios "kernel_ios_min" "kernel_ios_max");
bounds!(kernel_interrupts "kernel_interrupts_min" "kernel_interrupts_max");

names! {
    /// Which I/Os the kernel's counters of a device include depends on its driver.
    #[derive(Default)]
    pub enum Counting {
        /// The block layer counts requests.
        #[default]
        Requests = "requests",
        /// Device mapper counts every bio.
        Dm = "dm",
        /// The RAID drivers count bios with data; only some of them count discards.
        Md = "md",
        /// zram counts reads and writes.
        Zram = "zram",
        /// It is not known what the driver counts.
        Unknown = "unknown",
    }
}

impl Counting {
    pub(super) fn of(device: &BlockDevice) -> Self {
        match device.driver.as_deref() {
            _ if device.request_based => Self::Requests,
            Some("dm") => Self::Dm,
            Some("md") => Self::Md,
            Some("zram") => Self::Zram,
            _ => Self::Unknown,
        }
    }

    /// The field of `/sys/block/D/stat` that counts this class on such a device.
    pub fn class(self, op: Op) -> Option<KernelClass> {
        match (self, op) {
            (Self::Requests | Self::Dm, _) => op.kernel_class(),
            (Self::Md, Op::Read | Op::Write | Op::Fua | Op::WriteZeroes) => op.kernel_class(),
            (Self::Zram, Op::Read | Op::Write | Op::Fua) => op.kernel_class(),
            _ => None,
        }
    }

    /// The classes that each field of `/sys/block/D/stat` counts, and those that none counts.
    pub(super) fn classes(self) -> BTreeMap<String, Vec<Op>> {
        let mut classes: BTreeMap<String, Vec<Op>> = BTreeMap::new();
        for op in Op::ALL {
            let class = self.class(op).map_or("none", KernelClass::name);
            classes.entry(class.to_string()).or_default().push(op);
        }
        classes
    }

    /// Whether the counters advance although `queue/iostats` is 0: zram's always do. dm's do until 526d10061bc2 (6.5),
    /// which is inferred from kernels that count bios at their start (before 6.3); there the flag of both is 0 from the
    /// beginning.
    pub(super) fn ignores_the_flag(self, sample: &DeviceSample) -> bool {
        self == Self::Zram || self == Self::Dm && sample.counted_at_start
    }

    fn counts(self, class: KernelClass) -> bool {
        Op::ALL.into_iter().any(|op| self.class(op) == Some(class))
    }
}

pub(super) fn in_flight(counters: &Counters) -> u64 {
    match (counters.in_flight_reads, counters.in_flight_writes) {
        (Some(reads), Some(writes)) => reads + writes,
        _ => counters.in_flight,
    }
}

/// Brackets the kernel's counters around both readings: I/Os between the inner two were certainly traced, I/Os outside
/// the outer two certainly were not.
pub(super) fn kernel_brackets(
    counting: Counting,
    first: &DeviceSample,
    last: &DeviceSample,
) -> Option<BTreeMap<KernelClass, KernelCount>> {
    let (a, b) = (first.kernel_before?, first.kernel_after?);
    let (c, d) = (last.kernel_before?, last.kernel_after?);
    let off = [a, b, c, d].iter().any(|counters| counters.iostats == Some(false));
    if counting == Counting::Unknown || off && !counting.ignores_the_flag(last) {
        return None;
    }
    // The kernel counts these I/Os at their start, the trace at their end.
    let (begun, unended) =
        if last.counted_at_start { (in_flight(&a), in_flight(&c)) } else { Default::default() };
    let get = |counters: &Counters, class| match class {
        KernelClass::Read => Some(counters.reads),
        KernelClass::Write => Some(counters.writes),
        KernelClass::Discard => counters.discards,
        KernelClass::Flush => counters.flushes,
    };
    let bracket = |class| {
        let min = get(&c, class)?.saturating_sub(get(&b, class)? + unended);
        let max = get(&d, class)?.saturating_sub(get(&a, class)?) + begun;
        Some((class, Bracket { min, max }.into()))
    };
    let all = KernelClass::ALL.into_iter().filter(|class| counting.counts(*class));
    Some(all.filter_map(bracket).collect())
}
