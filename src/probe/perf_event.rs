//! Opens perf events that sample, count, or record process events, each on one online CPU.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr::{self, NonNull};

use anyhow::{Context as _, Result};
use perf_event_open_sys::bindings::{
    PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_HW_INSTRUCTIONS, PERF_COUNT_HW_STALLED_CYCLES_BACKEND,
    PERF_COUNT_HW_STALLED_CYCLES_FRONTEND, PERF_COUNT_SW_BPF_OUTPUT, PERF_COUNT_SW_CPU_CLOCK,
    PERF_COUNT_SW_DUMMY, PERF_FLAG_FD_CLOEXEC, PERF_FORMAT_TOTAL_TIME_ENABLED,
    PERF_FORMAT_TOTAL_TIME_RUNNING, PERF_SAMPLE_RAW, PERF_SAMPLE_TIME, PERF_TYPE_HARDWARE,
    PERF_TYPE_SOFTWARE, perf_event_attr,
};

use crate::host::cpu_counters::{CounterEvent, CounterMode};
use crate::refusal::{LockedMemory, Refusal};
use crate::wire::stacks::Sampler;

/// Opens the best sampler that this machine has, on every online CPU. It does not count yet.
pub fn open(frequency: u64) -> Result<(Sampler, Vec<OwnedFd>)> {
    let cpus = online()?;
    // A virtual machine often has no counters; some hybrid processors have them on some CPUs only. Profiles of two
    // kinds cannot be added up, so all CPUs use the same sampler.
    if let Ok(events) = open_on(Sampler::Cycles, &cpus, frequency) {
        return Ok((Sampler::Cycles, events));
    }
    match open_on(Sampler::CpuClock, &cpus, frequency) {
        Ok(events) => Ok((Sampler::CpuClock, events)),
        Err(error) => Err(explain(error, frequency)),
    }
}

/// The CPUs that an event can be opened on.
pub fn online() -> Result<Vec<u32>> {
    let list = fs::read_to_string("/sys/devices/system/cpu/online")
        .context("/sys/devices/system/cpu/online, the list of CPUs to sample, cannot be read")?;
    parse_cpu_list(&list).context("/sys/devices/system/cpu/online is not a list of CPUs")
}

/// Opens one event per CPU, or returns the first error other than a CPU going offline.
fn open_on(sampler: Sampler, cpus: &[u32], frequency: u64) -> io::Result<Vec<OwnedFd>> {
    let (kind, config) = match sampler {
        Sampler::Cycles => (PERF_TYPE_HARDWARE, u64::from(PERF_COUNT_HW_CPU_CYCLES)),
        Sampler::CpuClock => (PERF_TYPE_SOFTWARE, u64::from(PERF_COUNT_SW_CPU_CLOCK)),
    };
    let mut attr = perf_event_attr { type_: kind, config, ..Default::default() };
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.__bindgen_anon_1.sample_freq = frequency;
    attr.set_freq(1);
    attr.set_disabled(1);

    let mut events = Vec::with_capacity(cpus.len());
    for &cpu in cpus {
        match open_attr(&mut attr, cpu, None) {
            Ok(event) => events.push(event),
            // The CPU went offline after the list was read. The others can be sampled.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) && sampler == Sampler::CpuClock => {}
            Err(error) => return Err(error),
        }
    }
    if events.is_empty() { Err(io::Error::from_raw_os_error(libc::ENODEV)) } else { Ok(events) }
}

