//! Options of duration, amount, offsets and rates.

use std::time::Duration;

use super::super::draft::Draft;
use super::super::values::{self, NOTHING};
use super::{Section, Takes, Word};
use crate::load::job::{Arrivals, Extent};

const SECOND: Duration = Duration::from_secs(1);
const GENERATORS: [&str; 3] = ["tausworthe", "tausworthe64", "lfsr"];

pub(super) const WORDS: &[Word] = &[
    Word::new(
        "runtime",
        Takes::Time,
        Section::Length,
        "How long to run, in s without a unit; 0: until all of it is done [default: 10s]",
        |draft, text| {
            let time = values::time(text, SECOND)?;
            draft.job.runtime = (!time.is_zero()).then_some(time);
            Ok(())
        },
    )
    .alias(&["timeout"]),
    Word::new(
        "time_based",
        Takes::Flag,
        Section::Length,
        "Start over at the end of the target until the runtime is over [default: 1 with a runtime and \
         without io_size and number_ios]",
        |draft, text| {
            draft.job.time_based = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "ramp_time",
        Takes::Time,
        Section::Length,
        "Warm up for this long before anything is counted [default: 0]",
        |draft, text| {
            draft.job.ramp_time = values::time(text, SECOND)?;
            Ok(())
        },
    ),
    Word::new(
        "startdelay",
        Takes::Time,
        Section::Length,
        "Start this long after the other jobs, in s without a unit [default: 0]",
        |draft, text| {
            draft.job.startdelay = values::time(text, SECOND)?;
            Ok(())
        },
    ),
    Word::new("loops", Takes::Count, Section::Length, "Number of repetitions [default: 1]", |draft, text| {
        draft.job.loops = values::count(text, 1, u32::MAX)?;
        Ok(())
    }),
    Word::new(
        "size",
        Takes::Extent,
        Section::Length,
        "How much of the targets to use: bytes for all of a job's together, or percent of each; for a \
         scratch file, its size [default: all]",
        |draft, text| {
            draft.size = Some(values::extent(text)?);
            match draft.size {
                Some(Extent::Bytes(0)) => Err("a size must be above 0".to_string()),
                Some(Extent::Percent(0.0)) => Err("a size must be above 0 %".to_string()),
                _ => Ok(()),
            }
        },
    ),
    Word::new(
        "io_size",
        Takes::Extent,
        Section::Length,
        "How much to transfer, if not size; 0: size",
        |draft, text| {
            draft.io_size = Some(values::extent(text)?).filter(|extent| *extent != NOTHING);
            Ok(())
        },
    )
    .alias(&["io_limit"]),
    Word::new(
        "number_ios",
        Takes::Count,
        Section::Length,
        "Stop each thread after this many operations; 0: no limit [default: 0]",
        |draft, text| {
            draft.job.number_ios = Some(values::number(text)?).filter(|count| *count > 0);
            Ok(())
        },
    ),
    Word::new(
        "offset",
        Takes::Extent,
        Section::Offsets,
        "Where on the target to start [default: 0]",
        |draft, text| {
            draft.job.offset = values::extent(text)?;
            Ok(())
        },
    )
    .alias(&["fileoffset"]),
    Word::new(
        "offset_increment",
        Takes::Extent,
        Section::Offsets,
        "Each further thread of the job starts at this much higher offset [default: 0]",
        |draft, text| {
            draft.job.offset_increment = values::extent(text)?;
            Ok(())
        },
    ),
    Word::new(
        "random_distribution",
        Takes::Words(&["random", "zipf", "pareto", "normal", "zoned"]),
        Section::Offsets,
        "Distribution of random offsets: random, zipf:THETA, pareto:POWER, normal:DEVIATION, \
         zoned:ACCESSES/RANGE:... in percent [default: random]",
        |draft, text| {
            draft.job.distribution = values::distribution(text)?;
            Ok(())
        },
    ),
    Word::new(
        "blockalign",
        Takes::Sizes,
        Section::Offsets,
        "Alignment of random offsets, or of each direction; blocks may then repeat [default: bs]",
        |draft, text| {
            let said = values::by_direction(text, values::size)?;
            for (align, said) in draft.job.blockalign.iter_mut().zip(said) {
                *align = said.or(*align);
            }
            Ok(())
        },
    )
    .alias(&["ba"]),
    Word::new(
        "norandommap",
        Takes::Flag,
        Section::Offsets,
        "Random blocks may repeat before every block was used once [default: 1]",
        |draft, text| {
            draft.job.norandommap = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "randseed",
        Takes::Text("N"),
        Section::Offsets,
        "Seed of everything random: the same seed gives the same run [default: 1]",
        set_seed,
    ),
    Word::new("seed", Takes::Text("N"), Section::Offsets, "As randseed", set_seed).on_the_command_line(),
    Word::new(
        "randrepeat",
        Takes::Switch,
        Section::Offsets,
        "0: a new seed in each run, if none is given [default: 1]",
        |draft, text| {
            draft.randrepeat = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "allrandrepeat",
        Takes::Switch,
        Section::Offsets,
        "1: the same seed in each run, whatever randrepeat says [default: 0]",
        |draft, text| {
            draft.allrandrepeat = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "random_generator",
        Takes::Words(&["tausworthe", "tausworthe64", "lfsr"]),
        Section::Offsets,
        "tausworthe, tausworthe64 or lfsr; no effect, as one 64-bit generator serves targets of any size",
        |_, text| values::one_of(text, &GENERATORS, |word| GENERATORS.contains(&word).then_some(())),
    ),
    Word::new(
        "rate_iops",
        Takes::Counts,
        Section::Rate,
        "Operations per second and thread, or of each direction: reads,writes,trims; latency counts from \
         when they were due. 0: as fast as possible [default: 0]",
        |draft, text| {
            let said = values::by_direction(text, |text| values::count(text, 0, u32::MAX))?;
            for (rate, said) in draft.iops.iter_mut().zip(said) {
                *rate = said.map_or(*rate, |iops| (iops > 0).then_some(iops));
            }
            Ok(())
        },
    ),
    Word::new(
        "rate",
        Takes::Sizes,
        Section::Rate,
        "Bytes per second and thread, or of each direction, instead of rate_iops; an operation is due when \
         the bytes of the last one have had their time",
        |draft, text| {
            let said = values::by_direction(text, values::number)?;
            for (rate, said) in draft.bytes.iter_mut().zip(said) {
                *rate = said.map_or(*rate, |bytes| (bytes > 0).then_some(bytes));
            }
            Ok(())
        },
    ),
    Word::new(
        "rate_min",
        Takes::Sizes,
        Section::Rate,
        "Lowest bytes per second and thread, or of each direction; below it the job ends with exit code 4. \
         Checked from 2 s on",
        |draft, text| {
            let said = values::by_direction(text, values::number)?;
            for (least, said) in draft.job.rate_min.iter_mut().zip(said) {
                *least = said.unwrap_or(*least);
            }
            Ok(())
        },
    )
    .alias(&["ratemin"]),
    Word::new(
        "rate_iops_min",
        Takes::Counts,
        Section::Rate,
        "As rate_min, in operations per second",
        |draft, text| {
            let said = values::by_direction(text, |text| values::count(text, 0, u32::MAX))?;
            for (least, said) in draft.job.rate_iops_min.iter_mut().zip(said) {
                *least = said.map_or(*least, u64::from);
            }
            Ok(())
        },
    ),
    Word::new(
        "rate_cycle",
        Takes::Count,
        Section::Rate,
        "Time in ms over which the rate is averaged for rate_min and rate_iops_min [default: 1000]",
        |draft, text| {
            draft.job.rate_cycle = Duration::from_millis(values::count(text, 1, u32::MAX)?.into());
            Ok(())
        },
    )
    .alias(&["ratecycle"]),
    Word::new(
        "latency_target",
        Takes::Time,
        Section::Rate,
        "Find the largest queue depth, up to iodepth, at which operations take at most this long (us \
         without a unit); results are those of the depth found",
        |draft, text| {
            draft.latency_target.latency = values::time(text, Duration::from_micros(1))?;
            Ok(())
        },
    ),
    Word::new(
        "latency_window",
        Takes::Time,
        Section::Rate,
        "Try each depth for this long (us without a unit)",
        |draft, text| {
            draft.latency_target.window = values::time(text, Duration::from_micros(1))?;
            Ok(())
        },
    ),
    Word::new(
        "latency_percentile",
        Takes::Count,
        Section::Rate,
        "Percentage of operations that must take at most latency_target [default: 100]",
        |draft, text| {
            draft.latency_target.percent = values::percent(text)?;
            Ok(())
        },
    ),
    Word::new(
        "latency_run",
        Takes::Switch,
        Section::Rate,
        "Go on after the depth was found, and adjust it [default: 0]",
        |draft, text| {
            draft.latency_target.runs_on = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "rate_process",
        Takes::Words(&["linear", "poisson"]),
        Section::Rate,
        "Arrivals at that rate: linear or poisson [default: poisson]",
        |draft, text| {
            draft.arrivals = values::one_of(text, &["linear", "poisson"], |word| match word {
                "linear" => Some(Arrivals::Even),
                "poisson" => Some(Arrivals::Exponential),
                _ => None,
            })?;
            Ok(())
        },
    ),
    Word::new(
        "thinktime",
        Takes::Time,
        Section::Rate,
        "Pause between operations, in us without a unit [default: 0]",
        |draft, text| {
            draft.job.thinktime = values::time(text, Duration::from_micros(1))?;
            Ok(())
        },
    ),
    Word::new(
        "thinktime_blocks",
        Takes::Count,
        Section::Rate,
        "Pause after this many operations [default: 1]",
        |draft, text| {
            draft.job.thinktime_blocks = values::count(text, 1, u32::MAX)?;
            Ok(())
        },
    ),
];

fn set_seed(draft: &mut Draft, text: &str) -> Result<(), String> {
    // A seed has all 64 bits, unlike a number of bytes.
    let decimal = text.trim().parse::<u64>();
    draft.seed = Some(decimal.or_else(|_| values::number(text))?);
    Ok(())
}
