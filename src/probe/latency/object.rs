//! Loads the object of the probe: sizes its maps, and sets the constants of its programs.

use std::path::Path;

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, OpenMapMut};
use zerocopy::IntoBytes;

use super::super::btf::KernelBtf;
use super::super::events;
use super::super::file_ios;
use super::super::generator;
use super::super::libbpf::{self, refusal};
use super::super::plan::{MOST_BYTES, Plan, PlannedDevice};
use super::super::process_ios;
use super::super::skel;
use super::super::skel::latency::{LatencySkel, OpenLatencySkel};
use super::super::syscalls;
use super::load_plan::LoadPlan;
use super::programs;
use super::submits;
use crate::wire::files::{FILES_COUNTED, FILES_EACH};
use crate::wire::generator::GENERATOR_PLACES;

/// Entries of the map `stack_owners`: must match the hash in the programs.
const STACK_OWNERS: u32 = 1 << skel::header_number(include_str!("../../../bpf/callers.h"), "STACK_BITS");

/// Entries of the map `iocbs`, likewise.
const IOCBS: u32 = 1 << skel::header_number(include_str!("../../../bpf/op_table.h"), "IOCB_BITS");

/// Sizes the maps, configures the programs, and loads the selected ones.
pub fn load(plan: &mut Plan, btf: &KernelBtf, wanted: &mut LoadPlan) -> Result<LatencySkel<'static>> {
    let mut open = skel::latency_builder()
        .and_then(|builder| builder.open(libbpf::object_place()))
        .map_err(|e| refusal("opening the probes", &e))?;
    size(&mut open, plan, wanted)?;
    let told = open.maps.rodata_data.as_mut().context("the object has read-only data")?;
    told.arguments = btf.arguments()?;
    if wanted.ring.is_some() {
        for (number, kind) in syscalls::followed() {
            if let Some(slot) = told.syscall_kinds.get_mut(number) {
                *slot = kind;
            }
        }
    }
    if let Some(place) = wanted.bio_complete {
        told.arguments.bio_complete = place;
    }
    told.partitions = plan.devices.iter().any(PlannedDevice::is_partition).into();
    let config = &mut told.config;
    config.bios_enabled = wanted.bio_complete.is_some().into();
    config.rqf_flush_seq = btf.rqf_flush_seq();
    config.rqf_timed_out = btf.rqf_timed_out();
    config.devices = (plan.devices.len() + plan.heads.len()) as u32;
    config.queue_enabled = wanted.queue.into();
    config.operations_enabled = wanted.ring.is_some().into();
    config.drop_issue = wanted.drop_issue;
    config.parts_enabled = wanted.parts.into();
    config.throttle_enabled = wanted.throttle.into();
    config.bio_mask = plan.bio_sets() - 1;
    config.submitter_enabled = wanted.submitter().into();
    config.filter_enabled = wanted.filter.kinds();
    config.unified_cgroups = wanted.unified_cgroups.into();
    config.generator = if wanted.generator { std::process::id() } else { 0 };
    config.count_processes = wanted.processes.into();
    config.files_enabled = wanted.files;
    config.own_process = if generator::knows_its_threads(Path::new("/")) { std::process::id() } else { 0 };
    if let Some(grouping) = &wanted.grouping {
        grouping.tell(config);
    }
    told.file_callbacks = wanted.file_callbacks;
    if let Some(asked) = &wanted.events {
        events::prepare(&mut open, asked, wanted.cpus)?;
    }
    if let Some(asked) = &wanted.stacks {
        submits::prepare(&mut open, asked, wanted.cpus)?;
    }
    programs::choose(&mut open, wanted);
    let skel = open.load().map_err(|e| refusal("loading the probes", &e))?;
    for (index, device) in plan.devices.iter().chain(&plan.heads).enumerate() {
        skel.maps
            .devices
            .update(&(index as u32).to_ne_bytes(), device.wire.as_bytes(), MapFlags::ANY)
            .map_err(|e| refusal("writing the table of devices", &e))?;
    }
    if wanted.processes {
        process_ios::fill(&skel, plan.devices.len())?;
    }
    if wanted.files & FILES_COUNTED != 0 {
        file_ios::fill(&skel, plan.devices.len())?;
    }
    let maps = &skel.maps;
    (wanted.filter.fill(&maps.filter_pids, &maps.filter_comms, &maps.filter_cgroups))
        .context("writing the filter")?;
    Ok(skel)
}

