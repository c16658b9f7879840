//! Options of the pattern, sizes and queue depth.

use super::super::values;
use super::{Section, Takes, Word};
use crate::load::job::{BlockSizes, Pattern};

const MOST_DEPTH: u32 = 4096;
const MOST_JOBS: u32 = 1024;

pub(super) const WORDS: &[Word] = &[
    Word::new(
        "rw",
        Takes::Words(&[
            "read",
            "write",
            "randread",
            "randwrite",
            "rw",
            "randrw",
            "trim",
            "randtrim",
            "trimwrite",
        ]),
        Section::Operations,
        "I/O pattern: read, write, randread, randwrite, rw (readwrite), randrw, trim, randtrim, trimwrite \
         [default: randread]",
        |draft, text| {
            if let Some((word, behind)) = text.split_once(':') {
                return Err(format!(
                    "what follows {word} ({}) is not supported: write rw={word}",
                    values::quoted(behind)
                ));
            }
            draft.job.rw = values::one_of(text, &Pattern::ALL.map(Pattern::name), Pattern::from_word)?;
            Ok(())
        },
    )
    .alias(&["readwrite"]),
    Word::new(
        "rwmixread",
        Takes::Count,
        Section::Operations,
        "Percentage of reads in a mix of reads and writes [default: 50]",
        |draft, text| {
            draft.job.rwmixread = values::count(text, 0, 100)? as u8;
            Ok(())
        },
    ),
    Word::new(
        "rwmixwrite",
        Takes::Count,
        Section::Operations,
        "Percentage of writes in it; the last one of this and rwmixread applies",
        |draft, text| {
            draft.job.rwmixread = 100 - values::count(text, 0, 100)? as u8;
            Ok(())
        },
    ),
    Word::new(
        "bs",
        Takes::Sizes,
        Section::Operations,
        "Block size (4k, 1m), or of each direction: reads,writes,trims [default: 4k]",
        |draft, text| {
            values::blocks(&mut draft.job.bs, text, |text| values::size(text).map(BlockSizes::fixed))
        },
    )
    .alias(&["blocksize"]),
    Word::new(
        "bsrange",
        Takes::Shares,
        Section::Operations,
        "Random block sizes: multiples of the first size, up to the second (4k-64k)",
        |draft, text| values::blocks(&mut draft.job.bs, text, values::range),
    )
    .alias(&["blocksize_range"]),
    Word::new(
        "bssplit",
        Takes::Shares,
        Section::Operations,
        "Block sizes and their shares in percent (4k/60:64k/40)",
        |draft, text| values::blocks(&mut draft.job.bs, text, values::split),
    ),
    Word::new(
        "fsync",
        Takes::Count,
        Section::Operations,
        "fsync after this many writes; 0: never [default: 0]",
        |draft, text| {
            draft.job.fsync = values::count(text, 0, u32::MAX)?;
            Ok(())
        },
    ),
    Word::new(
        "fdatasync",
        Takes::Count,
        Section::Operations,
        "fdatasync after this many writes; 0: never [default: 0]",
        |draft, text| {
            draft.job.fdatasync = values::count(text, 0, u32::MAX)?;
            Ok(())
        },
    ),
    Word::new(
        "end_fsync",
        Takes::Switch,
        Section::Operations,
        "1: fsync after the last write, as part of the run [default: 0]",
        |draft, text| {
            draft.job.end_fsync = values::switch(text)?;
            Ok(())
        },
    )
    .alias(&["fsync_on_close"]),
    Word::new(
        "iodepth",
        Takes::Count,
        Section::Depth,
        "Operations in flight per thread; always one with psync, pvsync2 and mmap [default: 32]",
        |draft, text| {
            draft.job.iodepth = values::count(text, 1, MOST_DEPTH)?;
            Ok(())
        },
    ),
    Word::new("numjobs", Takes::Count, Section::Depth, "Threads of the job [default: 1]", |draft, text| {
        draft.job.numjobs = values::count(text, 1, MOST_JOBS)?;
        Ok(())
    }),
    Word::new(
        "iodepth_batch",
        Takes::Count,
        Section::Depth,
        "Operations per submission; 0: as many as there is room for [default: 0]",
        |draft, text| {
            draft.job.iodepth_batch = values::count(text, 0, MOST_DEPTH)?;
            Ok(())
        },
    )
    .alias(&["iodepth_batch_submit"]),
    Word::new(
        "iodepth_batch_complete_min",
        Takes::Count,
        Section::Depth,
        "Minimum number of completions to wait for; 0: none [default: 1]",
        |draft, text| {
            draft.job.iodepth_batch_complete = values::count(text, 0, MOST_DEPTH)?;
            Ok(())
        },
    )
    .alias(&["iodepth_batch_complete"]),
];
