//! The event stream: a ring buffer per CPU, looked at by the clock, and what the kernel could not put in.

use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, RingBuffer, RingBufferBuilder, libbpf_sys};
use zerocopy::IntoBytes;

use super::plan::{Plan, PlannedDevice};
use super::skel::latency::{LatencySkel, OpenLatencySkel};
use crate::envelope::Missing;
use crate::wire::events::{Emitted, Event, WireEmitter};

/// Which I/Os have an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventOptions {
    /// A bit per class of requests, in the order of `enum wire_op`.
    pub ops: u32,
    /// One of so many, by a counter per CPU; 0 and 1: all.
    pub every: u32,
    /// Only those that took at least as long in the block layer.
    pub slower_ns: u64,
    /// Bytes of each CPU's ring, made a power of two of pages; None: as this machine needs.
    pub ring_bytes: Option<u32>,
}

impl Default for EventOptions {
    fn default() -> Self {
        Self { ops: u32::MAX, every: 0, slower_ns: 0, ring_bytes: None }
    }
}

/// Of one ring: 30,000 I/Os with their operations, which is a seventh of a second of the rate that one CPU
/// can be asked for.
const MOST_BYTES: u32 = 8 << 20;
/// Of all together.
const ALL_BYTES: u64 = 64 << 20;
const LEAST_BYTES: u32 = 4096;

/// Facts of operations, one per place of the tables of operations and of callers.
const FACTS: u32 = 1 << 15;

/// Records of one ring that are taken at one look.
const AT_ONCE: usize = 1 << 14;

/// What one look at all rings brought.
#[derive(Debug, Default)]
pub struct Taken {
    pub events: Vec<Event>,
    /// Nothing that was there at the look was left.
    pub emptied: bool,
}

/// What the rings brought since they were last looked at.
#[derive(Default)]
struct Got {
    events: Vec<Event>,
    damaged: u64,
}

/// All rings. Dropping it gives them back.
pub struct Rings {
    rings: Vec<RingBuffer<'static>>,
    /// The kernel lets go of a ring when nobody holds it.
    _maps: Vec<MapHandle>,
    got: Rc<RefCell<Got>>,
    bytes: u32,
}

/// Sizes the maps, and tells the programs what is asked for. Before they are loaded.
pub fn prepare(open: &mut OpenLatencySkel<'_>, options: &EventOptions, cpus: u32) -> Result<()> {
    let maps = &mut open.maps;
    maps.event_rings.set_max_entries(cpus)?;
    maps.emitters.set_max_entries(cpus)?;
    maps.operation_facts.set_max_entries(FACTS)?;
    let config = &mut maps.rodata_data.as_mut().context("the object has read-only data")?.config;
    config.want_events = 1;
    config.event_ops = options.ops;
    config.event_every = options.every;
    config.event_slower_ns = options.slower_ns;
    Ok(())
}

