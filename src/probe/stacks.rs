//! Samples on-CPU stacks: runs a program at a perf event on each CPU, and a thread that empties the ring buffer.

use std::cell::{Cell, RefCell};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, MapCore, MapFlags, RingBufferBuilder};

use crate::host::abilities::ProgramState;
use crate::host::cgroups::Hierarchy;
use crate::host::mapped::MappedFiles;
use crate::host::processes;
use crate::host::rights::Rights;
use crate::probe::btf_file;
use crate::probe::libbpf::{self, refusal};
use crate::probe::process_events::ProcessEvents;
use crate::probe::skel::{STACKS, stacks as skel};
use crate::probe::spec::{self, Spec};
use crate::probe::{Probe, perf_event, permit};
use crate::refusal::Refusal;
use crate::wire::process_events::{self, Comm};
use crate::wire::stacks::{RawProfile, Sample, SampleTotal, Sampler, decode};

pub const SPEC: Spec = Spec {
    state: Some(state),
    configure: |object, _, _| {
        libbpf::with_constants(object, |constants: &mut skel::types::rodata| {
            constants.config.cgroups_enabled = 1
        })
    },
    ..Spec::of(&[STACKS])
};

/// Whether the CPUs can be sampled here.
fn state(rights: &Rights) -> ProgramState {
    let (reason, remedy) = if !rights.btf && btf_file::path().is_none() {
        (permit::NO_BTF_HERE, permit::NO_BTF_REMEDY)
    } else if rights.locked_down() {
        (permit::LOCKED, permit::LOCKED_REMEDY)
    } else if rights.can_sample() && rights.can_trace() {
        return spec::state("on_cpu", "perf_event", None);
    } else {
        ("needs CAP_BPF and CAP_PERFMON: no profile and no flame graph", permit::RIGHTS_REMEDY)
    };
    spec::state("on_cpu", "perf_event", Some((reason.to_string(), Some(remedy))))
}

/// Interval between two drains of the ring buffer, which has room for ten times as long. Each drain costs one wakeup. A
/// process that exits between its first sample and the next drain is named from the kernel's records only.
const DRAIN_EVERY: Duration = ProcessEvents::DRAIN_EVERY;

/// The same if frames of processes are not requested.
const DRAIN_KERNEL_EVERY: Duration = Duration::from_millis(100);

/// What is sampled.
#[derive(Debug, Clone)]
struct SamplingPlan {
    frequency: u64,
    /// Only tasks in these cgroups, by id; empty: all.
    cgroups: Vec<u64>,
    /// Read the mappings of processes, which are needed to symbolize their frames.
    users: bool,
}

/// Samples the stacks of all CPUs from `attach`, or `begin`, until `finish`, or until it is dropped. A reading has the
/// samples since the previous one.
#[derive(Debug)]
pub struct StacksProbe {
    start: RawProfile,
    /// Requests a reading; the first one opens the interval. Dropping it stops the thread.
    ask: Option<Sender<Sender<RawProfile>>>,
    thread: RefCell<Option<JoinHandle<Result<RawProfile>>>>,
}

impl StacksProbe {
    /// Starts to sample every online CPU, `frequency` times a second each.
    ///
    /// Avoid multiples of 100 and 250: they run in step with the kernel's timer. 499 does not.
    ///
    /// # Errors
    /// A [`Refusal`] when the rights, BTF or perf events are missing.
    pub fn attach(frequency: u64) -> Result<Self> {
        Self::of_groups(frequency, &[])
    }

    /// The same for tasks in these cgroups only, by id; empty: all.
    ///
    /// # Errors
    /// Those of `attach`.
    pub fn of_groups(frequency: u64, cgroups: &[u64]) -> Result<Self> {
        let mut probe = Self::prepare(frequency, cgroups)?;
        probe.begin()?;
        Ok(probe)
    }

    /// The same, but sampling starts at [`Probe::begin`].
    ///
    /// # Errors
    /// Those of `attach`.
    pub fn prepare(frequency: u64, cgroups: &[u64]) -> Result<Self> {
        Self::of(SamplingPlan { frequency, cgroups: cgroups.to_vec(), users: true })
    }

    /// The same for kernel frames only: frames of processes are not symbolized. It begins at once.
    ///
    /// # Errors
    /// Those of `attach`.
    pub fn of_kernel(frequency: u64) -> Result<Self> {
        let mut probe = Self::of(SamplingPlan { frequency, cgroups: Vec::new(), users: false })?;
        probe.begin()?;
        Ok(probe)
    }

