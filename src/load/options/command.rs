//! Parses the options of a command line: one job or several, run once or for each point of a sweep.

use super::draft::{Conflict, Draft};
use super::table::{Word, word};
use super::values;
use crate::load::job::{Extent, Job, Target};
use crate::refusal::Refusal;

/// More runs than any user waits for.
const MOST_POINTS: usize = 1000;

/// An option with several values: the run is repeated with each of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    pub word: String,
    pub values: Vec<String>,
}

/// The parsed command line.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Empty for a single run.
    pub sweeps: Vec<Sweep>,
    /// The jobs of each run; one entry without a sweep. Sweeps are combined: every value of one with every value of the
    /// others; the last sweep changes fastest.
    pub points: Vec<Vec<Job>>,
    /// Terse output is requested.
    pub minimal: bool,
}

impl Request {
    /// The value of each sweep at a point.
    pub fn values(&self, point: usize) -> Vec<&str> {
        let mut rest = point;
        let mut found: Vec<&str> = self
            .sweeps
            .iter()
            .rev()
            .map(|sweep| {
                let value = sweep.values[rest % sweep.values.len()].as_str();
                rest /= sweep.values.len();
                value
            })
            .collect();
        found.reverse();
        found
    }
}

/// Parses options with their values, in command-line order; a flag's value is `1`. Without targets the options name the
/// files.
pub fn read(said: &[(String, String)], targets: &[Target]) -> Result<Request, Refusal> {
    let named = said.iter().filter(|(name, _)| name == "name").count();
    if named > 1 && !targets.is_empty() {
        let why = "several --name are several jobs: name the target of each with --filename after it";
        return Err(Refusal::Usage(why.to_string()));
    }
    let mut all = Vec::with_capacity(said.len());
    for (name, text) in said {
        let word = word(name)
            .ok_or_else(|| Refusal::Usage(format!("unknown option --{name}: see biopsy load --help")))?;
        all.push(values_of(word, text).map_err(|why| usage(word.name, &why))?);
    }
    let sweeps: Vec<Sweep> = said
        .iter()
        .zip(&all)
        .filter(|(_, values)| values.len() > 1)
        .map(|((name, _), values)| Sweep { word: name.clone(), values: values.clone() })
        .collect();
    let points = sweeps.iter().try_fold(1usize, |points, sweep| points.checked_mul(sweep.values.len()));
    let points = points.filter(|points| *points <= MOST_POINTS).ok_or_else(|| {
        Refusal::Usage(format!("the lists make more than {MOST_POINTS} runs: give fewer values"))
    })?;
    let mut request = Request { sweeps, points: Vec::with_capacity(points), minimal: false };
    for point in 0..points {
        let chosen = request.values(point);
        let mut chosen = chosen.into_iter();
        let values: Vec<(&str, &str)> = said
            .iter()
            .zip(&all)
            .map(|((name, _), values)| {
                let one = values.first().map_or("", String::as_str);
                (name.as_str(), if values.len() > 1 { chosen.next().unwrap_or(one) } else { one })
            })
            .collect();
        let (jobs, minimal) = jobs(&values, named, targets)?;
        request.points.push(jobs);
        request.minimal = minimal;
    }
    Ok(request)
}

/// The size that the options set for a scratch file; None where they set none.
pub fn scratch_bytes(said: &[(String, String)]) -> Result<Option<u64>, Refusal> {
    let Some((_, text)) = said.iter().rev().find(|(name, _)| name == "size") else { return Ok(None) };
    let why = |why: String| usage("size", &format!("of a scratch file: {why}"));
    match values::extent(text) {
        Ok(Extent::Bytes(bytes)) if bytes > 0 => Ok(Some(bytes)),
        Ok(_) => Err(why(format!("{} is not a size for a scratch file: write bytes", values::quoted(text)))),
        Err(wrong) => Err(why(wrong)),
    }
}

