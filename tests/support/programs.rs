//! Compiles programs for a test and runs them until the test ends. Each test file uses a part of this.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A temporary folder that is removed with the test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("symbols-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path.canonicalize().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Compiles the text of a C program under a name.
    pub fn compile(&self, name: &str, text: &str, flags: &[&str]) {
        let source = self.path(&format!("{name}.c"));
        fs::write(&source, text).unwrap();
        let mut command = Command::new("cc");
        command.arg("-Wl,--build-id").arg("-o").arg(self.path(name)).arg(&source).args(flags);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Compiles a Rust program with the flags of biopsy itself: static and position-independent.
    pub fn compile_rust(&self, name: &str, text: &str) {
        let source = self.path(&format!("{name}.rs"));
        fs::write(&source, text).unwrap();
        let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        command.args([
            "--edition",
            "2024",
            "-O",
            "-g",
            "-C",
            "target-feature=+crt-static",
            "-C",
            "symbol-mangling-version=v0",
        ]);
        command.args(["--target", "x86_64-unknown-linux-gnu", "-o"]).arg(self.path(name)).arg(&source);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Makes another file from a program by objcopy.
    pub fn objcopy(&self, from: &str, how: &[&str], to: &str) {
        let mut command = Command::new("objcopy");
        let status = command.args(how).arg(self.path(from)).arg(self.path(to)).status();
        assert!(status.unwrap().success(), "{command:?}");
    }

    /// The build id of a program, as readelf prints it.
    pub fn build_id(&self, name: &str) -> Option<String> {
        let output = Command::new("readelf").arg("-nW").arg(self.path(name)).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.split_once("Build ID: ").map(|(_, id)| id.lines().next().unwrap().trim().to_string())
    }

    /// Offset and size of the symbol tables and the DWARF sections, as readelf prints them.
    pub fn sections(&self, name: &str) -> Vec<(usize, usize)> {
        let output = Command::new("readelf").arg("-SW").arg(self.path(name)).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let hex = |text: &str| usize::from_str_radix(text, 16).unwrap();
        let section = |line: &str| {
            let (_, line) = line.split_once(']')?;
            let words: Vec<&str> = line.split_whitespace().collect();
            let name = *words.first()?;
            let read =
                ["tab", ".dynsym", ".dynstr", ".debug_", ".note"].iter().any(|part| name.contains(part));
            (read && words.len() > 5).then(|| (hex(words[3]), hex(words[4])))
        };
        text.lines().filter_map(section).filter(|(_, bytes)| *bytes > 0).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running program that has printed addresses of its own functions and waits.
pub struct Running {
    child: Child,
    maps: String,
    pub addresses: Vec<u64>,
}

impl Running {
    pub fn start(folder: &Folder, name: &str) -> Self {
        Self::of(Command::new(folder.path(name))).expect("it prints addresses")
    }

    /// Starts a program. None: it ended without output.
    pub fn of(mut command: Command) -> Option<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let words =
            line.split_whitespace().map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16));
        let addresses: Vec<u64> = words.map(Result::unwrap).collect();
        if addresses.is_empty() {
            let _ = child.wait();
            return None;
        }
        let maps = fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
        Some(Self { child, maps, addresses })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The file offset that an address is mapped from.
    pub fn offset(&self, address: u64) -> u64 {
        let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let line = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (start, end) = words[0].split_once('-').unwrap();
            (hex(start)..hex(end)).contains(&address).then(|| address - hex(start) + hex(words[2]))
        };
        self.maps.lines().find_map(line).unwrap()
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn end(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

pub fn is_root() -> bool {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}
