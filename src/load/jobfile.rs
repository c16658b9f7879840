//! Parses fio's job files: sections of `key=value` lines; `[global]` sets defaults for the sections below it.
//!
//! An unknown option or a wrong value is an error with its line: a load that ignores an option measures something else.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::job::Job;
use super::options::{Conflict, Draft, Takes, quoted, word};
use crate::refusal::{Refusal, reason};

/// The jobs and options of a job file.
#[derive(Debug, Clone, PartialEq)]
pub struct JobFile {
    /// In the order of the sections.
    pub jobs: Vec<Job>,
    /// Probable mistakes, each with file and line.
    pub warnings: Vec<String>,
    /// The file forbids all jobs to write.
    pub readonly: bool,
    /// The file requests terse output.
    pub minimal: bool,
}

/// No job file of a person or a script is longer.
pub const MOST_BYTES: usize = 1 << 20;

/// More jobs than any machine runs at once.
const MOST_JOBS: usize = 4096;

/// Limits the depth of includes, in case files include each other.
const MOST_INCLUDED: usize = 16;

/// Parses the text of a job file; `file` is its path, for includes, errors and warnings.
pub fn read(text: &str, file: &str) -> Result<JobFile, Refusal> {
    read_behind(&[], text, file)
}

/// Same as [`read`], with options of a command line. As in fio they apply to all jobs, and the file overrides them.
pub fn read_behind(words: &[(String, String)], text: &str, file: &str) -> Result<JobFile, Refusal> {
    let mut reader = JobfileReader::new(file, &|name| std::env::var(name).ok());
    for (word, value) in words {
        let set = reader.global.set(word, Some(value));
        set.map_err(|why| Refusal::Usage(format!("--{word} with the job file {file} {why}")))?;
    }
    reader.read(text)
}

/// Reads a job file, up to the maximum length.
pub fn content(path: &Path, name: &str) -> Result<String, Refusal> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes))
        .map_err(|error| Refusal::Usage(format!("cannot read the job file {name}: {}", reason(&error))))?;
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        Refusal::Usage(format!("{name}:{line}: this is not text (UTF-8): name a job file"))
    })
}

/// A section that has not ended.
struct Open {
    draft: Draft,
    /// Line of each option.
    lines: BTreeMap<&'static str, usize>,
    /// Options and values of the section itself, without those of `[global]`.
    own: BTreeMap<&'static str, String>,
    line: usize,
    is_global: bool,
}

struct JobfileReader<'a> {
    file: String,
    /// Depth of includes of this file.
    included: usize,
    /// Bytes of all files included so far.
    included_bytes: usize,
    environment: &'a dyn Fn(&str) -> Option<String>,
    global: Draft,
    global_lines: BTreeMap<&'static str, usize>,
    open: Option<Open>,
    /// Line at which each name was first used.
    sections: BTreeMap<String, usize>,
    readonly: Option<usize>,
    found: JobFile,
}

