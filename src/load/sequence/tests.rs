use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;

use super::super::content::Content;
use super::super::job::{BlockShare, BlockSizes, Pattern, Target};
use super::*;

fn job(rw: Pattern, bs: u64) -> Job {
    let mut job = Job { rw, ..Job::new(Target::Existing("x".into())) };
    job.set_bs(bs);
    job
}

/// A job that ends and covers the region.
fn once(rw: Pattern, bs: u64) -> Job {
    Job { time_based: false, norandommap: false, ..job(rw, bs) }
}

fn whole(bytes: u64) -> Region {
    Region { begin: 0, bytes, moved: bytes, block: 512 }
}

fn target(bytes: u64) -> RegionTarget<'static> {
    RegionTarget { name: "x", bytes, block: 512, is_device: false }
}

fn split(sizes: &[(u64, f64)]) -> BlockSizes {
    BlockSizes(
        sizes
            .iter()
            .map(|(bytes, percent)| BlockShare { low: *bytes, high: *bytes, percent: *percent })
            .collect(),
    )
}

fn offsets(job: &Job, bytes: u64, number: u32, n: usize) -> Vec<u64> {
    Sequence::new(job, &[whole(bytes)], number).take(n).map(|piece| piece.offset).collect()
}

/// In fio's listing format.
fn listed(sequence: impl Iterator<Item = PlannedIo>) -> Vec<(u16, &'static str, u64, u32)> {
    sequence.map(|piece| (piece.file, piece.direction.name(), piece.offset, piece.bytes)).collect()
}

#[test]
fn random_offsets_cover_the_range_evenly() {
    let mut hits = [0u32; 64];
    for offset in offsets(&job(Pattern::RandRead, 4096), 64 * 4096, 0, 64_000) {
        assert_eq!(offset % 4096, 0);
        hits[(offset / 4096) as usize] += 1;
    }
    // 1,000 expected, standard deviation 31: six of them on either side.
    assert!(hits.iter().all(|n| (810..1190).contains(n)), "{hits:?}");
}

#[test]
fn random_offsets_reach_the_end_of_a_huge_device() {
    for norandommap in [true, false] {
        let job = Job { norandommap, seed: 7, ..job(Pattern::RandRead, 512) };
        let offsets = offsets(&job, 1 << 60, 0, 10_000);
        assert!(offsets.iter().all(|o| *o < 1 << 60));
        assert!(offsets.iter().any(|o| *o > (1 << 60) - (1 << 52)));
    }
}

#[test]
fn sequential_offsets_wrap_at_the_end() {
    let read = job(Pattern::Read, 512);
    assert_eq!(offsets(&read, 3 * 512, 0, 5), [0, 512, 1024, 0, 512]);
    assert_eq!(offsets(&read, 512, 0, 2), [0, 0]);
    let later = Region { begin: 4096, ..whole(1024) };
    let offsets: Vec<u64> = Sequence::new(&read, &[later], 0).take(3).map(|piece| piece.offset).collect();
    assert_eq!(offsets, [4096, 4608, 4096]);
}

#[test]
fn sequential_threads_start_at_their_own_share() {
    let shared = Job { numjobs: 4, ..job(Pattern::Read, 512) };
    let first = |job: &Job| [0, 1, 2, 3].map(|number| offsets(job, 8 * 512, number, 1)[0]);
    assert_eq!(first(&shared), [0, 1024, 2048, 3072]);
    assert_eq!(first(&Job { share_offsets: false, ..shared.clone() }), [0; 4]);
    assert_eq!(first(&Job { offset_increment: Extent::Bytes(4096), ..shared.clone() }), [0; 4]);
    let mixed = Job { rw: Pattern::ReadWrite, ..shared };
    assert_eq!(first(&mixed), [0, 1024, 2048, 3072]);
}

