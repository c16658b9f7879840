//! How much work each program is for the kernel's verifier: every program of every object is
//! loaded and closed. The tests hold the figures of each kernel against recorded ones.

use std::ffi::c_char;

use anyhow::{Context, Result, anyhow};
use libbpf_rs::{AsRawLibbpf, Object, ObjectBuilder, OpenObject, libbpf_sys};

use super::btf::KernelBtf;
use super::files;
use super::libbpf;
use super::skel::{self, blocked, interrupts, latency, locks, pagecache, paths, reclaim, stacks, threads};
use super::trial::{self, Loaded, Refused};
use crate::host::abilities::VerifiedProgram;

/// The log holds the verifier's totals (BPF_LOG_STATS), which are a few lines, and on 6.1 also a line for each call of
/// a static function whose argument has no type, on each path. A log that is full fails the load before 6.4
/// (121664093803).
const LOG_STATS: u32 = 4;
const LOG_BYTES: usize = 1 << 20;

/// Name and bytes of every object that the executable holds.
pub fn objects() -> impl Iterator<Item = (&'static str, &'static [u8])> {
    skel::OBJECTS.iter().copied()
}

/// Loads what the executable holds, whether this kernel is served by it or not.
pub fn programs() -> Result<Vec<VerifiedProgram>> {
    let btf = KernelBtf::read()?;
    let mut all = Vec::new();
    for (object, bytes) in objects() {
        all.extend(of_object(object, bytes, View::Usual, &btf)?);
        // Without compare-and-swap there is nothing more to switch on.
        if object == "latency" {
            all.extend(of_object(&format!("{object}-full"), bytes, View::Full, &btf)?);
        }
    }
    Ok(all)
}

/// What the constants switch on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum View {
    /// `latency` without options, on disks with requests.
    Usual,
    /// All that any view can ask for.
    Full,
}

fn of_object(object: &str, bytes: &[u8], view: View, btf: &KernelBtf) -> Result<Vec<VerifiedProgram>> {
    let names: Vec<String> = open(bytes)?.progs().map(|p| p.name().to_string_lossy().into_owned()).collect();
    let tried = trial::each(&names, &mut |names| verify(bytes, object, names, view, btf));
    let one = |(program, tried): (String, Result<u64, String>)| {
        let (instructions, reason) = match tried {
            Ok(instructions) => (Some(instructions), None),
            Err(reason) => (None, Some(reason)),
        };
        VerifiedProgram { object: object.to_string(), program, instructions, reason }
    };
    Ok(names.into_iter().zip(tried).map(one).collect())
}

fn open(bytes: &[u8]) -> Result<OpenObject> {
    libbpf::listen();
    Ok(ObjectBuilder::default().open_memory(bytes)?)
}

