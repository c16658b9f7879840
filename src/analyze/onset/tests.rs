use proptest::prelude::*;

use super::*;

const GB: f64 = 1e9;
const SECOND: u64 = 1_000_000_000;

/// Pseudo-random numbers, equal for equal seeds.
struct Noise(u64);

impl Noise {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Normally distributed with mean 0 and standard deviation 1.
    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.uniform()).ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// A sample's state before noise: bytes and pages per second, bytes, percent.
#[derive(Clone, Copy)]
struct State {
    throughput: f64,
    free: f64,
    reclaim: f64,
    spin: f64,
}

const CALM: State = State { throughput: 6.8e9, free: 40.0 * GB, reclaim: 0.0, spin: 1.0 };
const STORM: State = State { throughput: 3.2e9, free: 1.3 * GB, reclaim: 800_000.0, spin: 60.0 };

/// A run of one-second samples with the given states; `noise` is relative to each value.
fn run(count: usize, seed: u64, noise: f64, state: impl Fn(usize) -> State) -> Vec<MemorySample> {
    let mut random = Noise(seed);
    let mut noisy = |value: f64| (value * (1.0 + noise * random.normal())).max(0.0);
    let one = |at: usize| {
        let state = state(at);
        let spin = noisy(state.spin).min(100.0);
        MemorySample {
            at_ns: (at as u64 + 1) * SECOND,
            duration_ns: SECOND,
            read_bytes: Some(noisy(state.throughput) as u64),
            free_bytes: Some(noisy(state.free) as u64),
            scanned_pages: Some(noisy(state.reclaim) as u64),
            spin_percent: Some((spin * 0.8, spin * 1.2)),
            ..MemorySample::default()
        }
    };
    (0..count).map(one).collect()
}

/// Free memory falls until `at`, and then everything changes.
fn storm(count: usize, at: usize, seed: u64, noise: f64) -> Vec<MemorySample> {
    run(count, seed, noise, |second| match second < at {
        true => State { free: (at - second) as f64 * 4.0 * GB + 2.0 * GB, ..CALM },
        false => STORM,
    })
}

#[test]
fn an_onset_is_found_where_it_was_planted() {
    // Five samples on either side show a change only with little noise.
    for noise in [0.0, 0.02, 0.1] {
        let runs = [(10, 5), (20, 12), (60, 35), (120, 20), (120, 100)];
        for (count, at) in runs.into_iter().filter(|(count, _)| *count > 10 || noise < 0.1) {
            for seed in 0..40 {
                let found = onset(&storm(count, at, seed, noise));
                let found = found.unwrap_or_else(|why| panic!("{noise} {count} {at} {seed}: {why:?}"));
                let second = (found.at_ns / SECOND) as usize - 1;
                assert!(second.abs_diff(at) <= 1, "{noise} {count} {at} {seed}: {second}");
                assert_eq!(found.after_ns + SECOND, found.at_ns);
                // With few samples and much noise a signal may miss its bound.
                assert!(
                    found.moved.len() >= if noise < 0.1 { 4 } else { 2 },
                    "{noise} {count} {at} {found:?}"
                );
            }
        }
    }
}

#[test]
fn levels_are_those_before_and_behind_with_their_interval() {
    let found = onset(&storm(60, 35, 7, 0.05)).unwrap();
    let throughput = found.of(Signal::Throughput).unwrap();
    for (level, truth, count) in [(throughput.before, 6.8e9, 35), (throughput.after, 3.2e9, 25)] {
        assert!(level.low < truth && truth < level.high, "{level:?}");
        assert!((level.mean / truth - 1.0).abs() < 0.05 && level.moments == count, "{level:?}");
    }
    let spin = found.of(Signal::Spin).unwrap();
    assert!((spin.before.mean - 1.0).abs() < 0.5 && (spin.after.mean - 60.0).abs() < 4.0, "{spin:?}");
    assert!(found.of(Signal::System).is_none(), "spinning is kernel time");
}

/// Of runs whose truth is known, the interval contains it in 95 of 100.
#[test]
fn an_interval_holds_the_truth_as_often_as_it_says() {
    let mut held = 0;
    for seed in 0..400 {
        let after = onset(&storm(40, 20, seed, 0.05)).unwrap().of(Signal::Throughput).unwrap().after;
        held += usize::from(after.low <= 3.2e9 && 3.2e9 <= after.high);
    }
    assert!((368..=396).contains(&held), "{held} of 400");
    for (degrees, exact) in [(2, 4.303), (4, 2.776), (9, 2.262), (30, 2.042), (1000, 1.962)] {
        assert!((student(degrees) / exact - 1.0).abs() < 0.01, "{degrees}: {}", student(degrees));
    }
}

