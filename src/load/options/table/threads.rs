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
        "Start after all jobs above have ended",
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
        "Start after the job of this name above has ended",
        |draft, text| {
            draft.job.wait_for = Some(text.to_string());
            Ok(())
        },
    ),
    Word::new(
        "new_group",
        Takes::Flag,
        Section::Threads,
        "Start a new group, for fio's formats and exitall",
        |draft, text| {
            draft.job.new_group = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "exit_what",
        Takes::Words(&["group", "stonewall", "all"]),
        Section::Threads,
        "With exitall, what ends with this job: its group, all running jobs (those after the next \
         stonewall start), or all [default: group]",
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
        "If any job ends, end its group too, or what its exit_what says",
        |draft, text| {
            draft.job.exitall = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new("thread", Takes::Flag, Section::Threads, "No effect, as jobs are always threads", |_, text| {
        values::switch(text).map(|_| ())
    })
    .alias(&["threads"]),
    Word::new("cpus_allowed", Takes::List, Section::Threads, "Run on these CPUs (0-3,8)", |draft, text| {
        draft.cpus = Some(values::cpus(text)?);
        Ok(())
    }),
    Word::new(
        "cpus_allowed_policy",
        Takes::Words(&["shared", "split"]),
        Section::Threads,
        "shared: each thread on any of them; split: each on one; no effect without cpus_allowed [default: \
         shared]",
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
        "As cpus_allowed, with one thread per CPU",
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
        "Bind threads to CPUs of the device's node (local), of other nodes (remote), or not at all (none) \
         [default: local]",
        |draft, text| {
            draft.numa = Some(values::one_of(
                text,
                &["local", "remote", "none"],
                crate::load::options::draft::placement,
            )?);
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
        "Allocate buffers on this NUMA node; what did not fit is reported [default: that of each thread]",
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
        "default, local: buffers on the node of each thread; prefer:N, bind:N: as --memory-node N; \
         interleave:0-1: on these in turn",
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
                    "{} is not one of default, local, prefer:N, bind:N, interleave:LIST",
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
        "none (0): an error ends the job; io, all (1): errors are counted, and the job goes on [default: \
         all]",
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
        "After a failed operation: stop or continue [default: continue]",
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
        "Measure the latency of every operation (every), of one in N (sampled:N), or of none (off) \
         [default: every]",
        |draft, text| {
            draft.job.timestamps = match (text, text.strip_prefix("sampled:")) {
                ("every", _) => Timestamps::Every,
                ("off", _) => Timestamps::Off,
                (_, Some(one_of)) => Timestamps::Sampled(values::count(one_of, 1, u32::MAX)?),
                _ => return Err(format!("{} is not one of every, sampled:N, off", values::quoted(text))),
            };
            Ok(())
        },
    )
    .on_the_command_line(),
    Word::new(
        "gtod_reduce",
        Takes::Switch,
        Section::Result,
        "1: measure no latency, as --timestamps off [default: 0]",
        |draft, text| {
            draft.job.timestamps = if values::switch(text)? { Timestamps::Off } else { Timestamps::Every };
            Ok(())
        },
    ),
    Word::new(
        "group_reporting",
        Takes::Flag,
        Section::Result,
        "Show the threads of a job as one line [default: 1]",
        |draft, text| {
            draft.job.group_reporting = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "write_bw_log",
        Takes::Text("PREFIX"),
        Section::Result,
        "Write the bandwidth of each interval, in KiB/s, to PREFIX_bw.N.log, as fio; N is the thread's \
         number",
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
        "No effect, as the average of an interval has no priority (as in fio)",
        |_, text| values::switch(text).map(|_| ()),
    ),
    Word::new(
        "log_avg_msec",
        Takes::Count,
        Section::Result,
        "Length of a log's interval in ms [default: 500]",
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
        "1: include the disks' counters in fio's JSON [default: 1]",
        |draft, text| {
            draft.job.disk_util = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new("minimal", Takes::Flag, Section::Result, "As --output-format terse", |draft, text| {
        draft.minimal = values::switch(text)?;
        Ok(())
    }),
    Word::new(
        "kb_base",
        Takes::Words(&["1024"]),
        Section::Result,
        "1024; no effect, as units are always powers of 1024",
        |_, text| match text {
            "1024" => Ok(()),
            _ => Err(format!(
                "{} is not supported, 4k is always 4096: write all digits of other sizes",
                values::quoted(text)
            )),
        },
    ),
];