/// The jobs of one run.
fn jobs(said: &[(&str, &str)], named: usize, targets: &[Target]) -> Result<(Vec<Job>, bool), Refusal> {
    let mut jobs = Vec::new();
    let mut before = Draft::command_line();
    let mut draft = None;
    let mut minimal = false;
    let mut end = |draft: Draft| {
        minimal |= draft.minimal;
        let made = draft.jobs(targets).map_err(|Conflict { word, why }| usage(word, &why))?;
        jobs.extend(made);
        Ok::<(), Refusal>(())
    };
    for (name, value) in said {
        if named > 1 && *name == "name" {
            draft.replace(before.clone()).map_or(Ok(()), &mut end)?;
        }
        let into = draft.as_mut().unwrap_or(&mut before);
        into.set(name, Some(value)).map_err(|why| usage(name, &why))?;
    }
    end(draft.unwrap_or(before))?;
    Ok((jobs, minimal))
}

fn usage(word: &str, why: &str) -> Refusal {
    let between = if why.starts_with(['=', ' ']) { "" } else { " " };
    Refusal::Usage(format!("--{word}{between}{why}"))
}

/// Splits a command-line value: `8`, `1,8,32`, or `1..32`, which doubles from the first number and ends with the
/// second.
pub fn values_of(word: &Word, text: &str) -> Result<Vec<String>, String> {
    let text = text.trim();
    let values = match text.split_once("..") {
        Some((low, high)) if word.takes.has_ranges() => doubled(low, high)?,
        _ if text.contains(',') && !word.takes.has_commas() => {
            text.split(',').map(|value| value.trim().to_string()).collect()
        }
        _ => vec![text.to_string()],
    };
    for value in &values {
        word.check(value)?;
    }
    Ok(values)
}

fn doubled(low: &str, high: &str) -> Result<Vec<String>, String> {
    let (first, last) = (values::number(low)?, values::number(high)?);
    if first == 0 || first > last {
        return Err(format!(
            "{} is not a range: write FIRST..LAST, as in 1..256, with 0 < FIRST <= LAST",
            values::quoted(&format!("{low}..{high}"))
        ));
    }
    let mut found = Vec::new();
    let mut value = first;
    while value < last {
        found.push(short(value));
        value *= 2;
    }
    found.push(short(last));
    Ok(found)
}