/// The instructions that the verifier went through for each of the named programs, in their order.
fn verify(bytes: &[u8], of: &str, names: &[String], view: View, btf: &KernelBtf) -> Loaded<u64> {
    let mut object = open(bytes)?;
    tell(&mut object, of, view, btf)?;
    trial::select(&mut object, names);
    let mut logs = vec![vec![0u8; LOG_BYTES]; names.len()];
    for mut program in object.progs_mut() {
        let Some(at) = names.iter().position(|name| program.name() == name.as_str()) else { continue };
        program.set_log_level(LOG_STATS);
        // SAFETY: the program is valid while `object` lives, and `logs`, which nothing moves, outlives the load
        // below, which is the last to write to it.
        let failed = unsafe {
            let log = logs[at].as_mut_ptr().cast::<c_char>();
            libbpf_sys::bpf_program__set_log_buf(program.as_libbpf_object().as_ptr(), log, LOG_BYTES as u64)
        };
        if failed != 0 {
            return Err(anyhow!("no place for the verifier's log").into());
        }
    }
    let loaded = object.load();
    let log_of = |name: &str| {
        let at = names.iter().position(|other| other == name);
        at.map_or_else(String::new, |at| {
            let end = logs[at].iter().position(|byte| *byte == 0).unwrap_or(LOG_BYTES);
            String::from_utf8_lossy(&logs[at][..end]).into_owned()
        })
    };
    let loaded: Object = loaded.map_err(|error| {
        let program = libbpf::refused_program();
        // The verifier's own reason is in the program's log and not in libbpf's warnings; its last lines are totals.
        let log = program.as_deref().map(log_of).unwrap_or_default();
        let totals = ["processed", "stack depth", "verification time"];
        let text = log.lines().rfind(|line| !totals.iter().any(|t| line.starts_with(t)));
        let reason = text.map_or_else(|| libbpf::last_words().unwrap_or(error.to_string()), str::to_string);
        let before = names.iter().take_while(|name| Some(*name) != program.as_ref());
        let before = before.map_while(|name| processed(&log_of(name))).collect();
        Refused { program, reason, before }
    })?;
    let one = |name: &String| -> Result<u64> {
        let program = loaded.progs().find(|p| p.name() == name.as_str());
        // Since aba64c7da983 (5.16); before, the log alone says it.
        match libbpf::verified_instructions(&program.context("the program is in its object")?)? {
            0 => processed(&log_of(name)).context("the verifier's log has no total"),
            instructions => Ok(instructions),
        }
    };
    Ok(names.iter().map(one).collect::<Result<_>>()?)
}

