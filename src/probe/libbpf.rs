//! Keeps libbpf's messages for error messages instead of printing them, and wraps the few calls that libbpf-rs does
//! not.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, OnceLock};

use anyhow::{Context, Result};
use libbpf_rs::libbpf_sys;
use libbpf_rs::{AsRawLibbpf, MapCore, Object, OpenObject, PrintLevel, ProgramMut};

use crate::refusal::Refusal;

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn keep(_level: PrintLevel, text: String) {
    if let Ok(mut said) = SAID.lock() {
        // A verifier log can be long; the last lines have the reason.
        if said.len() > 200 {
            said.drain(..100);
        }
        said.push(text.trim().to_string());
    }
}

/// libbpf's version: `1.7.0`.
pub fn version() -> String {
    // SAFETY: it returns a string that is NUL-terminated and never freed.
    let text = unsafe { CStr::from_ptr(libbpf_sys::libbpf_version_string()) };
    text.to_string_lossy().trim_start_matches('v').to_string()
}

/// Keeps libbpf's warnings from now on, and drops earlier ones.
pub fn listen() {
    libbpf_rs::set_print(Some((PrintLevel::Warn, keep)));
    if let Ok(mut said) = SAID.lock() {
        said.clear();
    }
}

/// Prefixes of lines that do not state the reason: libbpf's own frame, and the verifier's states and totals, which
/// follow its reason.
const NOISE: [&str; 6] = ["libbpf:", "processed", "--", "cur state:", "(old state:", "old state:"];

/// The message of libbpf that explains a failure best: the last line that states a reason, prefixed with the name of
/// the program.
pub fn last_words() -> Option<String> {
    words_of(&SAID.lock().ok()?)
}

/// The program that libbpf failed to load: the last one that it names.
pub fn refused_program() -> Option<String> {
    program_of(&SAID.lock().ok()?)
}

fn program_of(said: &[String]) -> Option<String> {
    let named = |line: &str| Some(line.strip_prefix("libbpf: prog '")?.split_once("': ")?.0.to_string());
    said.iter().rev().flat_map(|text| text.lines().rev()).find_map(named)
}

fn words_of(said: &[String]) -> Option<String> {
    let lines = || said.iter().flat_map(|text| text.lines()).map(str::trim).filter(|line| !line.is_empty());
    let reason = lines()
        .rfind(|line| !NOISE.iter().any(|noise| line.starts_with(noise)))
        // libbpf's first message about a program is more specific than the ones that follow from it.
        .or_else(|| lines().find(|line| line.starts_with("libbpf: prog '")))
        .or_else(|| lines().next_back())?;
    let refused = |line: &str| {
        let (name, rest) = line.strip_prefix("libbpf: prog '")?.split_once("': ")?;
        rest.starts_with("BPF program load failed").then(|| format!("{name}: "))
    };
    let is_named = reason.starts_with("libbpf: prog '");
    let program = lines().filter_map(refused).next_back().filter(|_| !is_named).unwrap_or_default();
    Some((program + reason).chars().filter(|c| !c.is_control()).take(200).collect())
}

/// Whether the verifier processed a program and then rejected it: that error is also `permission denied`.
pub fn was_examined() -> bool {
    SAID.lock()
        .is_ok_and(|said| said.iter().any(|text| text.contains("processed ") && text.contains(" insns")))
}

/// The constants of an object, as clang laid them out.
///
/// # Safety
/// A struct of integers and arrays of integers without significant padding: any bytes of its size are a valid value.
pub unsafe trait Constants {}

/// Changes the constants of an object that is not loaded yet. `T` is the type from its skeleton.
pub fn with_constants<T: Constants>(object: &mut OpenObject, change: impl FnOnce(&mut T)) -> Result<()> {
    let mut map = object.maps_mut().find(|map| map.name().to_string_lossy().ends_with(".rodata"));
    let bytes = map.as_mut().and_then(|map| map.initial_value_mut()).context("the object has constants")?;
    // They may be followed by tables that programs copy from.
    anyhow::ensure!(bytes.len() >= size_of::<T>(), "other constants than those known");
    // SAFETY: libbpf maps the value at a page and with at least this size, and any bytes are a `T` ([`Constants`]).
    change(unsafe { &mut *bytes.as_mut_ptr().cast::<T>() });
    Ok(())
}

