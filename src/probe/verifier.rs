//! Measures how much work each program is for the kernel's verifier: loads and closes every program of every object.
//! The tests compare the figures of each kernel with recorded ones.

use std::ffi::c_char;

use anyhow::{Context, Result, anyhow};
use libbpf_rs::{AsRawLibbpf, Object, ObjectBuilder, OpenObject, libbpf_sys};

use super::btf::KernelBtf;
use super::libbpf;
use super::registry::PROBES;
use super::spec::{Reach, Spec};
use super::trial::{self, TrialFailure, TrialResult};
use crate::host::abilities::VerifiedProgram;

/// The log contains the verifier's totals (BPF_LOG_STATS), which are a few lines, and on 6.1 also a line for each call
/// of a static function whose argument has no type, on each path. A full log fails the load before 6.4 (121664093803).
const LOG_STATS: u32 = 4;
const LOG_BYTES: usize = 1 << 20;

/// Name and bytes of every object in the executable.
pub fn objects() -> impl Iterator<Item = (&'static str, &'static [u8])> {
    PROBES.iter().flat_map(|spec| spec.objects.iter().copied())
}

/// Loads every object in the executable, whether this kernel uses it or not.
pub fn programs() -> Result<Vec<VerifiedProgram>> {
    let btf = KernelBtf::read()?;
    let mut all = Vec::new();
    for spec in PROBES {
        for (at, (object, bytes)) in spec.objects.iter().enumerate() {
            all.extend(of_object(object, bytes, spec, Reach::Usual, &btf)?);
            if at == 0 && spec.has_options {
                all.extend(of_object(&format!("{object}-full"), bytes, spec, Reach::Full, &btf)?);
            }
        }
    }
    Ok(all)
}

fn of_object(
    object: &str,
    bytes: &[u8],
    spec: &Spec,
    reach: Reach,
    btf: &KernelBtf,
) -> Result<Vec<VerifiedProgram>> {
    let names: Vec<String> = open(bytes)?.progs().map(|p| p.name().to_string_lossy().into_owned()).collect();
    let tried = trial::each(&names, &mut |names| verify(bytes, spec, names, reach, btf));
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

/// The number of instructions that the verifier processed for each of the named programs, in their order.
fn verify(bytes: &[u8], spec: &Spec, names: &[String], reach: Reach, btf: &KernelBtf) -> TrialResult<u64> {
    let mut object = open(bytes)?;
    (spec.configure)(&mut object, reach, btf)?;
    trial::select(&mut object, names);
    let mut logs = vec![vec![0u8; LOG_BYTES]; names.len()];
    for mut program in object.progs_mut() {
        let Some(at) = names.iter().position(|name| program.name() == name.as_str()) else { continue };
        program.set_log_level(LOG_STATS);
        // SAFETY: the program is valid while `object` lives, and `logs`, which nothing moves, outlives the load below,
        // which is the last to write to it.
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
        // The verifier's reason is in the program's log and not in libbpf's warnings; the log's last lines are totals.
        let log = program.as_deref().map(log_of).unwrap_or_default();
        let totals = ["processed", "stack depth", "verification time"];
        let text = log.lines().rfind(|line| !totals.iter().any(|t| line.starts_with(t)));
        let reason = text.map_or_else(|| libbpf::last_words().unwrap_or(error.to_string()), str::to_string);
        let before = names.iter().take_while(|name| Some(*name) != program.as_ref());
        let before = before.map_while(|name| processed(&log_of(name))).collect();
        TrialFailure { program, reason, before }
    })?;
    let one = |name: &String| -> Result<u64> {
        let program = loaded.progs().find(|p| p.name() == name.as_str());
        // Since aba64c7da983 (5.16); before, only the log has it.
        match libbpf::verified_instructions(&program.context("the program is in its object")?)? {
            0 => processed(&log_of(name)).context("the verifier's log has no total"),
            instructions => Ok(instructions),
        }
    };
    Ok(names.iter().map(one).collect::<Result<_>>()?)
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
