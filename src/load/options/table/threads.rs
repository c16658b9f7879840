//! Options of threads and jobs, and of the output.

use super::super::values;
use super::{Section, Takes, Word};
use crate::load::job::{ExitWhat, OnError, Timestamps};

/// The kernel supports at most 1024 nodes.
const MOST_NODE: u32 = 1023;

pub(super) const WORDS: &[Word] = &[
    Word::new(
        "stonewall",
        Takes::Flag,
        Section::Threads,
        "Wait until all jobs above are done",
        |draft, text| {
            draft.job.stonewall = values::switch(text)?;
            Ok(())
        },
    )
    .alias(&["wait_for_previous"]),
    Word::new(
        "wait_for",
        Takes::Text("NAME"),
        Section::Threads,
        "Begin when the job of this name, which stands above, is over",
        |draft, text| {
            draft.job.wait_for = Some(text.to_string());
            Ok(())
        },
    ),
    Word::new(
        "new_group",
        Takes::Flag,
        Section::Threads,
        "Begin a new group: fio's formats and exitall take its jobs together",
        |draft, text| {
            draft.job.new_group = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "exit_what",
        Takes::Words(&["group", "stonewall", "all"]),
        Section::Threads,
        "What the end of this job ends, with exitall: its group, all that run (those behind the next stonewall \
         begin), or all [default: group]",
        |draft, text| {
            draft.job.exit_what = values::one_of(text, &ExitWhat::ALL.map(ExitWhat::name), |word| {
                ExitWhat::ALL.into_iter().find(|what| what.name() == word)
            })?;
            Ok(())
        },
    ),
    Word::new(
        "exitall",
        Takes::Flag,
        Section::Threads,
        "The end of any job ends others: those of its group, or what its exit_what says",
        |draft, text| {
            draft.job.exitall = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "thread",
        Takes::Flag,
        Section::Threads,
        "Jobs are always threads; without effect",
        |_, text| values::switch(text).map(|_| ()),
    )
    .alias(&["threads"]),
    Word::new(
        "cpus_allowed",
        Takes::List,
        Section::Threads,
        "Run on these CPUs (0-3,8)",
        |draft, text| {
            draft.cpus = Some(values::cpus(text)?);
            Ok(())
        },
    ),
    Word::new(
        "cpus_allowed_policy",
        Takes::Words(&["shared", "split"]),
        Section::Threads,
        "shared: each thread on any of them; split: each on one; without effect where cpus_allowed is not said \
         [default: shared]",
        |draft, text| {
            draft.split = values::one_of(text, &["shared", "split"], |word| match word {
                "shared" => Some(false),
                "split" => Some(true),
                _ => None,
            })?;
            Ok(())
        },
    ),
    Word::new(
        "cpus",
        Takes::List,
        Section::Threads,
        "As cpus_allowed, with one thread on each",
        |draft, text| {
            draft.cpus = Some(values::cpus(text)?);
            draft.split = true;
            Ok(())
        },
    )
    .on_the_command_line(),
    Word::new(
        "numa",
        Takes::Words(&["local", "remote", "none"]),
        Section::Threads,
        "Bind threads to CPUs of the device's node (local) or of other nodes (remote), or to none (none) [default: local]",
        |draft, text| {
            draft.numa = Some(values::one_of(text, &["local", "remote", "none"], crate::load::options::draft::placement)?);
            Ok(())
        },
    )
    .on_the_command_line(),
    Word::new(
        "numa_cpu_nodes",
        Takes::List,
        Section::Threads,
        "Run on any CPU of these NUMA nodes (0-1)",
        |draft, text| {
            draft.nodes = Some(values::cpus(text)?);
            Ok(())
        },
    ),
    Word::new(
        "smt",
        Takes::Flag,
        Section::Threads,
        "Use both threads of a core before the next core",
        |draft, text| {
            draft.job.smt = values::switch(text)?;
            Ok(())
        },
    )
    .on_the_command_line(),
    Word::new(
        "memory-node",
        Takes::Count,
        Section::Threads,
        "Take the buffers from this NUMA node; what it has no room for is named [default: that of each thread]",
        |draft, text| {
            draft.job.memory_nodes = vec![values::count(text, 0, MOST_NODE)?];
            Ok(())
        },
    )
    .on_the_command_line(),
    Word::new(
        "numa_mem_policy",
        Takes::Text("default|local|prefer:N|bind:N|interleave:LIST"),
        Section::Threads,
        "default, local: buffers from the node of each thread; prefer:N, bind:N: as --memory-node N; \
         interleave:0-1: from these in turns",
        |draft, text| {
            let is_one = |node: &u32| *node <= MOST_NODE;
            let nodes = match text.split_once(':') {
                Some(("prefer" | "bind", node)) => node.parse().ok().filter(is_one).map(|node| vec![node]),
                Some(("interleave", list)) => values::cpus(list).ok().filter(|list| list.iter().all(is_one)),
                None if matches!(text, "default" | "local") => Some(Vec::new()),
                _ => None,
            };
            draft.job.memory_nodes = nodes.ok_or_else(|| {
                format!(
                    "{} is none of default, local, prefer:N, bind:N, interleave:LIST",
                    values::quoted(text)
                )
            })?;
            Ok(())
        },
    ),
    Word::new(
        "continue_on_error",
        Takes::Words(&["none", "0", "io", "all", "1"]),
        Section::Threads,
        "none (0): an error ends the job; io, all (1): errors are counted and it goes on [default: all]",
        |draft, text| {
            draft.job.on_error = values::one_of(text, &["none", "0", "io", "all", "1"], |word| match word {
                "none" | "0" => Some(OnError::Stop),
                "io" | "all" | "1" => Some(OnError::Continue),
                _ => None,
            })?;
            Ok(())
        },
    ),
    Word::new(
        "on-error",
        Takes::Words(&["stop", "continue"]),
        Section::Threads,
        "What a failed operation does: stop or continue [default: continue]",
        |draft, text| {
            draft.job.on_error = values::one_of(text, &["stop", "continue"], |word| match word {
                "stop" => Some(OnError::Stop),
                "continue" => Some(OnError::Continue),
                _ => None,
            })?;
            Ok(())
        },
    )
    .on_the_command_line(),
    Word::new(
        "timestamps",
        Takes::Words(&["every", "sampled:N", "off"]),
        Section::Result,
        "Whose latency is taken: every (operation), sampled:N (one of N), off [default: every]",
        |draft, text| {
            draft.job.timestamps = match (text, text.strip_prefix("sampled:")) {
                ("every", _) => Timestamps::Every,
                ("off", _) => Timestamps::Off,
                (_, Some(one_of)) => Timestamps::Sampled(values::count(one_of, 1, u32::MAX)?),
                _ => return Err(format!("{} is none of every, sampled:N, off", values::quoted(text))),
            };
            Ok(())
        },
    )
    .on_the_command_line(),
    Word::new(
        "gtod_reduce",
        Takes::Switch,
        Section::Result,
        "1: no latencies, as --timestamps off [default: 0]",
        |draft, text| {
            draft.job.timestamps = if values::switch(text)? { Timestamps::Off } else { Timestamps::Every };
            Ok(())
        },
    ),
    Word::new(
        "group_reporting",
        Takes::Flag,
        Section::Result,
        "The threads of a job are one line of the result [default: 1]",
        |draft, text| {
            draft.job.group_reporting = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "write_bw_log",
        Takes::Text("PREFIX"),
        Section::Result,
        "Write the bandwidth of each interval, in KiB/s, to PREFIX_bw.N.log, as fio does; N counts threads",
        |draft, text| {
            draft.job.logs.bandwidth = Some(text.into());
            Ok(())
        },
    ),
    Word::new(
        "write_iops_log",
        Takes::Text("PREFIX"),
        Section::Result,
        "Write the IOPS of each interval to PREFIX_iops.N.log",
        |draft, text| {
            draft.job.logs.iops = Some(text.into());
            Ok(())
        },
    ),
    Word::new(
        "write_lat_log",
        Takes::Text("PREFIX"),
        Section::Result,
        "Write the mean latency of each interval, in ns, to PREFIX_lat.N.log",
        |draft, text| {
            draft.job.logs.latency = Some(text.into());
            Ok(())
        },
    ),
    Word::new(
        "log_prio",
        Takes::Switch,
        Section::Result,
        "Without effect: as in fio, the average of an interval has no priority",
        |_, text| values::switch(text).map(|_| ()),
    ),
    Word::new(
        "log_avg_msec",
        Takes::Count,
        Section::Result,
        "Length of such an interval in ms [default: 500]",
        |draft, text| {
            // fio's 0, which logs each operation separately, would not be an average.
            let ms = values::count(text, 1, u32::MAX)?;
            draft.job.logs.interval = std::time::Duration::from_millis(ms.into());
            Ok(())
        },
    ),
    Word::new(
        "percentile_list",
        Takes::Text("P:P:..."),
        Section::Result,
        "Percentiles that fio's formats show, at most 20 [default: fio's 1:5:...:99.99]",
        |draft, text| {
            draft.job.percentiles = Some(values::percentiles(text)?);
            Ok(())
        },
    ),
    Word::new(
        "disk_util",
        Takes::Switch,
        Section::Result,
        "1: fio's JSON has the counters of the disks [default: 1]",
        |draft, text| {
            draft.job.disk_util = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "minimal",
        Takes::Flag,
        Section::Result,
        "As --output-format terse",
        |draft, text| {
            draft.minimal = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "kb_base",
        Takes::Words(&["1024"]),
        Section::Result,
        "1024: units are always powers of it; without effect",
        |_, text| match text {
            "1024" => Ok(()),
            _ => Err(format!("{} is not taken, 4k is always 4096: write all digits of other sizes", values::quoted(text))),
        },
    ),
];
