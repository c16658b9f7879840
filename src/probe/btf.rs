//! Reads from the kernel's BTF which events exist, and values that the programs need. The Rust side of `bpf/compat.h`.

use std::collections::BTreeMap;
use std::path::Path;

use libbpf_rs::btf::types::{Composite, Enum, Func, FuncProto, MemberAttr, Ptr, Struct, Typedef};
use libbpf_rs::btf::{Btf, BtfType, HasSize, ReferencesType};

use anyhow::Result;

use super::skel::latency::types::wire_arguments;
use crate::probe::btf_file;
use crate::refusal::Refusal;

/// The message if the kernel has no BTF, without which nothing can be measured.
pub const NO_BTF: &str = "this kernel has no BTF (/sys/kernel/btf/vmlinux), which describes its data \
    structures: boot a kernel with CONFIG_DEBUG_INFO_BTF, as distributions have it, or name a file with \
    --btf; `pahole --btf_encode_detached FILE vmlinux` makes it from the same kernel with debug information";

/// The kernel's BTF, of vmlinux.
pub struct KernelBtf {
    vmlinux: Btf<'static>,
}

/// Where an event is defined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventHome {
    Vmlinux,
    /// In a loaded module with BTF.
    Module(&'static str),
    /// The module is loaded and has no BTF (Linux 5.10): the event has no types.
    Untyped(&'static str),
    /// The module that defines it is not loaded.
    NotLoaded(&'static str),
    /// Not in this kernel.
    Absent,
}

/// The event with which an io_uring request is submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingSubmit {
    /// `io_uring_submit_req(req)`.
    Request,
    /// `io_uring_submit_sqe(req, force_nonblock)`, its name until 6.2.
    Sqe,
}

impl EventHome {
    pub fn is_there(&self) -> bool {
        matches!(self, Self::Vmlinux | Self::Module(_))
    }
}

impl KernelBtf {
    /// Reads `/sys/kernel/btf/vmlinux` (or where libbpf finds it). Needs no rights.
    pub fn read() -> Result<Self> {
        super::libbpf::listen();
        let found = btf_file::path().map_or_else(Btf::from_vmlinux, Btf::from_path);
        let vmlinux = found.map_err(|_| Refusal::Refused(NO_BTF.to_string()))?;
        Ok(Self { vmlinux })
    }

    /// Where the tracepoint `name` is defined; `module` is the module that defines it if it is not built in.
    pub fn event(&self, name: &str, module: Option<&'static str>) -> EventHome {
        if self.vmlinux.type_by_name::<Typedef<'_>>(&format!("btf_trace_{name}")).is_some() {
            return EventHome::Vmlinux;
        }
        let Some(module) = module else { return EventHome::Absent };
        // A module's own BTF is readable only with CAP_SYS_ADMIN, but here it suffices that the file exists. Raw
        // tracepoints need no BTF.
        match (
            Path::new("/sys/module").join(module).exists(),
            btf_file::path().is_some() || Path::new("/sys/kernel/btf").join(module).exists(),
        ) {
            (true, true) => EventHome::Module(module),
            (true, false) => EventHome::Untyped(module),
            (false, _) => EventHome::NotLoaded(module),
        }
    }

    /// The event of a submitted io_uring request; None if no event names the request (before 5.19).
    pub fn ring_submit(&self) -> Option<RingSubmit> {
        let names_request = |event| {
            self.prototype(event).is_some_and(|all| all.first().is_some_and(|first| first == "io_kiocb"))
        };
        if names_request("io_uring_submit_req") {
            Some(RingSubmit::Request)
        } else if names_request("io_uring_submit_sqe") {
            Some(RingSubmit::Sqe)
        } else {
            None
        }
    }

    /// The bit `RQF_FLUSH_SEQ`: an enumerator in 6.12 (of an anonymous enum) and 6.18; a macro `1 << 4` in 5.10 and
    /// 6.1, which is not in BTF.
    pub fn rqf_flush_seq(&self) -> u32 {
        1 << self.enumerator("__RQF_FLUSH_SEQ").unwrap_or(4)
    }

    /// The bit `RQF_TIMED_OUT`, likewise: `1 << 21` in 5.10 and 6.1.
    pub fn rqf_timed_out(&self) -> u32 {
        1 << self.enumerator("__RQF_TIMED_OUT").unwrap_or(21)
    }

    /// Whether the kernel's I/O counters include passthrough commands by default. They do until 41fa722239b4 (5.18),
    /// which is not visible in BTF; f3fa33acca9f (5.17) removed the field that is tested here.
    pub fn counts_passthrough(&self) -> bool {
        let request: Option<Struct<'_>> = self.vmlinux.type_by_name("request");
        request.is_some_and(|request| {
            request.iter().any(|member| member.name.is_some_and(|name| name == "rq_disk"))
        })
    }

    /// The value of an enumerator of any enum.
    fn enumerator(&self, name: &str) -> Option<i64> {
        self.vmlinux
            .type_by_kind::<Enum<'_>>()
            .find_map(|kind| kind.iter().find(|m| m.name.is_some_and(|n| n == name)).map(|m| m.value))
    }

    /// Names of request flags by bit, as in the kernel (`sync`, `fua`): the bits move between versions. The low 8 bits
    /// are the operation.
    pub fn request_flags(&self) -> BTreeMap<u32, String> {
        let Some(flags) = self.vmlinux.type_by_name::<Enum<'_>>("req_flag_bits") else {
            return BTreeMap::new();
        };
        flags
            .iter()
            .map(|flag| (flag.value, flag.name))
            .filter_map(|(bit, name)| {
                let bit = u32::try_from(bit).ok().filter(|bit| (8..32).contains(bit))?;
                let name = name?.to_string_lossy();
                let word = name.strip_prefix("__REQ_")?;
                (word != "NR_BITS").then(|| (bit, word.to_lowercase()))
            })
            .collect()
    }

    /// Whether the kernel skips a program that would run recursively on one CPU, and counts the skipped run. It does
    /// since 05b24ff9b2cf (6.1), which added this function. Before, a run may interrupt another one within the same
    /// addition.
    pub fn skips_nested_runs(&self) -> bool {
        self.vmlinux.type_by_name::<Func<'_>>("bpf_prog_inc_misses_counter").is_some()
    }

    /// Whether the kernel has a function with this name that is not inlined everywhere.
    pub fn has_function(&self, name: &str) -> bool {
        self.function(name).is_some()
    }

    /// The BTF id of a function, to which programs are attached.
    pub fn function(&self, name: &str) -> Option<u32> {
        self.vmlinux.type_by_name::<Func<'_>>(name).map(|function| function.type_id().into())
    }

    /// Index of the list among the arguments of mm_vmscan_lru_isolate: the last one.
    pub fn lru_argument(&self) -> u32 {
        self.prototype("mm_vmscan_lru_isolate").map_or(0, |all| all.len().saturating_sub(1) as u32)
    }

    /// Indexes of bios and requests among the arguments of their events.
    pub fn arguments(&self) -> Result<wire_arguments> {
        let place = |event, wanted| self.place(event, wanted);
        // All of them are first since 5.11, and each lookup takes a millisecond.
        if place("block_bio_queue", "bio")? == 0 {
            return Ok(wire_arguments::default());
        }
        Ok(wire_arguments {
            bio_queue: place("block_bio_queue", "bio")?,
            bio_backmerge: place("block_bio_backmerge", "bio")?,
            bio_frontmerge: place("block_bio_frontmerge", "bio")?,
            bio_split: place("block_split", "bio")?,
            rq_merge: place("block_rq_merge", "request")?,
            rq_issue: place("block_rq_issue", "request")?,
            rq_requeue: place("block_rq_requeue", "request")?,
            bio_complete: 0,
        })
    }

    /// Index of the bio among the arguments of block_bio_complete: after the request queue, in all kernels so far.
    pub fn bio_complete(&self) -> Result<u32> {
        self.place("block_bio_complete", "bio")
    }

    /// Whether the kernel counts an I/O of a bio-based device when it begins, and not when it ends. It does until
    /// 5f27571382ca (6.3), which removed the sectors argument from this function.
    pub fn counts_bios_at_start(&self) -> bool {
        let Some(begin) = self.vmlinux.type_by_name::<Func<'_>>("bdev_start_io_acct") else { return true };
        FuncProto::try_from(begin.referenced_type()).is_ok_and(|arguments| arguments.len() > 3)
    }

    /// Whether a program can iterate over all tasks in one run (c68a78ffe2cb, 6.7).
    pub fn iterates_tasks(&self) -> bool {
        self.vmlinux.type_by_name::<Func<'_>>("bpf_iter_task_new").is_some()
    }

    /// Whether sched_switch has the state in which a task is switched out: since fa2c3254d7cf (5.18); 9c2136be0878
    /// moved it to the end of the arguments.
    pub fn switch_tells_state(&self) -> bool {
        self.prototype("sched_switch").is_some_and(|all| all.len() > 3)
    }

    fn place(&self, event: &str, wanted: &str) -> Result<u32> {
        let found = self.prototype(event).and_then(|arguments| place(&arguments, wanted));
        Ok(found.ok_or_else(|| {
            Refusal::Refused(format!(
                "the event {event} of this kernel has no {wanted} among its arguments: \
                 `biopsy check` shows what this kernel allows"
            ))
        })?)
    }

    /// Offsets of struct members in bytes, by struct and path (`i_pages.xa_lock`), through unnamed members. Members
    /// that this kernel does not have, and bit fields, are left out. A single pass over all types.
    pub fn offsets(
        &self,
        wanted: &[(&'static str, &'static str)],
    ) -> BTreeMap<(&'static str, &'static str), u64> {
        let mut found = BTreeMap::new();
        for object in self.vmlinux.type_by_kind::<Struct<'_>>() {
            let Some(name) = object.name().and_then(|name| name.to_str()) else { continue };
            for (of, path) in wanted.iter().filter(|(of, _)| *of == name) {
                if let Some(offset) = self.member(Composite::from(object), path) {
                    found.entry((*of, *path)).or_insert(offset);
                }
            }
        }
        found
    }

    /// Sizes of structs in bytes.
    pub fn sizes(&self, wanted: &[&'static str]) -> BTreeMap<&'static str, u64> {
        let mut found = BTreeMap::new();
        for object in self.vmlinux.type_by_kind::<Struct<'_>>() {
            let name = object.name().and_then(|name| name.to_str()).unwrap_or_default();
            if let Some(name) = wanted.iter().find(|wanted| **wanted == name) {
                found.entry(*name).or_insert(object.size() as u64);
            }
        }
        found
    }

    fn member(&self, object: Composite<'_>, path: &str) -> Option<u64> {
        let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
        for member in object.iter() {
            let MemberAttr::Normal { offset } = member.attr else { continue };
            let inner = || {
                let kind = self.vmlinux.type_by_id::<BtfType<'_>>(member.ty)?;
                Composite::try_from(kind.skip_mods_and_typedefs()).ok()
            };
            let begin = u64::from(offset) / 8;
            match member.name {
                Some(name) if name == first => {
                    return match rest {
                        None => Some(begin),
                        Some(rest) => Some(begin + self.member(inner()?, rest)?),
                    };
                }
                Some(_) => {}
                None => {
                    if let Some(offset) = inner().and_then(|inner| self.member(inner, path)) {
                        return Some(begin + offset);
                    }
                }
            }
        }
        None
    }

    /// Argument types of an event, as names of the structs that arguments point to; empty for other arguments.
    fn prototype(&self, event: &str) -> Option<Vec<String>> {
        let typedef: Typedef<'_> = self.vmlinux.type_by_name(&format!("btf_trace_{event}"))?;
        let pointer = Ptr::try_from(typedef.referenced_type()).ok()?;
        let function = FuncProto::try_from(pointer.referenced_type()).ok()?;
        let name = |id| -> Option<String> {
            let argument = self.vmlinux.type_by_id::<BtfType<'_>>(id)?;
            let pointee = Ptr::try_from(argument.skip_mods_and_typedefs()).ok()?.referenced_type();
            let object = Struct::try_from(pointee.skip_mods_and_typedefs()).ok()?;
            Some(object.name()?.to_string_lossy().into_owned())
        };
        // The first parameter is internal to tracepoints.
        Some(function.iter().skip(1).map(|argument| name(argument.ty).unwrap_or_default()).collect())
    }
}

