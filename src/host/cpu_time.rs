//! Reads the kernel's accounting of CPU time (`/proc/stat`, `/proc/schedstat`) and the topology of the CPUs.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;

use super::attribute::{file, number, text};
use super::cpu;

/// The columns of a CPU's line. Guest time is not one of them, because the kernel also counts it in `user` (or `nice`).
pub const COLUMNS: [&str; 8] = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];

/// The unit of a column. It is fixed for x86-64 (USER_HZ), whatever the kernel's own tick is.
pub const TICK_NS: u64 = 10_000_000;

/// More CPUs than the kernel can be built for: a garbled file must not cost gigabytes.
const MOST_CPUS: u32 = 8192;

/// The time of one CPU since it started, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In the order of [`COLUMNS`]. Each is rounded down to whole ticks.
    pub columns: [u64; 8],
    /// The part of `user` and `nice` that ran virtual machines. None if the kernel does not give it.
    pub guest_ns: Option<u64>,
}

/// Why the wake-up counts are unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoWakeups {
    /// No `/proc/schedstat`.
    NoFile,
    /// The kernel can count wake-ups, but counting is switched off.
    Off,
    /// The format is not supported.
    Format,
}

impl fmt::Display for NoWakeups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoFile => "this kernel has no /proc/schedstat (CONFIG_SCHEDSTATS)",
            Self::Off => "the kernel's scheduler statistics are switched off (kernel.sched_schedstats)",
            Self::Format => "/proc/schedstat has an unknown format",
        })
    }
}

/// The accounting of all CPUs at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuReading {
    /// CLOCK_MONOTONIC at the middle of the read.
    pub at_ns: u64,
    /// Duration of the read: the time stamp is off by at most half of it.
    pub took_ns: u64,
    /// Only online CPUs have a line.
    pub cpus: BTreeMap<u32, CpuTime>,
    pub context_switches: Option<u64>,
    /// Processes and threads that were created.
    pub processes: Option<u64>,
    /// Tasks that each CPU woke. The kernel's counter has 32 bits and wraps.
    pub wakeups: Result<BTreeMap<u32, u32>, NoWakeups>,
}

impl CpuReading {
    /// Reads below `root`. `now_ns` is called before and after the read, because the host modules have no clock.
    pub fn read(root: &Path, now_ns: impl Fn() -> u64) -> Self {
        let before = now_ns();
        let stat = file(&root.join("proc/stat")).unwrap_or_default();
        let took_ns = now_ns().saturating_sub(before);
        let mut reading = parse_stat(&stat);
        (reading.at_ns, reading.took_ns) = (before + took_ns / 2, took_ns);
        reading.wakeups = match file(&root.join("proc/schedstat")) {
            Err(_) => Err(NoWakeups::NoFile),
            // The counters exist but do not change. A kernel that cannot switch them has no such file.
            Ok(_) if number(&root.join("proc/sys/kernel/sched_schedstats")) == Some(0u32) => {
                Err(NoWakeups::Off)
            }
            Ok(schedstat) => parse_schedstat(&schedstat),
        };
        reading
    }
}

/// Parses the text of `/proc/stat`. A damaged line is left out; the caller adds the time stamps and the wake-ups.
pub fn parse_stat(stat: &str) -> CpuReading {
    let mut reading = CpuReading {
        at_ns: 0,
        took_ns: 0,
        cpus: BTreeMap::new(),
        context_switches: None,
        processes: None,
        wakeups: Err(NoWakeups::NoFile),
    };
    for line in stat.lines() {
        let Some((key, rest)) = line.split_once(' ') else { continue };
        match key {
            "ctxt" => reading.context_switches = rest.trim().parse().ok(),
            "processes" => reading.processes = rest.trim().parse().ok(),
            _ => {
                // `cpu` alone is the sum of all CPUs.
                let found = cpu_number(key).and_then(|cpu| Some((cpu, cpu_time(rest)?)));
                reading.cpus.extend(found);
            }
        }
    }
    reading
}

fn cpu_number(key: &str) -> Option<u32> {
    key.strip_prefix("cpu")?.parse().ok().filter(|cpu| *cpu < MOST_CPUS)
}

fn cpu_time(rest: &str) -> Option<CpuTime> {
    let ns = |word: &str| word.parse::<u64>().ok()?.checked_mul(TICK_NS);
    let mut words = rest.split_ascii_whitespace();
    let mut columns = [0; 8];
    for column in &mut columns {
        *column = ns(words.next()?)?;
    }
    let guest = words.next().and_then(ns).zip(words.next().and_then(ns));
    Some(CpuTime { columns, guest_ns: guest.and_then(|(guest, nice)| guest.checked_add(nice)) })
}

