//! How operations reach the kernel, and what is written.

use super::super::values;
use super::{Section, Takes, Word};
use crate::load::job::{Advice, Engine};

pub(super) const WORDS: &[Word] = &[
    Word::new(
        "ioengine",
        Takes::Words(&["io_uring", "io_uring_cmd", "libaio", "psync", "pvsync2", "mmap"]),
        Section::Engine,
        "io_uring, libaio, psync, pvsync2, mmap, or io_uring_cmd (NVMe commands, on /dev/ng*) [default: io_uring]",
        |draft, text| {
            draft.job.engine = values::one_of(text, &Engine::ALL.map(Engine::name), Engine::from_word)?;
            Ok(())
        },
    ),
    Word::new(
        "cmd_type",
        Takes::Words(&["nvme"]),
        Section::Engine,
        "nvme: the commands of io_uring_cmd are always NVMe's; without effect",
        |_, text| values::one_of(text, &["nvme"], |word| (word == "nvme").then_some(())),
    ),
    Word::new(
        "direct",
        Takes::Switch,
        Section::Engine,
        "1: past the page cache (O_DIRECT) [default: 1]",
        |draft, text| {
            draft.job.direct = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "buffered",
        Takes::Switch,
        Section::Engine,
        "1: through the page cache; of this and direct the last one holds [default: 0]",
        |draft, text| {
            draft.job.direct = !values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "hipri",
        Takes::Flag,
        Section::Engine,
        "Poll for completions on the device's poll queues; refused where it has none",
        |draft, text| {
            draft.job.hipri = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "sqthread_poll",
        Takes::Flag,
        Section::Engine,
        "A thread of the kernel fetches the requests (before Linux 5.13 with rights only)",
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
        "Ask the ring for nothing at all: no I/O, to measure the generator itself",
        |draft, text| {
            draft.job.nop = values::switch(text)?;
            Ok(())
        },
    )
    .on_the_command_line(),
    Word::new(
        "fadvise_hint",
        Takes::Words(&["0", "1", "random", "sequential"]),
        Section::Engine,
        "What the page cache is told: 0 (nothing), 1 (what rw says), random or sequential [default: 1]",
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
        "What the page cache has of the target is dropped before a buffered run [default: 1]",
        |draft, text| {
            draft.job.invalidate = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "refill_buffers",
        Takes::Flag,
        Section::Content,
        "New content for each write",
        |draft, text| {
            draft.job.refill_buffers = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "verify",
        Takes::Words(&["0", "crc32c"]),
        Section::Content,
        "crc32c: what is written carries its place and a checksum, and is read back after the load; 0: not [default: 0]",
        |draft, text| {
            draft.job.verify = values::one_of(text, &["0", "crc32c"], |word| match word {
                "0" => Some(false),
                // fio's other name, from when it was another code.
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
        "0: write as verify says, and do not read it back [default: 1]",
        |draft, text| {
            draft.job.do_verify = values::switch(text)?;
            Ok(())
        },
    ),
];
