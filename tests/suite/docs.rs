//! Compares README.md, CONTRIBUTING.md, docs/*.md and NOTICE with the tree and with what the executable prints.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use biopsy::analyze::latency::{DeviceLatency, LatencySummary, OpLatency};
use biopsy::analyze::op::Op;
use biopsy::analyze::stage::Stage;
use biopsy::analyze::timeline::Timeline;
use biopsy::envelope::Envelope;
use biopsy::hist::Histogram;
use biopsy::host::Host;
use biopsy::render::{html, json};
use biopsy::rules::summary::DiagnosisSummary;
use biopsy::rules::{self, Summaries};

use crate::support::skip::skipped;

fn tree() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn file(name: &str) -> String {
    fs::read_to_string(tree().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The output of the executable, which must succeed.
fn biopsy(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_biopsy")).args(arguments).output().unwrap();
    assert!(output.status.success(), "biopsy {}: {output:?}", arguments.join(" "));
    String::from_utf8(output.stdout).unwrap()
}

/// The verbs of `biopsy --help`.
fn verbs() -> BTreeSet<String> {
    let help = biopsy(&["--help"]);
    let verbs: BTreeSet<String> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        // The continuation of a description is indented further.
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next().map(str::to_string))
        .collect();
    assert!(verbs.contains("latency"), "{help}");
    verbs
}

/// The options (`-d`, `--device` and so on) that the help of a verb lists.
fn options(verb: &str) -> BTreeSet<String> {
    // `help` has no options of its own.
    let help = if verb == "help" { String::new() } else { biopsy(&[verb, "--help"]) };
    help.split(|c: char| c.is_whitespace() || c == ',')
        .filter(|word| word.starts_with('-'))
        // An optional value is in brackets: `--hipri[=<0|1>]`.
        .filter_map(|word| word.split('[').next().map(str::to_string))
        .collect()
}

/// The path in the tree of every page for readers.
fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_string(), "CONTRIBUTING.md".to_string()];
    for entry in fs::read_dir(tree().join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".md") {
            pages.push(format!("docs/{name}"));
        }
    }
    pages.sort();
    pages
}

/// The code of a page: the lines of fenced blocks, and the text between backticks in all other lines.
#[derive(Default)]
struct Code {
    lines: Vec<String>,
    spans: Vec<String>,
}

fn code(page: &str) -> Code {
    let mut code = Code::default();
    let mut fenced = false;
    for line in file(page).lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if fenced {
            code.lines.push(line.to_string());
        } else {
            assert!(line.split('`').count() % 2 == 1, "{page}: a span that ends on another line: {line}");
            code.spans.extend(line.split('`').skip(1).step_by(2).map(str::to_string));
        }
    }
    assert!(!fenced, "{page}: a block does not end");
    code
}

/// The code of all pages together.
fn all_code() -> Code {
    let mut all = Code::default();
    for page in pages() {
        let code = code(&page);
        all.lines.extend(code.lines);
        all.spans.extend(code.spans);
    }
    all
}

/// The words after each `biopsy `, without the command after `--` and without a shell comment.
fn command_lines(code: &Code) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for text in code.lines.iter().chain(&code.spans) {
        for (at, _) in text.match_indices("biopsy ") {
            // A longer path is a file to copy, and no command.
            let before = &text[..at];
            if !(before.is_empty() || before.ends_with(' ') || before.ends_with("./")) {
                continue;
            }
            let words = text[at..].split_whitespace().skip(1).take_while(|word| !["--", "#"].contains(word));
            found.push(words.map(str::to_string).collect());
        }
    }
    found
}

/// The part of a page from a heading to the next one.
fn section(page: &str, heading: &str) -> String {
    let text = file(page);
    let start =
        text.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("{page}: no heading {heading}"));
    let body = &text[start + heading.len() + 2..];
    body[..body.find("\n#").unwrap_or(body.len())].to_string()
}

