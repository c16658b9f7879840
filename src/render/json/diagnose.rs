//! `biopsy.diagnose/1`.

use serde_json::{Map, Value, json};

use crate::analyze::cpu::{self, CpuRow, CpuSummary, TIMES};
use crate::analyze::stacks::CpuClass;
use crate::findings::Diagnosis;
use crate::host::BlockDevice;
use crate::rules::{self, Summaries};

/// Classes of CPU time that cost something.
const CLASSES: [(&str, CpuClass); 6] = [
    ("user", CpuClass::User),
    ("system", CpuClass::System),
    ("io-wq", CpuClass::IoWq),
    ("irq", CpuClass::Irq),
    ("softirq", CpuClass::Softirq),
    ("kthread", CpuClass::Kthread),
];

/// The object of `diagnose --json`, which the report carries as well. `bodies` are those of the views that it is
/// made of, under their nouns.
pub fn object(
    s: &Summaries<'_>,
    diagnosis: &Diagnosis,
    bodies: impl IntoIterator<Item = (&'static str, Value)>,
    command_status: Option<i32>,
) -> Map<String, Value> {
    let mut object = super::object("biopsy.diagnose/1", s.envelope);
    object.insert("verdict".into(), verdict(diagnosis));
    object.insert("findings".into(), json!(diagnosis.findings));
    object.insert("not_examined".into(), json!(diagnosis.not_examined));
    object.insert("cpu".into(), cpu(s));
    object.insert("host".into(), json!(s.host));
    let used: Vec<&BlockDevice> = s.host.devices.iter().filter(|device| !device.is_placeholder()).collect();
    object.insert("devices".into(), json!(crate::analyze::devices::list(s.host, &used)));
    object.extend(command_status.map(|status| ("command_status".to_string(), json!(status))));
    object.extend(bodies.into_iter().map(|(noun, body)| (noun.to_string(), body)));
    object
}

fn verdict(diagnosis: &Diagnosis) -> Value {
    diagnosis.findings.first().map_or(Value::Null, |first| {
        json!({
            "id": first.id,
            "subject": first.subject,
            "sentence": first.sentence,
            "confidence": first.confidence,
        })
    })
}

/// Per class null without a profile, and where no I/O was seen.
fn cpu(s: &Summaries<'_>) -> Value {
    let ios = rules::ios(s);
    let mut object = Map::new();
    for (name, class) in CLASSES {
        let cycles = |profile| cpu::cycles_per_io(s.cpu?, profile, class, ios);
        object.insert(
            name.to_string(),
            json!({
                "ns_per_io": s.profile.and_then(|profile| rules::ns_per_io(s, profile, class)),
                "cycles_per_io": s.profile.and_then(cycles),
            }),
        );
    }
    object.insert("sampler".into(), json!(s.profile.map(|profile| &profile.sampler)));
    object.insert("samples".into(), json!(s.profile.map(|profile| profile.samples)));
    object.insert("lost".into(), json!(s.profile.map(|profile| profile.lost)));
    if let Some(cpu) = s.cpu {
        counted(&mut object, cpu, ios);
        object.insert("time".into(), time(cpu));
    }
    Value::Object(object)
}

/// What was counted, per I/O and as it is. Null: not known, and `missing` says why.
fn counted(object: &mut Map<String, Value>, cpu: &CpuSummary, ios: u64) {
    let (counted, per) = (&cpu.counted, cpu::per_io(cpu, ios));
    let fields = [
        ("counter", json!(counted.counter)),
        ("counted_share", json!(counted.counted_share)),
        ("cycles_per_io", json!(per.cycles)),
        ("core_cycles_per_io", json!(per.core_cycles.map(|(low, high)| [low, high]))),
        ("threads_share_cores", json!(cpu.smt())),
        ("instructions_per_io", json!(per.instructions)),
        ("instructions_per_cycle", json!(per.instructions_per_cycle)),
        ("user_instructions_per_cycle", json!(per.user_instructions_per_cycle)),
        ("kernel_instructions_per_cycle", json!(per.kernel_instructions_per_cycle)),
        ("stalled_frontend_share", json!(per.frontend_stalls)),
        ("stalled_backend_share", json!(per.backend_stalls)),
        ("context_switches_per_io", json!(per.context_switches)),
        ("wakeups_per_io", json!(per.wakeups)),
        ("context_switches", json!(cpu.context_switches)),
        ("wakeups", json!(cpu.wakeups)),
        ("forks", json!(cpu.processes)),
        ("user_cycles", json!(counted.user_cycles)),
        ("kernel_cycles", json!(counted.kernel_cycles)),
        ("user_instructions", json!(counted.user_instructions)),
        ("kernel_instructions", json!(counted.kernel_instructions)),
        ("clock_ns", json!(counted.clock_ns)),
    ];
    object.extend(fields.map(|(name, value)| (name.to_string(), value)));
}

/// The kernel's own account of the window.
fn time(cpu: &CpuSummary) -> Value {
    let rows = |rows: &[CpuRow]| rows.iter().map(row).collect::<Vec<_>>();
    json!({
        "duration_ns": cpu.duration_ns,
        "interrupts_timed": cpu.interrupts_timed,
        "all": cpu.all.as_ref().map(row),
        "sockets": rows(&cpu.sockets),
        "cores": rows(&cpu.cores),
        "cpus": rows(&cpu.cpus),
        "left_out": cpu.left_out.iter().map(|(cpu, why)| json!({ "cpu": cpu, "why": why })).collect::<Vec<_>>(),
    })
}

/// The times and `unaccounted_ns` together are `wall_ns`. `iowait_ns` is in idle, `guest_ns` in user and nice.
fn row(row: &CpuRow) -> Value {
    let mut object = Map::new();
    object.insert("cpus".into(), json!(row.cpus));
    object.insert("socket".into(), json!(row.socket));
    object.insert("wall_ns".into(), json!(row.wall_ns));
    object.extend(TIMES.iter().zip(row.times).map(|(name, ns)| (format!("{name}_ns"), json!(ns))));
    object.insert("unaccounted_ns".into(), json!(row.unaccounted_ns));
    object.insert("error_ns".into(), json!(row.error_ns));
    object.insert("iowait_ns".into(), json!(row.iowait_ns));
    object.insert("guest_ns".into(), json!(row.guest_ns));
    object.insert("cycles".into(), json!(row.cycles));
    object.insert("instructions".into(), json!(row.instructions));
    Value::Object(object)
}
