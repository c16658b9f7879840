//! `biopsy compare --from-report`: the comparison that tests the advice of a diagnosis.

use std::ffi::OsString;
use std::path::Path;

use anyhow::Result;
use biopsy::findings::is_comparison;
use biopsy::refusal::Refusal;
use biopsy::render::{html, text};
use serde_json::Value;

use super::kept;
use crate::cli::{self, Compare, Verb};
use crate::load;
use crate::output::{note, warn};
use crate::words;

/// The settings that a diagnosis varies, and the load options that it writes. A report may come from an untrusted
/// source and is run as root, so a line with anything else is refused.
const KEYS: [&str; 7] = ["iodepth", "numjobs", "polling", "scheduler", "nr_requests", "max_sectors", "wbt"];
const WORDS: [&str; 6] = ["rw", "bs", "iodepth", "numjobs", "size", "hipri"];

/// Replaces these options by those of the report's command line.
pub fn options(args: &Compare, path: &Path) -> Result<Compare> {
    let name = text::clean(&path.display().to_string());
    let report = read(path, &name)?;
    let checks = report["findings"].as_array().into_iter().flatten().map(|finding| &finding["check"]);
    let checks = checks.filter_map(Value::as_str).filter(|check| is_comparison(check));
    // The line of the verdict, or else of the first finding that has one.
    let line = report["verdict"]["compare"].as_str().into_iter().chain(checks).next().ok_or_else(|| {
        let check = report["findings"][0]["check"].as_str().unwrap_or("biopsy diagnose");
        Refusal::Refused(format!(
            "{name} has no comparison, as no load option or setting applies its advice: check it with {}",
            text::clean(check)
        ))
    })?;
    let foreign = || {
        Refusal::Refused(format!(
            "{name} has a comparison that biopsy diagnose does not write: read it there (\"compare\") and \
             run it by hand"
        ))
    };
    let found = parse(line).filter(is_ours).ok_or_else(foreign)?;
    if let (Some(there), Some(here)) = (report["host"]["hostname"].as_str(), load::hostname())
        && there != here
    {
        let there = text::clean(there);
        warn(&format!("warning: {name} is from host {there}, and this host is {}", text::clean(&here)));
    }
    note(&format!("runs: {}\n", text::clean(line)));
    Ok(Compare {
        vary: found.vary,
        device: found.device,
        command: found.command,
        from_report: None,
        ..args.clone()
    })
}

/// Reads the object of `biopsy diagnose --json` from its own file or from an HTML page.
fn read(path: &Path, name: &str) -> Result<Value> {
    let text = kept::text(path)?;
    let report = match text.trim_start().starts_with('{') {
        true => serde_json::from_str(&text).ok(),
        false => html::data(&text),
    };
    let is_one =
        |value: &Value| value["schema"].as_str().is_some_and(|name| name.starts_with("biopsy.diagnose/"));
    report.filter(is_one).ok_or_else(|| {
        let why = format!("{name} is not a report of biopsy diagnose: give its HTML page or JSON");
        Refusal::Refused(why).into()
    })
}

/// Parses a shell command line into options.
fn parse(line: &str) -> Option<Compare> {
    let words = shell_words(line)?;
    let words = match words.split_first() {
        Some((first, rest)) if first == "sudo" => rest,
        _ => &words,
    };
    match cli::parse(words::joined(words.iter().map(OsString::from))).ok()?.verb {
        Verb::Compare(found) => Some(found),
        _ => None,
    }
}

/// Whether a diagnosis could have written this line. Such a line runs a load that only reads.
fn is_ours(found: &Compare) -> bool {
    let is_plain = |load: &cli::Load| {
        // A scratch file needs no --write.
        let is_known = |(word, value): &(String, String)| {
            WORDS.contains(&word.as_str()) && (word != "rw" || matches!(value.as_str(), "read" | "randread"))
        };
        !load.write
            && !load.precondition
            && load.destroy_data_on.is_empty()
            && load.words.overwrite.is_empty()
            && load.jobfile.is_none()
            && load.output.output.is_none()
            && load.targets.len() == 1
            && load.words.said.iter().all(is_known)
    };
    let has_other_options = found.prepare.is_some()
        || !found.files.is_empty()
        || found.restore
        || found.from_report.is_some()
        || found.html.is_some()
        || found.output.output.is_some();
    !has_other_options
        && found.vary.iter().all(|vary| KEYS.contains(&vary.key.as_str()))
        && found.command.first().is_some_and(|word| word == "load")
        && super::parse_load(&found.command).is_ok_and(|load| is_plain(&load))
}

/// Splits a shell command into words. Only quotes and backslashes are special. None: a quote is not closed.
fn shell_words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match c {
            ' ' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next()? {
                        '\'' => break,
                        c => word.push(c),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(rest.next()?),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_a_shell() {
        let words = |line| shell_words(line).unwrap();
        assert_eq!(words("a  'b c' d\\ e"), ["a", "b c", "d e"]);
        assert_eq!(words(r"'it'\''s' ''"), ["it's", ""]);
        assert_eq!((words(""), shell_words("a 'b")), (vec![], None));
    }

    /// Lines that the rules write are run. Lines that write, run a command or set other settings are refused.
    #[test]
    fn only_what_a_diagnosis_writes_is_run() {
        let is_run = |line: &str| parse(line).is_some_and(|found| is_ours(&found));
        for line in [
            "biopsy compare --vary iodepth=1,2 -- load /var/tmp --scratch",
            "sudo biopsy compare --vary nr_requests=64,128 -d sda -- load '/dev/it'\\''s' --rw read --bs 1m --size 3m --hipri",
            "biopsy compare --vary polling=0,1 -- load /dev/vda --iodepth 4 --numjobs 2",
        ] {
            assert!(is_run(line), "{line}");
        }
        for line in [
            "",
            "biopsy load /dev/vda",
            "biopsy compare --vary iodepth=1,2 -- rm -r /",
            "sudo sudo biopsy compare --vary iodepth=1,2 -- load /dev/vda",
            "biopsy compare --vary iodepth=1,2 --prepare 'rm -r /' -- true",
            "biopsy compare --vary sysctl:kernel.core_pattern=a,b -- load /dev/vda",
            "biopsy compare --vary write_cache=a,b -- load /dev/vda",
            "biopsy compare --vary iodepth=1,2 -- load /dev/vda --rw randwrite --write --destroy-data-on vda",
            "biopsy compare --vary iodepth=1,2 -- load /dev/vda --write-bw-log /etc/passwd",
            "biopsy compare --vary iodepth=1,2 -o /etc/passwd -- load /dev/vda",
            "biopsy compare --vary iodepth=1,2 -- load /dev/vda -o /etc/passwd",
            "biopsy compare --vary iodepth=1,2 -- load --jobfile x.fio",
            "biopsy compare --from-report x.html",
        ] {
            assert!(!is_run(line), "{line}");
        }
    }
}
