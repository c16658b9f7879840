//! Options of the I/O engine and of the written content.

use super::super::{priority, values};
use super::{Section, Takes, Word};
use crate::load::job::{Advice, Engine};

pub(super) const WORDS: &[Word] = &[
    Word::new(
        "ioengine",
        Takes::Words(&["io_uring", "io_uring_cmd", "libaio", "psync", "sync", "pvsync2", "mmap", "null"]),
        Section::Engine,
        "io_uring, libaio, psync (sync), pvsync2, mmap, io_uring_cmd (NVMe commands, on /dev/ng*), or \
         null (no I/O at all; needs a size) [default: io_uring]",
        |draft, text| {
            draft.job.engine = values::one_of(text, &Engine::ALL.map(Engine::name), Engine::from_word)?;
            Ok(())
        },
    ),
    Word::new(
        "cmd_type",
        Takes::Words(&["nvme"]),
        Section::Engine,
        "nvme; no effect, as io_uring_cmd always sends NVMe commands",
        |_, text| values::one_of(text, &["nvme"], |word| (word == "nvme").then_some(())),
    ),
    Word::new(
        "direct",
        Takes::Switch,
        Section::Engine,
        "1: bypass the page cache (O_DIRECT) [default: 1]",
        |draft, text| {
            draft.job.direct = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "buffered",
        Takes::Switch,
        Section::Engine,
        "1: use the page cache; the last one of buffered and direct applies [default: 0]",
        |draft, text| {
            draft.job.direct = !values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "io_submit_mode",
        Takes::Words(&["inline", "offload"]),
        Section::Engine,
        "inline or offload; no effect, as with a rate latency always counts from when an operation was due",
        |draft, text| {
            draft.offload = values::one_of(text, &["inline", "offload"], |word| match word {
                "inline" => Some(false),
                "offload" => Some(true),
                _ => None,
            })?;
            Ok(())
        },
    ),
    Word::new(
        "hipri",
        Takes::Flag,
        Section::Engine,
        "Poll for completions on the device's poll queues; refused if it has none",
        |draft, text| {
            draft.job.hipri = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "sqthread_poll",
        Takes::Flag,
        Section::Engine,
        "A kernel thread polls the submission queue (needs rights before Linux 5.13)",
        |draft, text| {
            draft.job.sqthread_poll = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "registerfiles",
        Takes::Flag,
        Section::Engine,
        "Register the files with the ring [default: 1]",
        |draft, text| {
            draft.job.registerfiles = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "fixedbufs",
        Takes::Flag,
        Section::Engine,
        "Register the buffers with the ring [default: 1]",
        |draft, text| {
            draft.job.fixedbufs = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "nop",
        Takes::Flag,
        Section::Engine,
        "Submit no-ops to the ring: no I/O, to measure the generator itself",
        |draft, text| {
            draft.job.nop = values::switch(text)?;
            Ok(())
        },
    )
    .on_the_command_line(),
    Word::new(
        "uncached",
        Takes::Switch,
        Section::Engine,
        "1: drop data from the page cache after use (RWF_DONTCACHE, Linux 6.14 and newer) [default: 0]",
        |draft, text| {
            draft.job.uncached = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "atomic",
        Takes::Switch,
        Section::Engine,
        "1: atomic writes (RWF_ATOMIC, Linux 6.11 and newer, if the device has them); without fixedbufs \
         [default: 0]",
        |draft, text| {
            draft.job.atomic = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "prioclass",
        Takes::Count,
        Section::Engine,
        "I/O priority class of the threads: 1 real-time, 2 best-effort, 3 idle [default: 2 with prio]",
        |draft, text| {
            draft.priority.class = Some(values::count(text, 0, priority::MOST_CLASS)? as u16);
            Ok(())
        },
    ),
    Word::new(
        "prio",
        Takes::Count,
        Section::Engine,
        "I/O priority in that class, 0 (first) to 7",
        |draft, text| {
            draft.priority.level = Some(values::count(text, 0, priority::MOST_LEVEL)? as u16);
            Ok(())
        },
    ),
    Word::new(
        "cmdprio_percentage",
        Takes::Counts,
        Section::Engine,
        "Percentage of operations, or of reads,writes, with their own I/O priority (libaio, io_uring)",
        |draft, text| {
            let said = values::by_direction(text, |text| values::count(text, 0, 100))?;
            for (percent, said) in draft.priority.percent.iter_mut().zip(said) {
                *percent = said.map_or(*percent, |said| said as u8);
            }
            Ok(())
        },
    ),
    Word::new(
        "cmdprio_class",
        Takes::Counts,
        Section::Engine,
        "Priority class of these operations, or of reads,writes [default: 1]",
        |draft, text| {
            let said = values::by_direction(text, |text| values::count(text, 0, priority::MOST_CLASS))?;
            for (priority, said) in draft.priority.of_commands.iter_mut().zip(said) {
                priority.0 = said.map_or(priority.0, |said| Some(said as u16));
            }
            Ok(())
        },
    ),
    Word::new(
        "cmdprio",
        Takes::Counts,
        Section::Engine,
        "Priority level of these operations, or of reads,writes, 0 to 7 [default: 0]",
        |draft, text| {
            let said = values::by_direction(text, |text| values::count(text, 0, priority::MOST_LEVEL))?;
            for (priority, said) in draft.priority.of_commands.iter_mut().zip(said) {
                priority.1 = said.map_or(priority.1, |said| said as u16);
            }
            Ok(())
        },
    ),
    Word::new(
        "cmdprio_bssplit",
        Takes::Text("SIZE/PERCENT:..."),
        Section::Engine,
        "As cmdprio_percentage, by block size: SIZE/PERCENT or SIZE/PERCENT/CLASS/LEVEL, separated by :",
        |draft, text| {
            let said = values::by_direction(text, priority::sized)?;
            for (split, said) in draft.priority.split.iter_mut().zip(said) {
                *split = said.unwrap_or_else(|| std::mem::take(split));
            }
            Ok(())
        },
    ),
    Word::new(
        "fadvise_hint",
        Takes::Words(&["0", "1", "random", "sequential"]),
        Section::Engine,
        "Advice to the page cache: 0 (none), 1 (by rw), random or sequential [default: 1]",
        |draft, text| {
            draft.job.advice =
                values::one_of(text, &["0", "1", "random", "sequential"], |word| match word {
                    "0" => Some(Advice::Nothing),
                    "1" => Some(Advice::ByPattern),
                    "random" => Some(Advice::Random),
                    "sequential" => Some(Advice::Sequential),
                    _ => None,
                })?;
            Ok(())
        },
    ),
    Word::new(
        "invalidate",
        Takes::Switch,
        Section::Engine,
        "Drop the target from the page cache before a buffered run [default: 1]",
        |draft, text| {
            draft.job.invalidate = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "refill_buffers",
        Takes::Flag,
        Section::Content,
        "Generate new data for each write",
        |draft, text| {
            draft.job.refill_buffers = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "verify",
        Takes::Words(&["0", "crc32c"]),
        Section::Content,
        "crc32c: write blocks with their offset and a checksum, and read them back after the load; 0: do \
         not [default: 0]",
        |draft, text| {
            draft.job.verify = values::one_of(text, &["0", "crc32c"], |word| match word {
                "0" => Some(false),
                // fio's other name, from the time when it was a separate implementation.
                "crc32c" | "crc32c-intel" => Some(true),
                _ => None,
            })?;
            Ok(())
        },
    ),
    Word::new(
        "do_verify",
        Takes::Switch,
        Section::Content,
        "0: write blocks for --verify, but do not read them back [default: 1]",
        |draft, text| {
            draft.job.do_verify = values::switch(text)?;
            Ok(())
        },
    ),
];
