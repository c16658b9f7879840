//! Renders a job as fio's options: everything that differs from fio's defaults, so that a job file of them gives the
//! same load.

use std::path::Path;
use std::time::Duration;

use crate::load::{
    Advice, Arrivals, BlockShare, BlockSizes, Distribution, Engine, ExitWhat, Extent, Job, OnError, Pattern,
    Placement, PriorityShare, Target, Timestamps,
};

/// Names and values for fio's `job options`. Settings without a fio option are left out: thread placement other than a
/// list of CPUs, latencies of only some operations, NOP requests.
pub fn given(job: &Job) -> Vec<(String, String)> {
    let mut options: Vec<(&str, String)> = vec![("name", job.name.clone())];
    options.extend(targets(&job.targets));
    options.push(("ioengine", job.engine.name().to_string()));
    options.push(("rw", job.rw.name().to_string()));
    if matches!(job.rw, Pattern::ReadWrite | Pattern::RandReadWrite) {
        options.push(("rwmixread", job.rwmixread.to_string()));
    }
    options.push(blocks(&job.bs));
    let mut number = |name, value: u64, default: u64| {
        if value != default {
            options.push((name, value.to_string()));
        }
    };
    number("iodepth", job.iodepth.into(), 1);
    number("iodepth_batch", job.iodepth_batch.into(), 1);
    number("iodepth_batch_complete", job.iodepth_batch_complete.into(), 1);
    number("numjobs", job.numjobs.into(), 1);
    number("direct", job.direct.into(), 0);
    number("thinktime_blocks", job.thinktime_blocks.into(), 1);
    number("fsync", job.fsync.into(), 0);
    number("fdatasync", job.fdatasync.into(), 0);
    number("end_fsync", job.end_fsync.into(), 0);
    number("number_ios", job.number_ios.unwrap_or(0), 0);
    number("io_size", job.io_size.unwrap_or(0), 0);
    number("filesize", job.filesize.or_else(|| scratch(&job.targets)).unwrap_or(0), 0);
    number("loops", job.loops.into(), 1);
    number("norandommap", (job.rw.is_random() && job.norandommap).into(), 0);
    if job.rw.is_random() {
        options.push(("randseed", job.seed.to_string()));
    }
    let mut extent = |name, extent: Option<Extent>| {
        if let Some(extent) = extent.filter(|extent| *extent != Extent::Bytes(0)) {
            options.push((name, place(extent)));
        }
    };
    extent("size", job.amount.map(Extent::Bytes).or(job.size));
    extent("offset", Some(job.offset));
    extent("offset_increment", Some(job.offset_increment));
    options.extend(job.runtime.map(|runtime| ("runtime", length(runtime))));
    if job.blockalign.iter().any(Option::is_some) {
        let each = [0, 1, 2].map(|at| job.blockalign[at].unwrap_or(job.bs[at].smallest()).to_string());
        options.push(("blockalign", alike(each)));
    }
    let lengths =
        [("ramp_time", job.ramp_time), ("startdelay", job.startdelay), ("thinktime", job.thinktime)];
    options
        .extend(lengths.into_iter().filter(|(_, time)| !time.is_zero()).map(|(n, time)| (n, length(time))));
    if let Some(rate) = job.rate {
        let text = |rate: Option<u64>| rate.map_or(String::new(), |rate| rate.to_string());
        if rate.iops.iter().any(Option::is_some) {
            options.push(("rate_iops", alike(rate.iops.map(|iops| text(iops.map(u64::from))))));
        } else {
            options.push(("rate", alike(rate.bytes.map(text))));
        }
        if rate.arrivals == Arrivals::Exponential {
            options.push(("rate_process", "poisson".to_string()));
        }
    }
    let least = |each: [u64; 3]| alike(each.map(|least| least.to_string()));
    for (name, each) in [("rate_min", job.rate_min), ("rate_iops_min", job.rate_iops_min)] {
        if each != [0; 3] {
            options.push((name, least(each)));
            options.push(("rate_cycle", job.rate_cycle.as_millis().to_string()));
        }
    }
    if let Some(target) = job.latency_target {
        options.push(("latency_target", target.latency.as_micros().to_string()));
        options.push(("latency_window", target.window.as_micros().to_string()));
        options.push(("latency_percentile", target.percent.to_string()));
        options.push(("latency_run", u8::from(target.runs_on).to_string()));
    }
    if let Some(priority) = job.priority {
        options.push(("prioclass", (priority >> 13).to_string()));
        options.push(("prio", (priority & 7).to_string()));
    }
    options.extend(priorities(&job.command_priorities));
    if let Some(distribution) = distribution(&job.distribution) {
        options.push(("random_distribution", distribution));
    }
    let advice = match job.advice {
        Advice::ByPattern => None,
        Advice::Random => Some("random"),
        Advice::Sequential => Some("sequential"),
        Advice::Nothing => Some("0"),
    };
    options.extend(advice.map(|word| ("fadvise_hint", word.to_string())));
    match &job.placement {
        Placement::Cpus { cpus, split } => {
            options.push(("cpus_allowed", joined(cpus.iter().map(u32::to_string), ",")));
            options.push(("cpus_allowed_policy", if *split { "split" } else { "shared" }.to_string()));
        }
        Placement::Nodes(nodes) => {
            options.push(("numa_cpu_nodes", joined(nodes.iter().map(u32::to_string), ",")));
        }
        Placement::Local | Placement::Remote | Placement::Anywhere => {}
    }
    let nodes = joined(job.memory_nodes.iter().map(u32::to_string), ",");
    match job.memory_nodes.len() {
        0 => {}
        1 => options.push(("numa_mem_policy", format!("prefer:{nodes}"))),
        _ => options.push(("numa_mem_policy", format!("interleave:{nodes}"))),
    }
    let ring = matches!(job.engine, Engine::IoUring | Engine::IoUringCmd);
    let switches = [
        ("hipri", job.hipri),
        ("sqthread_poll", ring && job.sqthread_poll),
        ("registerfiles", ring && job.registerfiles),
        ("fixedbufs", ring && job.fixedbufs),
        ("time_based", job.time_based),
        ("do_verify", job.verify),
        ("refill_buffers", job.refill_buffers),
        ("gtod_reduce", job.timestamps == Timestamps::Off),
        ("stonewall", job.stonewall),
        ("new_group", job.new_group),
        ("exitall", job.exitall),
        ("group_reporting", job.group_reporting),
    ];
    options.extend(switches.into_iter().filter(|(_, on)| *on).map(|(name, _)| (name, "1".to_string())));
    options.extend(job.wait_for.clone().map(|name| ("wait_for", name)));
    if job.exit_what != ExitWhat::Group {
        options.push(("exit_what", job.exit_what.name().to_string()));
    }
    if job.on_error == OnError::Continue {
        options.push(("continue_on_error", "all".to_string()));
    }
    options.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
}