/// The error for something that the kernel refused.
pub fn refusal(what: &str, error: &libbpf_rs::Error) -> anyhow::Error {
    let said = last_words().map(|words| format!(" ({words})")).unwrap_or_default();
    let text = if error.kind() == libbpf_rs::ErrorKind::PermissionDenied && !was_examined() {
        format!("{what} was not permitted{said}: run as root, or grant CAP_BPF and CAP_PERFMON")
    } else {
        format!("{what} failed: {error}{said}: `biopsy check` shows what this kernel allows")
    };
    Refusal::Refused(text).into()
}

/// A place for an object that lives as long as the process may need it.
///
/// A skeleton borrows the object that it opened. Leaking the few bytes of the handle (once per attach; dropping the
/// skeleton closes the object itself) avoids a self-referential struct.
pub fn object_place() -> &'static mut MaybeUninit<OpenObject> {
    Box::leak(Box::new(MaybeUninit::uninit()))
}

/// Program statistics of the kernel, counted only while they are enabled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProgramStats {
    pub runs: u64,
    pub run_ns: u64,
    /// Runs that the kernel skipped because the program was already running on that CPU; always counted.
    pub recursion_misses: u64,
}

impl ProgramStats {
    /// The difference to an earlier value.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            runs: self.runs.saturating_sub(earlier.runs),
            run_ns: self.run_ns.saturating_sub(earlier.run_ns),
            recursion_misses: self.recursion_misses.saturating_sub(earlier.recursion_misses),
        }
    }
}

/// Reads a program's statistics.
pub fn program_stats(program: &impl AsFd) -> std::io::Result<ProgramStats> {
    let info = program_info(program)?;
    Ok(ProgramStats { runs: info.run_cnt, run_ns: info.run_time_ns, recursion_misses: info.recursion_misses })
}

/// How many instructions the verifier processed; 0 if the kernel does not report it (before 5.16).
pub fn verified_instructions(program: &impl AsFd) -> std::io::Result<u64> {
    Ok(program_info(program)?.verified_insns.into())
}

fn program_info(program: &impl AsFd) -> std::io::Result<libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut length = size_of_val(&info) as u32;
    // SAFETY: `info` is a plain struct of integers that lives across the call, `length` is its size, and all array
    // pointers inside are zero, so the kernel writes nowhere else.
    let failed = unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_fd().as_raw_fd(), &raw mut info, &raw mut length)
    };
    if failed != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(info)
}

/// Whether this kernel's BPF has compare-and-swap (5ffa25502b5a, 5.12): tested once, by loading a program that does
/// nothing else. If the kernel allows no loading at all, the answer does not matter.
pub fn has_swap() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        // Opcode, registers, offset and immediate of each instruction, from the lowest byte on.
        let program: [u64; 6] = [
            0x0000_0000_0000_00b7, // r0 = 0
            0x0000_0000_fff8_0a7b, // *(u64 *)(r10 - 8) = r0
            0x0000_0000_0000_01b7, // r1 = 0
            0x0000_00f1_fff8_1adb, // r0 = cmpxchg_64(r10 - 8, r0, r1)
            0x0000_0000_0000_00b7, // r0 = 0
            0x0000_0000_0000_0095, // exit
        ];
        // SAFETY: an instruction is 8 bytes with alignment 4, which an array of u64 has; the kernel reads the given
        // number of them, the strings end with 0, and no options are passed.
        let fd = unsafe {
            libbpf_sys::bpf_prog_load(
                libbpf_sys::BPF_PROG_TYPE_SOCKET_FILTER,
                std::ptr::null(),
                c"GPL".as_ptr(),
                program.as_ptr().cast(),
                program.len() as u64,
                std::ptr::null_mut(),
            )
        };
        if fd < 0 {
            return fd != -libc::EINVAL;
        }
        // SAFETY: the descriptor was just created for this process and has no other owner.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
        true
    })
}

/// Whether programs can be attached to a kernel function, given by its BTF id: tested by loading an empty program.
pub fn may_follow(function: u32) -> bool {
    // r0 = 0; exit
    let nothing: [u64; 2] = [0x0000_0000_0000_00b7, 0x0000_0000_0000_0095];
    let mut options = tracing(libbpf_sys::BPF_TRACE_FENTRY, function);
    // SAFETY: the instructions live across the call, and the options hold no pointer.
    unsafe { load_tracing(nothing.as_ptr().cast(), nothing.len(), &mut options) }.is_ok()
}

