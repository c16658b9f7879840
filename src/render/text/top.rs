//! Renders `biopsy top --plain` as text, with dstat's columns.

use crate::analyze::top::{self, TopInterval};

/// The two lines above the columns.
pub fn header() -> String {
    "\
---procs--- -----------cpu-usage----------- ------memory-usage----- ---paging-- --io/total- -dsk/total- -dsc/flush- ---system--
run blk new|usr sys idl wai hiq siq stl| used  free  buff  cach|  in   out | read  writ| read  writ| disc flush| int   csw
"
    .to_string()
}

/// Column groups that a narrow terminal drops, in this order: discards and flushes, paging, memory, the system, tasks,
/// I/Os and the CPUs.
const LEAST_NEEDED: [usize; 7] = [6, 3, 2, 7, 0, 4, 1];

/// Lines of the header and of intervals with as many groups as fit.
pub fn fit(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_string() };
    let one = |line: &str| {
        // In the line above the column names, blanks separate the groups.
        let between = if line.starts_with("---") { ' ' } else { '|' };
        let groups: Vec<&str> = line.split(between).collect();
        let mut kept: Vec<usize> = (0..groups.len()).collect();
        let length = |kept: &[usize]| {
            kept.iter().map(|at| groups[*at].chars().count() + 1).sum::<usize>().saturating_sub(1)
        };
        for least in LEAST_NEEDED {
            if length(&kept) <= width {
                break;
            }
            kept.retain(|at| *at != least);
        }
        let kept: Vec<&str> = kept.iter().map(|at| groups[*at]).collect();
        let line = kept.join(&between.to_string());
        line.chars().take(width).collect::<String>() + "\n"
    };
    text.lines().map(one).collect()
}

/// One line; unknown values are a dash.
pub fn line(line: &TopInterval) -> String {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_string());
    let per_second =
        |n: Option<u64>| or_dash(n.map(|n| short(top::per_second(n, line.duration_ns), 1000.0, false)));
    let bytes = |n: Option<u64>| or_dash(n.map(|n| short(n as f64, 1024.0, true)));
    let rate = |n: Option<u64>| or_dash(n.map(|n| short(top::per_second(n, line.duration_ns), 1024.0, true)));
    let tasks = |n: Option<u64>| or_dash(n.map(|n| n.to_string()));
    let mut out = format!(
        "{:>3} {:>3} {:>3}",
        tasks(line.tasks.running),
        tasks(line.tasks.blocked),
        per_second(line.tasks.new)
    );
    let percent = line.cpu.as_ref().map(|cpu| cpu.share.percent());
    for at in 0..7 {
        let cell = or_dash(percent.map(|percent| percent[at].to_string()));
        out.push_str(&format!("{}{cell:>3}", if at == 0 { '|' } else { ' ' }));
    }
    let memory = line.memory;
    let group = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:>5}")).collect();
        format!("|{}", cells.join(" "))
    };
    out.push_str(&group(&[
        bytes(memory.map(|memory| memory.used_bytes)),
        bytes(memory.map(|memory| memory.free_bytes)),
        bytes(memory.map(|memory| memory.buffers_bytes)),
        bytes(memory.map(|memory| memory.cached_bytes)),
    ]));
    out.push_str(&group(&[
        rate(line.paging.map(|paging| paging.in_bytes)),
        rate(line.paging.map(|paging| paging.out_bytes)),
    ]));
    let total = line.total;
    out.push_str(&group(&[per_second(Some(total.reads)), per_second(Some(total.writes))]));
    out.push_str(&group(&[rate(Some(total.read_bytes)), rate(Some(total.written_bytes))]));
    out.push_str(&group(&[per_second(total.discards), per_second(total.flushes)]));
    out.push_str(&group(&[per_second(line.interrupts), per_second(line.context_switches)]));
    out.push('\n');
    out
}

