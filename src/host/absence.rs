//! Why a value is not there: null in JSON means that nobody told it, and here stands why.

use super::Host;
use super::idle::Wakeup;

/// One value, and why it is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absence {
    /// Its key in JSON.
    pub what: &'static str,
    /// Half a sentence.
    pub why: String,
}

impl Absence {
    fn new(what: &'static str, why: impl Into<String>) -> Self {
        Self { what, why: why.into() }
    }
}

/// What the kernel does not tell of the CPUs.
pub fn of_cpus(host: &Host) -> Vec<Absence> {
    let mut all = Vec::new();
    if host.smt.control.is_none() && host.smt.active.is_none() {
        all.push(Absence::new("smt", "this kernel does not tell it (before Linux 4.19, or one CPU only)"));
    }
    if host.smt.cores.is_none() {
        all.push(Absence::new("cores", "the kernel does not tell the core of each CPU"));
    }
    match host.idle.as_ref().map(|idle| &idle.wakeup) {
        None => all.push(Absence::new("idle", "no cpuidle driver")),
        Some(Wakeup::Untold(why)) => all.push(Absence::new("wakeup_limit_us", why)),
        Some(Wakeup::Limit(_) | Wakeup::Unlimited) => {}
    }
    if host.frequencies.is_empty() {
        all.push(Absence::new("frequency", "no cpufreq driver"));
    }
    all
}