    fn of(wanted: SamplingPlan) -> Result<Self> {
        let (ask, asked) = mpsc::channel();
        let (ready, prepared) = mpsc::channel();
        // The thread owns all of it: programs, links and ring buffer never leave its stack, and they are detached when
        // it ends for any reason.
        let thread = thread::Builder::new()
            .name("biopsy-stacks".to_string())
            .spawn(move || run(&wanted, &ready, &asked))
            .context("the thread that collects CPU samples cannot be started")?;
        let thread = RefCell::new(Some(thread));
        match prepared.recv() {
            Ok(start) => Ok(Self { start, ask: Some(ask), thread }),
            Err(_) => {
                // The thread must not wait for this one.
                drop(ask);
                Err(why_ended(&thread))
            }
        }
    }

    /// The source of the samples.
    pub fn sampler(&self) -> Sampler {
        self.start.sampler
    }

    /// Closes the interval without waiting for the thread.
    pub fn end(&mut self) {
        drop(self.ask.take());
    }

    /// Detaches, reads the rest of the ring buffer, and returns all samples since the last reading.
    ///
    /// # Errors
    /// When the ring buffer could not be read; the samples read before are dropped with it.
    pub fn finish(mut self) -> Result<RawProfile> {
        self.detach()
    }
}

/// The result of the thread.
fn join(thread: &RefCell<Option<JoinHandle<Result<RawProfile>>>>) -> Result<RawProfile> {
    let thread = thread.take().context("the sampler has ended already")?;
    thread.join().map_err(|_| anyhow!("the thread that collects CPU samples panicked"))?
}

/// Why the thread does not answer.
fn why_ended(thread: &RefCell<Option<JoinHandle<Result<RawProfile>>>>) -> anyhow::Error {
    join(thread).err().unwrap_or_else(|| anyhow!("the sampler ended at once"))
}

impl Probe for StacksProbe {
    type Reading = RawProfile;

    fn begin(&mut self) -> Result<()> {
        self.start = self.read()?;
        Ok(())
    }

    fn start(&self) -> &RawProfile {
        &self.start
    }

    /// Nothing to do: the thread drains the ring buffer.
    fn tick(&mut self) {}

    /// The samples since the last reading. A sample belongs to exactly one reading: the one that takes it from the ring
    /// buffer.
    fn read(&self) -> Result<RawProfile> {
        let (reply, reading) = mpsc::channel();
        let asked = self.ask.as_ref().is_some_and(|ask| ask.send(reply).is_ok());
        match reading.recv() {
            Ok(reading) if asked => Ok(reading),
            _ => Err(why_ended(&self.thread)),
        }
    }

    fn detach(&mut self) -> Result<RawProfile> {
        self.end();
        join(&self.thread)
    }
}

impl Drop for StacksProbe {
    fn drop(&mut self) {
        // After `finish` nothing is left to do. Before it, the samples are not needed.
        let _ = self.detach();
    }
}