/// Parses `ttwu_count` of each CPU from the text of `/proc/schedstat`.
pub fn parse_schedstat(schedstat: &str) -> Result<BTreeMap<u32, u32>, NoWakeups> {
    let version = schedstat.lines().find_map(|line| line.strip_prefix("version ")?.trim().parse().ok());
    // From version 15 (Linux 2.6.36) to 17 (6.13) only the lines of domains changed.
    if !version.is_some_and(|version: u32| (15..=17).contains(&version)) {
        return Err(NoWakeups::Format);
    }
    let mut woken = BTreeMap::new();
    for line in schedstat.lines() {
        let Some((key, rest)) = line.split_once(' ') else { continue };
        let Some(cpu) = cpu_number(key) else { continue };
        // The fields: yld_count, a legacy field, sched_count, sched_goidle, ttwu_count.
        let count = rest.split_ascii_whitespace().nth(4).and_then(|word| word.parse().ok());
        // If one CPU were left out, the sum would be too low.
        woken.insert(cpu, count.ok_or(NoWakeups::Format)?);
    }
    if woken.is_empty() { Err(NoWakeups::Format) } else { Ok(woken) }
}

/// Which CPUs share a socket, and which share a physical core.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topology {
    /// The socket of each CPU for which the kernel gives one.
    pub sockets: BTreeMap<u32, u32>,
    /// The hardware threads of each core. A CPU without topology counts as a core of its own.
    pub cores: Vec<Vec<u32>>,
}

impl Topology {
    /// Reads `/sys/devices/system/cpu/cpuN/topology`.
    pub fn read(root: &Path, cpus: &[u32]) -> Self {
        let system = root.join("sys/devices/system/cpu");
        let socket = |cpu: &u32| {
            // -1 if the firmware does not give it; it does not parse as u32, so the CPU has no socket.
            let id = number(&system.join(format!("cpu{cpu}/topology/physical_package_id")))?;
            Some((*cpu, id))
        };
        Self { sockets: cpus.iter().filter_map(socket).collect(), cores: cpu::cores(root, cpus) }
    }
}

/// A kernel's configuration has about 300 KB; this bounds the cost of a damaged file.
const LONGEST_CONFIG: u64 = 16 << 20;

/// Whether the kernel times interrupts with a clock. If not, the columns `irq` and `softirq` count the ticks that found
/// an interrupt, and an interrupt between two ticks counts as the work that it interrupted. None: unknown, because the
/// kernel's configuration cannot be read.
pub fn interrupts_timed(root: &Path) -> Option<bool> {
    let release = text(&root.join("proc/sys/kernel/osrelease"))?;
    // A release string from a file must not lead to another directory.
    let at = |directory: &str, name: &str| (!release.contains('/')).then(|| root.join(directory).join(name));
    let boot = at("boot", &format!("config-{release}"));
    let modules = at("lib/modules", &format!("{release}/config"));
    let config = unpacked(&root.join("proc/config.gz"));
    let config =
        config.or_else(|| [boot, modules].into_iter().flatten().find_map(|path| file(&path).ok()))?;
    parse_config(&config)
}