#[test]
fn a_seed_reproduces_its_order_and_threads_differ() {
    for rw in [Pattern::RandRead, Pattern::RandReadWrite] {
        for norandommap in [true, false] {
            for distribution in [Distribution::Uniform, Distribution::Zipf(1.1), Distribution::Normal(10.0)] {
                let job = Job { numjobs: 2, norandommap, distribution, ..job(rw, 4096) };
                let order = |number, seed| offsets(&Job { seed, ..job.clone() }, 1 << 32, number, 100);
                assert_eq!(order(0, 42), order(0, 42));
                assert_ne!(order(0, 42), order(0, 43));
                assert_ne!(order(0, 42), order(1, 42));
            }
        }
    }
}

/// As `fio --debug=io` lists them.
#[test]
fn sizes_and_ends_are_those_of_fio() {
    let count = |job: &Job, bytes| Sequence::new(job, &[whole(bytes)], 0).take(100).count();
    assert_eq!(count(&once(Pattern::Read, 4096), 10_000), 2, "what is no whole block is left out");
    assert_eq!(count(&once(Pattern::ReadWrite, 4096), 40_960), 10, "both directions together");
    for rw in [Pattern::Read, Pattern::RandRead, Pattern::RandReadWrite] {
        let job = Job { io_size: Some(10_000), ..once(rw, 4096) };
        assert_eq!(count(&job, 100 << 10), 3, "the last one is whole");
        let job = Job { io_size: Some(24 << 10), ..once(rw, 4096) };
        assert_eq!(count(&job, 16 << 10), 6, "it begins anew");
        assert_eq!(count(&Job { time_based: true, ..job }, 16 << 10), 100);
    }
    assert_eq!(count(&Job { norandommap: true, ..once(Pattern::RandWrite, 4096) }, 65_536), 16);
    // As fio 3.33 with --size=10000 on a file of 1 MiB, and on two of them with --size=20000.
    let sized = Job { size: Some(Extent::Bytes(10_000)), ..once(Pattern::Read, 4096) };
    let count = |job: &Job, targets: usize| {
        let regions = vec![region(job, target(1 << 20), 0).unwrap(); targets];
        Sequence::new(job, &regions, 0).take(100).count()
    };
    for (rw, blocks) in
        [(Pattern::Read, 3), (Pattern::ReadWrite, 3), (Pattern::RandRead, 2), (Pattern::RandReadWrite, 2)]
    {
        assert_eq!(count(&Job { rw, ..sized.clone() }, 1), blocks, "{rw:?}");
    }
    let zipf = Distribution::Zipf(1.2);
    let free = |rw, distribution| Job { rw, distribution, norandommap: true, ..sized.clone() };
    assert_eq!(count(&free(Pattern::RandRead, Distribution::Uniform), 1), 3);
    assert_eq!(count(&free(Pattern::RandReadWrite, Distribution::Uniform), 1), 3);
    assert_eq!(count(&free(Pattern::RandRead, zipf.clone()), 1), 3);
    assert_eq!(count(&free(Pattern::RandRead, Distribution::Uniform), 2), 5);
    assert_eq!(count(&Job { norandommap: false, ..free(Pattern::RandRead, zipf) }, 1), 3);
}