#[test]
fn what_moved_first_is_named() {
    let staggered = |second: usize| State {
        free: if second < 30 { (30 - second) as f64 * 4.0 * GB + 2.0 * GB } else { STORM.free },
        reclaim: if second < 30 { 0.0 } else { STORM.reclaim },
        spin: if second < 32 { CALM.spin } else { STORM.spin },
        throughput: if second < 33 { CALM.throughput } else { STORM.throughput },
    };
    for seed in 0..40 {
        let found = onset(&run(80, seed, 0.03, staggered)).unwrap();
        let second = |signal| found.of(signal).unwrap().at_ns / SECOND - 1;
        assert!(found.first.iter().all(|signal| signal.is_memory()), "{seed}: {found:?}");
        for (signal, at) in [(Signal::Reclaim, 30u64), (Signal::Spin, 32), (Signal::Throughput, 33)] {
            assert!(second(signal).abs_diff(at) <= 1, "{seed}: {signal:?} at {}", second(signal));
        }
        assert!((29..=34).contains(&(found.at_ns / SECOND - 1)), "{seed}: {found:?}");
    }
    // Simultaneous changes: in the order in which trouble spreads.
    let found = onset(&storm(60, 35, 1, 0.0)).unwrap();
    let order: Vec<Signal> = found.moved.iter().map(|moved| moved.signal).collect();
    assert_eq!(order, [Signal::Free, Signal::Reclaim, Signal::Spin, Signal::Throughput]);
    assert_eq!(found.first, order);
}

/// Over many seeds, lengths and noise levels: the rate stated in the module's documentation.
#[test]
fn noise_alone_has_no_onset() {
    let (mut series, mut found) = (0, 0);
    for count in [10, 12, 20, 60, 120] {
        for noise in [0.02, 0.1, 0.3, 0.6] {
            for seed in 0..100 {
                let level = State { reclaim: 50_000.0, spin: 20.0, ..CALM };
                series += 1;
                found += usize::from(onset(&run(count, seed * 31 + count as u64, noise, |_| level)).is_ok());
            }
        }
    }
    println!("{found} of {series}");
    assert!(found * 1_000 <= series, "{found} of {series}");
}

/// Each second resembles the one before, as in real series; least squares assumes independence.
#[test]
fn noise_that_wanders_has_hardly_ever_an_onset() {
    let mut found = 0;
    for seed in 0..400 {
        let mut random = Noise(seed);
        let mut state = [0.0f64; 4];
        let mut moments = Vec::new();
        for second in 0..80u64 {
            state.iter_mut().for_each(|s| *s = 0.7 * *s + 0.7 * random.normal());
            let value = |i: usize, level: f64, noise: f64| (level * (1.0 + noise * state[i])).max(0.0);
            moments.push(MemorySample {
                at_ns: (second + 1) * SECOND,
                duration_ns: SECOND,
                read_bytes: Some(value(0, 6.8e9, 0.15) as u64),
                free_bytes: Some(value(1, 10e9, 0.3) as u64),
                scanned_pages: Some(value(2, 50_000.0, 0.3) as u64),
                spin_percent: Some((0.0, value(3, 40.0, 0.2))),
                ..MemorySample::default()
            });
        }
        found += usize::from(onset(&moments).is_ok());
    }
    println!("{found} of 400");
    assert!(found <= 4, "{found} of 400");
}

#[test]
fn flat_drifting_and_periodic_series_have_none() {
    let steady = |moments: &[MemorySample]| assert_eq!(onset(moments), Err(NoOnset::Steady));
    for seed in 0..20 {
        for noise in [0.0, 0.05] {
            steady(&run(60, seed, noise, |_| CALM));
            // Everything becomes worse, but gradually.
            steady(&run(60, seed, noise, |second| State {
                throughput: 6.8e9 - second as f64 * 6e7,
                free: (62 - second) as f64 * 0.6 * GB,
                reclaim: second as f64 * 10_000.0,
                spin: second as f64,
            }));
            // A load that comes and goes, at either phase.
            for (period, phase) in [(6, 0), (14, 3), (20, 7), (20, 0), (30, 15)] {
                steady(&run(
                    120,
                    seed,
                    noise,
                    |second| {
                        if (second + phase) / period % 2 == 0 { CALM } else { STORM }
                    },
                ));
            }
            // A change that reverts.
            steady(&run(60, seed, noise, |second| if (20..40).contains(&second) { STORM } else { CALM }));
        }
    }
}