/// The anchors of a page's headings, as a browser makes them: `## A sample` is `a-sample`.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut fenced = false;
    let mut anchors = BTreeSet::new();
    for line in file(page).lines() {
        fenced ^= line.starts_with("```");
        if !fenced && line.starts_with('#') {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
            anchors.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
        }
    }
    anchors
}

/// The targets of a page's links outside of code.
fn links(page: &str) -> Vec<String> {
    let mut fenced = false;
    let mut found = Vec::new();
    for line in file(page).lines() {
        fenced ^= line.starts_with("```");
        if !fenced {
            found.extend(line.split("](").skip(1).map(|link| link.split(')').next().unwrap().to_string()));
        }
    }
    found
}

/// The path, from the root of the tree, that a link of a page leads to. None: it leads out of the tree.
fn target(page: &str, link: &str) -> Option<(PathBuf, Option<String>)> {
    if link.contains("://") {
        return None;
    }
    let (path, anchor) = match link.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor.to_string())),
        None => (link, None),
    };
    if path.is_empty() {
        return Some((PathBuf::from(page), anchor));
    }
    let mut place = PathBuf::from(page);
    place.pop();
    for part in Path::new(path) {
        if part == ".." {
            place.pop();
        } else {
            place.push(part);
        }
    }
    Some((place, anchor))
}

/// The first cells of the tables of a text, without the headings.
fn first_cells(text: &str) -> Vec<String> {
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
    let head = rows.iter().position(|row| row.starts_with("|---")).expect("a table");
    rows[head + 1..].iter().map(|row| row.split('|').nth(1).unwrap().trim().to_string()).collect()
}

/// Each command line on a page has a verb and options that exist.
#[test]
fn command_lines_parse() {
    let options: BTreeMap<String, BTreeSet<String>> =
        verbs().into_iter().map(|verb| (verb.clone(), options(&verb))).collect();
    let mut checked = 0;
    // The pages of `explain` are prose in a fenced block.
    for page in
        pages().iter().filter(|page| !["docs/findings.md", "docs/json-keys.md"].contains(&page.as_str()))
    {
        for words in command_lines(&code(page)) {
            let shown = format!("{page}: biopsy {}", words.join(" "));
            let verb = words.first().unwrap_or_else(|| panic!("{shown}: no verb"));
            let known = options.get(verb).unwrap_or_else(|| panic!("{shown}: no such verb"));
            for word in words.iter().filter(|word| word.starts_with('-') && word.len() > 1) {
                let name = word.split('=').next().unwrap();
                assert!(known.contains(name), "{shown}: {verb} has no option {name}");
            }
            if let ("explain", Some(id)) = (verb.as_str(), words.get(1))
                && id.chars().next().is_some_and(char::is_lowercase)
            {
                assert!(biopsy(&["explain", id]).starts_with(id.as_str()));
            }
            checked += 1;
        }
    }
    assert!(checked > 40, "only {checked} command lines were found");
}

/// An option in the prose belongs to a verb, or to a script of the tree that is named next to it.
#[test]
fn options_in_the_prose_exist() {
    let known: BTreeSet<String> = verbs().iter().flat_map(|verb| options(verb)).collect();
    for page in pages() {
        for span in code(&page).spans.iter().filter(|span| span.starts_with("--")) {
            let name = span.split([' ', '=']).next().unwrap();
            assert!(known.contains(name), "{page}: no verb has {name}");
        }
    }
}

/// README has every verb in its table of commands.
#[test]
fn the_table_of_commands_has_every_verb() {
    let table = section("README.md", "## Commands");
    for verb in verbs() {
        assert!(table.contains(&format!("`biopsy {verb}")), "{verb} is not in the table of commands");
    }
}

/// README is short.
#[test]
fn readme_is_short() {
    let readme = file("README.md");
    assert!(readme.lines().count() <= 250, "{} lines, 250 are allowed", readme.lines().count());
    assert!(readme.len() <= 15 << 10, "{} bytes, 15 KiB are allowed", readme.len());
}