/// What a live view would write into the constants: they decide which branches there are.
fn tell(object: &mut OpenObject, name: &str, view: View, btf: &KernelBtf) -> Result<()> {
    if name == "locks" && !btf.event("contention_begin", None).is_there() {
        // Storage of tasks is not there either, and one map that cannot be made would refuse all programs.
        for mut map in object.maps_mut().filter(|map| map.name() == "sleeps") {
            map.set_autocreate(false)?;
        }
    }
    let Some(mut constants) = object.maps_mut().find(|m| m.name().to_string_lossy().ends_with(".rodata"))
    else {
        return Ok(());
    };
    let bytes = constants.initial_value_mut().context("constants have a value")?;
    if name == "locks" {
        // Behind them lies what a row begins as.
        anyhow::ensure!(bytes.len() >= size_of::<locks::types::rodata>(), "other constants than those known");
        // SAFETY: as below, with the struct of this object.
        let constants = unsafe { &mut *bytes.as_mut_ptr().cast::<locks::types::rodata>() };
        constants.config.cpus = 1;
        (constants.config.period_ns, constants.config.budget_ns, constants.config.want_stacks) = (1, 1, 1);
        constants.config.want_filter = u32::MAX;
        constants.config.want_holders = 1;
        return Ok(());
    }
    if name == "interrupts" {
        anyhow::ensure!(
            bytes.len() == size_of::<interrupts::types::rodata>(),
            "other constants than those known"
        );
        // SAFETY: as below, with the struct of this object.
        let constants = unsafe { &mut *bytes.as_mut_ptr().cast::<interrupts::types::rodata>() };
        constants.config.devices = 1;
        constants.config.cpus = 2;
        constants.config.time_every = 8;
        constants.config.rqf_flush_seq = btf.rqf_flush_seq();
        constants.config.nested_runs = (!btf.skips_nested_runs()).into();
        return Ok(());
    }
    if name == "pagecache" {
        anyhow::ensure!(
            bytes.len() == size_of::<pagecache::types::rodata>(),
            "other constants than those known"
        );
        // SAFETY: as below, with the struct of this object.
        let constants = unsafe { &mut *bytes.as_mut_ptr().cast::<pagecache::types::rodata>() };
        constants.config.nodes = 2;
        constants.config.lru_argument = btf.lru_argument();
        return Ok(());
    }
    if name == "blocked" || name == "reclaim" {
        anyhow::ensure!(
            bytes.len() == size_of::<blocked::types::rodata>()
                && bytes.len() == size_of::<reclaim::types::rodata>(),
            "other constants than those known"
        );
        // SAFETY: as below, with the struct of these objects, which have the same constants.
        let constants = unsafe { &mut *bytes.as_mut_ptr().cast::<blocked::types::rodata>() };
        constants.config.cpus = 1;
        (constants.config.period_ns, constants.config.budget_ns) = (1, 1);
        constants.config.want_filter = u32::MAX;
        constants.config.has_state = btf.switch_tells_state().into();
        return Ok(());
    }
    if name == "stacks" {
        anyhow::ensure!(
            bytes.len() == size_of::<stacks::types::rodata>(),
            "other constants than those known"
        );
        // SAFETY: as below, with the struct of this object.
        let constants = unsafe { &mut *bytes.as_mut_ptr().cast::<stacks::types::rodata>() };
        constants.config.want_cgroups = 1;
        return Ok(());
    }
    if name == "paths" {
        anyhow::ensure!(bytes.len() == size_of::<paths::types::rodata>(), "other constants than those known");
        return Ok(());
    }
    if name == "threads" {
        anyhow::ensure!(
            bytes.len() == size_of::<threads::types::rodata>(),
            "other constants than those known"
        );
        // SAFETY: as below, with the struct of this object.
        let constants = unsafe { &mut *bytes.as_mut_ptr().cast::<threads::types::rodata>() };
        constants.config.want_stacks = 1;
        constants.config.want_cgroups = 1;
        constants.config.want_devices = 1;
        constants.arguments.bio_queue = btf.arguments()?.bio_queue;
        return Ok(());
    }
    anyhow::ensure!(bytes.len() == size_of::<latency::types::rodata>(), "other constants than those known");
    // SAFETY: libbpf maps the value at a page, and the struct of integers is the one that clang laid out for
    // this map, in all latency objects (asserted in skel.rs) and with this size.
    let constants = unsafe { &mut *bytes.as_mut_ptr().cast::<latency::types::rodata>() };
    constants.arguments = btf.arguments()?;
    constants.arguments.bio_complete = btf.bio_complete()?;
    constants.config.rqf_flush_seq = btf.rqf_flush_seq();
    constants.config.rqf_timed_out = btf.rqf_timed_out();
    constants.config.devices = 1;
    constants.config.want_queue = 1;
    constants.config.want_operations = libbpf::has_swap().into();
    constants.config.bio_mask = 127;
    if view == View::Full {
        let wanted: u32 = libbpf::has_swap().into();
        constants.config.want_bios = wanted;
        constants.config.want_parts = wanted;
        constants.config.want_throttle = wanted;
        constants.config.want_submitter = wanted;
        constants.config.want_events = wanted;
        constants.config.want_stacks = wanted;
        constants.config.event_ops = u32::MAX;
        constants.config.most_groups = 2 * wanted;
        constants.config.group_by = u32::MAX;
        // Any address: what is not there is not looked at.
        constants.file_callbacks = files::any_callbacks();
        constants.config.matrix_cpus = 2 * wanted;
        constants.config.want_filter = u32::MAX * wanted;
        constants.config.count_processes = wanted;
        constants.config.own_process = wanted;
        constants.config.want_files = u32::MAX * wanted;
    }
    Ok(())
}

/// N of `processed N insns (limit 1000000) ...`.
fn processed(log: &str) -> Option<u64> {
    let line = log.lines().find_map(|line| line.trim().strip_prefix("processed "))?;
    line.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_from_the_log() {
        let log = "verification time 74 usec\nstack depth 8\nprocessed 311 insns (limit 1000000) \
                   max_states_per_insn 1 total_states 17 peak_states 17 mark_read 5\n";
        assert_eq!(processed(log), Some(311));
        assert_eq!(processed("verification time 74 usec\n"), None);
    }
}