impl Rings {
    /// Makes a ring for each CPU and hands it to the programs, before they are attached.
    pub fn new(skel: &LatencySkel<'_>, options: &EventOptions, cpus: u32) -> Result<Self> {
        let bytes = ring_bytes(options.ring_bytes, cpus);
        let got = Rc::new(RefCell::new(Got::default()));
        let opts = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
            ..Default::default()
        };
        let mut rings = Vec::new();
        let mut maps = Vec::new();
        for cpu in 0..cpus {
            let map = MapHandle::create(MapType::RingBuf, Some("event_ring"), 0, 0, bytes, &opts)
                .with_context(|| format!("a ring buffer of {bytes} bytes for CPU {cpu} cannot be made"))?;
            let number = map.as_fd().as_raw_fd();
            skel.maps.event_rings.update(&cpu.to_ne_bytes(), &number.to_ne_bytes(), MapFlags::ANY)?;
            let first = WireEmitter { skip: phase(options.every)?, ..WireEmitter::default() };
            skel.maps.emitters.update(&cpu.to_ne_bytes(), first.as_bytes(), MapFlags::ANY)?;
            let into = Rc::clone(&got);
            let mut builder = RingBufferBuilder::new();
            builder.add(&map, move |record| {
                let mut got = into.borrow_mut();
                match Event::decode(record) {
                    Ok(event) => got.events.push(event),
                    Err(_) => got.damaged += 1,
                }
                0
            })?;
            rings.push(builder.build()?);
            maps.push(map);
        }
        Ok(Self { rings, _maps: maps, got, bytes })
    }

    /// Takes what came, so many records of each ring at most, however fast others come.
    pub fn take(&self) -> Result<Taken> {
        let mut emptied = true;
        for ring in &self.rings {
            let taken = ring.consume_raw_n(AT_ONCE);
            anyhow::ensure!(taken >= 0, "a ring buffer of events cannot be read: error {}", -taken);
            emptied &= (taken as usize) < AT_ONCE;
        }
        Ok(Taken { events: std::mem::take(&mut self.got.borrow_mut().events), emptied })
    }

    /// What the programs counted so far.
    pub fn emitted(&self, skel: &LatencySkel<'_>) -> Result<Emitted> {
        let mut all = Emitted { damaged: self.got.borrow().damaged, ..Emitted::default() };
        for cpu in 0..self.rings.len() as u32 {
            let bytes = skel.maps.emitters.lookup(&cpu.to_ne_bytes(), MapFlags::ANY)?;
            all.add(&WireEmitter::decode(&bytes.context("the kernel lost an element of an array")?)?);
        }
        Ok(all)
    }

    /// Bytes of all rings.
    pub fn bytes(&self) -> u64 {
        u64::from(self.bytes) * self.rings.len() as u64
    }
}

/// Bio-based devices count I/Os that have no event.
pub fn missing_lines(plan: &Plan) -> Vec<Missing> {
    let devices = plan.devices.iter().filter(|device| device.is_bio_based());
    let gap = |device: &PlannedDevice| Missing {
        device: Some(device.name.clone()),
        part: Some("lines".to_string()),
        reason: "bio-based".to_string(),
        why: "it has no requests, so its I/Os are counted and not shown".to_string(),
        remedy: Some("name the disks below it, which `biopsy devices` shows".to_string()),
        ..Missing::default()
    };
    devices.map(gap).collect()
}

/// Where a CPU's counter of every Nth begins: anywhere, or all CPUs would take the same ones.
fn phase(every: u32) -> Result<u64> {
    if every < 2 {
        return Ok(0);
    }
    let mut word = [0; 8];
    // SAFETY: writes at most the length of the buffer that it is given.
    let got = unsafe { libc::getrandom(word.as_mut_ptr().cast(), word.len(), 0) };
    anyhow::ensure!(got == word.len() as isize, "the kernel gave no random number");
    Ok(u64::from_ne_bytes(word) % u64::from(every))
}

fn ring_bytes(wanted: Option<u32>, cpus: u32) -> u32 {
    let share = (ALL_BYTES / u64::from(cpus.max(1))) as u32;
    let bytes = wanted.unwrap_or(share).clamp(LEAST_BYTES, MOST_BYTES);
    // A power of two, and no more than the share.
    1 << bytes.ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_share_what_there_is() {
        assert_eq!(ring_bytes(None, 2), MOST_BYTES);
        assert_eq!(ring_bytes(None, 384), 128 << 10);
        assert_eq!(ring_bytes(None, 8192), 8 << 10);
        assert_eq!(ring_bytes(Some(5000), 2), 4096);
        assert_eq!((ring_bytes(Some(1), 2), ring_bytes(Some(u32::MAX), 2)), (LEAST_BYTES, MOST_BYTES));
    }

    #[test]
    fn a_phase_lies_below_its_period() {
        assert!((0..100).all(|_| phase(7).unwrap() < 7));
        assert_eq!((phase(0).unwrap(), phase(1).unwrap()), (0, 0));
    }
}