/// The sample of `check` is the output of the executable: the same lines in the same order, none left out except at a
/// line `...`. A line that says `ok` in both must be equal to the last letter; why something is missing depends on the
/// machine.
#[test]
fn the_sample_of_check_is_what_it_prints() {
    let page = file("docs/kernels-and-rights.md");
    let sample =
        page.split("# biopsy check\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a sample");
    let printed = biopsy(&["check"]);
    let words =
        |line: &str, n: usize| line.split_whitespace().take(n).map(str::to_string).collect::<Vec<_>>();
    let mut rest = printed.lines().skip(1);
    let mut left_out = false;
    for line in sample.lines().skip(1) {
        if line == "..." {
            left_out = true;
            continue;
        }
        let found = if left_out { rest.find(|here| words(here, 1) == words(line, 1)) } else { rest.next() };
        let here = found.unwrap_or_else(|| panic!("not printed: {line}"));
        assert_eq!(words(here, 1), words(line, 1), "a line is left out before it");
        assert!(
            words(here, 2) != words(line, 2) || here == line || !line.contains("  ok"),
            "printed: {here}\nin the sample: {line}"
        );
        left_out = false;
    }
}

/// What docs/generate writes for the executable, and the page in the tree.
fn generated(page: &str) -> String {
    let generate = [page, env!("CARGO_BIN_EXE_biopsy")];
    let output = Command::new(tree().join("docs/generate")).args(generate).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let generated = String::from_utf8(output.stdout).unwrap();
    let written = file(&format!("docs/{page}.md"));
    let differs = written.lines().zip(generated.lines()).find(|(old, new)| old != new);
    assert!(
        written == generated,
        "docs/{page}.md is not what the executable says: run `docs/generate {page} >docs/{page}.md` with a fresh build. \
         The first difference: {differs:?}"
    );
    written
}

#[test]
fn keys_are_those_of_the_schemas() {
    assert!(generated("json-keys").contains("| `p99_ns`"));
}

/// With every id of `explain`, in its order.
#[test]
fn findings_are_those_of_explain() {
    let written = generated("findings");
    let list = biopsy(&["explain"]);
    let ids: Vec<String> = list
        .lines()
        // The other lines are headings of groups.
        .filter(|line| line.starts_with(' '))
        .map(|line| line.split_whitespace().next().unwrap())
        .map(|id| format!("[`{id}`](#{id})"))
        .collect();
    assert_eq!(first_cells(&written), ids);
}

/// The table of schemas names what the executable prints. The test runs the views that need no rights.
#[test]
fn schemas_are_those_of_the_executable() {
    let table = section("docs/json.md", "## JSON");
    for verb in ["check", "devices"] {
        let json = biopsy(&[verb, "--json"]);
        let schema = format!("biopsy.{verb}/1");
        assert!(
            json.contains(&format!("\"{schema}\"")) && table.contains(&format!("`{schema}`")),
            "{schema}"
        );
    }
    for verb in verbs().iter().filter(|verb| options(verb).contains("--json")) {
        assert!(table.contains(&format!("`biopsy.{verb}/")), "{verb} --json has no schema in the table");
    }
}

