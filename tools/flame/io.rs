//! Time of I/Os by who handed them in.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use biopsy::analyze::flame::{FlameSummary, What};
use biopsy::analyze::latency::summarize;
use biopsy::analyze::profile::Unit;
use biopsy::analyze::submits::{self, SubmitSummary, Tally};
use biopsy::analyze::trace::io::TracedIo;
use biopsy::analyze::trace::join::Join;
use biopsy::analyze::trace::scene::Scene;
use biopsy::analyze::{loss, missing, trace};
use biopsy::clock::now_ns;
use biopsy::host::{Host, select};
use biopsy::probe::events::EventOptions;
use biopsy::probe::latency::LatencyProbe;
use biopsy::probe::latency::options::Options;
use biopsy::probe::latency::submits::StackOptions;
use biopsy::render::{folded, text};
use biopsy::symbols::{Mapped, Symbolizer};
use biopsy::wire::submits::Submits;

use super::source::Taken;
use crate::cli::Flame;
use crate::submitters::Chosen;
use crate::window;

pub fn follow(
    args: &Flame,
    host: &Host,
    chosen: &Chosen,
    window: impl FnOnce(&mut dyn FnMut(Duration) -> Result<()>) -> Result<()>,
) -> Result<Taken> {
    let root = Path::new("/");
    let devices = devices(args, host)?;
    let options = Options {
        events: Some(EventOptions::default()),
        stacks: Some(StackOptions { max_cost: args.max_cost, ..StackOptions::default() }),
        filter: chosen.filter.clone(),
        // Each layer has its own time: together they would count twice. Whoever names one has that one.
        layers: !devices.is_empty(),
        only_named: true,
        devices,
        cost: !args.no_cost,
        ..Options::default()
    };
    let mut probe = LatencyProbe::attach(host, root, &options)?;
    let first = probe.start().clone();
    let mut looker = Looker::new(Scene::new(host, probe.planned(), probe.request_flags(), first.at_ns));
    window(&mut |left| {
        probe.tick();
        if let Some(mut taken) = probe.events(Some(left))? {
            let ios = looker.join.round(now_ns(), taken.events.drain(..), taken.emptied);
            looker.look(&ios);
            probe.give_back(taken.events);
        }
        Ok(())
    })?;
    let end = probe.detach()?;
    probe.end_events();
    while let Some(taken) = probe.events(None)? {
        let ios = looker.join.round(now_ns(), taken.events, taken.emptied);
        looker.look(&ios);
    }
    let ios = looker.join.finish();
    looker.look(&ios);

    let latency = summarize(host, &first, &end);
    let lost = trace::lost(loss::lost(&latency, &first, &end), &probe.emitted()?);
    let submits = Submits { maps: looker.mapped, ..probe.submits()? };
    let names = Symbolizer::new().names(&submits::addresses(&submits));
    let summary = submits::summarize(&latency, &looker.tally, &submits, &names);
    let doubt = loss::distrust(&latency, &lost, args.max_loss);
    let missing = [probe.missing().to_vec(), missing::stages(&latency), names.missing.clone()].concat();
    Ok(Taken {
        summary: FlameSummary {
            what: What::Io,
            profile: folded::profile(&summary.folded, Unit::Nanoseconds),
            counts: None,
            duration_ns: latency.duration_ns,
            source: format!(
                "{} of {} by their stacks",
                text::count(summary.sampled),
                text::counted(summary.ios, "I/O")
            ),
            measured: summary.ios,
            lost: lost.ios,
            period_ns: None,
            notes: notes(&summary, &submits),
        },
        cost: probe.cost(latency.ios_per_second()),
        missing,
        lost,
        doubt,
    })
}

/// What `-d` names.
fn devices(args: &Flame, host: &Host) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for named in &args.devices {
        let found = match LatencyProbe::sees_bios() {
            true => select::observable(host, Path::new("/"), named)?,
            false => select::traceable(host, Path::new("/"), named)?,
        };
        window::add(&mut names, &found);
    }
    Ok(names)
}

/// What is made of events while the window is open.
struct Looker {
    scene: Scene,
    join: Join,
    tally: Tally,
    mapped: Mapped,
    seen: HashSet<u32>,
}

impl Looker {
    fn new(scene: Scene) -> Self {
        let join = Join::new(&scene);
        Self { scene, join, tally: Tally::default(), mapped: Mapped::default(), seen: HashSet::new() }
    }

    fn look(&mut self, ios: &[TracedIo]) {
        for io in ios {
            self.tally.add(self.scene.name(io), io);
            let owner = io.owner.filter(|owner| !owner.kernel);
            if let Some(owner) = owner.filter(|owner| self.seen.insert(owner.pid)) {
                // Gone already, or not ours to see: its frames have no names.
                let _unseen = self.mapped.read(Path::new("/"), owner.pid);
            }
        }
    }
}

fn notes(summary: &SubmitSummary, submits: &Submits) -> Vec<String> {
    let parts = summary.parts.iter().map(|(part, ns)| format!("{} {}", part.name(), text::time(*ns)));
    let mut notes = vec![format!("exact, by stage: {}", parts.collect::<Vec<_>>().join(", "))];
    if let Some(half) = summary.half_width.filter(|_| submits.one_in > 1) {
        notes.push(format!(
            "stacks of 1 in up to {} that were handed in, as --max-cost allows: each stands for others of its device, \
             operation and stage; a share is known to ±{} points at most (95 %)",
            text::count(submits.one_in),
            text::significant(half, 2)
        ));
    }
    let mut also = |ns: u64, words: &str| {
        if ns > 0 {
            notes.push(format!("{} {words}", text::time(ns)));
        }
    };
    also(summary.stacks_ns, "that it took to take the stacks are left out of submit, by their mean");
    also(summary.no_stack_ns, "are of I/Os none of which has a stack: the kernel's own flushes, or too few");
    also(summary.cut_ns, "have user stacks that are cut: code without frame pointers hides its callers");
    for (n, words) in [
        (submits.full, "stacks found no room in their table"),
        (submits.over, "were not taken, since their budget was spent"),
        (submits.nested, "were not taken, since an interrupt came between"),
    ] {
        if n > 0 {
            notes.push(format!("{} {words}", text::count(n)));
        }
    }
    notes
}