/// Values of `io_size`, and how many I/Os fio 3.33 made for them (`--write_iolog`), with `--size` on a file of 1 MiB.
#[test]
fn an_amount_above_the_size_ends_where_fio_ends() {
    let sized = |rw, size| Job { rw, size: Some(Extent::Bytes(size)), ..once(rw, 4096) };
    let counts = |job: &Job, amounts: &[u64], targets: usize| {
        let regions = vec![region(job, target(1 << 20), 0).unwrap(); targets];
        let count = |amount: &u64| {
            let job = Job { io_size: Some(*amount), ..job.clone() };
            Sequence::new(&job, &regions, 0).count()
        };
        amounts.iter().map(count).collect::<Vec<_>>()
    };
    let amounts = [2_000, 8_000, 10_000, 20_000, 24_576, 30_000, 36_864, 40_000, 40_960, 50_000];
    for (job, expected) in [
        (sized(Pattern::Read, 10_000), [1, 2, 3, 5, 6, 8, 9, 9, 10, 12]),
        (sized(Pattern::Write, 12_288), [1, 2, 3, 5, 6, 8, 9, 9, 10, 12]),
        (sized(Pattern::RandRead, 10_000), [1, 2, 2, 4, 6, 8, 9, 10, 10, 12]),
        (sized(Pattern::RandRead, 12_288), [1, 2, 3, 5, 6, 8, 9, 9, 10, 12]),
    ] {
        assert_eq!(counts(&job, &amounts, 1), expected, "{:?} {:?}", job.rw, job.size);
    }
    // An order that does not cover the region, so there are no passes.
    let free = Job { norandommap: true, ..sized(Pattern::RandRead, 10_000) };
    assert_eq!(counts(&free, &[20_000, 40_000, 50_000], 1), [5, 10, 13]);
    let zipf = Job { distribution: Distribution::Zipf(1.1), ..free };
    assert_eq!(counts(&zipf, &[20_000, 40_000, 50_000], 1), [5, 10, 13]);
    // fio's `--size=24576` applies to both files together.
    for rw in [Pattern::Read, Pattern::RandRead] {
        assert_eq!(counts(&sized(rw, 12_288), &[20_000, 40_000, 50_000], 2), [5, 10, 12], "{rw:?}");
    }
    // A larger block of an unused direction: `--bs=4k,16k`.
    for rw in [Pattern::Read, Pattern::RandRead] {
        let mut job = sized(rw, 12_288);
        job.bs[Direction::Write.index()] = BlockSizes::fixed(16_384);
        assert_eq!(counts(&job, &[10_000, 40_960, 50_000], 1), [3, 9, 9], "{rw:?}");
        assert_eq!(counts(&job, &[50_000, 60_000], 2), [12, 12], "{rw:?}");
    }
    let places: Vec<u64> = {
        let job = Job { io_size: Some(40_000), ..sized(Pattern::Read, 10_000) };
        let region = region(&job, target(1 << 20), 0).unwrap();
        Sequence::new(&job, &[region], 0).map(|piece| piece.offset / 4096).collect()
    };
    assert_eq!(places, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
    // On a loop device; a block that is trimmed and written counts twice between two passes, and once within one.
    assert_eq!(counts(&sized(Pattern::Trim, 12_288), &[40_000], 1), [9]);
    assert_eq!(counts(&sized(Pattern::TrimWrite, 12_288), &[20_000, 40_000], 1), [6, 12]);
    let pairs = Job { number_ios: Some(5), ..sized(Pattern::TrimWrite, 24_576) };
    let all = listed(Sequence::new(&pairs, &[whole(24_576)], 0));
    let expected: Vec<_> =
        (0..5).flat_map(|n| [(0, "trim", n * 4096, 4096), (0, "write", n * 4096, 4096)]).collect();
    assert_eq!(all, expected);
}

/// As fio 3.33 with `--filesize=4m --size=3m --offset_increment=1m --bs=64k` read a file of 8 MiB.
#[test]
fn an_amount_is_never_more_than_what_is_left() {
    let count = |rw, norandommap, number| {
        let job = Job {
            norandommap,
            filesize: Some(4 << 20),
            size: Some(Extent::Bytes(4 << 20)),
            amount: Some(3 << 20),
            offset_increment: Extent::Bytes(1 << 20),
            ..once(rw, 65_536)
        };
        let region = region(&job, target(8 << 20), number).unwrap();
        Sequence::new(&job, &[region], 0).count()
    };
    for (rw, norandommap) in [(Pattern::Read, true), (Pattern::RandRead, true), (Pattern::RandRead, false)] {
        let counts = [0, 1, 2, 3].map(|number| count(rw, norandommap, number));
        assert_eq!(counts, [48, 48, 32, 16], "{rw:?}");
    }
}

#[test]
fn each_block_is_trimmed_and_then_written() {
    let sequence = Sequence::new(&once(Pattern::TrimWrite, 4096), &[whole(8192)], 0);
    assert_eq!(
        listed(sequence),
        [(0, "trim", 0, 4096), (0, "write", 0, 4096), (0, "trim", 4096, 4096), (0, "write", 4096, 4096)]
    );
    let sequence = Sequence::new(&once(Pattern::TrimWrite, 4096), &[whole(4096); 2], 0);
    assert_eq!(
        listed(sequence),
        [(0, "trim", 0, 4096), (1, "trim", 0, 4096), (0, "write", 0, 4096), (1, "write", 0, 4096)]
    );
}

#[test]
fn targets_take_turns_until_each_is_done() {
    let read = once(Pattern::Read, 4096);
    let regions = [whole(8192), whole(4096), Region { begin: 512, ..whole(12_288) }];
    let files: Vec<_> = Sequence::new(&read, &regions, 0).map(|piece| (piece.file, piece.offset)).collect();
    assert_eq!(files, [(0, 0), (1, 0), (2, 512), (0, 4096), (2, 4608), (2, 8704)]);
    let job = Job { io_size: Some(12_000), ..read };
    assert_eq!(Sequence::new(&job, &[whole(16_384); 2], 0).count(), 3);
    assert_eq!(Sequence::new(&job, &[], 0).count(), 0);
    assert_eq!(Sequence::new(&Job { time_based: true, ..job }, &[whole(100)], 0).count(), 0);
}

#[test]
fn reads_and_writes_are_mixed_as_asked_and_each_goes_on_by_itself() {
    for (rw, percent) in [(Pattern::ReadWrite, 70), (Pattern::RandReadWrite, 70), (Pattern::RandReadWrite, 0)]
    {
        let job = Job { rwmixread: percent, ..job(rw, 4096) };
        let pieces: Vec<PlannedIo> = Sequence::new(&job, &[whole(1 << 30)], 0).take(10_000).collect();
        let reads = pieces.iter().filter(|piece| piece.direction == Direction::Read).count();
        assert_eq!(reads, usize::from(percent) * 100);
        let kinds: HashSet<_> =
            pieces.chunks(10).map(|ten| ten.iter().map(|p| p.direction).collect::<Vec<_>>()).collect();
        assert!(percent == 0 || kinds.len() > 100, "in no foreseeable order");
    }
    let mut places = BTreeMap::new();
    for piece in Sequence::new(&job(Pattern::ReadWrite, 4096), &[whole(1 << 30)], 0).take(1_000) {
        let place = places.entry(piece.direction.index()).or_insert(0);
        assert_eq!(piece.offset, *place);
        *place += 4096;
    }
}

#[test]
fn coverage_takes_each_block_once_and_then_in_another_order() {
    for rw in [Pattern::RandRead, Pattern::RandReadWrite, Pattern::RandTrim] {
        let job = Job { norandommap: false, ..job(rw, 4096) };
        let all = offsets(&job, 1_000 * 4096, 0, 3_000);
        let passes: Vec<HashSet<u64>> =
            all.chunks(1_000).map(|pass| pass.iter().copied().collect()).collect();
        assert!(passes.iter().all(|pass| pass.len() == 1_000), "{rw:?}");
        assert_ne!(all[..1_000], all[1_000..2_000]);
        assert_ne!(all[1_000..2_000], all[2_000..]);
    }
}

#[test]
fn blocks_of_several_sizes_cover_each_byte_once_with_their_shares() {
    let mut job = Job { rwmixread: 70, ..once(Pattern::RandReadWrite, 4096) };
    job.bs[Direction::Read.index()] = split(&[(4096, 50.0), (65_536, 50.0)]);
    job.bs[Direction::Write.index()] = split(&[(8192, 100.0)]);
    let mut pieces: Vec<PlannedIo> = Sequence::new(&job, &[whole(1 << 30)], 0).collect();
    let share = |pieces: &[PlannedIo], direction, bytes| {
        let count =
            pieces.iter().filter(|piece| piece.direction == direction && piece.bytes == bytes).count();
        count as f64 / pieces.len() as f64
    };
    for part in [&pieces[..], &pieces[..10_000]] {
        for (direction, bytes, expected) in
            [(Direction::Read, 4096, 0.35), (Direction::Read, 65_536, 0.35), (Direction::Write, 8192, 0.3)]
        {
            let found = share(part, direction, bytes);
            assert!((found - expected).abs() < 0.02, "{direction:?} {bytes}: {found}");
        }
    }
    pieces.sort_unstable_by_key(|piece| piece.offset);
    let end = pieces.iter().fold(0, |end, piece| {
        assert_eq!(piece.offset, end);
        end + u64::from(piece.bytes)
    });
    assert_eq!(end, 1 << 30);
}

#[test]
fn random_blocks_of_several_sizes_reach_every_place_that_has_room_for_them() {
    let mut job = job(Pattern::RandRead, 4096);
    job.bs[Direction::Read.index()] = split(&[(4096, 50.0), (16_384, 50.0)]);
    let mut counts = BTreeMap::new();
    for piece in Sequence::new(&job, &[whole(32_768)], 0).take(40_000) {
        *counts.entry((piece.bytes, piece.offset / 4096)).or_insert(0u32) += 1;
    }
    // 8 offsets for the small blocks, 5 for the large ones.
    assert_eq!(counts.len(), 13);
    for ((bytes, _), count) in counts {
        let expected = if bytes == 4096 { 2_500 } else { 4_000 };
        assert!(count.abs_diff(expected) < 350, "{bytes}: {count}");
    }
}

#[test]
fn a_distribution_does_not_cover() {
    let zipf = Job { distribution: Distribution::Zipf(1.2), ..once(Pattern::RandRead, 4096) };
    let seen: HashSet<u64> = offsets(&zipf, 1_000 * 4096, 0, 2_000).into_iter().collect();
    assert!(seen.len() < 600, "{}", seen.len());
    assert_eq!(Sequence::new(&zipf, &[whole(1_000 * 4096)], 0).count(), 1_000);
    let zones = Job { distribution: Distribution::Zoned(vec![(100.0, 10.0), (0.0, 90.0)]), ..zipf };
    assert!(offsets(&zones, 1_000 * 4096, 0, 1_000).iter().all(|offset| *offset < 100 * 4096));
}

#[test]
fn a_job_beyond_sense_ends_quietly() {
    let mut strange = once(Pattern::RandReadWrite, 0);
    strange.rwmixread = 255;
    strange.numjobs = 0;
    assert!(Sequence::new(&strange, &[whole(1_000)], 9).take(10_000).all(|piece| piece.offset < 1_000));
    strange.bs =
        std::array::from_fn(|_| BlockSizes(vec![BlockShare { low: 8192, high: 1, percent: f64::NAN }]));
    for region in [whole(0), whole(1 << 20)] {
        let end = region.begin + region.bytes;
        let pieces = Sequence::new(&strange, &[region], u32::MAX).take(10_000);
        assert!(pieces.map(|piece| piece.offset + u64::from(piece.bytes)).all(|last| last <= end));
    }
}

#[test]
fn what_was_written_is_read_back() {
    let mut mixed = once(Pattern::RandReadWrite, 4096);
    mixed.bs[Direction::Write.index()] = split(&[(4096, 50.0), (16_384, 50.0)]);
    for job in
        [once(Pattern::Write, 4096), once(Pattern::RandWrite, 4096), mixed, once(Pattern::TrimWrite, 4096)]
    {
        let regions = [whole(1 << 20)];
        let mut sequence = Sequence::new(&job, &regions, 0);
        let written: Vec<_> = sequence.by_ref().filter(|piece| piece.direction == Direction::Write).collect();
        let read: Vec<_> = sequence.read_back(&job, &regions, 0, 0).collect();
        assert!(!read.is_empty() && read.iter().all(|piece| piece.direction == Direction::Read));
        let as_read = |piece: PlannedIo| PlannedIo { direction: Direction::Read, ..piece };
        assert_eq!(read, written.into_iter().map(as_read).collect::<Vec<_>>());
    }
}

#[test]
fn only_what_was_handed_out_is_read_back_and_nothing_that_was_trimmed_last() {
    let regions = [whole(8192)];
    let random = job(Pattern::RandWrite, 4096);
    let mut sequence = Sequence::new(&random, &regions, 0);
    assert_eq!(sequence.by_ref().take(7).count(), 7);
    assert_eq!(sequence.read_back(&random, &regions, 0, 0).count(), 7);

    let again = job(Pattern::Write, 4096);
    let mut sequence = Sequence::new(&again, &regions, 0);
    assert_eq!(sequence.by_ref().take(7).count(), 7);
    assert_eq!(sequence.read_back(&again, &regions, 0, 0).count(), 2, "one pass has all");

    let trimmed = job(Pattern::TrimWrite, 4096);
    let mut sequence = Sequence::new(&trimmed, &regions, 0);
    // Both blocks, and the first is trimmed again.
    assert_eq!(sequence.by_ref().take(5).count(), 5);
    assert_eq!(listed(sequence.read_back(&trimmed, &regions, 0, 0)), [(0, "read", 4096, 4096)]);
}

fn sizes() -> impl Strategy<Value = BlockSizes> {
    let bytes = (1u64..9).prop_map(|n| n * 512);
    let share = (bytes, 1u64..5, 0.1f64..100.0).prop_map(|(low, times, percent)| BlockShare {
        low,
        high: low * times,
        percent,
    });
    prop_oneof![
        (1u64..65).prop_map(|n| BlockSizes::fixed(n * 512)),
        prop::collection::vec(share, 1..4).prop_map(BlockSizes),
    ]
}

fn distribution() -> impl Strategy<Value = Distribution> {
    prop_oneof![
        4 => Just(Distribution::Uniform),
        1 => (0.1f64..3.0).prop_map(Distribution::Zipf),
        1 => (0.01f64..0.99).prop_map(Distribution::Pareto),
        1 => (0.0f64..100.0).prop_map(Distribution::Normal),
        1 => Just(Distribution::Zoned(vec![(60.0, 10.0), (40.0, 90.0)])),
    ]
}

prop_compose! {
    fn jobs()(
        rw in prop::sample::select(&Pattern::ALL),
        bs in [sizes(), sizes(), sizes()],
        distribution in distribution(),
        (norandommap, share_offsets, time_based) in any::<(bool, bool, bool)>(),
        rwmixread in 0u8..=100,
        numjobs in 1u32..5,
        seed: u64,
        io_size in prop::option::of(1u64..1 << 20),
    ) -> Job {
        Job {
            rw, bs, distribution, norandommap, share_offsets, time_based, rwmixread, numjobs, seed, io_size,
            ..Job::new(Target::Existing("x".into()))
        }
    }
}

/// The regions of a thread on targets of these sizes, as computed by [`region`].
fn regions(job: &Job, targets: &[u64], number: u32) -> Vec<Region> {
    targets.iter().map(|bytes| region(job, target(*bytes), number).unwrap()).collect()
}

proptest! {
    #[test]
    fn every_piece_keeps_to_its_region_and_to_the_job(
        job in jobs(), targets in prop::collection::vec(32_768u64..1 << 20, 1..4), offset in 0u64..8, number in 0u32..5
    ) {
        let job = Job { offset: Extent::Bytes(offset * 512), ..job };
        let targets: Vec<u64> = targets.iter().map(|bytes| bytes + offset * 512).collect();
        let regions = regions(&job, &targets, number);
        let is_contiguous = !job.rw.is_random() || (job.distribution == Distribution::Uniform && !job.norandommap);
        for piece in Sequence::new(&job, &regions, number).take(2_000) {
            let region = regions[usize::from(piece.file)];
            prop_assert!(piece.offset >= region.begin);
            prop_assert!(piece.offset + u64::from(piece.bytes) <= region.begin + region.bytes);
            prop_assert!(job.rw.has(piece.direction));
            // A write after a trim has the size of the trim.
            let kind = if job.rw == Pattern::TrimWrite { Direction::Trim } else { piece.direction };
            let sizes = &job.bs[kind.index()];
            let fits = |share: &BlockShare| {
                (share.low..=share.high).contains(&piece.bytes.into()) && u64::from(piece.bytes).is_multiple_of(share.low)
            };
            prop_assert!(sizes.0.iter().any(fits), "{piece:?}");
            let unit = if is_contiguous {
                grain(job.directions().map(|direction| &job.bs[direction.index()]))
            } else {
                sizes.smallest()
            };
            prop_assert!((piece.offset - region.begin).is_multiple_of(unit));
        }
    }

    #[test]
    fn all_of_size_is_done_and_no_more(
        job in jobs(), targets in prop::collection::vec(32_768u64..1 << 18, 1..4), number in 0u32..5
    ) {
        let job = Job { time_based: false, ..job };
        let regions = regions(&job, &targets, number);
        let sequence = Sequence::new(&job, &regions, number);
        let counted = sequence.filter(|piece| job.rw != Pattern::TrimWrite || piece.direction == Direction::Write);
        let sum: u64 = counted.map(|piece| u64::from(piece.bytes)).sum();
        match job.io_size {
            Some(bytes) => {
                prop_assert!(sum < bytes + job.largest_block());
                // A pass may end earlier.
                let is_mix = matches!(job.rw, Pattern::ReadWrite | Pattern::RandReadWrite);
                let largest = job.bs.iter().map(BlockSizes::largest).max().unwrap_or(0);
                let times = if job.rw == Pattern::TrimWrite { 2 } else { 1 };
                prop_assert!(sum >= bytes || !is_mix && sum * times + largest > bytes, "{sum} {bytes}");
            }
            None if job.rw.is_random() && (job.norandommap || job.distribution != Distribution::Uniform) => {
                let all: u64 = regions.iter().map(|region| region.moved).sum();
                prop_assert!(sum >= all && sum - all < job.largest_block(), "{sum} {all}");
            }
            None => {
                let all: u64 = regions.iter().map(|region| region.bytes).sum();
                // On each target, less than one block of the used direction is left.
                prop_assert!(sum <= all && all - sum < job.largest_block() * regions.len() as u64);
                let smallest = job.smallest_block();
                let is_whole = job.directions().all(|direction| {
                    job.bs[direction.index()].0.iter().all(|share| share.low == smallest && share.high < 2 * smallest)
                });
                prop_assert!(!is_whole || sum == all, "{sum} {all}");
            }
        }
    }
}

proptest! {
    /// Threads in any order, on the same targets, with overlapping blocks, stopped at any point.
    #[test]
    fn what_threads_wrote_verifies(
        job in jobs(),
        rw in prop::sample::select(Pattern::ALL.into_iter().filter(|rw| rw.has(Direction::Write)).collect::<Vec<_>>()),
        // Room for the largest block after the last increment.
        targets in prop::collection::vec(300_000u64..400_000, 1..3),
        turns in prop::collection::vec(0usize..4, 0..400),
        is_finished: bool,
        increment in 0u64..3,
    ) {
        let job = Job { rw, ..job };
        // Other threads may have trimmed what one has written, unless all write it again.
        let threads = if job.rw == Pattern::TrimWrite && !is_finished { 1 } else { job.numjobs };
        let grain = grain(job.directions().map(|direction| &job.bs[direction.index()]));
        let offset_increment = Extent::Bytes(increment * grain);
        let job = Job { verify: true, numjobs: threads, offset_increment, ..job };
        let mut disks: Vec<Vec<u8>> = targets.iter().map(|bytes| vec![0xaa; *bytes as usize]).collect();
        let mut all: Vec<_> = (0..threads)
            .map(|number| {
                let regions = regions(&job, &targets, number);
                (Sequence::new(&job, &regions, number), Content::new(&job, number), regions)
            })
            .collect();
        let mut step = |(sequence, content, _): &mut (Sequence, Content, Vec<Region>)| {
            let Some(piece) = sequence.next() else { return false };
            let place = piece.offset as usize..piece.offset as usize + piece.bytes as usize;
            let bytes = &mut disks[usize::from(piece.file)][place];
            match piece.direction {
                Direction::Read => {}
                Direction::Write => content.write(bytes, piece.offset),
                Direction::Trim => bytes.fill(0),
            }
            true
        };
        for turn in turns {
            step(&mut all[turn % threads as usize]);
        }
        if is_finished {
            for thread in &mut all {
                thread.0.finish();
                while step(thread) {}
            }
        }
        for (number, (sequence, content, regions)) in all.iter().enumerate() {
            for piece in sequence.read_back(&job, regions, number as u32, 0) {
                let place = piece.offset as usize..piece.offset as usize + piece.bytes as usize;
                let checked = content.check(&disks[usize::from(piece.file)][place], piece.offset);
                prop_assert_eq!(checked, Ok(()));
            }
        }
    }
}