/// Decompresses a gzip file; None if it is not one, or is damaged.
fn unpacked(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    GzDecoder::new(File::open(path).ok()?).take(LONGEST_CONFIG).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn parse_config(config: &str) -> Option<bool> {
    let has = |line: &str| config.lines().any(|found| found == line);
    // The second option belongs to other architectures; it times everything.
    if has("CONFIG_IRQ_TIME_ACCOUNTING=y") || has("CONFIG_VIRT_CPU_ACCOUNTING_NATIVE=y") {
        return Some(true);
    }
    // A truncated file must not count as a no.
    config.lines().any(|line| line.starts_with("CONFIG_HZ=")).then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STAT: &str = "cpu  30 0 0 0 0 0 0 0 0 0\ncpu0 10 1 20 300 40 5 6 7 3 2\ncpu2 20 0 0 0 0 0 0 0\n\
                        intr 5 1 2\nctxt 160740659\nbtime 1\nprocesses 77\nprocs_running 2\n";

    #[test]
    fn each_cpu_has_its_columns() {
        let reading = parse_stat(STAT);
        assert_eq!(
            reading.cpus.keys().copied().collect::<Vec<_>>(),
            [0, 2],
            "not the sum, not what is offline"
        );
        assert_eq!(reading.cpus[&0].columns, [10, 1, 20, 300, 40, 5, 6, 7].map(|ticks| ticks * TICK_NS));
        assert_eq!(reading.cpus[&0].guest_ns, Some(5 * TICK_NS));
        assert_eq!(reading.cpus[&2].guest_ns, None, "not told is not zero");
        assert_eq!((reading.context_switches, reading.processes), (Some(160_740_659), Some(77)));
    }

    #[test]
    fn what_is_damaged_is_absent() {
        for bad in [
            "cpu0 1 2 3",
            "cpu0 1 2 3 x 5 6 7 8",
            "cpu0 18446744073709551615 0 0 0 0 0 0 0",
            "cpu9999 0 0 0 0 0 0 0 0",
        ] {
            assert!(parse_stat(bad).cpus.is_empty(), "{bad}");
        }
        assert_eq!(parse_stat("ctxt many\nprocesses\n").context_switches, None);
        assert_eq!(parse_stat("").processes, None);
    }

    #[test]
    fn wake_ups_are_the_fifth_field_of_a_cpu() {
        let v16 = "version 16\ntimestamp 4294937296\ncpu0 1 0 3 4 4294967295 6 7 8 9\ndomain0 03 1 2\n\
                   cpu1 0 0 0 0 12 0 0 0 0\n";
        assert_eq!(parse_schedstat(v16), Ok(BTreeMap::from([(0, u32::MAX), (1, 12)])));
        let format = Err(NoWakeups::Format);
        for bad in [
            "",
            "version 16\n",
            "version 18\ncpu0 1 2 3 4 5\n",
            "version 15\ncpu0 1 2 3 4\n",
            "cpu0 1 2 3 4 5\n",
        ] {
            assert_eq!(parse_schedstat(bad), format, "{bad}");
        }
    }

    #[test]
    fn a_configuration_says_yes_no_or_nothing() {
        assert_eq!(parse_config("CONFIG_HZ=250\nCONFIG_IRQ_TIME_ACCOUNTING=y\n"), Some(true));
        assert_eq!(parse_config("# CONFIG_IRQ_TIME_ACCOUNTING is not set\nCONFIG_HZ=250\n"), Some(false));
        assert_eq!(parse_config("#\n"), None);
    }

    #[test]
    fn sockets_cores_and_switched_off_statistics_are_read() {
        let root = std::env::temp_dir().join(format!("biopsy-cpu-time-{}", std::process::id()));
        let write = |name: &str, text: &str| {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for (cpu, socket, threads) in
            [(0, "0\n", "0,2\n"), (1, "1\n", "1,3\n"), (2, "0\n", "0,2\n"), (3, "-1\n", "1,3\n")]
        {
            write(&format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"), socket);
            write(&format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"), threads);
        }
        let topology = Topology::read(&root, &[0, 1, 2, 3]);
        assert_eq!(topology.sockets, BTreeMap::from([(0, 0), (1, 1), (2, 0)]));
        assert_eq!(topology.cores, [vec![0, 2], vec![1, 3]]);

        assert_eq!(CpuReading::read(&root, || 7).wakeups, Err(NoWakeups::NoFile));
        write("proc/stat", STAT);
        write("proc/schedstat", "version 15\ncpu0 0 0 0 0 9 0 0 0 0\n");
        let reading = CpuReading::read(&root, || 7);
        assert_eq!((reading.at_ns, reading.took_ns, reading.cpus.len()), (7, 0, 2));
        assert_eq!(reading.wakeups, Ok(BTreeMap::from([(0, 9)])));
        write("proc/sys/kernel/sched_schedstats", "0\n");
        assert_eq!(CpuReading::read(&root, || 7).wakeups, Err(NoWakeups::Off));

        assert_eq!(interrupts_timed(&root), None);
        write("proc/sys/kernel/osrelease", "6.1.0\n");
        write("boot/config-6.1.0", "CONFIG_HZ=250\n");
        assert_eq!(interrupts_timed(&root), Some(false));
        std::fs::remove_dir_all(&root).unwrap();
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let text = String::from_utf8_lossy(&bytes);
            let _ = (parse_stat(&text), parse_schedstat(&text), parse_config(&text));
        }

        /// Well-formed lines with arbitrary numbers.
        #[test]
        fn any_numbers_never_panic(cpu: u32, words in proptest::collection::vec(any::<u64>(), 0..12)) {
            let words = words.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
            let reading = parse_stat(&format!("cpu{cpu} {words}\nctxt {words}\n"));
            prop_assert!(reading.cpus.len() <= 1);
            let _ = parse_schedstat(&format!("version 15\ncpu{cpu} {words}\n"));
        }
    }
}