/// The table has exactly the keys of the timeline.
#[test]
fn the_keys_of_the_timeline_are_those_of_the_table() {
    let hist = Histogram::from_iter([400_000; 10]);
    let read = OpLatency {
        ios: 10,
        request_stages: BTreeMap::from([(Stage::Device, hist)]),
        ..OpLatency::default()
    };
    let device = DeviceLatency {
        name: "vda".into(),
        ios: 10,
        ops: BTreeMap::from([(Op::Read, read)]),
        ..DeviceLatency::default()
    };
    let run = LatencySummary { duration_ns: 1, devices: vec![device], ..LatencySummary::default() };
    let mut timeline = Timeline::default();
    timeline.add(&run);
    let body = serde_json::json!(timeline.summary(&run));
    let keys =
        |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    let mut printed = keys(&body["devices"][0]);
    assert!(printed.remove("intervals"));
    printed.extend(keys(&body["devices"][0]["intervals"][0]));
    let named = |line: &str| -> Vec<String> {
        let cell = line.split('|').nth(1).unwrap_or_default();
        cell.split('`')
            .skip(1)
            .step_by(2)
            .filter_map(|key| key.rsplit('.').next().map(str::to_string))
            .collect()
    };
    let table = section("docs/json.md", "### `timeline`");
    let documented: BTreeSet<String> =
        table.lines().filter(|line| line.starts_with("| `")).flat_map(named).collect();
    assert_eq!(printed, documented);
}

