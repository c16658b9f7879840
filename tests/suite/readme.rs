//! Keeps README.md and NOTICE true: what they name exists, and what exists is named.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

fn tree() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn file(name: &str) -> String {
    fs::read_to_string(tree().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// What the executable prints; it must succeed.
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
        // A description that is wrapped stands further to the right.
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next().map(str::to_string))
        .collect();
    assert!(verbs.contains("latency"), "{help}");
    verbs
}

/// `-d`, `--device` and so on, as a verb's help lists them.
fn options(verb: &str) -> BTreeSet<String> {
    let help = biopsy(&[verb, "--help"]);
    help.split(|c: char| c.is_whitespace() || c == ',')
        .filter(|word| word.starts_with('-'))
        // A value that can be left out stands in brackets: `--hipri[=<0|1>]`.
        .filter_map(|word| word.split('[').next().map(str::to_string))
        .collect()
}

/// README's code: the lines of fenced blocks, and the spans between backticks in all other lines.
struct Code {
    lines: Vec<String>,
    spans: Vec<String>,
}

fn code() -> Code {
    let mut code = Code { lines: Vec::new(), spans: Vec::new() };
    let mut fenced = false;
    for line in file("README.md").lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if fenced {
            code.lines.push(line.to_string());
        } else {
            assert!(line.split('`').count() % 2 == 1, "a span that ends on another line: {line}");
            code.spans.extend(line.split('`').skip(1).step_by(2).map(str::to_string));
        }
    }
    assert!(!fenced, "a block does not end");
    code
}

/// The words behind each `biopsy `, without the command behind `--` and without a shell's comment.
fn command_lines(code: &Code) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for text in code.lines.iter().chain(&code.spans) {
        for (at, _) in text.match_indices("biopsy ") {
            if text[..at].ends_with(|c: char| c != ' ' && c != '/') {
                continue;
            }
            let words = text[at..].split_whitespace().skip(1).take_while(|word| !["--", "#"].contains(word));
            found.push(words.map(str::to_string).collect());
        }
    }
    found
}

/// The part of README below a heading, up to the next heading.
fn section(heading: &str) -> String {
    let readme = file("README.md");
    let start = readme.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no heading {heading}"));
    let body = &readme[start + heading.len() + 2..];
    body[..body.find("\n#").unwrap_or(body.len())].to_string()
}

/// The first cells of the tables of a text, without their heads.
fn first_cells(text: &str) -> Vec<String> {
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
    let head = rows.iter().position(|row| row.starts_with("|---")).expect("a table");
    rows[head + 1..].iter().map(|row| row.split('|').nth(1).unwrap().trim().to_string()).collect()
}

/// Someone who copies a command line out of README must not be told about an unknown option.
#[test]
fn command_lines_parse() {
    let verbs = verbs();
    let lines = command_lines(&code());
    assert!(lines.len() > 20, "{lines:?}");
    for words in lines {
        let shown = format!("biopsy {}", words.join(" "));
        let verb = words.first().unwrap_or_else(|| panic!("{shown}: no verb"));
        assert!(verbs.contains(verb), "{shown}: no such verb");
        let known = options(verb);
        for word in words.iter().filter(|word| word.starts_with('-') && word.len() > 1) {
            let name = word.split('=').next().unwrap();
            assert!(known.contains(name), "{shown}: {verb} has no option {name}");
        }
        if let ("explain", Some(id)) = (verb.as_str(), words.get(1)) {
            assert!(biopsy(&["explain", id]).starts_with(id.as_str()));
        }
    }
}

/// Options that the prose names alone belong to some verb.
#[test]
fn options_in_the_prose_exist() {
    let known: BTreeSet<String> = verbs().iter().flat_map(|verb| options(verb)).collect();
    for span in code().spans.iter().filter(|span| span.starts_with("--")) {
        let name = span.split([' ', '=']).next().unwrap();
        assert!(known.contains(name), "no verb has {name}");
    }
}