impl<'a> JobfileReader<'a> {
    fn new(file: &str, environment: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            file: file.to_string(),
            included: 0,
            included_bytes: 0,
            environment,
            global: Draft::job_file(),
            global_lines: BTreeMap::new(),
            open: None,
            sections: BTreeMap::new(),
            readonly: None,
            found: JobFile { jobs: Vec::new(), warnings: Vec::new(), readonly: false, minimal: false },
        }
    }

    fn read(mut self, text: &str) -> Result<JobFile, Refusal> {
        let last = self.lines(text)?;
        self.end()?;
        if self.found.jobs.is_empty() {
            return Err(self.wrong(last, "the file has no job: start one with a section, as in [job]"));
        }
        if let Some(line) = self.readonly {
            self.found.readonly = true;
            if let Some(job) = self.found.jobs.iter().find(|job| job.rw.writes()) {
                let why = format!("readonly forbids the rw={} of {}", job.rw.name(), quoted(&job.name));
                return Err(self.wrong(line, &why));
            }
        }
        Ok(self.found)
    }

    /// Parses the lines of a file; returns the number of the last one.
    fn lines(&mut self, text: &str) -> Result<usize, Refusal> {
        if text.len() > MOST_BYTES {
            return Err(Refusal::Usage(format!(
                "{} has more than {MOST_BYTES} bytes, too many for a job file: name another file",
                self.file
            )));
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut last = 1;
        for (number, line) in (1..).zip(text.lines()) {
            if line.trim_start().starts_with('[') {
                self.end()?;
            }
            if let Some(path) = included(line) {
                self.include(number, path)?;
                continue;
            }
            self.line(number, line).map_err(|why| self.wrong(number, &why))?;
            last = number;
        }
        Ok(last)
    }

    /// Parses another file in place of an include line. As in fio, its path is relative to the working directory,
    /// otherwise to this file.
    fn include(&mut self, number: usize, path: &str) -> Result<(), Refusal> {
        if self.included == MOST_INCLUDED {
            let why =
                format!("{} is included through {MOST_INCLUDED} nested files: include fewer", quoted(path));
            return Err(self.wrong(number, &why));
        }
        let beside = Path::new(&self.file).parent().map(|parent| parent.join(path));
        let found = [Some(PathBuf::from(path)), beside].into_iter().flatten().find(|path| path.is_file());
        let Some(found) = found else {
            return Err(
                self.wrong(number, &format!("include: file {} does not exist: write its path", quoted(path)))
            );
        };
        let name = found.display().to_string();
        let text = content(&found, &name)?;
        // Plus 1, so that an empty file counts too.
        self.included_bytes += text.len() + 1;
        if self.included_bytes > MOST_BYTES {
            let why = format!("the included files have more than {MOST_BYTES} bytes in total: include fewer");
            return Err(self.wrong(number, &why));
        }
        let before = std::mem::replace(&mut self.file, name);
        self.included += 1;
        self.lines(&text)?;
        self.included -= 1;
        self.file = before;
        Ok(())
    }

    fn wrong(&self, line: usize, why: &str) -> Refusal {
        Refusal::Usage(format!("{}:{line}: {why}", self.file))
    }

    fn warn(&mut self, line: usize, what: &str) {
        self.found.warnings.push(format!("{}:{line}: {what}", self.file));
    }

    fn line(&mut self, number: usize, line: &str) -> Result<(), String> {
        if let Some(odd) = line.chars().find(|c| c.is_control() && *c != '\t') {
            return Err(format!(
                "the character {} is not allowed in a job file: remove it",
                odd.escape_unicode()
            ));
        }
        let line = line.trim();
        if line.is_empty() || line.starts_with([';', '#']) {
            return Ok(());
        }
        if let Some(name) = line.strip_prefix('[') {
            return self.section(number, name);
        }
        let line = match line.find([';', '#']) {
            Some(at) => {
                if !line[..at].ends_with([' ', '\t']) {
                    let cut = quoted(&line[at..]);
                    self.warn(
                        number,
                        &format!("{cut} is a comment, as in fio: put a blank before it if that is intended"),
                    );
                }
                line[..at].trim_end()
            }
            None => line,
        };
        let (key, value) = match line.split_once('=') {
            Some((key, value)) => (key.trim_end(), Some(value.trim_start())),
            None => (line, None),
        };
        self.option(number, key, value)
    }

    fn section(&mut self, number: usize, name: &str) -> Result<(), String> {
        let Some((name, rest)) = name.split_once(']') else {
            return Err(format!("the section {} has no ] at its end", quoted(name)));
        };
        let (name, rest) = (name.trim(), rest.trim());
        if !(rest.is_empty() || rest.starts_with([';', '#'])) {
            return Err(format!("{} follows the section's name: put it on its own line", quoted(rest)));
        }
        if name.is_empty() {
            return Err("the section has no name: write one between the brackets".to_string());
        }
        // fio compares only the prefix and takes such a section for [global], so it would be no job.
        if name.starts_with("global") && name != "global" {
            return Err(format!(
                "{} is [global] in fio, and a job elsewhere: choose another name",
                quoted(name)
            ));
        }
        let is_global = name == "global";
        if !is_global {
            if let Some(first) = self.sections.get(name) {
                let what = format!(
                    "the section {} has the same name as that in line {first}: both are jobs",
                    quoted(name)
                );
                self.warn(number, &what);
            } else {
                self.sections.insert(name.to_string(), number);
            }
        }
        let draft = if is_global { self.global.clone() } else { self.global.clone().named(name) };
        let lines = self.global_lines.clone();
        self.open = Some(Open { draft, lines, own: BTreeMap::new(), line: number, is_global });
        Ok(())
    }

    fn option(&mut self, number: usize, key: &str, value: Option<&str>) -> Result<(), String> {
        if let Some(second) = second_option(key, value) {
            return Err(format!(
                "two options are on one line, {} and {}, and fio ignores the second: put it on its own line",
                quoted(key.split_whitespace().next().unwrap_or(key)),
                quoted(second)
            ));
        }
        let Some(open) = &mut self.open else {
            return Err(format!("{} is before the first section: start one, as in [global]", quoted(key)));
        };
        let value = value.map(|value| expand(value, self.environment)).transpose();
        let value = value.map_err(|why| format!("{}: {why}", shown(key)))?;
        open.draft.set(key, value.as_deref()).map_err(|why| format!("{} {why}", shown(key)))?;
        let Some(word) = word(key) else { return Ok(()) };
        open.lines.insert(word.name, number);
        let text = value.unwrap_or_else(|| "1".to_string());
        let before = open.own.insert(word.name, text.clone());
        if open.draft.readonly && self.readonly.is_none() {
            self.readonly = Some(number);
        }
        self.found.minimal |= open.draft.minimal;
        if let Some(before) = before.filter(|before| *before != text) {
            let what =
                format!("{}={} replaces {} of the same section", word.name, quoted(&text), quoted(&before));
            self.warn(number, &what);
        }
        Ok(())
    }

    /// Turns the open section into jobs, or into the defaults of later sections.
    fn end(&mut self) -> Result<(), Refusal> {
        let Some(open) = self.open.take() else { return Ok(()) };
        if open.is_global {
            (self.global, self.global_lines) = (open.draft, open.lines);
            return Ok(());
        }
        let name = open.draft.name().to_string();
        let jobs = open.draft.jobs(&[]).map_err(|Conflict { word, why }| {
            let line = open.lines.get(word).copied().unwrap_or(open.line);
            let between = if why.starts_with('=') { "" } else { " " };
            self.wrong(line, &format!("{word}{between}{why} (section {})", quoted(&name)))
        })?;
        self.found.jobs.extend(jobs);
        if self.found.jobs.len() > MOST_JOBS {
            return Err(
                self.wrong(open.line, &format!("the file has more than {MOST_JOBS} jobs: remove some"))
            );
        }
        Ok(())
    }
}

