//! The `top` view: the kernel's own counters, without any BPF program.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use super::watch::{Live, WatchInterval};
use super::window::are_gone;
use super::{stop, wall_clock};
use crate::analyze::top::{self, TopInterval};
use crate::envelope::Envelope;
use crate::host::activity::{self, Activity};
use crate::host::{Host, select};
use crate::probe::Probe;

/// Maximum delay until Ctrl-C is noticed.
const NAP: Duration = Duration::from_millis(50);

/// The disks of the view.
pub struct Disks {
    root: PathBuf,
    /// Selected with -d; empty: all.
    named: Vec<String>,
    /// Disks that are read for each line.
    all: Vec<String>,
    /// Disks that are summed up.
    total: Vec<String>,
    /// Contents of `/sys/block` when they were chosen.
    present: Vec<String>,
    start: Activity,
    /// Disks may have been added since.
    is_due: std::cell::Cell<bool>,
}

impl Disks {
    /// # Errors
    ///
    /// If one of `devices` does not exist, or two of them overlap.
    pub fn new(root: &Path, devices: &[String]) -> Result<Self> {
        let present = activity::disk_names(root);
        let host = Host::read(root)?;
        let mut named = Vec::new();
        for text in devices {
            let name = select::find(&host, root, text)?.name().to_string();
            if !named.contains(&name) {
                named.push(name);
            }
        }
        select::disjoint(&host, &named)?;
        let all = if named.is_empty() { activity::whole_disks(&host) } else { named.clone() };
        let total = activity::without_upper(&host, &all);
        Ok(Self {
            root: root.to_path_buf(),
            named,
            all,
            total,
            present,
            start: Activity::default(),
            is_due: false.into(),
        })
    }

    /// Selected with -d; empty: all are read.
    pub fn named(&self) -> &[String] {
        &self.named
    }

    /// Adds new disks to the view.
    fn look_again(&mut self) {
        if !self.named.is_empty() || activity::disk_names(&self.root) == self.present {
            return;
        }
        // If that fails, the chosen disks stay.
        if let Ok(now) = Self::new(&self.root, &[]) {
            *self = Self { start: std::mem::take(&mut self.start), ..now };
        }
    }
}

impl Probe for Disks {
    type Reading = Activity;

    fn begin(&mut self) -> Result<()> {
        self.start = self.read()?;
        Ok(())
    }

    fn start(&self) -> &Activity {
        &self.start
    }

    fn tick(&mut self) {
        if self.is_due.take() {
            self.look_again();
        }
    }

    fn nap(&self) -> Duration {
        NAP
    }

    fn read(&self) -> Result<Activity> {
        self.is_due.set(true);
        Ok(Activity::read(&self.root, &self.all, wall_clock::both))
    }

    fn detach(&mut self) -> Result<Activity> {
        self.read()
    }
}

/// Shows the machine's activity.
pub struct TopView {
    /// Selected with -d.
    pub named: Vec<String>,
}

impl Live for TopView {
    type Probe = Disks;
    type Summary = TopInterval;

    fn summary(
        &mut self,
        disks: &Disks,
        piece: &WatchInterval<'_, Activity>,
        envelope: Envelope,
    ) -> (Envelope, TopInterval) {
        let line = top::line(piece.from, piece.to, &disks.total);
        (Envelope { duration_ns: line.duration_ns, missing: line.missing.clone(), ..envelope }, line)
    }

    fn distrust(&mut self, _: &Activity, _: &Activity, _: f64) -> Option<String> {
        (!stop::requested() && are_gone(&self.named)).then(|| format!("{} is gone", self.named.join(", ")))
    }
}