/// A load that begins moves all signals; neither that nor its end is trouble.
#[test]
fn a_load_that_begins_or_ends_is_no_onset() {
    let idle = State { throughput: 0.0, spin: 0.0, ..CALM };
    let trickle = State { throughput: 1e9, spin: 0.0, ..CALM };
    for seed in 0..20 {
        for quiet in [idle, trickle] {
            let begins = run(60, seed, 0.03, |second| if second < 20 { quiet } else { STORM });
            assert!(onset(&begins).is_err(), "{seed}");
            let ends = run(60, seed, 0.03, |second| if second < 40 { STORM } else { idle });
            assert!(onset(&ends).is_err(), "{seed}");
        }
        let whole = |second: usize| match second {
            0..10 => idle,
            // The load ramps up.
            10..14 => State { throughput: (second - 9) as f64 * 1.4e9, ..CALM },
            14..40 => CALM,
            40..70 => STORM,
            _ => idle,
        };
        let found = onset(&run(80, seed, 0.03, whole)).unwrap();
        assert!((found.at_ns / SECOND - 1).abs_diff(40) <= 1, "{seed}: {found:?}");
    }
}

#[test]
fn memory_that_runs_out_without_harm_is_none() {
    let harmless = |second: usize| State {
        free: if second < 30 { (30 - second) as f64 * 4.0 * GB + 2.0 * GB } else { STORM.free },
        reclaim: if second < 30 { 0.0 } else { STORM.reclaim },
        ..CALM
    };
    assert_eq!(onset(&run(60, 3, 0.03, harmless)), Err(NoOnset::Steady));
    let no_memory =
        |second: usize| if second < 30 { CALM } else { State { free: CALM.free, reclaim: 0.0, ..STORM } };
    assert_eq!(onset(&run(60, 3, 0.03, no_memory)), Err(NoOnset::Steady), "other trouble");
}

/// Each signal's minimum size, from both sides.
#[test]
fn a_change_has_a_least_size() {
    let both = |after: State| {
        let at = |second| if second < 20 { State { reclaim: 20_000.0, spin: 5.0, ..CALM } } else { after };
        onset(&run(40, 1, 0.0, at)).map(|found| found.moved.iter().map(|m| m.signal).collect::<Vec<_>>())
    };
    let worse = State { throughput: 3e9, free: 1.0 * GB, reclaim: 20_000.0, spin: 5.0 };
    assert_eq!(both(worse), Ok(vec![Signal::Free, Signal::Throughput]));
    let has = |after, signal| both(after).is_ok_and(|moved| moved.contains(&signal));
    assert!(has(State { throughput: 6.8e9 * 0.849, ..worse }, Signal::Throughput));
    assert!(!has(State { throughput: 6.8e9 * 0.851, ..worse }, Signal::Throughput));
    assert!(has(State { free: 19.9 * GB, ..worse }, Signal::Free));
    assert!(!has(State { free: 20.1 * GB, reclaim: 90_000.0, ..worse }, Signal::Free));
    assert!(has(State { reclaim: 40_100.0, ..worse }, Signal::Reclaim));
    assert!(!has(State { reclaim: 39_900.0, ..worse }, Signal::Reclaim));
    assert!(has(State { spin: 10.1, ..worse }, Signal::Spin));
    assert!(!has(State { spin: 9.9, ..worse }, Signal::Spin));
}

#[test]
fn what_is_not_known_is_not_needed() {
    let all = storm(60, 35, 5, 0.05);
    let without = |change: fn(&mut MemorySample)| {
        let mut moments = all.clone();
        moments.iter_mut().for_each(change);
        onset(&moments)
    };
    for change in [
        (|moment| moment.free_bytes = None) as fn(&mut MemorySample),
        |moment| moment.scanned_pages = None,
        |moment| moment.spin_percent = None,
        |moment| moment.read_bytes = None,
        |moment| moment.spin_percent = Some((f64::NAN, 1.0)),
        // Every third value is unknown.
        |moment| moment.free_bytes = moment.free_bytes.filter(|_| !(moment.at_ns / SECOND).is_multiple_of(3)),
    ] {
        let found = without(change).unwrap();
        assert!((found.at_ns / SECOND - 1).abs_diff(35) <= 1, "{found:?}");
    }
    let kernel = without(|moment| {
        moment.system_percent = moment.spin_percent.map(|(_, high)| high);
        moment.spin_percent = None;
    });
    assert!(kernel.unwrap().of(Signal::System).is_some(), "kernel time stands in for spinning");
    assert_eq!(
        without(|moment| (moment.free_bytes, moment.scanned_pages) = (None, None)),
        Err(NoOnset::TooLittleKnown)
    );
    assert_eq!(
        without(|moment| (moment.read_bytes, moment.spin_percent) = (None, None)),
        Err(NoOnset::TooLittleKnown)
    );
}