/// The path after the word `include`; fio accepts any single character between them.
fn included(line: &str) -> Option<&str> {
    let path = line.trim().strip_prefix("include")?;
    path.strip_prefix([' ', '\t', '=']).map(str::trim).filter(|path| !path.is_empty())
}

/// An option's name as an error shows it.
fn shown(key: &str) -> String {
    match word(key) {
        Some(_) => key.to_string(),
        None => quoted(key),
    }
}

/// A second option on the same line: fio takes one per line and ignores what follows a number.
fn second_option<'a>(key: &'a str, value: Option<&'a str>) -> Option<&'a str> {
    let is_word = |text: &str| word(text.split('=').next().unwrap_or(text)).is_some();
    match value {
        Some(value) if word(key).is_some_and(|word| matches!(word.takes, Takes::Text(_))) => {
            // A name may contain blanks and option names.
            value.split_whitespace().skip(1).find(|part| part.contains('=') && is_word(part))
        }
        Some(value) if !key.contains([' ', '\t']) => {
            value.split_whitespace().skip(1).find(|part| is_word(part))
        }
        _ => key.split_whitespace().skip(1).find(|part| is_word(part)),
    }
}

/// Expands fio's `${NAME}` from the environment, and its `$ncpus` and `$pagesize`.
fn expand(text: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(inner) = rest.strip_prefix('{') {
            let Some((name, behind)) = inner.split_once('}') else {
                return Err(format!("{} has no }} at its end", quoted(&format!("${rest}"))));
            };
            let found = environment(name).filter(|found| !found.is_empty());
            let found =
                found.ok_or_else(|| format!("{} is not set in the environment: set it", quoted(name)))?;
            if found.chars().any(char::is_control) {
                return Err(format!(
                    "{} of the environment is not one line of text: set it to one",
                    quoted(name)
                ));
            }
            out.push_str(&found);
            rest = behind;
            continue;
        }
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (keyword, behind) = rest.split_at(end);
        let value = match keyword {
            "ncpus" => system(libc::_SC_NPROCESSORS_CONF),
            "pagesize" => system(libc::_SC_PAGESIZE),
            _ => {
                return Err(format!(
                    "{} is not a supported keyword (${{NAME}}, $ncpus, $pagesize): write its value",
                    quoted(&format!("${keyword}"))
                ));
            }
        };
        let value = value.ok_or_else(|| format!("the system does not report ${keyword}: write its value"))?;
        out.push_str(&value.to_string());
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}