/// Index of the first pointer to `wanted`.
fn place(arguments: &[String], wanted: &str) -> Option<u32> {
    arguments.iter().position(|argument| argument == wanted).map(|place| place as u32)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Output of `bpftool btf dump file vmlinux format c` for the events that changed, by kernel.
    const PROTOTYPES: &str = include_str!("prototypes.txt");

    /// By kernel and event, in the form that [`KernelBtf::prototype`] returns.
    fn prototypes() -> BTreeMap<(&'static str, &'static str), Vec<String>> {
        let object = |argument: &str| {
            let name = argument.trim().strip_prefix("struct ").and_then(|a| a.strip_suffix(" *"));
            name.unwrap_or_default().to_string()
        };
        let line = |line: &'static str| {
            let (kernel, typedef) = line.split_once(' ').unwrap();
            let (event, arguments) =
                typedef.strip_prefix("typedef void (*btf_trace_").unwrap().split_once(")(void *, ").unwrap();
            let arguments = arguments.strip_suffix(");").unwrap().split(',').map(object).collect();
            ((kernel, event), arguments)
        };
        PROTOTYPES.lines().filter(|line| !line.starts_with('#')).map(line).collect()
    }

    #[test]
    fn places_follow_the_prototypes_of_each_kernel() {
        let prototypes = prototypes();
        let all = |kernel| {
            let events = [
                ("block_bio_queue", "bio"),
                ("block_bio_backmerge", "bio"),
                ("block_bio_frontmerge", "bio"),
                ("block_split", "bio"),
                ("block_rq_merge", "request"),
                ("block_rq_issue", "request"),
                ("block_rq_requeue", "request"),
            ];
            events.map(|(event, wanted)| place(&prototypes[&(kernel, event)], wanted).unwrap())
        };
        assert_eq!(all("5.10.136"), [1, 2, 2, 1, 1, 1, 1]);
        assert_eq!(all("5.10"), [1, 2, 2, 1, 0, 0, 0]);
        for kernel in ["6.1", "6.12", "7.2"] {
            assert_eq!(all(kernel), [0; 7], "{kernel}");
        }
    }

    #[test]
    fn an_event_without_the_object_has_no_place() {
        assert_eq!(place(&["request_queue".into(), String::new()], "bio"), None);
    }

    /// The running kernel's BTF is readable by all users, so reading it is tested if it exists.
    #[test]
    fn the_prototypes_of_this_kernel_can_be_read() {
        if !Path::new("/sys/kernel/btf/vmlinux").exists() {
            return;
        }
        let btf = KernelBtf::read().unwrap();
        assert!(btf.prototype("block_rq_complete").unwrap().contains(&"request".to_string()));
        assert!(btf.arguments().is_ok());
        assert_eq!(btf.prototype("no_such_event"), None);
        let offsets =
            btf.offsets(&[("list_head", "prev"), ("request", "bio.no_such"), ("mutex", "wait_list.prev")]);
        assert_eq!(offsets.get(&("list_head", "prev")), Some(&8));
        assert!(offsets.contains_key(&("mutex", "wait_list.prev")));
        assert_eq!(offsets.len(), 2);
        assert_eq!(btf.sizes(&["list_head"]), BTreeMap::from([("list_head", 16)]));
    }
}