/// A number in the largest unit that represents it exactly.
fn short(value: u64) -> String {
    let units = [(40, "t"), (30, "g"), (20, "m"), (10, "k")];
    let unit = units.into_iter().find(|(power, _)| value >= 1 << power && value.is_multiple_of(1 << power));
    unit.map_or_else(|| value.to_string(), |(power, unit)| format!("{}{unit}", value >> power))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::job::{BlockSizes, Pattern};

    fn words(said: &[(&str, &str)]) -> Vec<(String, String)> {
        said.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    fn disk(path: &str) -> Target {
        Target::Existing(path.into())
    }

    fn wrong(said: &[(&str, &str)], targets: &[Target]) -> String {
        match read(&words(said), targets) {
            Err(Refusal::Usage(why)) => why,
            other => panic!("{said:?}: {other:?}"),
        }
    }

    #[test]
    fn several_targets_are_several_jobs_that_are_alike() {
        let targets = [disk("/dev/a"), disk("/dev/b")];
        let request = read(&words(&[("rw", "read"), ("numjobs", "2")]), &targets).unwrap();
        assert!(request.sweeps.is_empty() && !request.minimal);
        let [jobs] = request.points.as_slice() else { panic!("one run") };
        for (job, target) in jobs.iter().zip(&targets) {
            let wanted = Job { rw: Pattern::Read, numjobs: 2, ..Job::new(target.clone()) };
            assert_eq!(*job, wanted);
        }
        assert_eq!(jobs.len(), 2);
    }

    #[test]
    fn each_further_name_begins_a_job_as_in_fio() {
        let said = [
            ("iodepth", "4"),
            ("name", "x"),
            ("filename", "/dev/a"),
            ("name", "y"),
            ("filename", "/dev/b:/dev/c"),
            ("bs", "8k"),
        ];
        let jobs = read(&words(&said), &[]).unwrap().points.remove(0);
        let x = Job { name: "x".into(), iodepth: 4, ..Job::new(disk("/dev/a")) };
        let mut y = Job { name: "y".into(), targets: vec![disk("/dev/b"), disk("/dev/c")], ..x.clone() };
        y.bs = std::array::from_fn(|_| BlockSizes::fixed(8192));
        assert_eq!(jobs, [x, y]);
        assert!(wrong(&said, &[disk("/dev/d")]).contains("--filename"));
        assert!(wrong(&said[..4], &[]).starts_with("--filename is missing"));
    }

    #[test]
    fn one_name_is_for_what_stands_on_both_sides_of_it() {
        let said = [("iodepth", "4"), ("name", "x"), ("numjobs", "3")];
        let jobs = read(&words(&said), &[disk("/dev/a")]).unwrap().points.remove(0);
        assert_eq!(jobs, [Job { name: "x".into(), iodepth: 4, numjobs: 3, ..Job::new(disk("/dev/a")) }]);
    }

    #[test]
    fn lists_and_ranges_are_sweeps() {
        let said = [("iodepth", "1..6"), ("rw", "read,randread"), ("bs", "4k")];
        let request = read(&words(&said), &[disk("/dev/a")]).unwrap();
        let values: Vec<_> = request.sweeps.iter().map(|s| (s.word.as_str(), s.values.join(" "))).collect();
        assert_eq!(values, [("iodepth", "1 2 4 6".to_string()), ("rw", "read randread".to_string())]);
        let points: Vec<_> = request.points.iter().map(|jobs| (jobs[0].iodepth, jobs[0].rw.name())).collect();
        assert_eq!(points.len(), 8);
        assert_eq!(points[..3], [(1, "read"), (1, "randread"), (2, "read")]);
        assert_eq!(request.values(7), ["6", "randread"]);
    }

    #[test]
    fn block_sizes_keep_their_commas_for_directions() {
        let read = |text| values_of(word("bs").unwrap(), text).unwrap();
        assert_eq!(read("4k,8k,16k"), ["4k,8k,16k"]);
        assert_eq!(read("4k..64k"), ["4k", "8k", "16k", "32k", "64k"]);
        assert_eq!(read("1m"), ["1m"]);
        let name = values_of(word("filename").unwrap(), "/a..b,c").unwrap();
        assert_eq!(name, ["/a..b,c"], "a name is a name");
    }

    #[test]
    fn a_scratch_file_has_one_size_in_bytes() {
        assert_eq!(scratch_bytes(&words(&[("bs", "4k")])), Ok(None));
        assert_eq!(scratch_bytes(&words(&[("size", "1m"), ("size", "2m")])), Ok(Some(2 << 20)));
        for text in ["50%", "1m,2m", "1m..2m", "0"] {
            assert!(scratch_bytes(&words(&[("size", text)])).is_err(), "{text}");
        }
    }

    #[test]
    fn every_value_of_a_list_is_looked_at() {
        assert!(wrong(&[("iodepth", "1,0")], &[disk("/a")]).starts_with("--iodepth 0 is not from 1 to"));
        assert!(wrong(&[("iodepth", "8..1")], &[disk("/a")]).contains("is not a range"));
        assert!(wrong(&[("rwmixread", "0..100")], &[disk("/a")]).contains("is not a range"));
        assert!(wrong(&[("hipri", "0,1,2")], &[disk("/a")]).contains("is not 0 or 1"));
        let many = [("iodepth", "1..2048"), ("numjobs", "1..512"), ("rwmixread", "1..64"), ("rw", "read,rw")];
        assert!(wrong(&many, &[disk("/a")]).contains("more than 1000 runs"));
        assert!(wrong(&[("readonly", "1"), ("rw", "write")], &[disk("/a")]).contains("--rw=write writes"));
    }
}