/// Opens an event for all tasks on that CPU. With `group` it is scheduled on the PMU together with that event.
fn open_attr(attr: &mut perf_event_attr, cpu: u32, group: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
    let anyone = -1;
    let group = group.map_or(-1, |leader| leader.as_raw_fd());
    // SAFETY: `attr` is initialised and carries its size. The call keeps no pointer to it.
    let fd = unsafe {
        let flags = PERF_FLAG_FD_CLOEXEC.into();
        perf_event_open_sys::perf_event_open(&raw mut *attr, anyone, cpu as i32, group, flags)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just created this descriptor for this process, and nothing else uses it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Opens an event that counts nothing, but records forks, execs, exits and executable mappings on a CPU from now on, in
/// memory that is mapped from it; `wire::process_events` decodes them. They wake no thread.
pub fn process_events(cpu: u32) -> io::Result<OwnedFd> {
    let mut attr = perf_event_attr {
        type_: PERF_TYPE_SOFTWARE,
        config: PERF_COUNT_SW_DUMMY.into(),
        sample_type: PERF_SAMPLE_TIME.into(),
        clockid: libc::CLOCK_MONOTONIC,
        ..Default::default()
    };
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.__bindgen_anon_2.wakeup_watermark = u32::MAX;
    attr.set_watermark(1);
    attr.set_use_clockid(1);
    attr.set_sample_id_all(1);
    attr.set_mmap(1);
    attr.set_mmap2(1);
    attr.set_comm(1);
    attr.set_comm_exec(1);
    attr.set_task(1);
    open_attr(&mut attr, cpu, None)
}

/// Opens an event that programs write records to. Each record requests a wakeup of the reader.
pub fn self_interrupt(cpu: u32) -> io::Result<OwnedFd> {
    let mut attr = perf_event_attr {
        type_: PERF_TYPE_SOFTWARE,
        config: PERF_COUNT_SW_BPF_OUTPUT.into(),
        sample_type: PERF_SAMPLE_RAW.into(),
        ..Default::default()
    };
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.__bindgen_anon_1.sample_period = 1;
    attr.__bindgen_anon_2.wakeup_events = 1;
    open_attr(&mut attr, cpu, None)
}

/// Maps the ring of an event at an address of the kernel's choice.
///
/// # Errors
/// [`LockedMemory`] if the limit of locked memory is reached; else the error of mmap.
pub fn map_ring(
    event: BorrowedFd<'_>,
    bytes: usize,
    protection: libc::c_int,
) -> Result<NonNull<libc::c_void>> {
    // SAFETY: a new mapping; no memory of this process is replaced.
    let place =
        unsafe { libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, event.as_raw_fd(), 0) };
    if let Some(place) = NonNull::new(place).filter(|_| place != libc::MAP_FAILED) {
        return Ok(place);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EPERM) => Err(LockedMemory.into()),
        _ => Err(error.into()),
    }
}