#[test]
fn a_gap_widens_the_place_and_hides_nothing() {
    let mut moments = storm(60, 35, 9, 0.05);
    moments.drain(30..40);
    let found = onset(&moments).unwrap();
    assert_eq!((found.after_ns, found.at_ns), (30 * SECOND, 41 * SECOND));
    // A duplicate, one out of order, one without a length.
    let mut odd = storm(60, 35, 9, 0.05);
    odd.insert(10, odd[9]);
    odd.insert(20, odd[3]);
    odd.insert(30, MemorySample { at_ns: 30 * SECOND + 1, ..MemorySample::default() });
    assert_eq!(onset(&odd), onset(&storm(60, 35, 9, 0.05)));
}

/// Everything is worse on either side of a gap, which a slope across it could also cause: undecidable.
#[test]
fn a_slope_across_a_gap_is_no_onset() {
    for noise in [0.0, 0.03] {
        for seed in 0..40 {
            let slope = |second: usize| State {
                throughput: 6.8e9 - second as f64 * 5e7,
                free: (82 - second) as f64 * 0.5 * GB,
                reclaim: second as f64 * 10_000.0,
                spin: second as f64,
            };
            let mut moments = run(80, seed, noise, slope);
            moments.drain(10..70);
            assert_eq!(onset(&moments), Err(NoOnset::Steady), "{noise} {seed}");
        }
    }
}

#[test]
fn too_short_a_series_says_so() {
    for count in 0..10 {
        assert_eq!(onset(&storm(count, count / 2, 1, 0.0)), Err(NoOnset::TooShort), "{count}");
    }
    let known = |at| onset(&storm(20, at, 1, 0.0)).is_ok();
    assert!(known(5) && known(15), "five on either side");
    assert!(!known(3) && !known(17));
}

/// Ten samples per second for ten minutes: cut in steps of fifteen samples, and positioned to a single sample.
#[test]
fn a_long_run_is_placed_by_the_moment() {
    let mut moments = run(6_000, 11, 0.1, |at| match at < 4_321 {
        true => State { free: (4_321 - at) as f64 * 0.04 * GB + 2.0 * GB, ..CALM },
        false => STORM,
    });
    for (at, moment) in moments.iter_mut().enumerate() {
        (moment.at_ns, moment.duration_ns) = ((at as u64 + 1) * SECOND / 10, SECOND / 10);
    }
    let found = onset(&moments).unwrap();
    assert!((found.at_ns / (SECOND / 10) - 1).abs_diff(4_321) <= 1, "{found:?}");
}

fn any_moment() -> impl Strategy<Value = MemorySample> {
    let percent = || proptest::option::of(-1e9..1e9f64);
    let bytes = || proptest::option::of(any::<u64>());
    (any::<[u64; 2]>(), [bytes(), bytes(), bytes(), bytes()], [percent(), percent(), percent()]).prop_map(
        |(
            [at_ns, duration_ns],
            [read_bytes, written_bytes, free_bytes, scanned_pages],
            [low, high, system],
        )| {
            MemorySample {
                at_ns,
                duration_ns,
                read_bytes,
                written_bytes,
                free_bytes,
                scanned_pages,
                spin_percent: low.zip(high),
                system_percent: system,
                ..MemorySample::default()
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn anything_never_panics(mut moments in proptest::collection::vec(any_moment(), 0..60), sorted: bool) {
        if sorted {
            moments.sort_by_key(|moment| moment.at_ns);
        }
        if let Ok(found) = onset(&moments) {
            prop_assert!(found.after_ns < found.at_ns && found.moved.len() >= 2 && !found.first.is_empty());
            prop_assert!(moments.iter().any(|moment| moment.at_ns == found.at_ns));
        }
    }

    /// At any position, of any relevant size, in any noise that leaves it visible.
    #[test]
    fn a_planted_onset_is_found_within_one_moment(
        count in 20usize..120, at in 0.3..0.7f64, seed: u64, noise in 0.0..0.08f64, left in 0.3..0.6f64,
    ) {
        let at = (count as f64 * at) as usize;
        let worse = State { throughput: CALM.throughput * left, ..STORM };
        let moments = run(count, seed, noise, |second| if second < at { CALM } else { worse });
        let found = onset(&moments);
        prop_assert!(found.is_ok(), "{found:?}");
        prop_assert!(((found.unwrap().at_ns / SECOND) as usize - 1).abs_diff(at) <= 1);
    }
}