/// A colon separates names, and is escaped within them.
fn targets(targets: &[Target]) -> Vec<(&'static str, String)> {
    let escaped = |path: &Path| path.to_string_lossy().replace(':', "\\:");
    let (mut directories, mut files) = (Vec::new(), Vec::new());
    for target in targets {
        match target {
            Target::Existing(path) => files.push(escaped(path)),
            Target::Scratch { directory, .. } => directories.push(escaped(directory)),
        }
    }
    let lists = [("directory", directories), ("filename", files)];
    lists
        .into_iter()
        .filter(|list| !list.1.is_empty())
        .map(|(name, list)| (name, joined(list, ":")))
        .collect()
}

/// Size of a scratch file.
fn scratch(targets: &[Target]) -> Option<u64> {
    targets.iter().find_map(|target| match target {
        Target::Existing(_) => None,
        Target::Scratch { bytes, .. } => Some(*bytes),
    })
}

/// One value for all directions, or one for each.
fn alike(each: [String; 3]) -> String {
    if each[0] == each[1] && each[1] == each[2] { each[0].clone() } else { each.join(",") }
}

fn blocks(bs: &[BlockSizes; 3]) -> (&'static str, String) {
    let range = |share: &BlockShare| {
        if share.low == share.high { share.low.to_string() } else { format!("{}-{}", share.low, share.high) }
    };
    if bs.iter().any(|sizes| sizes.0.len() > 1) {
        let split = |sizes: &BlockSizes| {
            joined(sizes.0.iter().map(|share| format!("{}/{}", range(share), share.percent)), ":")
        };
        return ("bssplit", alike([0, 1, 2].map(|at| split(&bs[at]))));
    }
    let one = |sizes: &BlockSizes| sizes.0.first().map_or(String::new(), range);
    let name = if bs.iter().all(|sizes| sizes.only().is_some()) { "bs" } else { "bsrange" };
    (name, alike([0, 1, 2].map(|at| one(&bs[at]))))
}

/// If all of a direction are equal it is a percentage.
fn priorities(all: &[Vec<PriorityShare>; 2]) -> Vec<(&'static str, String)> {
    if all.iter().all(Vec::is_empty) {
        return Vec::new();
    }
    if all.iter().flatten().all(|share| share.bytes.is_none()) {
        let each = |of: fn(&PriorityShare) -> u16| {
            joined(all.iter().map(|shares| shares.first().map_or(0, of).to_string()), ",")
        };
        return vec![
            ("cmdprio_percentage", each(|share| share.percent.into())),
            ("cmdprio_class", each(|share| share.priority >> 13)),
            ("cmdprio", each(|share| share.priority & 7)),
        ];
    }
    let one = |share: &PriorityShare| {
        let (class, level) = (share.priority >> 13, share.priority & 7);
        format!("{}/{}/{class}/{level}", share.bytes.unwrap_or(0), share.percent)
    };
    vec![("cmdprio_bssplit", joined(all.iter().map(|shares| joined(shares.iter().map(one), ":")), ","))]
}