/// Page size of memory that is mapped from an event.
pub fn page_bytes() -> usize {
    // SAFETY: takes a number and returns one.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// A counter that takes no samples, and counts until it is dropped.
#[derive(Debug)]
pub struct Counter(File);

impl Counter {
    /// Opens it on one CPU. Counters of one group count at the same times, so that their ratio is exact.
    pub fn open(event: CounterEvent, side: CounterMode, cpu: u32, group: Option<&Self>) -> io::Result<Self> {
        let hardware = |config| (PERF_TYPE_HARDWARE, u64::from(config));
        let (kind, config) = match event {
            CounterEvent::Cycles => hardware(PERF_COUNT_HW_CPU_CYCLES),
            CounterEvent::Instructions => hardware(PERF_COUNT_HW_INSTRUCTIONS),
            CounterEvent::FrontendStalls => hardware(PERF_COUNT_HW_STALLED_CYCLES_FRONTEND),
            CounterEvent::BackendStalls => hardware(PERF_COUNT_HW_STALLED_CYCLES_BACKEND),
            CounterEvent::CpuClock => (PERF_TYPE_SOFTWARE, u64::from(PERF_COUNT_SW_CPU_CLOCK)),
        };
        let mut attr = perf_event_attr { type_: kind, config, ..Default::default() };
        attr.size = size_of::<perf_event_attr>() as u32;
        attr.read_format = (PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING).into();
        attr.set_exclude_user((side == CounterMode::Kernel).into());
        attr.set_exclude_kernel((side == CounterMode::User).into());
        open_attr(&mut attr, cpu, group.map(|leader| leader.0.as_fd())).map(|fd| Self(fd.into()))
    }

    /// The count, the time that it was enabled and the time that it was running, in ns.
    pub fn read(&self) -> io::Result<[u64; 3]> {
        // Exactly what `read_format` requests. A counter in error state returns less (0 bytes).
        let mut bytes = [0; 24];
        (&self.0).read_exact(&mut bytes)?;
        let word = |i: usize| bytes[8 * i..].first_chunk().map_or(0, |chunk| u64::from_ne_bytes(*chunk));
        Ok([word(0), word(1), word(2)])
    }
}

/// Why no sampler could be opened, and the remedy.
fn explain(error: io::Error, frequency: u64) -> anyhow::Error {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Refusal::Refused(format!(
            "sampling of CPU stacks is not allowed ({error}): run as root without kernel lockdown, or give \
             biopsy CAP_PERFMON and CAP_BPF (see kernel.perf_event_paranoid)"
        ))
        .into(),
        Some(libc::EINVAL) => {
            let limit = fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate");
            let limit = limit.map_or("unknown".to_string(), |l| l.trim().to_string());
            Refusal::Usage(format!(
                "the kernel refuses {frequency} samples per second: choose 1 to \
                 kernel.perf_event_max_sample_rate ({limit})"
            ))
            .into()
        }
        Some(libc::ENOSYS | libc::ENOENT | libc::EOPNOTSUPP) => Refusal::Refused(format!(
            "this kernel has no perf events ({error}): without CONFIG_PERF_EVENTS there is no on-CPU profile"
        ))
        .into(),
        _ => anyhow::Error::new(error).context("a perf event for CPU samples cannot be opened"),
    }
}

/// `0-3,8,10-11` as numbers; None for anything else.
fn parse_cpu_list(text: &str) -> Option<Vec<u32>> {
    // More than any kernel supports; limits the cost of a damaged list.
    const MOST: u32 = 1 << 16;
    let mut cpus = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= MOST {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// Idle time of all CPUs since boot, in ns, from the text of `/proc/stat`: idle plus iowait, which are in hundredths of
/// a second.
pub fn parse_idle_ns(stat: &str) -> Option<u64> {
    let mut fields = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace().skip(3);
    let idle: u64 = fields.next()?.parse().ok()?;
    let iowait: u64 = fields.next()?.parse().ok()?;
    idle.checked_add(iowait)?.checked_mul(10_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists() {
        assert_eq!(parse_cpu_list("0-1\n"), Some(vec![0, 1]));
        assert_eq!(parse_cpu_list("0,2-3,8"), Some(vec![0, 2, 3, 8]));
        for bad in ["", "a", "3-1", "0-4294967295", "1,,2", "-"] {
            assert_eq!(parse_cpu_list(bad), None, "{bad}");
        }
    }

    #[test]
    fn idle_time_is_idle_plus_iowait() {
        assert_eq!(parse_idle_ns("cpu  10 0 20 300 40 1 2 0 0 0\ncpu0 1\n"), Some(3_400_000_000));
        for bad in ["", "cpu  1 2 3", "cpu  1 2 3 x 5", "cpu  0 0 0 18446744073709551615 9"] {
            assert_eq!(parse_idle_ns(bad), None, "{bad}");
        }
    }

    /// A refusal names the remedy and has the documented exit code.
    #[test]
    fn errors_are_refusals_with_a_remedy() {
        let code = |errno, frequency| {
            let error = explain(io::Error::from_raw_os_error(errno), frequency);
            error.downcast_ref::<Refusal>().map(|r| (r.exit_code(), r.to_string()))
        };
        let (exit, text) = code(libc::EACCES, 499).unwrap();
        assert!(exit == 3 && text.contains("CAP_PERFMON"), "{text}");
        assert_eq!(code(libc::EINVAL, 0).unwrap().0, 2);
        assert_eq!(code(libc::EIO, 499), None);
    }
}