/// The whole life of the sampler: load, attach, drain, detach. Returns the last reading.
fn run(
    wanted: &SamplingPlan,
    ready: &Sender<RawProfile>,
    asked: &Receiver<Sender<RawProfile>>,
) -> Result<RawProfile> {
    let &SamplingPlan { frequency, ref cgroups, users } = wanted;
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        bail!(Refusal::Refused(super::btf::NO_BTF.into()));
    }
    if frequency == 0 {
        // The kernel would accept it, and never sample.
        bail!(Refusal::Usage(
            "0 samples per second give no profile: choose a frequency of at least 1".into()
        ));
    }
    let (sampler, events) = perf_event::open(frequency)?;
    let cpus = events.len() as u32;

    let mut object = MaybeUninit::uninit();
    let mut builder = skel::StacksSkelBuilder::default();
    if let Some(file) = btf_file::path() {
        builder.obj_builder.btf_custom_path(file)?;
    }
    libbpf::listen();
    let mut open = builder.open(&mut object)?;
    open.maps.stack_ring.set_max_entries(ring_bytes(cpus, frequency))?;
    open.maps.filter_cgroups.set_max_entries(cgroups.len().max(1) as u32)?;
    let config = &mut open.maps.rodata_data.as_mut().context("the object has read-only data")?.config;
    config.cgroups_enabled = (!cgroups.is_empty()).into();
    config.unified_cgroups = Hierarchy::read(Path::new("/")).is_none_or(|hierarchy| hierarchy.unified).into();
    let skeleton = open.load().map_err(|error| refusal("loading the stack sampler", &error))?;
    for cgroup in cgroups {
        skeleton.maps.filter_cgroups.update(&cgroup.to_ne_bytes(), &[1], MapFlags::ANY)?;
    }
    let maps: [&dyn MapCore; 3] =
        [&skeleton.maps.stack_ring, &skeleton.maps.stack_scratch, &skeleton.maps.bss];
    let map_bytes: u64 = maps.iter().filter_map(|m| m.query_fdinfo().ok()?.memlock).sum();

    let samples: RefCell<HashMap<Sample, SampleTotal>> = RefCell::default();
    let memory: RefCell<Maps> = RefCell::default();
    let damaged = Cell::new(0u64);
    let mut builder = RingBufferBuilder::new();
    builder.add(&skeleton.maps.stack_ring, |bytes| {
        match decode(bytes) {
            Ok((sample, period)) => {
                let mut samples = samples.borrow_mut();
                let entry = samples.entry(sample);
                if let Entry::Vacant(new) = &entry
                    && users
                {
                    memory.borrow_mut().note(new.key());
                }
                let tally = entry.or_default();
                tally.samples += 1;
                tally.period = tally.period.saturating_add(period);
            }
            Err(_) => damaged.set(damaged.get() + 1),
        }
        0
    })?;
    let ring = builder.build()?;
    let drain = || -> Result<()> {
        ring.consume().context("the ring buffer of CPU samples cannot be read")?;
        memory.borrow_mut().read();
        Ok(())
    };
    let counts = || {
        let counters = skeleton.maps.bss_data.as_ref().map(|bss| bss.counters);
        let stats = libbpf::program_stats(&skeleton.progs.stack_sample).unwrap_or_default();
        Counts {
            at: Instant::now(),
            idle_ns: idle_ns(),
            dropped: counters.map_or(0, |c| c.ring_full + c.no_scratch),
            damaged: damaged.get(),
            runs: stats.runs,
            run_ns: stats.run_ns,
        }
    };
    // The samples in the ring buffer, for the time between two counts.
    let reading = |from: &Counts, to: &Counts| {
        let mut memory = memory.borrow_mut();
        // Catches an exec between the samples and the last lookup.
        memory.read();
        let damaged = to.damaged - from.damaged;
        let reading = RawProfile {
            sampler,
            frequency,
            cpus,
            duration_ns: to.at.duration_since(from.at).as_nanos() as u64,
            idle_ns: from.idle_ns.zip(to.idle_ns).map(|(a, b)| b.saturating_sub(a)),
            samples: samples.take(),
            maps: memory.mapped.clone(),
            leaders: memory.named_leaders(),
            lost: to.dropped.saturating_sub(from.dropped) + damaged,
            damaged,
            map_bytes: map_bytes + memory.process_events.bytes(),
            program_runs: to.runs.saturating_sub(from.runs),
            program_ns: to.run_ns.saturating_sub(from.run_ns),
        };
        memory.renew();
        reading
    };

    let mut last = counts();
    let empty = reading(&last, &last);
    // Fails only if the probe was dropped: then `asked` fails as well.
    let _ = ready.send(empty.clone());
    let Ok(reply) = asked.recv() else { return Ok(empty) };
    // Not earlier: if the interval begins late, the rings would overflow before it.
    if users {
        memory.borrow_mut().process_events = ProcessEvents::open();
    }
    last = counts();
    let links = attach(&skeleton.progs.stack_sample, events)?;
    let _ = reply.send(empty);
    loop {
        match asked.recv_timeout(if users { DRAIN_EVERY } else { DRAIN_KERNEL_EVERY }) {
            Err(RecvTimeoutError::Timeout) => drain()?,
            Err(RecvTimeoutError::Disconnected) => break,
            Ok(reply) => {
                drain()?;
                let now = counts();
                let _ = reply.send(reading(&last, &now));
                last = now;
            }
        }
    }
    let end = counts();
    drop(links);
    drain()?;
    // Includes losses and runs during the drain, but not its time.
    let end = Counts { at: end.at, idle_ns: end.idle_ns, ..counts() };
    Ok(reading(&last, &end))
}

/// Cumulative counters.
struct Counts {
    at: Instant,
    idle_ns: Option<u64>,
    /// Samples that had no room.
    dropped: u64,
    damaged: u64,
    runs: u64,
    run_ns: u64,
}

/// Which processes to read mappings of.
#[derive(Debug)]
struct Maps {
    /// When it was last empty.
    since: Instant,
    mapped: MappedFiles,
    process_events: ProcessEvents,
    /// Under each of their names: a new name means that the process has called exec.
    seen: HashSet<(u32, Comm)>,
    wanted: HashSet<(u32, Comm)>,
    /// Processes with addresses outside of their known mappings, and the polls until the next attempt.
    unknown: HashMap<u32, Retry>,
    /// Names of processes whose io_uring workers were sampled; empty: unreadable.
    leaders: HashMap<u32, Vec<u8>>,
}

