//! Manages the programs: which of them are loaded, the order in which they are attached, and their skipped runs.

use std::collections::BTreeMap;

use anyhow::Result;
use libbpf_rs::{OpenProgramMut, ProgramMut};

use super::super::btf::RingSubmit;
use super::super::cost::{MeteredProgram, metered};
use super::super::libbpf;
use super::super::libbpf::refusal;
use super::super::skel::latency::OpenLatencySkel;
use super::LatencyProbe;
use super::calls::{Calls, ENTER, EXIT};
use super::load_plan::{LoadPlan, NvmeEvent};

/// Disables the programs that are not needed, before the object is loaded.
pub fn choose(open: &mut OpenLatencySkel<'_>, wanted: &LoadPlan) {
    open.progs.nvme_sq.set_autoload(wanted.nvme == Some(NvmeEvent::Typed));
    open.progs.nvme_sq_raw.set_autoload(wanted.nvme == Some(NvmeEvent::Raw));
    open.progs.bio_complete.set_autoload(wanted.bio_complete.is_some());
    let queue_only: [&mut OpenProgramMut<'_>; 3] =
        [&mut open.progs.bio_queue, &mut open.progs.bio_backmerge, &mut open.progs.bio_frontmerge];
    for program in queue_only {
        program.set_autoload(wanted.queue);
    }
    open.progs.ring_submit_req.set_autoload(wanted.ring == Some(RingSubmit::Request));
    open.progs.ring_submit_sqe.set_autoload(wanted.ring == Some(RingSubmit::Sqe));
    let operations_only: [&mut OpenProgramMut<'_>; 5] = [
        &mut open.progs.sys_enter,
        &mut open.progs.sys_exit,
        &mut open.progs.ring_complete,
        &mut open.progs.ring_wait,
        &mut open.progs.ring_queue_work,
    ];
    for program in operations_only {
        program.set_autoload(wanted.ring.is_some());
    }
    for program in [&mut open.progs.call_enter, &mut open.progs.call_exit] {
        program.set_autoload(!wanted.calls.is_empty());
    }
    let parts_only: [&mut OpenProgramMut<'_>; 4] = [
        &mut open.progs.bio_getrq,
        &mut open.progs.rq_insert,
        &mut open.progs.task_waking,
        &mut open.progs.task_switch,
    ];
    for program in parts_only {
        program.set_autoload(wanted.parts);
    }
    open.progs.io_done.set_autoload(wanted.parts && wanted.io_done);
    for program in [&mut open.progs.process_fork, &mut open.progs.process_exit] {
        program.set_autoload(wanted.command);
    }
}

/// Programs that only follow operations.
pub const OPERATION_PROGRAMS: [&str; 7] = [
    "sys_enter",
    "sys_exit",
    "ring_submit_req",
    "ring_submit_sqe",
    "ring_complete",
    "ring_wait",
    "ring_queue_work",
];

impl LatencyProbe {
    /// Attaches the loaded programs that `wanted` selects; none of them does anything yet. Programs that end something
    /// are attached before those that begin it.
    pub(super) fn attach_programs(&mut self, wanted: &dyn Fn(&str) -> bool) -> Result<()> {
        // Replaces the events of all system calls.
        if wanted(ENTER) && self.calls.as_mut().is_some_and(|calls| calls.attach().is_ok()) {
            self.attached.extend([ENTER, EXIT]);
        } else {
            self.calls = None;
        }
        let by_functions = self.calls.is_some();
        let progs = &mut self.skel.progs;
        let order: [(&'static str, &mut ProgramMut<'_>); 25] = [
            ("rq_complete", &mut progs.rq_complete),
            ("bio_complete", &mut progs.bio_complete),
            ("rq_merge", &mut progs.rq_merge),
            ("rq_requeue", &mut progs.rq_requeue),
            ("bio_split", &mut progs.bio_split),
            ("nvme_sq", &mut progs.nvme_sq),
            ("nvme_sq_raw", &mut progs.nvme_sq_raw),
            ("sys_exit", &mut progs.sys_exit),
            ("ring_complete", &mut progs.ring_complete),
            ("ring_wait", &mut progs.ring_wait),
            ("bio_backmerge", &mut progs.bio_backmerge),
            ("bio_frontmerge", &mut progs.bio_frontmerge),
            ("bio_queue", &mut progs.bio_queue),
            ("ring_submit_req", &mut progs.ring_submit_req),
            ("ring_submit_sqe", &mut progs.ring_submit_sqe),
            ("sys_enter", &mut progs.sys_enter),
            ("io_done", &mut progs.io_done),
            ("task_switch", &mut progs.task_switch),
            ("task_waking", &mut progs.task_waking),
            ("ring_queue_work", &mut progs.ring_queue_work),
            ("rq_insert", &mut progs.rq_insert),
            ("bio_getrq", &mut progs.bio_getrq),
            ("rq_issue", &mut progs.rq_issue),
            ("process_exit", &mut progs.process_exit),
            ("process_fork", &mut progs.process_fork),
        ];
        for (name, program) in order.into_iter().filter(|(name, program)| wanted(name) && program.autoload())
        {
            if by_functions && matches!(name, "sys_enter" | "sys_exit") {
                continue;
            }
            let link = program.attach().map_err(|e| refusal(&format!("attaching {name}"), &e))?;
            self.links.insert(name, link);
            self.attached.insert(name);
        }
        Ok(())
    }

    /// Attaches or detaches all programs. What they count across a change is not usable, since an I/O may begin in one
    /// state and end in the other.
    ///
    /// # Errors
    /// When the kernel does not attach again what it had attached before.
    pub fn set_attached(&mut self, attached: bool) -> Result<()> {
        self.links.clear();
        self.calls.iter_mut().for_each(Calls::detach);
        if !attached {
            return Ok(());
        }
        self.forget_operations()?;
        self.attach_programs(&|_| true)
    }

    /// The loaded programs, for metering.
    pub(super) fn metered(&self) -> Vec<MeteredProgram<'_>> {
        let progs = &self.skel.progs;
        let all = [
            metered("rq_complete", &progs.rq_complete),
            metered("rq_issue", &progs.rq_issue),
            metered("bio_queue", &progs.bio_queue),
            metered("bio_complete", &progs.bio_complete),
            metered("nvme_sq", &progs.nvme_sq),
            metered("nvme_sq_raw", &progs.nvme_sq_raw),
            metered("sys_enter", &progs.sys_enter),
            metered("sys_exit", &progs.sys_exit),
            metered("ring_submit_req", &progs.ring_submit_req),
            metered("ring_submit_sqe", &progs.ring_submit_sqe),
            metered("ring_complete", &progs.ring_complete),
            metered("ring_wait", &progs.ring_wait),
            metered("rq_merge", &progs.rq_merge),
            metered("rq_requeue", &progs.rq_requeue),
            metered("bio_split", &progs.bio_split),
            metered("bio_backmerge", &progs.bio_backmerge),
            metered("bio_frontmerge", &progs.bio_frontmerge),
            metered("bio_getrq", &progs.bio_getrq),
            metered("rq_insert", &progs.rq_insert),
            metered("io_done", &progs.io_done),
            metered("ring_queue_work", &progs.ring_queue_work),
            metered("task_waking", &progs.task_waking),
            metered("task_switch", &progs.task_switch),
            metered("process_fork", &progs.process_fork),
            metered("process_exit", &progs.process_exit),
        ];
        let all = all.into_iter().filter(|program| self.attached.contains(program.name));
        all.chain(self.calls.iter().flat_map(Calls::metered)).collect()
    }

    /// Runs that the kernel skipped, by program.
    pub(super) fn missed(&self) -> BTreeMap<&'static str, u64> {
        let mut missed = BTreeMap::new();
        for program in self.metered() {
            if let Ok(stats) = libbpf::program_stats(&program.fd) {
                *missed.entry(program.name).or_insert(0) += stats.recursion_misses;
            }
        }
        missed.extend(self.skel.maps.bss_data.as_ref().map(|bss| ("unlearned", bss.unlearned)));
        missed
    }
}