fn place(extent: Extent) -> String {
    match extent {
        Extent::Bytes(bytes) => bytes.to_string(),
        Extent::Percent(percent) => format!("{percent}%"),
    }
}

/// Whole seconds, or the largest unit without a fraction.
fn length(time: Duration) -> String {
    match time.as_micros() {
        us if us % 1_000_000 == 0 => format!("{}s", us / 1_000_000),
        us if us % 1_000 == 0 => format!("{}ms", us / 1_000),
        us => format!("{us}us"),
    }
}

fn distribution(distribution: &Distribution) -> Option<String> {
    match distribution {
        Distribution::Uniform => None,
        Distribution::Zipf(theta) => Some(format!("zipf:{theta}")),
        Distribution::Pareto(power) => Some(format!("pareto:{power}")),
        Distribution::Normal(deviation) => Some(format!("normal:{deviation}")),
        Distribution::Zoned(zones) => Some(format!(
            "zoned:{}",
            joined(zones.iter().map(|(access, size)| format!("{access}/{size}")), ":")
        )),
    }
}

fn joined(words: impl IntoIterator<Item = String>, by: &str) -> String {
    words.into_iter().collect::<Vec<_>>().join(by)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Rate;

    fn value(job: &Job, name: &str) -> Option<String> {
        given(job).into_iter().find(|option| option.0 == name).map(|option| option.1)
    }

    #[test]
    fn only_what_differs_from_fio_s_defaults_is_given() {
        let mut job = Job {
            rw: Pattern::Read,
            iodepth: 1,
            iodepth_batch: 1,
            direct: false,
            engine: Engine::Psync,
            runtime: None,
            time_based: false,
            group_reporting: false,
            on_error: OnError::Stop,
            ..Job::new(Target::Existing("/dev/sda".into()))
        };
        let names: Vec<String> = given(&job).into_iter().map(|option| option.0).collect();
        assert_eq!(names, ["name", "filename", "ioengine", "rw", "bs"]);
        job.rw = Pattern::RandReadWrite;
        assert_eq!(value(&job, "rwmixread").as_deref(), Some("50"));
        assert_eq!(value(&job, "randseed").as_deref(), Some("1"));
    }

    #[test]
    fn values_are_spelt_as_fio_reads_them() {
        let mut job = Job::new(Target::Existing("/dev/disk/by-path/pci-0000:00".into()));
        job.targets.push(Target::Existing("/b".into()));
        assert_eq!(value(&job, "filename").as_deref(), Some("/dev/disk/by-path/pci-0000\\:00:/b"));
        job.runtime = Some(Duration::from_millis(1500));
        assert_eq!(value(&job, "runtime").as_deref(), Some("1500ms"));
        job.thinktime = Duration::from_micros(20);
        assert_eq!(value(&job, "thinktime").as_deref(), Some("20us"));
        job.size = Some(Extent::Percent(12.5));
        assert_eq!(value(&job, "size").as_deref(), Some("12.5%"));
        assert_eq!(value(&job, "bs").as_deref(), Some("4096"));
        job.bs[1] = BlockSizes::fixed(8192);
        assert_eq!(value(&job, "bs").as_deref(), Some("4096,8192,4096"));
        job.bs[1].0[0].high = 65536;
        assert_eq!(value(&job, "bsrange").as_deref(), Some("4096,8192-65536,4096"));
        let share = |bytes, percent| BlockShare { low: bytes, high: bytes, percent };
        job.bs = std::array::from_fn(|_| BlockSizes(vec![share(4096, 60.0), share(65536, 40.0)]));
        assert_eq!(value(&job, "bssplit").as_deref(), Some("4096/60:65536/40"));
        job.rate =
            Some(Rate { iops: [Some(500), None, None], bytes: [None; 3], arrivals: Arrivals::Exponential });
        assert_eq!(value(&job, "rate_iops").as_deref(), Some("500,,"));
        assert_eq!(value(&job, "rate_process").as_deref(), Some("poisson"));
        job.distribution = Distribution::Zoned(vec![(60.0, 10.0), (40.0, 90.0)]);
        assert_eq!(value(&job, "random_distribution").as_deref(), Some("zoned:60/10:40/90"));
        job.placement = Placement::Cpus { cpus: vec![0, 2], split: true };
        assert_eq!(value(&job, "cpus_allowed").as_deref(), Some("0,2"));
    }
}