/// Most of these addresses are stack garbage from code without frame pointers, which no mapping explains: each
/// unsuccessful attempt doubles the time to the next.
#[derive(Debug, Default)]
struct Retry {
    asked: bool,
    comm: Comm,
    /// In polls.
    wait: u32,
    left: u32,
}

impl Default for Maps {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            mapped: MappedFiles::default(),
            process_events: ProcessEvents::default(),
            seen: HashSet::new(),
            wanted: HashSet::new(),
            unknown: HashMap::new(),
            leaders: HashMap::new(),
        }
    }
}

impl Maps {
    /// The longest wait, in polls: at one per 20 ms it is 3 s.
    const LONGEST: u32 = 160;
    /// How long exited processes are kept, with their files open. Otherwise a run of days would have no room for new
    /// ones, and a file system with a file that ran could not be unmounted.
    const KEPT: Duration = Duration::from_secs(60);

    /// Starts over after a reading that includes everything, if this is old or half full: live processes are read again
    /// at their next sample. The kernel's records continue.
    fn renew(&mut self) {
        if self.since.elapsed() >= Self::KEPT || self.seen.len() >= MappedFiles::MOST_PROCESSES / 2 {
            *self = Self { process_events: std::mem::take(&mut self.process_events), ..Self::default() };
        }
    }

    fn named_leaders(&self) -> HashMap<u32, Vec<u8>> {
        let named = self.leaders.iter().filter(|(_, comm)| !comm.is_empty());
        named.map(|(pid, comm)| (*pid, comm.clone())).collect()
    }

    /// Handles a new stack: of a process that is new, has another name, or has an address outside of its known mappings
    /// (a library loaded since, or generated code).
    fn note(&mut self, sample: &Sample) {
        if sample.is_of_ring() {
            let read = || processes::name(Path::new("/"), sample.pid).unwrap_or_default();
            self.leaders.entry(sample.pid).or_insert_with(read);
        }
        if sample.user().is_empty() {
            return;
        }
        let comm = process_events::comm(&sample.comm);
        if self.seen.len() < MappedFiles::MOST_PROCESSES && self.seen.insert((sample.pid, comm)) {
            self.wanted.insert((sample.pid, comm));
            return;
        }
        if self.mapped.generations(sample.pid).is_empty() {
            return;
        }
        if !sample.user().iter().all(|address| self.mapped.covers(sample.pid, *address)) {
            let retry = self.unknown.entry(sample.pid).or_default();
            (retry.asked, retry.comm) = (true, comm);
        }
    }

    fn read(&mut self) {
        for (pid, retry) in &mut self.unknown {
            retry.left = retry.left.saturating_sub(1);
            if retry.asked && retry.left == 0 {
                let wait = (retry.wait * 2).clamp(1, Self::LONGEST);
                *retry = Retry { asked: false, left: wait, wait, ..*retry };
                self.wanted.insert((*pid, retry.comm));
            }
        }
        self.process_events.look(&mut self.mapped, self.wanted.drain());
    }
}

/// Attaches the program to each event, which starts it. Dropping a link stops and closes the event.
fn attach(program: &libbpf_rs::ProgramMut<'_>, events: Vec<OwnedFd>) -> Result<Vec<Link>> {
    let mut links = Vec::with_capacity(events.len());
    for event in events {
        let link = program
            .attach_perf_event(event.as_raw_fd())
            .map_err(|error| refusal("attaching the stack sampler", &error))?;
        links.push(link);
        // From here on the link owns the descriptor, and closes it.
        let _ = event.into_raw_fd();
    }
    Ok(links)
}

/// Room for the largest samples of five drains, as a power of two of pages.
fn ring_bytes(cpus: u32, frequency: u64) -> u32 {
    /// Header and two full stacks, with the ring buffer's own 8 bytes.
    const LARGEST: u64 = 8 + 48 + 2 * 127 * 8;
    /// Samples of usual depth are a fifth of the largest: this is a second of 384 CPUs at 100 Hz.
    const MOST: u64 = 16 << 20;
    let per_second = u64::from(cpus).saturating_mul(frequency).saturating_mul(LARGEST);
    (per_second / 4).clamp(256 << 10, MOST).next_power_of_two() as u32
}

fn idle_ns() -> Option<u64> {
    perf_event::parse_idle_ns(&fs::read_to_string("/proc/stat").ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_fits_its_machine() {
        assert_eq!(ring_bytes(1, 49), 256 << 10);
        assert_eq!(ring_bytes(2, 499), 512 << 10);
        assert_eq!(ring_bytes(384, 997), 16 << 20);
        assert_eq!(ring_bytes(u32::MAX, u64::MAX), 16 << 20, "no overflow");
    }
}