/// At most five characters: four digits and a unit.
fn short(value: f64, base: f64, bytes: bool) -> String {
    let units = ["", "k", "M", "G", "T", "P", "E"];
    let mut scaled = value;
    let mut unit = 0;
    while scaled >= 9_999.5 && unit + 1 < units.len() {
        scaled /= base;
        unit += 1;
    }
    match (value > 0.0, unit, bytes) {
        (false, ..) => "0".to_string(),
        // Less than one per second must not look like none.
        (_, 0, _) if value < 9.95 && value.fract() != 0.0 => format!("{value:.1}"),
        (_, 0, true) => format!("{scaled:.0}B"),
        _ => format!("{scaled:.0}{}", units[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::top::{CpuShares, CpuSplit, DiskTransfers, Tasks};
    use crate::host::activity::Memory;

    #[test]
    fn numbers_take_five_characters() {
        let counts = [0.0, 0.04, 3.0, 9_999.0, 10_000.0, 1_149_600.0, 11_100_000.0, 4e18];
        let shown = counts.map(|value| short(value, 1000.0, false));
        assert_eq!(shown, ["0", "0.0", "3", "9999", "10k", "1150k", "11M", "4000P"]);
        let bytes = [0.0, 512.0, 4_489.0 * 1048576.0, 249.0 * 1073741824.0].map(|v| short(v, 1024.0, true));
        assert_eq!(bytes, ["0", "512B", "4489M", "249G"]);
        for value in (0..64).map(|n| 2f64.powi(n) * 1.37) {
            assert!(
                short(value, 1000.0, false).len() <= 5 && short(value, 1024.0, true).len() <= 5,
                "{value}"
            );
        }
    }

    #[test]
    fn groups_that_do_not_fit_are_left_out() {
        let text = header() + &line(&TopInterval::default());
        assert_eq!(fit(&text, None), text);
        for width in 1..150 {
            let fitted = fit(&text, Some(width));
            assert!(fitted.lines().all(|line| line.chars().count() <= width), "{width}: {fitted}");
        }
        let narrow = fit(&text, Some(80));
        assert!(
            narrow.contains("cpu-usage") && narrow.contains("io/total") && !narrow.contains("memory"),
            "{narrow}"
        );
        let bars =
            narrow.lines().skip(1).map(|line| line.match_indices('|').map(|(at, _)| at).collect::<Vec<_>>());
        let bars: Vec<Vec<usize>> = bars.collect();
        assert_eq!(bars[0], bars[1], "{narrow}");
    }

    #[test]
    fn a_line_stands_below_its_header() {
        let seen = TopInterval {
            duration_ns: 1_000_000_000,
            tasks: Tasks { running: Some(3), blocked: Some(0), new: Some(0) },
            cpu: Some(CpuShares {
                share: CpuSplit { user: 0.02, system: 0.08, idle: 0.90, ..CpuSplit::default() },
                ..CpuShares::default()
            }),
            memory: Some(Memory::new(251 << 30, 249 << 30, 41 << 20, 406 << 20)),
            paging: None,
            interrupts: Some(1_150_000),
            context_switches: Some(12),
            total: DiskTransfers {
                reads: 1_150_000,
                read_bytes: 4_493 << 20,
                flushes: Some(9),
                ..DiskTransfers::default()
            },
            ..TopInterval::default()
        };
        let text = line(&seen);
        assert_eq!(
            text,
            "  3   0   0|  2   8  90   0   0   0   0|1601M  249G   41M  406M|    -     -|1150k     0|4493M     0|    -     9|1150k    \
             12\n"
        );
        let bars = |text: &str| text.match_indices('|').map(|(at, _)| at).collect::<Vec<_>>();
        let header = header();
        let below = header.lines().nth(1).unwrap();
        assert_eq!(bars(below)[..2], bars(&text)[..2]);
        let unknown = line(&TopInterval::default());
        assert!(unknown.starts_with("  -   -   -|  -   -"), "{unknown}");
    }
}
