//! Computes which part of a target each thread may use.

use super::super::job::{Direction, Extent, Job};
use super::sizes::grain;
use crate::refusal::Refusal;

/// The largest block: an io_uring request and a registered buffer are at most 1 GiB.
const MAX_BS: u64 = 1 << 30;

/// The part of a target that a thread may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Offset of the first byte.
    pub begin: u64,
    /// Whole blocks; with several sizes, a multiple of their common divisor. As in fio, `size` is rounded up for
    /// sequential jobs and down for random ones.
    pub bytes: u64,
    /// Bytes of one pass of an order that does not cover the region: all of `size`, including its whole last block.
    pub moved: u64,
    /// The target's logical block in bytes.
    pub block: u32,
}

/// The target of a region.
#[derive(Debug, Clone, Copy)]
pub struct RegionTarget<'a> {
    /// Name for messages.
    pub name: &'a str,
    pub bytes: u64,
    /// Its smallest unit.
    pub block: u64,
    /// A device has a fixed size: as in fio, a region that exceeds it is cut. A file could have been extended.
    pub is_device: bool,
}

/// The region of thread `number`: offset, increment and size of the job on the target.
///
/// A size applies to each target. As in fio, a region with an offset ends with its target or its `filesize`, even if
/// the size goes further; [`cut`] reports that.
pub fn region(job: &Job, whole: RegionTarget<'_>, number: u32) -> Result<Region, Refusal> {
    let RegionTarget { name, bytes, block, is_device } = whole;
    let usage = |why: String| Err(Refusal::Usage(why));
    let block = block.max(1);
    // The page cache accepts any length, but a trim must be of whole blocks.
    let is_strict = job.direct || job.rw.has(Direction::Trim);
    let shares = || job.directions().flat_map(|direction| &job.bs[direction.index()].0);
    if let Some(bs) =
        shares().map(|share| share.low).find(|bs| *bs == 0 || is_strict && !bs.is_multiple_of(block))
    {
        return usage(format!(
            "block size {bs} is not a multiple of {block}, the logical block of {name}: choose --bs {block} or a multiple of it"
        ));
    }
    let aligns = || job.directions().filter_map(|direction| job.blockalign[direction.index()]);
    if let Some(align) = aligns().find(|align| is_strict && !align.is_multiple_of(block)) {
        return usage(format!(
            "blockalign {align} is not a multiple of {block}, the logical block of {name}: choose --blockalign {block} or \
             a multiple of it"
        ));
    }
    let largest = job.largest_block();
    if largest > MAX_BS {
        return usage(format!(
            "block size {largest} is above {MAX_BS}, the largest request: choose a smaller --bs"
        ));
    }
    let size = size(job, bytes);
    if size > bytes && !is_device {
        let (word, said) = match job.filesize {
            Some(length) => ("filesize", length),
            None => ("size", size),
        };
        return usage(format!(
            "--{word} {said} is above the {bytes} bytes of {name}: choose a smaller one or leave it out"
        ));
    }
    let begin = begin(job, bytes, number);
    if is_strict && !begin.is_multiple_of(block) {
        return usage(format!(
            "offset {begin} is not a multiple of {block}, the logical block of {name}: choose another --offset or \
             --offset_increment"
        ));
    }
    let grain = grain(job.directions().map(|direction| &job.bs[direction.index()]));
    let first = self::begin(job, bytes, 0);
    let apart = [1, number].map(|number| self::begin(job, bytes, number).saturating_sub(first));
    if let Some(apart) = apart.into_iter().find(|apart| job.verify && !apart.is_multiple_of(grain)) {
        return usage(format!(
            "--offset_increment {apart} is not a multiple of the block size {grain}, so threads would \
             overwrite each other's blocks: choose a multiple, or leave out --verify"
        ));
    }
    // `filesize` is the end of the target for the job, wherever a thread begins.
    let end = job.filesize.map_or(bytes, |length| length.min(bytes));
    if begin >= end && begin > 0 {
        let of = if end < bytes { "filesize of " } else { "" };
        return usage(format!(
            "offset {begin} leaves nothing of the {of}{end} bytes of {name}: choose a smaller --offset or \
             --offset_increment, or fewer --numjobs"
        ));
    }
    // As in fio, random blocks of a smaller device repeat until all of the size is transferred.
    let asked = (begin == 0).then_some(size);
    let size = size.min(end - begin);
    if largest > size {
        let what = if job.rw.has(Direction::Read) { "read" } else { "use" };
        return usage(format!(
            "block size {largest} is above the {size} bytes to {what} of {name}: choose a smaller --bs"
        ));
    }
    // A sequential job goes on to the end of a block, if there is room for it.
    let up = size.div_ceil(grain) * grain;
    let goes_on = !job.rw.is_random() && up <= bytes - begin;
    Ok(Region {
        begin,
        bytes: if goes_on { up } else { size / grain * grain },
        moved: asked.unwrap_or(size),
        block: u32::try_from(block).unwrap_or(u32::MAX),
    })
}