fn system(what: libc::c_int) -> Option<i64> {
    // SAFETY: a number in, a number out.
    let value = unsafe { libc::sysconf(what) };
    (value > 0).then_some(value)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::load::job::{BlockSizes, Engine, Extent, Pattern, Target};

    fn jobs(text: &str) -> Vec<Job> {
        read(text, "x.fio").unwrap_or_else(|why| panic!("{why}")).jobs
    }

    fn wrong(text: &str) -> String {
        match read(text, "x.fio") {
            Err(Refusal::Usage(why)) => why,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    fn section(name: &str) -> Job {
        Job { name: name.to_string(), ..Job::fio_defaults(Target::Existing("/dev/a".into())) }
    }

    #[test]
    fn what_a_section_does_not_say_is_fios_default() {
        assert_eq!(jobs("[a]\nfilename=/dev/a\n"), [section("a")]);
    }

    #[test]
    fn each_global_section_adds_to_those_below_it() {
        let text = "[global]\nfilename=/dev/a\niodepth=2\n[a]\niodepth=3\n[global]\nnumjobs=5\n[b]\n[c]\nrw=randread\n";
        let b = Job { iodepth: 2, numjobs: 5, ..section("b") };
        let c = Job { name: "c".into(), rw: Pattern::RandRead, ..b.clone() };
        assert_eq!(jobs(text), [Job { iodepth: 3, ..section("a") }, b, c]);
    }

    #[test]
    fn blanks_comments_and_line_ends_do_not_matter() {
        let text = "\u{feff}; first\r\n  # second\r\n\r\n\t[ a b ] ; third\r\n filename = /dev/a # fourth\r\n  direct\t=\t1\r\n\
                    time_based;fifth\r\nruntime=3\r\n";
        let read = read(text, "x.fio").unwrap();
        let wanted =
            Job { direct: true, time_based: true, runtime: Some(Duration::from_secs(3)), ..section("a b") };
        assert_eq!(read.jobs, [wanted]);
        let [warning] = read.warnings.as_slice() else { panic!("{:?}", read.warnings) };
        assert!(warning.starts_with("x.fio:7: ';fifth' is a comment"), "{warning}");
    }

    #[test]
    fn two_options_on_one_line_are_an_error_and_not_one_of_them() {
        for (text, second) in [
            ("[a]\nsize=100g offset=100g \n", "'offset=100g'"),
            ("[a]\nsize=1m direct\n", "'direct'"),
            ("[a]\ndirect=1 rw=read\n", "'rw=read'"),
            ("[a]\ntime_based runtime=3\n", "'runtime'"),
            ("[a]\nfilename=/dev/a size=1m\n", "'size=1m'"),
        ] {
            let why = wrong(text);
            assert!(why.starts_with("x.fio:2: two options are on one line") && why.contains(second), "{why}");
        }
        assert_eq!(jobs("[a]\nfilename=/a size b\n")[0].targets, [Target::Existing("/a size b".into())]);
    }

    #[test]
    fn whatever_is_not_known_is_named_with_its_line() {
        let cases = [
            ("[a]\n\nbogus=1\n", "x.fio:3: 'bogus' is not an option of biopsy load"),
            ("[a]\nBS=4k\n", "x.fio:2: 'BS' is not an option"),
            ("[a]\nbs=4x\n", "x.fio:2: bs '4x' is not a number"),
            ("[a]\nbs\n", "x.fio:2: bs needs a value: bs=SIZE"),
            ("[a]\nbs=\n", "x.fio:2: bs has no value after its ="),
            ("[a]\n=4k\n", "x.fio:2: '' is not an option"),
            ("[a]\ntimestamps=off\n", "x.fio:2: timestamps is an option of the command line only"),
            ("[a]\nverify=md5\n", "x.fio:2: verify 'md5' is not one of 0, crc32c"),
            ("[a]\nkb_base=1000\n", "x.fio:2: kb_base '1000' is not supported"),
            ("bs=4k\n[a]\n", "x.fio:1: 'bs' is before the first section"),
            ("include no_such.fio\n", "x.fio:1: include: file 'no_such.fio' does not exist"),
            ("[a]\ninclude=b.fio\n", "x.fio:2: include: file "),
            ("[a\nbs=4k\n", "x.fio:1: the section 'a' has no ] at its end"),
            ("[a]x\n", "x.fio:1: 'x' follows the section's name"),
            ("[]\n", "x.fio:1: the section has no name"),
            ("[global2]\n", "x.fio:1: 'global2' is [global] in fio"),
            ("", "x.fio:1: the file has no job"),
            ("# nothing\n\n[global]\nbs=4k\n", "x.fio:4: the file has no job"),
            ("[a]\nbs=4k\0\n", "x.fio:2: the character \\u{0}"),
            ("[a]\nname=\u{1b}[31m\n", "x.fio:2: the character \\u{1b}"),
            ("[a]\rbs=4k\n", "x.fio:1: the character \\u{d}"),
            (
                "[global]\ntime_based\n[a]\n[b]\n",
                "x.fio:2: time_based needs a runtime: set one (section 'a')",
            ),
            ("[a/b]\n", "x.fio:1: filename is missing"),
            ("[a]\nreadonly\n[b]\nrw=write\n", "x.fio:2: readonly forbids the rw=write of 'b'"),
        ];
        for (text, why) in cases {
            assert!(wrong(text).starts_with(why), "{text:?}: {}", wrong(text));
        }
        assert!(wrong(&"[a]\n".repeat(5000)).contains("more than 4096 jobs"));
        assert!(wrong(&"#".repeat(MOST_BYTES + 1)).contains("more than 1048576 bytes"));
    }

    #[test]
    fn a_name_that_comes_again_and_a_value_that_is_replaced_are_warned_of() {
        let read = read("[a]\nbs=4k\nbs=8k\ndirect=1\ndirect=1\n[a]\n", "x.fio").unwrap();
        assert_eq!(read.jobs[0].bs[0], BlockSizes::fixed(8192));
        assert_eq!(
            read.warnings,
            [
                "x.fio:3: bs='8k' replaces '4k' of the same section",
                "x.fio:6: the section 'a' has the same name as that in line 1: both are jobs"
            ]
        );
    }

    #[test]
    fn variables_and_keywords_have_their_values() {
        let environment = |name: &str| (name == "DISK").then(|| "/dev/b".to_string());
        let expand = |text| expand(text, &environment);
        assert_eq!(expand("${DISK}n1:${DISK}n2").as_deref(), Ok("/dev/bn1:/dev/bn2"));
        let page = expand("$pagesize").unwrap();
        assert!(page.parse::<u64>().unwrap().is_power_of_two());
        assert!(expand("$ncpus").unwrap().parse::<u32>().unwrap() > 0);
        assert!(expand("${NONE}").unwrap_err().contains("'NONE' is not set"));
        assert!(expand("${DISK").unwrap_err().contains("no } at its end"));
        assert!(expand("$jobname").unwrap_err().contains("'$jobname' is not a supported keyword"));
        assert!(expand("a$").is_err() && expand("$$").is_err());
        let why = wrong("[a]\nfilename=${BIOPSY_NO_SUCH_VARIABLE}\n");
        assert!(why.starts_with("x.fio:2: filename: 'BIOPSY_NO_SUCH_VARIABLE' is not set"), "{why}");
    }

    #[test]
    fn file_level_facts_are_told() {
        let read = read("[global]\nreadonly\nminimal=1\n[a]\nioengine=libaio\nsize=10%\n", "x.fio").unwrap();
        assert!(read.readonly && read.minimal);
        assert_eq!((read.jobs[0].engine, read.jobs[0].size), (Engine::Libaio, Some(Extent::Percent(10.0))));
    }

    /// Generates lines that are nearly valid, and others.
    fn lines() -> impl Strategy<Value = String> {
        let words: Vec<&'static str> = crate::load::options::words().map(|word| word.name).collect();
        let value = prop_oneof!["[0-9]{1,20}[kmgt%]?", "[0-9a-z,:/%.$\\\\{}-]{0,20}", ".{0,12}"];
        prop_oneof![
            4 => (proptest::sample::select(words), value).prop_map(|(word, value)| format!("{word}={value}")),
            1 => "\\[[a-z/ ]{0,8}\\]?.{0,3}",
            1 => ".{0,30}",
            1 => "[a-z_]{1,12}",
        ]
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(lines in proptest::collection::vec(lines(), 0..12), raw in "(?s).{0,300}") {
            for text in [format!("[a]\n{}", lines.join("\n")), raw] {
                match read(&text, "x.fio") {
                    Ok(file) => prop_assert!(!file.jobs.is_empty()),
                    Err(Refusal::Usage(why)) => {
                        let place = why.strip_prefix("x.fio:").and_then(|rest| rest.split(':').next());
                        prop_assert!(place.is_some_and(|line| line.parse::<usize>().is_ok()), "{}", why);
                        prop_assert!(!why.contains(char::is_control), "{:?}", why);
                    }
                    Err(other) => prop_assert!(false, "{other}"),
                }
            }
        }
    }
}