/// Loads a program of a loaded object (fentry or fexit) again, for another kernel function.
pub fn load_for(object: &Object, program: &ProgramMut<'_>, function: u32) -> std::io::Result<OwnedFd> {
    let raw = program.as_libbpf_object().as_ptr();
    // SAFETY: both are loaded, and live across the calls; the pointers belong to them.
    unsafe {
        let mut options = tracing(libbpf_sys::bpf_program__expected_attach_type(raw), function);
        // Callbacks need it.
        options.prog_btf_fd = libbpf_sys::bpf_object__btf_fd(object.as_libbpf_object().as_ptr()) as u32;
        options.func_info = libbpf_sys::bpf_program__func_info(raw).cast();
        options.func_info_cnt = libbpf_sys::bpf_program__func_info_cnt(raw);
        options.func_info_rec_size = size_of::<libbpf_sys::bpf_func_info>() as u32;
        let instructions = libbpf_sys::bpf_program__insns(raw);
        load_tracing(instructions, libbpf_sys::bpf_program__insn_cnt(raw) as usize, &mut options)
    }
}

fn tracing(at: libbpf_sys::bpf_attach_type, function: u32) -> libbpf_sys::bpf_prog_load_opts {
    libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as libbpf_sys::size_t,
        expected_attach_type: at,
        attach_btf_id: function,
        ..Default::default()
    }
}

/// # Safety
/// `count` instructions exist, and the pointers in the options are valid.
unsafe fn load_tracing(
    instructions: *const libbpf_sys::bpf_insn,
    count: usize,
    options: &mut libbpf_sys::bpf_prog_load_opts,
) -> std::io::Result<OwnedFd> {
    // SAFETY: as the caller promises; the kernel copies all of it.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_TRACING,
            std::ptr::null(),
            c"Dual BSD/GPL".as_ptr(),
            instructions,
            count as libbpf_sys::size_t,
            options,
        )
    };
    owned(fd)
}

/// Attaches an fentry or fexit program to the function that it was loaded for, until the descriptor is closed.
pub fn attach_to_function(program: &OwnedFd) -> std::io::Result<OwnedFd> {
    // SAFETY: without a name the kernel takes the target from the program.
    owned(unsafe { libbpf_sys::bpf_raw_tracepoint_open(std::ptr::null(), program.as_raw_fd()) })
}

/// A new descriptor, or a negative error.
fn owned(fd: i32) -> std::io::Result<OwnedFd> {
    if fd < 0 {
        return Err(std::io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the descriptor was just created for this process and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Enables the statistics until the descriptor is closed (Linux 5.8, CAP_SYS_ADMIN).
pub fn enable_stats() -> std::io::Result<OwnedFd> {
    // SAFETY: takes an integer and returns a new descriptor or a negative error.
    owned(unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) })
}

/// Bytes of all maps' values.
pub fn map_bytes(object: &Object) -> u64 {
    object.maps().map(|map| u64::from(map.value_size()) * u64::from(map.max_entries())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_program_and_the_reason() {
        let said = [
            "libbpf: prog 'bio_queue': BPF program load failed: -EACCES",
            "libbpf: prog 'bio_queue': -- BEGIN PROG LOAD LOG --\n0: R1=ctx() R10=fp0\nR5 unbounded memory access\nprocessed 9 insns (limit 1000000)\n-- END PROG LOAD LOG --",
            "libbpf: prog 'bio_queue': failed to load: -EACCES",
            "libbpf: failed to load object 'latency'",
        ];
        let said = said.map(str::to_string);
        assert_eq!(words_of(&said).unwrap(), "bio_queue: R5 unbounded memory access");
        assert_eq!(words_of(&said[2..]).unwrap(), "libbpf: prog 'bio_queue': failed to load: -EACCES");
        assert_eq!(words_of(&said[3..]).unwrap(), "libbpf: failed to load object 'latency'");
        assert_eq!(words_of(&[]), None);
        assert_eq!(program_of(&said), Some("bio_queue".to_string()));
        assert_eq!(program_of(&said[3..]), None);
    }
}