/// What is left out because the requested range exceeds the target, for a note; None where it does not.
pub fn cut(job: &Job, whole: RegionTarget<'_>) -> Option<String> {
    let Some(Extent::Bytes(size)) = job.size else { return None };
    let reach = |number| {
        let begin = begin(job, whole.bytes, number);
        // `filesize` means that a thread with a later start covers less.
        let end = job.filesize.map_or(begin.saturating_add(size), |length| length);
        (begin, end)
    };
    let (begin, end) = (0..job.numjobs).map(reach).find(|(_, end)| *end > whole.bytes)?;
    let (word, said) = match job.filesize {
        Some(length) => ("filesize", length),
        None => ("size", size),
    };
    let from = if begin > 0 { format!(" from offset {begin} on") } else { String::new() };
    Some(format!(
        "the last {} of the {said} bytes of {word}{from}: {} ends at {}",
        end - whole.bytes,
        whole.name,
        whole.bytes
    ))
}

/// Requested bytes on a target of this size; may exceed it.
fn size(job: &Job, bytes: u64) -> u64 {
    match job.size {
        None | Some(Extent::Percent(100.0)) => bytes,
        Some(Extent::Bytes(size)) => size,
        Some(percent) => job.whole_blocks(percent.of(bytes)),
    }
}

