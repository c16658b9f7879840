//! Tests the output on a terminal: no line is wider than it, and nothing that it cannot show is printed.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};

use crate::support::tool::binary;

/// A pseudo terminal: the reader's side, and the path of the other side.
fn terminal(columns: u16) -> (File, String) {
    let size = libc::winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: each call gets an open descriptor, and memory of the right size.
    unsafe {
        let master = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY);
        assert!(master >= 0 && libc::grantpt(master) == 0 && libc::unlockpt(master) == 0, "no terminal");
        let master = OwnedFd::from_raw_fd(master);
        assert_eq!(libc::ioctl(master.as_raw_fd(), libc::TIOCSWINSZ, &size), 0);
        let mut name = [0u8; 64];
        assert_eq!(libc::ptsname_r(master.as_raw_fd(), name.as_mut_ptr().cast(), name.len()), 0);
        let end = name.iter().position(|byte| *byte == 0).unwrap();
        (File::from(master), String::from_utf8(name[..end].to_vec()).unwrap())
    }
}

/// What a command prints on a terminal, and its exit code.
fn shown(words: &[&str], columns: u16, variables: &[(&str, Option<&str>)]) -> (String, Option<i32>) {
    let (mut master, path) = terminal(columns);
    let slave = File::options().read(true).write(true).open(path).unwrap();
    let mut command = Command::new(binary());
    command.args(words).stdin(Stdio::null()).stdout(slave).stderr(Stdio::null());
    for (name, value) in variables {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut child = command.spawn().unwrap();
    // The command holds the other side; when that is closed, a read ends with an error.
    drop(command);
    let mut bytes = Vec::new();
    let _closed = master.read_to_end(&mut bytes);
    let code = child.wait().unwrap().code();
    (String::from_utf8_lossy(&bytes).replace("\r\n", "\n"), code)
}

/// The text without colours.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            '\u{1b}' => _ = characters.by_ref().find(char::is_ascii_alphabetic),
            c => out.push(c),
        }
    }
    out
}

const UTF8: [(&str, Option<&str>); 3] =
    [("TERM", Some("xterm")), ("LC_ALL", Some("C.UTF-8")), ("NO_COLOR", None)];

fn recording() -> String {
    format!("{}/tests/recordings/0.2.0-linux-6.18.biopsy.tar", env!("CARGO_MANIFEST_DIR"))
}

fn all() -> Vec<Vec<String>> {
    let path = recording();
    let of = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut all = vec![of(&["check"]), of(&["devices"]), of(&["version"])];
    for verb in ["latency", "interrupts", "locks", "threads", "errors"] {
        all.push(of(&[verb, "-i", &path]));
    }
    all.push(of(&["latency", "--all", "-i", &path]));
    all.push(of(&["top", "--plain", "-i", &path]));
    all
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for words in all() {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        for columns in [80, 60, 20] {
            let (text, code) = shown(&words, columns, &UTF8);
            assert!(!text.is_empty() && code.is_some_and(|code| code != 101), "{words:?} {code:?}: {text}");
            for line in plain(&text).lines() {
                assert!(line.chars().count() <= usize::from(columns), "{words:?} at {columns}: {line}");
            }
        }
    }
}

#[test]
fn terminals_get_what_they_can_show() {
    for (variables, has_colour, has_utf8) in [
        (&UTF8[..], true, true),
        (&[("TERM", Some("dumb")), ("LC_ALL", Some("C.UTF-8")), ("NO_COLOR", None)], false, true),
        (&[("TERM", None), ("LC_ALL", Some("C.UTF-8")), ("NO_COLOR", None)], false, true),
        (&[("TERM", Some("xterm")), ("LC_ALL", Some("C")), ("NO_COLOR", None)], true, false),
        (
            &[
                ("TERM", Some("xterm")),
                ("LC_ALL", None),
                ("LC_CTYPE", None),
                ("LANG", None),
                ("NO_COLOR", None),
            ],
            true,
            false,
        ),
    ] {
        let path = recording();
        let (text, code) = shown(&["latency", "-i", &path], 80, variables);
        assert_eq!(code, Some(0), "{text}");
        assert_eq!(
            (text.contains('\u{1b}'), text.contains('µ')),
            (has_colour, has_utf8),
            "{variables:?}: {text}"
        );
        assert!(has_utf8 || text.is_ascii() && text.contains("operation, us"), "{text}");
    }
}

#[test]
fn wide_output_and_pipes_have_every_column() {
    let path = recording();
    let (narrow, _) = shown(&["interrupts", "-i", &path], 60, &UTF8);
    let (wide, _) = shown(&["interrupts", "--wide", "-i", &path], 60, &UTF8);
    let header = |text: &str| plain(text).lines().find(|line| line.starts_with("irq")).unwrap().to_string();
    assert!(
        !header(&narrow).contains("handler p50") && header(&wide).contains("handler p50"),
        "{narrow}{wide}"
    );
    let piped = Command::new(binary()).args(["interrupts", "-i", &path]).output().unwrap();
    assert_eq!(header(&String::from_utf8(piped.stdout).unwrap()), header(&wide));
}