/// Each question has its command, and no command is without a question.
#[test]
fn every_verb_is_presented() {
    let table = section("## What it answers");
    for verb in verbs() {
        assert!(table.contains(&format!("`biopsy {verb}`")), "{verb} is not in the table of questions");
    }
}

/// The sample of `check` is what the executable prints: its lines in their order, none left out but for a line
/// `...`, and each as it is wherever it says `ok` here too (why something is missing is the machine's).
#[test]
fn the_sample_of_check_is_what_it_prints() {
    let readme = file("README.md");
    let sample =
        readme.split("# biopsy check\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a sample");
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
            "printed: {here}\nin README: {line}"
        );
        left_out = false;
    }
}

/// The table of findings is what `explain` lists, in its order.
#[test]
fn findings_are_those_of_explain() {
    let list = biopsy(&["explain"]);
    let ids: Vec<String> =
        list.lines().map(|line| format!("`{}`", line.split_whitespace().next().unwrap())).collect();
    assert_eq!(first_cells(&section("## Findings")), ids);
}

/// A schema in README is one that the executable prints; those that need no rights are run.
#[test]
fn schemas_are_those_of_the_executable() {
    let table = section("## Exit codes and JSON");
    for verb in ["check", "devices"] {
        let json = biopsy(&[verb, "--json"]);
        let schema = format!("biopsy.{verb}/1");
        assert!(
            json.contains(&format!("\"{schema}\"")) && table.contains(&format!("`{schema}`")),
            "{schema}"
        );
    }
}

/// The support statement has one source.
#[test]
fn kernels_are_those_that_the_tests_boot() {
    let kernels: Vec<String> = file("vmtest/kernels.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_whitespace().next().unwrap().to_string())
        .collect();
    assert_eq!(first_cells(&section("### Kernels")), kernels);
}

/// The map names what is there, and each room of the library.
#[test]
fn the_map_is_that_of_the_tree() {
    let map = section("## Map of the tree");
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

/// Paths that the prose names exist, but those of the probe that README adds as an example.
#[test]
fn paths_and_links_lead_somewhere() {
    let rooms = ["bpf/", "src/", "tools/", "tests/", "vmtest/", "setup/", "benches/"];
    for span in code().spans {
        let is_path = rooms.iter().any(|room| span.starts_with(room)) && !span.contains([' ', '*']);
        assert!(!is_path || span.contains("locks") || tree().join(&span).exists(), "no {span}");
    }
    let readme = file("README.md");
    let headings: BTreeSet<String> = readme
        .lines()
        .filter(|line| line.starts_with("##"))
        .map(|line| line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-"))
        .collect();
    for link in readme.split("](").skip(1) {
        let target = link.split(')').next().unwrap();
        if let Some(heading) = target.strip_prefix('#') {
            assert!(headings.contains(heading), "no heading {heading}");
            continue;
        }
        assert!(target.contains("://") || tree().join(target).exists(), "no {target}");
    }
}

/// What README says of the set-up is what the set-up does.
#[test]
fn the_set_up_is_the_one_described() {
    let start = section("## Quick start");
    for line in file("setup/packages").lines().filter(|line| line.starts_with("build ")) {
        let package = line.split_whitespace().nth(1).unwrap();
        assert!(start.contains(&format!("`{package}`")), "{package} is installed and not named");
    }
    let manifest = file("Cargo.toml");
    let rust = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap();
    assert!(start.contains(&format!("Rust {}", rust.trim_matches('"'))), "Rust {rust}");

    let makefile = file("Makefile");
    let code = code();
    let called = code.lines.iter().chain(&code.spans).filter_map(|text| text.strip_prefix("make "));
    for target in called.filter_map(|rest| rest.split_whitespace().next()) {
        assert!(makefile.lines().any(|line| line.starts_with(&format!("{target}:"))), "no make {target}");
    }
}

/// A checklist that nobody reads to its end checks nothing.
#[test]
fn the_review_is_short() {
    assert!(section("## Review").trim().lines().count() < 30);
}

/// The crates of NOTICE are those of Cargo.lock, and those that Cargo.toml asks for are in NOTICE.
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