/// Start of a thread: as in fio 3.33, percentages are added first, and the sum is rounded up to a whole block.
fn begin(job: &Job, bytes: u64, number: u32) -> u64 {
    let unit = job.smallest_of_all();
    let is_share = |extent| matches!(extent, Extent::Percent(percent) if percent > 0.0);
    let increment = job.offset_increment.of(bytes).saturating_mul(number.into());
    let begin = job.offset.of(bytes).saturating_add(increment);
    if is_share(job.offset) || is_share(job.offset_increment) {
        begin.checked_next_multiple_of(unit).unwrap_or(begin)
    } else {
        begin
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::job::{BlockShare, BlockSizes, Pattern, Target};
    use super::*;

    fn job(bs: u64) -> Job {
        let mut job = Job::new(Target::Existing("f".into()));
        job.set_bs(bs);
        job
    }

    fn file(bytes: u64, block: u64) -> RegionTarget<'static> {
        RegionTarget { name: "f", bytes, block, is_device: false }
    }

    fn of(job: &Job, bytes: u64, block: u64) -> Result<(u64, u64), String> {
        region(job, file(bytes, block), 0).map(|r| (r.begin, r.bytes)).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn a_block_must_fit_the_logical_block_and_the_target() {
        let sized = |bs, size| Job { size: Some(Extent::Bytes(size)), ..job(bs) };
        assert_eq!(of(&job(4096), 1 << 20, 512), Ok((0, 1 << 20)));
        assert_eq!(of(&job(4096), 10_000, 512), Ok((0, 8192)), "the rest of the file is not covered");
        assert_eq!(of(&sized(4096, 8192), 1 << 20, 512), Ok((0, 8192)));
        for (job, bytes, block, why) in [
            (job(1000), 1 << 20, 512, "block size 1000 is not a multiple of 512, the logical block of f"),
            (job(0), 1 << 20, 512, "block size 0 is not a multiple"),
            (job(512), 1 << 20, 4096, "choose --bs 4096"),
            (job(2 << 30), 1 << 40, 512, "block size 2147483648 is above 1073741824"),
            (job(2 << 20), 1 << 20, 512, "above the 1048576 bytes to read of f"),
            (sized(4096, 2 << 20), 1 << 20, 512, "--size 2097152 is above the 1048576 bytes of f"),
            (sized(4096, 512), 1 << 20, 512, "above the 512 bytes to read"),
            (job(4096), 0, 512, "above the 0 bytes"),
        ] {
            let refused = of(&job, bytes, block).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        assert_eq!(of(&Job { direct: false, ..job(1000) }, 10_000, 512), Ok((0, 10_000)));
        let trims = Job { direct: false, rw: Pattern::RandTrim, ..job(1000) };
        assert!(of(&trims, 1 << 20, 512).is_err(), "a part of a block cannot be trimmed");
    }

    #[test]
    fn what_is_done_in_order_ends_with_a_block() {
        // As fio 3.33 counted: 3 blocks of 4 KiB in a file of 1 MiB, 2 where the file ends there.
        let sized = |rw, size| Job { rw, size: Some(Extent::Bytes(size)), ..job(4096) };
        assert_eq!(of(&sized(Pattern::Read, 10_000), 1 << 20, 512), Ok((0, 12_288)));
        assert_eq!(of(&sized(Pattern::ReadWrite, 10_000), 1 << 20, 512), Ok((0, 12_288)));
        assert_eq!(of(&sized(Pattern::Read, 10_000), 10_000, 1), Ok((0, 8192)));
        assert_eq!(of(&sized(Pattern::RandRead, 10_000), 1 << 20, 512), Ok((0, 8192)));
        let moved = |job: &Job| region(job, file(1 << 20, 512), 0).unwrap().moved;
        assert_eq!(moved(&sized(Pattern::RandRead, 10_000)), 10_000);
        let half = Job { size: Some(Extent::Percent(50.0)), ..job(3072) };
        assert_eq!(moved(&half), 170 * 3072, "percent are whole blocks");
        assert_eq!(moved(&Job { size: None, ..half }), 1 << 20);
    }

    #[test]
    fn every_size_of_a_split_is_looked_at() {
        let mut split = job(4096);
        let share = |bytes| BlockShare { low: bytes, high: bytes, percent: 50.0 };
        split.bs[Direction::Read.index()] = BlockSizes(vec![share(4096), share(5000)]);
        assert!(of(&split, 1 << 20, 512).unwrap_err().contains("block size 5000"));
        split.bs[Direction::Read.index()] = BlockSizes::fixed(4096);
        split.bs[Direction::Write.index()] = BlockSizes::fixed(100);
        assert_eq!(of(&split, 1 << 20, 512), Ok((0, 1 << 20)), "it does not write");
    }

    #[test]
    fn offsets_move_the_region_of_each_thread() {
        let job = Job {
            offset: Extent::Bytes(1 << 20),
            offset_increment: Extent::Bytes(256 << 10),
            size: Some(Extent::Bytes(512 << 10)),
            ..job(4096)
        };
        let region = |number| region(&job, file(2 << 20, 512), number).map(|r| (r.begin, r.bytes));
        assert_eq!(region(0), Ok((1 << 20, 512 << 10)));
        assert_eq!(region(2), Ok((1536 << 10, 512 << 10)));
        assert_eq!(region(3), Ok((1792 << 10, 256 << 10)), "it ends with its target");
        let refused = region(4).unwrap_err().to_string();
        assert!(refused.contains("offset 2097152 leaves nothing of the 2097152 bytes of f"), "{refused}");
        assert!(region(u32::MAX).is_err());
    }

    #[test]
    fn percent_are_of_the_target_and_whole_blocks() {
        let job = Job { offset: Extent::Percent(25.0), size: Some(Extent::Percent(50.0)), ..job(4096) };
        assert_eq!(of(&job, 70 << 10, 512), Ok((20 << 10, 32 << 10)));
        // As fio 3.33 began in a file of 4 MiB.
        let begins = |bs, offset, increment, number| {
            let (offset, offset_increment) = (Extent::Percent(offset), Extent::Percent(increment));
            let job = Job { offset, offset_increment, size: None, ..self::job(bs) };
            region(&job, file(4 << 20, 512), number).unwrap().begin
        };
        assert_eq!(begins(12 << 10, 10.0, 0.0, 0), 430_080);
        assert_eq!(begins(12 << 10, 33.0, 0.0, 0), 1_388_544);
        assert_eq!(begins(64 << 10, 10.0, 0.0, 0), 458_752);
        assert_eq!(begins(12 << 10, 10.0, 10.0, 1), 847_872);
        assert_eq!(begins(4 << 10, 50.0, 0.0, 0), 2 << 20);
        // The smallest block counts, also that of a direction which the job does not use.
        let mut two = Job { offset: Extent::Percent(10.0), size: None, ..self::job(12 << 10) };
        two.bs[Direction::Write.index()] = BlockSizes::fixed(4096);
        assert_eq!(region(&two, file(4 << 20, 512), 0).unwrap().begin, 421_888);
        let near = Job { offset: Extent::Bytes(1000), direct: false, ..self::job(12 << 10) };
        let share = Job { offset_increment: Extent::Percent(10.0), ..near.clone() };
        let begin = |job: &Job| region(job, file(4 << 20, 512), 0).unwrap().begin;
        assert_eq!((begin(&near), begin(&share)), (1000, 12_288));
        let odd = Job { offset: Extent::Bytes(700), size: None, ..job };
        assert!(of(&odd, 70 << 10, 512).unwrap_err().contains("offset 700 is not a multiple of 512"));
        assert_eq!(of(&Job { direct: false, ..odd }, 70 << 10, 512), Ok((700, 68 << 10)));
    }

    #[test]
    fn nothing_is_used_behind_a_filesize() {
        // As fio 3.33 wrote a file of 4 MiB.
        let job = Job {
            rw: Pattern::Write,
            filesize: Some(1 << 20),
            size: Some(Extent::Bytes(1 << 20)),
            offset_increment: Extent::Bytes(512 << 10),
            ..job(4096)
        };
        let region = |job: &Job, number| {
            super::region(job, file(4 << 20, 512), number).map(|r| (r.begin, r.bytes, r.moved))
        };
        assert_eq!(region(&job, 0), Ok((0, 1 << 20, 1 << 20)));
        assert_eq!(region(&job, 1), Ok((512 << 10, 512 << 10, 512 << 10)));
        let random = Job { rw: Pattern::RandWrite, ..job.clone() };
        assert_eq!(region(&random, 1), Ok((512 << 10, 512 << 10, 512 << 10)));
        let refused = region(&job, 2).unwrap_err().to_string();
        assert!(
            refused.contains("offset 1048576 leaves nothing of the filesize of 1048576 bytes of f"),
            "{refused}"
        );
        assert_eq!(cut(&Job { numjobs: 2, ..job.clone() }, file(4 << 20, 512)), None);
        let refused = of(&job, 1 << 19, 512).unwrap_err();
        assert!(refused.contains("--filesize 1048576 is above the 524288 bytes of f"), "{refused}");
    }

    #[test]
    fn what_goes_beyond_a_device_ends_with_it_and_is_said() {
        let device = RegionTarget { name: "/dev/a", is_device: true, ..file(4 << 20, 512) };
        let sized = |size: u64| Job { size: Some(Extent::Bytes(size)), ..job(4096) };
        let begun = |offset: u64, job: Job| Job { offset: Extent::Bytes(offset), ..job };
        let at = |job: &Job| region(job, device, 0).map(|r| (r.begin, r.bytes)).unwrap();
        assert_eq!(at(&sized(100 << 20)), (0, 4 << 20));
        assert_eq!(at(&begun(1 << 20, sized(100 << 20))), (1 << 20, 3 << 20));
        assert_eq!(region(&sized(100 << 20), device, 0).unwrap().moved, 100 << 20);
        let limited = Job { filesize: Some(900 << 30), ..sized(900 << 30) };
        assert_eq!(at(&limited), (0, 4 << 20));
        let cut = |job: &Job, whole| cut(job, whole).unwrap_or_default();
        assert_eq!(
            cut(&limited, device),
            "the last 966363447296 of the 966367641600 bytes of filesize: /dev/a ends at 4194304"
        );
        assert_eq!(
            cut(&sized(5 << 20), device),
            "the last 1048576 of the 5242880 bytes of size: /dev/a ends at 4194304"
        );
        assert_eq!(
            cut(&begun(1000 << 10, sized(100 << 10)), file(1 << 20, 512)),
            "the last 77824 of the 102400 bytes of size from offset 1024000 on: f ends at 1048576"
        );
        let later = Job { numjobs: 2, offset_increment: Extent::Bytes(2 << 20), ..sized(3 << 20) };
        assert!(cut(&later, device).contains("from offset 2097152 on"));
        assert_eq!(cut(&sized(4 << 20), device), "");
        assert_eq!(cut(&job(4096), device), "");
    }

    #[test]
    fn a_size_is_that_of_each_target() {
        let mut job = Job { size: Some(Extent::Bytes(32 << 10)), ..job(4096) };
        job.targets.push(Target::Existing("g".into()));
        assert_eq!(of(&job, 64 << 10, 512), Ok((0, 32 << 10)));
    }

    #[test]
    fn threads_that_verify_keep_to_each_others_blocks() {
        let job = Job { offset_increment: Extent::Bytes(512), verify: true, rw: Pattern::Write, ..job(4096) };
        assert!(of(&job, 1 << 20, 512).unwrap_err().contains("--offset_increment 512"));
        assert!(of(&Job { verify: false, ..job }, 1 << 20, 512).is_ok());
    }
}