fn size(open: &mut OpenLatencySkel<'_>, plan: &mut Plan, wanted: &mut LoadPlan) -> Result<()> {
    if wanted.bio_complete.is_none() {
        open.maps
            .bio_ios
            .set_max_entries(1)
            .map_err(|e| refusal("sizing the table of bios without requests", &e))?;
    }
    open.maps.slots.set_max_entries(plan.slots.max(1)).map_err(|e| refusal("sizing the slots", &e))?;
    open.maps.bios.set_max_entries(plan.bio_sets()).map_err(|e| refusal("sizing the table of bios", &e))?;
    if wanted.bio_complete.is_some() && wanted.events.is_some() {
        let bios = open.maps.bio_ios.max_entries();
        resize([(&mut open.maps.bio_events, bios)], "sizing the table of events of bios")?;
    }
    if wanted.submitter() {
        open.maps
            .submitters
            .set_max_entries(plan.bio_sets())
            .map_err(|e| refusal("sizing the table of submitters", &e))?;
    }
    if wanted.files & FILES_EACH != 0 {
        resize([(&mut open.maps.files, plan.bio_sets())], "sizing the table of files")?;
    }
    if wanted.ring.is_some() {
        open.maps
            .operation_rows
            .set_max_entries(plan.operation_rows)
            .map_err(|e| refusal("sizing the rows of operations", &e))?;
    } else {
        for map in [&mut open.maps.callers, &mut open.maps.operations, &mut open.maps.rings] {
            map.set_max_entries(1).map_err(|e| refusal("sizing the tables of operations", &e))?;
        }
    }
    if wanted.generator {
        resize([(&mut open.maps.generators, GENERATOR_PLACES as u32)], "sizing the table of generators")?;
    }
    if wanted.throttle {
        size_calls(open)?;
    }
    if wanted.throttle && (wanted.submitter() || !wanted.filter.is_empty()) {
        let places = open.maps.operations.max_entries() + open.maps.callers.max_entries() + IOCBS;
        resize([(&mut open.maps.origins, places)], "sizing the table of operation submitters")?;
    }
    if wanted.events.is_some() {
        resize([(&mut open.maps.ranges, plan.slots)], "sizing the table of requested operations")?;
    }
    if wanted.parts {
        size_parts(open, plan)?;
    }
    if wanted.processes {
        process_ios::size(open, plan.devices.len(), wanted.command)
            .map_err(|e| refusal("sizing the table of processes", &e))?;
    }
    if wanted.files & FILES_COUNTED != 0 {
        file_ios::size(open, plan.devices.len()).map_err(|e| refusal("sizing the table of files", &e))?;
    }
    wanted.filter.size(open).map_err(|e| refusal("sizing the filter", &e))?;
    open.maps.rows.set_max_entries(plan.rows).map_err(|e| refusal("sizing the rows", &e))?;
    // Last, as these take the remaining memory. Groups have priority if there are any.
    if wanted.ring.is_some() {
        let others = if wanted.grouping.is_some() { MOST_BYTES } else { map_bytes(open) };
        plan.fit_unowned(others, wanted.cpus);
        let rows = plan.rows + plan.unowned_rows;
        resize([(&mut open.maps.rows, rows)], "sizing the rows of I/Os without operation")?;
    }
    if let Some(grouping) = &mut wanted.grouping {
        grouping.fit(map_bytes(open));
        grouping.size(open).map_err(|e| refusal("sizing the tables of groups", &e))?;
    }
    Ok(())
}

fn map_bytes(open: &OpenLatencySkel<'_>) -> u64 {
    let maps = open.open_object().maps();
    maps.map(|map| u64::from(map.value_size()) * u64::from(map.max_entries())).sum()
}

/// Tables parallel to those of operations and calls.
fn size_calls(open: &mut OpenLatencySkel<'_>) -> Result<()> {
    let places = open.maps.operations.max_entries() + open.maps.callers.max_entries();
    let sizes = [
        (&mut open.maps.operation_parts, places),
        (&mut open.maps.stack_owners, STACK_OWNERS),
        (&mut open.maps.iocbs, IOCBS),
    ];
    resize(sizes, "sizing the tables of parts of operations")
}

/// Tables parallel to those of slots and bios.
fn size_parts(open: &mut OpenLatencySkel<'_>, plan: &Plan) -> Result<()> {
    let sizes = [
        (&mut open.maps.slot_parts, plan.slots),
        (&mut open.maps.bio_parts, plan.bio_sets()),
        (&mut open.maps.part_rows, plan.part_rows()),
    ];
    resize(sizes, "sizing the tables of parts")
}

fn resize<const N: usize>(sizes: [(&mut OpenMapMut<'_>, u32); N], what: &str) -> Result<()> {
    for (map, entries) in sizes {
        // Some have no entries if no traced device has requests.
        map.set_max_entries(entries.max(1)).map_err(|e| refusal(what, &e))?;
    }
    Ok(())
}