/// The table has the kernels that the tests boot.
#[test]
fn kernels_are_those_that_the_tests_boot() {
    let kernels: Vec<String> = file("vmtest/kernels.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_whitespace().next().unwrap().to_string())
        .collect();
    assert_eq!(first_cells(&section("docs/kernels-and-rights.md", "## Kernels")), kernels);
}

/// The map names paths that exist, and each room of the library.
#[test]
fn the_map_is_that_of_the_tree() {
    let map = section("docs/architecture.md", "## Map of the tree");
    let paths: Vec<&str> = map
        .lines()
        .skip_while(|line| !line.starts_with("```"))
        .skip(1)
        .take_while(|line| !line.starts_with("```"))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(paths.len() > 20, "{paths:?}");
    for path in &paths {
        assert!(tree().join(path).exists(), "{path} is in the map and not in the tree");
    }
    for line in file("src/lib.rs").lines() {
        let Some(room) = line.strip_prefix("pub mod ").and_then(|rest| rest.strip_suffix(';')) else {
            continue;
        };
        let names = [format!("src/{room}/"), format!("src/{room}.rs")];
        assert!(names.iter().any(|name| paths.contains(&name.as_str())), "the room {room} is not in the map");
    }
}

/// The rooms of docs/architecture.md are those of src/lib.rs, with the same arrows.
#[test]
fn the_rooms_are_those_of_the_library() {
    let rooms: Vec<String> = file("src/lib.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("//!  "))
        .map(|line| line.trim().to_string())
        .collect();
    let page = section("docs/architecture.md", "## Which room may use which");
    let shown: Vec<&str> = page
        .lines()
        .skip_while(|line| !line.starts_with("```"))
        .skip(1)
        .take_while(|line| !line.starts_with("```"))
        .map(str::trim)
        .collect();
    assert_eq!(shown, rooms);
}

/// The paths in the prose exist, except the example `your_finding` of CONTRIBUTING.md.
#[test]
fn paths_lead_somewhere() {
    let rooms = ["bpf/", "src/", "tools/", "tests/", "vmtest/", "setup/", "benches/", "docs/"];
    for page in pages() {
        for span in code(&page).spans {
            let is_path = rooms.iter().any(|room| span.starts_with(room)) && !span.contains([' ', '*']);
            let is_example = page == "CONTRIBUTING.md" && span.contains("your_finding");
            assert!(!is_path || is_example || tree().join(&span).exists(), "{page}: no {span}");
        }
    }
}

/// Each link leads to a file, and to a heading that the file has, if it names one.
#[test]
fn links_lead_somewhere() {
    for page in pages() {
        for link in links(&page) {
            let Some((path, anchor)) = target(&page, &link) else { continue };
            assert!(tree().join(&path).exists(), "{page}: {link} leads nowhere");
            if let Some(anchor) = anchor {
                let to = path.to_str().unwrap();
                assert!(anchors(to).contains(&anchor), "{page}: {link}: {to} has no such heading");
            }
        }
    }
}

/// Every page can be reached from README by links.
#[test]
fn every_page_can_be_reached_from_readme() {
    let mut reached = BTreeSet::from(["README.md".to_string()]);
    let mut open = vec!["README.md".to_string()];
    while let Some(page) = open.pop() {
        for link in links(&page) {
            let Some((path, _)) = target(&page, &link) else { continue };
            let path = path.to_str().unwrap().to_string();
            if path.ends_with(".md") && reached.insert(path.clone()) {
                open.push(path);
            }
        }
    }
    for page in pages() {
        assert!(reached.contains(&page), "no link leads to {page}");
    }
}

/// README names the packages and the Rust version that a build needs, and `make` has the targets that the pages name.
#[test]
fn the_set_up_is_the_one_described() {
    let start = section("README.md", "## Quick start");
    for line in file("setup/packages").lines().filter(|line| line.starts_with("build ")) {
        let package = line.split_whitespace().nth(1).unwrap();
        assert!(start.contains(&format!("`{package}`")), "{package} is installed and not named");
    }
    let manifest = file("Cargo.toml");
    let rust = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap();
    assert!(start.contains(&format!("Rust {}", rust.trim_matches('"'))), "Rust {rust}");

    let makefile = file("Makefile");
    let code = all_code();
    let called = code.lines.iter().chain(&code.spans).filter_map(|text| text.strip_prefix("make "));
    for target in called.filter_map(|rest| rest.split_whitespace().next()) {
        assert!(makefile.lines().any(|line| line.starts_with(&format!("{target}:"))), "no make {target}");
    }
}

/// The review list fits on one screen.
#[test]
fn the_review_is_short() {
    assert!(section("CONTRIBUTING.md", "## Review").trim().lines().count() < 30);
}

/// Each version in the changelog has Added, Changed and Fixed in this order, with entries of one line.
#[test]
fn the_changelog_has_one_line_an_entry() {
    let text = file("CHANGELOG.md");
    let versions: Vec<&str> = text.split("\n## ").skip(1).collect();
    assert!(versions.len() >= 2, "no versions");
    for version in versions {
        let name = version.lines().next().unwrap();
        let mut kinds = Vec::new();
        for line in version.lines().skip(1).filter(|line| !line.is_empty()) {
            if let Some(kind) = line.strip_prefix("### ") {
                kinds.push(kind);
            } else {
                assert!(kinds.is_empty() || line.starts_with("- "), "{name}: not an entry: {line}");
                assert!(line.chars().count() <= 100, "{name}: more than 100 columns: {line}");
            }
        }
        let expected: Vec<&str> =
            ["Added", "Changed", "Fixed"].into_iter().filter(|kind| kinds.contains(kind)).collect();
        assert_eq!(kinds, expected, "{name}");
    }
    // The executable's version is the newest one, or the one before it while the newest is being prepared.
    let manifest = file("Cargo.toml");
    let version = manifest.lines().find_map(|line| line.strip_prefix("version = ")).unwrap();
    assert!(
        text.contains(&format!("\n## {}", version.trim_matches('"'))),
        "{version} is not in the changelog"
    );
}

/// The content of a PNG: width, height, and the bytes of its lines, each after the number of its filter.
fn png(path: &Path) -> (u32, u32, Vec<u8>) {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n"), "{} is no PNG", path.display());
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut at, mut packed) = (8, Vec::new());
    while at < bytes.len() {
        let length = number(at) as usize;
        if bytes[at + 4..at + 8] == *b"IDAT" {
            packed.extend_from_slice(&bytes[at + 8..at + 8 + length]);
        }
        at += 12 + length;
    }
    let mut lines = Vec::new();
    flate2::read::ZlibDecoder::new(packed.as_slice()).read_to_end(&mut lines).unwrap();
    (number(16), number(20), lines)
}

/// Each line of a blank page equals the line above it, so that its filter leaves zeros.
fn is_blank(lines: &[u8]) -> bool {
    lines.iter().filter(|byte| **byte != 0).count() < lines.len() / 100
}

/// A small report with fixed values: one disk, 1,000 reads.
fn report() -> String {
    let hist = |ns: u64| Histogram::from_iter(std::iter::repeat_n(ns, 1000));
    let stages = BTreeMap::from([(Stage::Queue, hist(20_000)), (Stage::Device, hist(400_000))]);
    let read = OpLatency { ios: 1000, bytes: 4_096_000, request_stages: stages, ..OpLatency::default() };
    let device = DeviceLatency {
        name: "vda".into(),
        ios: 1000,
        bytes: 4_096_000,
        ops: BTreeMap::from([(Op::Read, read)]),
        ..DeviceLatency::default()
    };
    let envelope = Envelope { duration_ns: 1_000_000_000, ..Envelope::default() };
    let host = Host::default();
    let latency =
        LatencySummary { duration_ns: 1_000_000_000, devices: vec![device], ..LatencySummary::default() };
    let summaries = Summaries {
        envelope: &envelope,
        host: &host,
        latency: &latency,
        command: false,
        rates: &[],
        interrupts: None,
        load: None,
        scaling: None,
        experiment: None,
        cpu: None,
        quotas: &[],
        profile: None,
        locks: None,
        pagecache: None,
        threads: None,
    };
    let diagnosis = rules::diagnose(&summaries);
    html::render(&html::Report {
        summaries,
        diagnosis: &diagnosis,
        doubt: None,
        command: "biopsy diagnose",
        command_status: None,
        flames: &[],
        locks: None,
        pagecache: None,
        threads: None,
        timeline: None,
        json: &json::view_object(&envelope, &DiagnosisSummary::of(&summaries, &diagnosis), None),
    })
}

/// README's picture is small, and docs/screenshot makes one like it from any report.
#[test]
fn the_picture_can_be_made_anew() {
    let shown = tree().join("docs/report.png");
    assert!(fs::metadata(&shown).unwrap().len() <= 150 << 10, "docs/report.png is larger than 150 KiB");
    let (width, height, lines) = png(&shown);
    assert!(!is_blank(&lines), "docs/report.png is blank");

    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (page, picture) = (directory.join("docs-report.html"), directory.join("docs-report.png"));
    fs::write(&page, report()).unwrap();
    fs::remove_file(&picture).ok();
    let output = Command::new(tree().join("docs/screenshot")).args([&page, &picture]).output().unwrap();
    if output.status.code() == Some(3) {
        skipped("chromium is not installed");
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let made = png(&picture);
    assert_eq!(
        (made.0, made.1),
        (width, height),
        "docs/report.png has another size than docs/screenshot makes"
    );
    assert!(!is_blank(&made.2), "the new picture is blank");
}

/// NOTICE lists crates of Cargo.lock, and all those that Cargo.toml asks for.
#[test]
fn notice_lists_the_crates_that_are_linked() {
    let locked: BTreeSet<(String, String)> = file("Cargo.lock")
        .split("[[package]]")
        .filter_map(|package| {
            let value = |key: &str| {
                let line = package.lines().find_map(|line| line.strip_prefix(key))?;
                Some(line.trim_matches('"').to_string())
            };
            Some((value("name = ")?, value("version = ")?))
        })
        .collect();
    let notice = file("NOTICE");
    let mut named = BTreeSet::new();
    for row in notice.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| crate ")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let (name, version) = (cells[1].to_string(), cells[2].to_string());
        assert!(!cells[3].is_empty(), "{name} has no licence");
        assert!(
            locked.contains(&(name.clone(), version.clone())),
            "NOTICE has {name} {version}, Cargo.lock has not: make the table anew, NOTICE says how"
        );
        named.insert(name);
    }
    let manifest = file("Cargo.toml");
    let wanted = manifest.split("\n[dependencies]\n").nth(1).unwrap().split("\n[").next().unwrap();
    for line in wanted.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let name = line.split(' ').next().unwrap();
        assert!(named.contains(name), "{name} is linked and not in NOTICE");
    }
}
