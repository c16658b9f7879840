//! Tests the names of functions in programs that the tests compile: exact names, or none.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::patience::Patience;
use crate::support::programs::{Folder, Running, is_root};
use crate::support::skip::skipped;
use crate::support::tool::{helper, symbolizer};
use biopsy::envelope::Reason;
use biopsy::symbols::{
    Addresses, BuildId, Helper, MappedFiles, Names, Place, PlaceName, Symbolizer, UNKNOWN,
};

/// The names of a process' addresses, with the mappings that were kept while it ran.
fn names(pid: u32, addresses: &[u64], kept: MappedFiles) -> Names {
    let user = BTreeMap::from([(pid, addresses.iter().copied().collect::<BTreeSet<_>>())]);
    symbolizer().names(&Addresses { user, maps: kept, ..Addresses::default() })
}

fn named_as(names: &[&str]) -> PlaceName {
    PlaceName::As(names.iter().map(|name| name.to_string()).collect())
}

fn kept(pid: u32) -> MappedFiles {
    let mut mapped = MappedFiles::default();
    mapped.read(Path::new("/"), pid).unwrap();
    mapped
}

/// The mappings of a process by text only, without open files.
fn text(pid: u32) -> MappedFiles {
    let mut mapped = MappedFiles::default();
    mapped.insert(pid, &fs::read(format!("/proc/{pid}/maps")).unwrap());
    mapped
}

/// Two functions, one of them inlined into a third; [`MAIN`] prints their addresses.
const WORK: &str = r#"
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) void *here(void) { return (char *)__builtin_return_address(0) - 1; }
static inline __attribute__((always_inline)) void *swallowed(void) {
    void *at = here();
    __asm__ volatile("");
    return at;
}
__attribute__((noinline)) static void *first(void) { void *at = here(); __asm__ volatile(""); return at; }
__attribute__((noinline)) static void *second(void) { void *at = swallowed(); __asm__ volatile(""); return at; }
"#;
const MAIN: &str = r#"
int main(void) { char c; printf("%p %p\n", first(), second()); fflush(stdout); return read(0, &c, 1) < 0; }
"#;

fn program(folder: &Folder, name: &str, flags: &[&str]) -> Running {
    folder.compile(name, &format!("{WORK}{MAIN}"), flags);
    Running::start(folder, name)
}

#[test]
fn line_tables_tell_what_was_inlined() {
    let folder = Folder::new("dwarf");
    for flags in [
        &["-g", "-O2"][..],
        &["-g", "-O2", "-gz"],
        &["-g", "-O2", "-static-pie"],
        &["-gdwarf-4", "-O1", "-no-pie"],
    ] {
        let run = program(&folder, "inlined", flags);
        let names = names(run.pid(), &run.addresses, MappedFiles::default());
        let [first, second] = [0, 1].map(|i| names.user(run.pid(), run.addresses[i]).to_vec());
        assert_eq!(first, ["first"], "{flags:?}");
        assert_eq!(second, ["second", "swallowed"], "{flags:?}");
        assert!(names.missing.is_empty(), "{:?}", names.missing);
    }
}

/// Compressed as newer distributions do it; this compiler may not be able to, but binutils are.
#[test]
fn line_tables_in_zstd_tell_it_too() {
    let folder = Folder::new("zstd");
    folder.compile("whole", &format!("{WORK}{MAIN}"), &["-g", "-O2"]);
    folder.objcopy("whole", &["--compress-debug-sections=zstd"], "packed");
    let sections = Command::new("readelf").arg("-tW").arg(folder.path("packed")).output().unwrap();
    assert!(String::from_utf8_lossy(&sections.stdout).contains("ZSTD"));
    let run = Running::start(&folder, "packed");
    let names = names(run.pid(), &run.addresses, MappedFiles::default());
    assert_eq!(names.user(run.pid(), run.addresses[1]), ["second", "swallowed"]);
}

/// Without line tables inlined functions are unknown, but the function is right.
#[test]
fn a_symbol_table_is_enough_for_functions() {
    let folder = Folder::new("symtab");
    let run = program(&folder, "plain", &["-O2"]);
    let names = names(run.pid(), &[run.addresses[0], run.addresses[1], 16], MappedFiles::default());
    assert_eq!(names.user(run.pid(), run.addresses[0]), ["first"]);
    assert_eq!(names.user(run.pid(), run.addresses[1]), ["second"]);
    assert_eq!(names.user(run.pid(), 16), [UNKNOWN], "nothing is mapped there");
}

/// An address has its place in the file, and not the name of a function far before it.
#[test]
fn a_stripped_program_is_named_by_its_places() {
    let folder = Folder::new("stripped");
    let run = program(&folder, "stripped", &["-O2", "-s"]);
    let names = names(run.pid(), &run.addresses, MappedFiles::default());
    for address in &run.addresses {
        let place = names.place(run.pid(), *address).unwrap();
        assert_eq!(place.offset, run.offset(*address));
        assert_eq!(names.user(run.pid(), *address), [format!("[stripped]+{:#x}", place.offset)]);
        assert_eq!(place.file.as_ref(), folder.path("stripped").to_str().unwrap());
        assert_eq!(place.build_id.as_ref().map(ToString::to_string), folder.build_id("stripped"));
    }
}

/// A stripped library has only the names that it exports.
#[test]
fn a_stripped_library_has_the_names_that_it_exports() {
    let folder = Folder::new("library");
    let library = format!(
        "{WORK}void *told(void) {{ void *at = here(); __asm__ volatile(\"\"); return at; }}\n\
         void *hidden(void) {{ return first(); }}"
    );
    folder.compile("libtold.so", &library, &["-O2", "-shared", "-fPIC", "-s"]);
    let main = format!(
        "#include <stdio.h>\n#include <unistd.h>\nvoid *told(void); void *hidden(void);\n{}",
        MAIN.replace("first()", "told()").replace("second()", "hidden()")
    );
    let path = format!("-L{}", folder.path("").display());
    let run_path = format!("-Wl,-rpath,{}", folder.path("").display());
    folder.compile("user", &main, &["-O2", &path, &run_path, "-ltold"]);
    let run = Running::start(&folder, "user");
    let names = names(run.pid(), &run.addresses, MappedFiles::default());
    assert_eq!(names.user(run.pid(), run.addresses[0]), ["told"]);
    let place = names.place(run.pid(), run.addresses[1]).unwrap();
    assert_eq!(names.user(run.pid(), run.addresses[1]), [format!("[libtold.so]+{:#x}", place.offset)]);
}

/// Adds this section to a stripped program, as Fedora and related distributions do.
fn pack(folder: &Folder, whole: &str, contents: &str, into: &str) {
    let section = format!(".gnu_debugdata={}", folder.path(contents).display());
    folder.objcopy(whole, &["--add-section", &section], into);
}

/// The stripped names are in a compressed section; exported names are still in their table.
#[test]
fn names_that_are_packed_into_a_stripped_file_are_found() {
    let folder = Folder::new("packed");
    let text = format!("{WORK}{MAIN}").replace("static void *first", "void *first");
    folder.compile("whole", &text, &["-O2", "-rdynamic"]);
    let keep = ["-K", "second", "-S", "--remove-section", ".gdb_index", "--remove-section", ".comment"];
    folder.objcopy("whole", &["--only-keep-debug"], "names");
    folder.objcopy("names", &keep, "fewer");
    folder.objcopy("whole", &["--strip-all"], "stripped");
    assert!(Command::new("xz").arg("-k").arg(folder.path("fewer")).status().unwrap().success());
    pack(&folder, "stripped", "fewer.xz", "with-packed");
    for (name, second) in [("stripped", None), ("with-packed", Some("second"))] {
        let run = Running::start(&folder, name);
        let names = names(run.pid(), &run.addresses, MappedFiles::default());
        assert_eq!(names.user(run.pid(), run.addresses[0]), ["first"], "it is told to others");
        let place = format!("[{name}]+{:#x}", run.offset(run.addresses[1]));
        assert_eq!(names.user(run.pid(), run.addresses[1]), [second.unwrap_or(&place)]);
    }
}

#[test]
fn a_section_that_cannot_be_unpacked_hides_no_other() {
    let folder = Folder::new("damaged-packed");
    let text = format!("{WORK}{MAIN}").replace("static void *", "void *");
    folder.compile("whole", &text, &["-O2", "-s", "-rdynamic"]);
    fs::write(folder.path("packed"), b"\xfd7zXZ\0not really").unwrap();
    pack(&folder, "whole", "packed", "with-packed");
    let run = Running::start(&folder, "with-packed");
    let names = names(run.pid(), &run.addresses, MappedFiles::default());
    assert_eq!(names.user(run.pid(), run.addresses[0]), ["first"]);
    assert_eq!(names.user(run.pid(), run.addresses[1]), ["second"]);
}

#[test]
fn names_of_other_languages_are_as_in_the_source() {
    let folder = Folder::new("languages");
    // What a C++ compiler calls app::Worker<int>::run(char const*), without the need for one.
    let work = WORK.replace(
        "static void *first(void) {",
        "void *first(void) __asm__(\"_ZN3app6WorkerIiE3runEPKc\");\nvoid *first(void) {",
    );
    folder.compile("cpp", &format!("{work}{MAIN}"), &["-O2"]);
    let run = Running::start(&folder, "cpp");
    assert_eq!(
        names(run.pid(), &run.addresses, MappedFiles::default()).user(run.pid(), run.addresses[0]),
        ["app::Worker<int>::run"]
    );

    folder.compile_rust(
        "rusty",
        "use std::io::{Read, Write};
         mod deep {
             pub struct Thing<T>(pub T);
             impl<T: Copy + std::ops::Add<Output = T>> Thing<T> {
                 #[inline(never)]
                 pub fn work(&self) -> T { std::hint::black_box(self.0) + self.0 }
             }
         }
         fn main() {
             let f = deep::Thing::<u64>::work as fn(&deep::Thing<u64>) -> u64;
             f(&deep::Thing(2));
             println!(\"{:#x}\", f as usize + 1);
             std::io::stdout().flush().unwrap();
             let _ = std::io::stdin().read(&mut [0]);
         }",
    );
    let run = Running::start(&folder, "rusty");
    let rust = names(run.pid(), &run.addresses, MappedFiles::default());
    assert_eq!(rust.user(run.pid(), run.addresses[0]), ["<rusty::deep::Thing<u64>>::work"]);
}

/// The file that was held open is the one that ran, even if its name was deleted or replaced.
#[test]
fn a_program_that_was_deleted_or_replaced_keeps_its_own_names() {
    let folder = Folder::new("replaced");
    for replaced in [false, true] {
        let mut run = program(&folder, "victim", &["-g", "-O2"]);
        let (kept, text) = (kept(run.pid()), text(run.pid()));
        fs::remove_file(folder.path("victim")).unwrap();
        if replaced {
            let other = WORK.replace("first", "wrong").replace("second", "liar")
                + &MAIN.replace("first", "wrong").replace("second", "liar");
            folder.compile("victim", &other, &["-g", "-O2"]);
        }
        let name = |kept: MappedFiles| {
            names(run.pid(), &run.addresses, kept).user(run.pid(), run.addresses[1]).to_vec()
        };
        if is_root() {
            assert_eq!(
                name(MappedFiles::default()),
                ["second", "swallowed"],
                "while it lives, replaced: {replaced}"
            );
        }
        assert_eq!(name(kept.clone()), ["second", "swallowed"]);
        run.end();
        assert_eq!(
            names(run.pid(), &run.addresses, kept).user(run.pid(), run.addresses[1]),
            ["second", "swallowed"]
        );
        // Without the file no name could be right.
        let names = names(run.pid(), &run.addresses, text);
        assert_eq!(
            names.user(run.pid(), run.addresses[1]),
            [format!("[victim]+{:#x}", run.offset(run.addresses[1]))]
        );
    }
}

/// The file was overwritten: its present content never ran.
#[test]
fn a_program_that_was_written_over_has_no_names() {
    let folder = Folder::new("overwritten");
    let mut run = program(&folder, "victim", &["-O2", "-Wl,--build-id=none"]);
    let kept = kept(run.pid());
    run.end();
    let other = WORK.replace("first", "wrong").replace("second", "wrong2")
        + &MAIN.replace("first", "wrong").replace("second", "wrong2");
    folder.compile("other", &other, &["-O2", "-Wl,--build-id=none"]);
    fs::write(folder.path("victim"), fs::read(folder.path("other")).unwrap()).unwrap();
    let names = names(run.pid(), &run.addresses, kept);
    assert_eq!(
        names.user(run.pid(), run.addresses[0]),
        [format!("[victim]+{:#x}", run.offset(run.addresses[0]))]
    );
}

/// A container, whose paths do not exist outside.
#[test]
fn a_program_in_another_mount_namespace_is_found() {
    let folder = Folder::new("container");
    folder.compile("inside", &format!("{WORK}{MAIN}"), &["-g", "-O2", "-static"]);
    let hidden = folder.path("hidden");
    fs::create_dir(&hidden).unwrap();
    let script = format!(
        "mount -t tmpfs none {0} && cp {1} {0}/inside && exec {0}/inside",
        hidden.display(),
        folder.path("inside").display()
    );
    let mut command = Command::new("unshare");
    command.arg(if is_root() { "-m" } else { "-rm" }).args(["sh", "-c", &script]);
    let Some(mut run) = Running::of(command) else {
        skipped("unshare is not permitted here");
        return;
    };
    assert!(!hidden.join("inside").exists(), "it is not hidden");
    let kept = kept(run.pid());
    for kept in [MappedFiles::default(), kept.clone()] {
        assert_eq!(
            names(run.pid(), &run.addresses, kept).user(run.pid(), run.addresses[1]),
            ["second", "swallowed"]
        );
    }
    run.end();
    assert_eq!(names(run.pid(), &run.addresses, kept).user(run.pid(), run.addresses[0]), ["first"]);
}

/// A program that makes code in memory, and writes its names to a map.
const JIT: &str = r#"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int n, char **words) {
    char name[64], c;
    char *code = mmap(0, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED) return 1;
    snprintf(name, sizeof(name), "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(name, "w");
    fprintf(map, "%lx 40 LazyCompile:*one two;three\n%lx 10 _ZN3jit4codeEv\n", (long)code, (long)code + 0x100);
    fclose(map);
    chmod(name, 0644);
    printf("%p %p %p\n", code + 0x20, code + 0x104, code + 0x200);
    fflush(stdout);
    return read(0, &c, 1) < 0;
}
"#;

#[test]
fn code_that_a_program_made_has_the_names_that_it_tells() {
    let folder = Folder::new("jit");
    folder.compile("jit", JIT, &["-O1"]);
    let mut run = Running::start(&folder, "jit");
    let map = format!("/tmp/perf-{}.map", run.pid());
    let kept = kept(run.pid());
    let (pid, at) = (run.pid(), run.addresses.clone());
    let check = |names: &Names| {
        assert_eq!(names.user(pid, at[0]), ["LazyCompile:*one two;three"]);
        assert_eq!(names.user(pid, at[1]), ["jit::code"]);
        assert_eq!(names.user(pid, at[2]), ["[anon]+0x200"]);
    };
    check(&names(run.pid(), &run.addresses, MappedFiles::default()));
    check(&names(run.pid(), &run.addresses, kept.clone()));
    if is_root() {
        // The file of another user must not name code of root.
        std::os::unix::fs::chown(&map, Some(65534), Some(65534)).unwrap();
        let names = names(run.pid(), &run.addresses, MappedFiles::default());
        assert_eq!(names.user(run.pid(), run.addresses[0]), ["[anon]+0x20"]);
    }
    fs::remove_file(&map).unwrap();
    run.end();
    check(&names(run.pid(), &run.addresses, kept));
}

/// Distributions strip their programs and keep the debug information in a folder, by build-id. It also names a program
/// that has exited and was deleted, of which only the build-id is left.
#[test]
fn a_debug_file_names_a_stripped_program() {
    let folder = Folder::new("debug");
    folder.compile("whole", &format!("{WORK}{MAIN}"), &["-g", "-O2"]);
    let id = folder.build_id("whole").unwrap();
    let there = folder.path(&format!("debug/.build-id/{}", &id[..2]));
    fs::create_dir_all(&there).unwrap();
    let debug = there.join(format!("{}.debug", &id[2..]));
    folder.objcopy("whole", &["--only-keep-debug"], debug.to_str().unwrap());
    folder.objcopy("whole", &["--strip-all"], "stripped");
    let mut run = Running::start(&folder, "stripped");
    let (pid, at) = (run.pid(), run.addresses.clone());
    let kept = kept(pid);
    let symbolizer = Symbolizer::with_debug_folders(helper(), vec![folder.path("debug")]);
    let user = BTreeMap::from([(pid, at.iter().copied().collect())]);
    let names = symbolizer.names(&Addresses { user, maps: kept, ..Addresses::default() });
    assert_eq!(
        (names.user(pid, at[0]), names.user(pid, at[1])),
        (&["first".into()][..], &["second".into(), "swallowed".into()][..])
    );
    run.end();
    fs::remove_file(folder.path("stripped")).unwrap();
    fs::remove_file(folder.path("whole")).unwrap();
    let places = [names.place(pid, at[1]).unwrap().clone()];
    let again = Symbolizer::with_debug_folders(helper(), vec![folder.path("debug")]).name_places(&places);
    assert_eq!(again.0, [named_as(&["second", "swallowed"])]);
    assert_eq!(Symbolizer::with_debug_folders(helper(), vec![]).name_places(&places).0, [PlaceName::Absent]);
    // A debug file has no offsets: without the address there is no name.
    let [place] = places;
    let places = [Place { address: None, ..place }];
    let again = Symbolizer::with_debug_folders(helper(), vec![folder.path("debug")]).name_places(&places);
    assert_eq!(again.0, [PlaceName::Absent]);
}

#[test]
fn places_are_named_again_from_the_file_with_their_build_id() {
    let folder = Folder::new("again");
    let run = program(&folder, "again", &["-g", "-O2"]);
    let found = names(run.pid(), &run.addresses, MappedFiles::default());
    let places: Vec<_> =
        run.addresses.iter().map(|at| found.place(run.pid(), *at).unwrap().clone()).collect();
    let (named, _) = symbolizer().name_places(&places);
    assert_eq!(named, [named_as(&["first"]), named_as(&["second", "swallowed"])]);
    folder.compile("again", &format!("{WORK}{MAIN}"), &["-g", "-O2", "-DOTHER=1", "-fno-inline"]);
    let (named, _) = symbolizer().name_places(&places);
    assert_eq!(named[0], PlaceName::Absent, "another build at the same path");
}

/// With fifty processes of one program, its file is read once.
#[test]
fn many_processes_of_one_program_share_their_names() {
    let folder = Folder::new("many");
    folder.compile("many", &format!("{WORK}{MAIN}"), &["-g", "-O2", "-static-pie"]);
    let number = 50;
    let runs: Vec<Running> = (0..number).map(|_| Running::start(&folder, "many")).collect();
    let mut mapped = MappedFiles::default();
    runs.iter().for_each(|run| mapped.read(Path::new("/"), run.pid()).unwrap());
    let user = runs.iter().map(|run| (run.pid(), run.addresses.iter().copied().collect())).collect();
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open();
    let names = symbolizer().names(&Addresses { user, maps: mapped, ..Addresses::default() });
    assert!(open() <= before + 2, "a file per process is open");
    let list = |run: &Running| Arc::clone(&names.user[&(run.pid(), run.addresses[1])]);
    assert_eq!(*list(&runs[0]), ["second", "swallowed"]);
    assert!(runs.iter().all(|run| Arc::ptr_eq(&list(run), &list(&runs[0]))), "each has a list of its own");
}

/// Inlined functions nested half a million deep: a recursive reader would overflow its stack and be killed.
#[test]
fn hostile_line_tables_cost_their_own_names_only() {
    let folder = Folder::new("hostile");
    fs::write(folder.path("deep.s"), DEEP).unwrap();
    let deep = folder.path("deep.s").display().to_string();
    let main = MAIN.replace("first()", "deep()");
    let text = format!("{}void *deep(void);\n{main}", WORK.replace("static void *first", "void *first"));
    folder.compile("hostile", &text, &["-O2", &deep]);
    let run = Running::start(&folder, "hostile");
    let patience = Patience::new(Duration::from_secs(60));
    let names = names(run.pid(), &run.addresses, MappedFiles::default());
    patience.holds();
    assert_eq!(names.user(run.pid(), run.addresses[0]), ["deep"], "by the symbol table");
    assert_eq!(names.user(run.pid(), run.addresses[1]), ["second"]);
    println!("{:?}", names.missing);
}

/// DWARF 4: a unit with one function, and in it inlined functions without end.
const DEEP: &str = r#"
    .file 1 "deep.c"
    .text
    .globl deep
    .type deep, @function
deep:
    .loc 1 1
    push %rbp
    call here
    .loc 1 2
    pop %rbp
    ret
deep_end:
    .size deep, . - deep
    .section .debug_abbrev,"",@progbits
    .uleb128 1, 0x11
    .byte 1
    .uleb128 0x10, 0x17, 0x11, 0x01, 0x12, 0x07, 0, 0
    .uleb128 2, 0x2e
    .byte 1
    .uleb128 0x03, 0x08, 0x11, 0x01, 0x12, 0x07, 0, 0
    .uleb128 3, 0x1d
    .byte 1
    .uleb128 0, 0
    .byte 0
    .section .debug_info,"",@progbits
    .long end - begin
begin:
    .short 4
    .long 0
    .byte 8
    .uleb128 1
    .long line
    .quad deep
    .quad deep_end - deep
    .uleb128 2
    .asciz "lie"
    .quad deep
    .quad deep_end - deep
    .rept 500000
    .uleb128 3
    .endr
end:
    .section .debug_line,"",@progbits
line:
    .section .note.GNU-stack,"",@progbits
"#;

/// Random bytes are changed in a small program, mainly in its tables: each address still gets an answer, in time.
#[test]
fn damaged_files_give_an_answer() {
    let folder = Folder::new("damaged");
    folder.compile("whole", &format!("{WORK}{MAIN}"), &["-g", "-O2"]);
    let whole = fs::read(folder.path("whole")).unwrap();
    let path = folder.path("damaged");
    let mut seed = 0x1234_5678_9abc_def1u64;
    let mut random = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    let sections = folder.sections("whole");
    let patience = Patience::new(Duration::from_secs(300));
    let mut named = 0;
    for round in 0..150 {
        let mut file = whole.clone();
        for _ in 0..=random(20) {
            // One in four anywhere, the others in a table that is read.
            let at = match random(4) {
                0 => random(file.len()),
                _ => {
                    let (offset, bytes) = sections[random(sections.len())];
                    offset + random(bytes)
                }
            };
            file[at] = match random(3) {
                0 => random(256) as u8,
                1 => 0xff,
                _ => file[at] ^ (1 << random(8)),
            };
        }
        if random(8) == 0 {
            file.truncate(random(file.len()));
        }
        fs::write(&path, &file).unwrap();
        let meta = fs::metadata(&path).unwrap();
        let device = (libc::major(meta.dev()), libc::minor(meta.dev()));
        let line = format!(
            "10000-20000 r-xp 00000000 {:x}:{:x} {} {}\n",
            device.0,
            device.1,
            meta.ino(),
            path.display()
        );
        let pid = 1 << 30;
        let mut mapped = MappedFiles::default();
        mapped.insert(pid, line.as_bytes());
        let addresses: Vec<u64> = (0x11000..0x11400).step_by(16).collect();
        let names = names(pid, &addresses, mapped);
        for address in addresses {
            let name = names.user(pid, address);
            assert!(!name.is_empty() && !name[0].is_empty(), "round {round}: {address:#x}");
            named += usize::from(!name[0].starts_with('['));
        }
        patience.holds();
    }
    println!("{named} of {} addresses had names", 150 * 64);
    assert!(named > 1000, "the damage left nothing to read");
}

/// The hidden verb works only for the process that started it, and no help lists it.
#[test]
fn the_helper_serves_its_parent_only() {
    let biopsy = || Command::new(env!("CARGO_BIN_EXE_biopsy"));
    let help = biopsy().arg("--help").output().unwrap();
    assert!(!String::from_utf8_lossy(&help.stdout).contains(Helper::VERB));
    let by_hand = biopsy().arg(Helper::VERB).output().unwrap();
    let error = String::from_utf8_lossy(&by_hand.stderr);
    assert_eq!((by_hand.status.code(), error.lines().count()), (Some(1), 1), "{error}");
    // A request with the parent's pid, and one with another pid, as if the parent had exited.
    for (parent, answer) in [(std::process::id(), &b"biopsy-1\0"[..]), (1, b"")] {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut helper = biopsy()
            .arg(Helper::VERB)
            .stdin(fs::File::open("/proc/self/exe").unwrap())
            .stdout(OwnedFd::from(theirs))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let words = [u64::from(parent), 0, 1 << 30, 10, 1, u64::MAX];
        ours.write_all(&words.map(u64::to_ne_bytes).concat()).unwrap();
        let mut all = Vec::new();
        ours.read_to_end(&mut all).unwrap();
        assert_eq!(all, answer);
        assert_eq!(helper.wait().unwrap().success(), !answer.is_empty());
    }
}

#[inline(never)]
fn findable() -> u64 {
    std::hint::black_box(1)
}

/// An address in this program.
fn here() -> u64 {
    findable as fn() -> u64 as usize as u64 + u64::from(findable() == 2)
}

/// A process that cannot exist: its pid is above the highest one of Linux.
const ENDED: u32 = 1 << 30;

#[test]
fn own_functions_have_names_and_nothing_is_dropped() {
    let (here, pid) = (here(), std::process::id());
    let user = BTreeMap::from([(pid, BTreeSet::from([here, 1])), (ENDED, BTreeSet::from([here]))]);
    let addresses = Addresses { user, ..Addresses::default() };
    let names = symbolizer().names(&addresses);
    // If line tables have the function, its name is without its modules.
    assert_eq!(names.user(pid, here)[0].rsplit("::").next(), Some("findable"), "{:?}", names.user(pid, here));
    assert_eq!(names.user(pid, 1), [UNKNOWN]);
    assert_eq!(names.user(ENDED, here), [UNKNOWN]);
    assert!(names.user(pid, 2).is_empty(), "was not asked for");
    assert!(names.place(pid, here).unwrap().address.is_some() && names.place(pid, 1).is_none());
    // The process that cannot exist. An address outside all code of this process is no gap.
    let [missing] = names.missing.as_slice() else { panic!("{:?}", names.missing) };
    assert_eq!((missing.part.as_deref(), missing.reason), (Some("user-symbols"), Reason::Ended));
    assert!(
        missing.why.starts_with("1 process ended before its memory maps could be read: "),
        "{}",
        missing.why
    );
    assert_eq!(missing.remedy, None);
}

/// The kept mappings name the frames of a process that has exited.
#[test]
fn a_process_that_has_ended_is_named_by_its_files() {
    let here = here();
    let user = BTreeMap::from([(ENDED, BTreeSet::from([here, 1]))]);
    let mut addresses = Addresses { user, ..Addresses::default() };
    addresses.maps.insert(ENDED, &fs::read("/proc/self/maps").unwrap());
    let names = symbolizer().names(&addresses);
    assert!(names.user(ENDED, here)[0].contains("findable"), "{names:?}");
    assert_eq!(names.user(ENDED, 1), [UNKNOWN]);
    assert_eq!(names.missing, [], "its maps are known, and nothing is there");
    addresses.maps.lose(3);
    let missing = symbolizer().names(&addresses).missing;
    assert!(
        matches!(&missing[..], [one] if one.reason == Reason::Lost && one.why.starts_with("3 of")),
        "{missing:?}"
    );

    // Another file under the same path: its symbols would be wrong.
    let line = format!("{here:x}-{:x} r-xp 00002000 fe:01 1  /proc/self/exe\n", here + 16);
    addresses.maps = MappedFiles::default();
    addresses.maps.insert(ENDED, line.as_bytes());
    assert_eq!(symbolizer().names(&addresses).user(ENDED, here), ["[exe]+0x2000"]);

    // Two programs one after the other, both with code at this address.
    addresses.maps.insert(ENDED, line.replace("exe", "other").as_bytes());
    let names = symbolizer().names(&addresses);
    assert_eq!(names.user(ENDED, here), [UNKNOWN]);
    assert_eq!(names.missing[0].reason, Reason::Ambiguous);
}

#[test]
fn a_place_is_named_again_by_its_build_id() {
    let (here, pid) = (here(), std::process::id());
    let user = BTreeMap::from([(pid, BTreeSet::from([here]))]);
    let names = symbolizer().names(&Addresses { user, ..Addresses::default() });
    let place = names.place(pid, here).unwrap().clone();
    let strange = Place { build_id: BuildId::new(&[7; 20]), ..place.clone() };
    let nameless = Place { build_id: None, ..place.clone() };
    let absent = Place { file: "/nowhere/at/all".into(), ..place.clone() };
    // Past the end of any file.
    let empty = Place { offset: 1 << 50, address: Some(1 << 50), ..place.clone() };
    let (again, missing) = symbolizer().name_places(&[strange, place.clone(), nameless, absent, empty]);
    assert_eq!([&again[0], &again[2], &again[3]], [&PlaceName::Absent; 3]);
    assert_eq!(missing, []);
    if place.build_id.is_some() {
        assert_eq!(again[1], PlaceName::As(Arc::clone(&names.user[&(pid, here)])));
        assert_eq!(again[4], PlaceName::Nameless);
        // By its offset alone as well.
        let (by_offset, _) = symbolizer().name_places(&[Place { address: None, ..place }]);
        assert_eq!(by_offset[0], again[1]);
    }
}

/// The vdso has names, also in a process of which only the mappings were kept.
#[test]
fn the_vdso_has_names() {
    let maps = fs::read("/proc/self/maps").unwrap();
    let mappings = biopsy::host::mapped::mappings(&maps);
    let Some(vdso) = mappings.iter().find(|m| &*m.path == b"[vdso]") else {
        return skipped("this machine has no vdso");
    };
    let user = BTreeMap::from([(ENDED, (vdso.start..vdso.end).step_by(16).collect())]);
    let mut addresses = Addresses { user, ..Addresses::default() };
    addresses.maps.insert(ENDED, &maps);
    let names = symbolizer().names(&addresses);
    assert!(names.user.values().any(|n| n[0].contains("clock_gettime")));
    assert!(names.user.values().all(|n| n[0] != UNKNOWN));
}

/// Prints how long a hundred thousand places take, and how much memory: `cargo test --release --test suite symbols --
/// --ignored --nocapture speed`. The files are this test and the largest programs of the machine that built it.
#[test]
#[ignore = "a measurement, for an idle machine"]
fn speed() {
    let own = std::env::current_exe().unwrap();
    let compiler = Command::new("rustc").args(["--print", "sysroot"]).output().unwrap();
    let library = Path::new(String::from_utf8(compiler.stdout).unwrap().trim()).join("lib");
    let driver = fs::read_dir(library).unwrap().flatten().map(|entry| entry.path());
    let driver = driver.filter(|path| path.to_string_lossy().contains("librustc_driver"));
    let files: Vec<_> =
        [own].into_iter().chain(driver).chain(["/usr/bin/perf".into()]).filter(|f| f.exists()).collect();
    let each = 100_000 / files.len() as u64;
    let pid = 1 << 30;
    let (mut lines, mut addresses, mut start) = (String::new(), BTreeSet::new(), 0x1000_0000_0000u64);
    for file in &files {
        let output = Command::new("readelf").arg("-lW").arg(file).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let code = text.lines().find(|line| line.contains("LOAD") && line.contains(" R E ")).unwrap();
        let words: Vec<&str> = code.split_whitespace().collect();
        let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap();
        let (offset, bytes) = (hex(words[1]), hex(words[4]));
        let meta = fs::metadata(file).unwrap();
        let device = (libc::major(meta.dev()), libc::minor(meta.dev()));
        let end = start + bytes;
        lines += &format!(
            "{start:x}-{end:x} r-xp {offset:x} {:x}:{:x} {} {}\n",
            device.0,
            device.1,
            meta.ino(),
            file.canonicalize().unwrap().display()
        );
        println!("{}: {} MB, {} MB of code", file.display(), meta.len() >> 20, bytes >> 20);
        addresses.extend((0..each).map(|i| start + i * (bytes / each)));
        start += 0x1000_0000_0000;
    }
    for processes in [1u32, 20] {
        let mut mapped = MappedFiles::default();
        (0..processes).for_each(|i| mapped.insert(pid + i, lines.as_bytes()));
        let user = (0..processes).map(|i| (pid + i, addresses.clone())).collect();
        let wanted = Addresses { user, maps: mapped, ..Addresses::default() };
        let symbolizer = symbolizer();
        let begin = Instant::now();
        let names = symbolizer.names(&wanted);
        let first = begin.elapsed();
        let begin = Instant::now();
        let again = symbolizer.names(&wanted);
        let named = names.user.values().filter(|name| !name[0].starts_with('[')).count();
        println!(
            "{processes} processes: {} addresses, {named} with names, {} lists: {first:?}, again {:?}; \
             resident {} MB, children at most {} MB",
            names.user.len(),
            names.user.values().map(Arc::as_ptr).collect::<std::collections::HashSet<_>>().len(),
            begin.elapsed(),
            resident(libc::RUSAGE_SELF) >> 10,
            resident(libc::RUSAGE_CHILDREN) >> 10,
        );
        println!("{:?}", names.missing);
        assert_eq!(names.user, again.user);
    }
}

/// The peak resident memory, in KiB.
fn resident(who: libc::c_int) -> i64 {
    // SAFETY: an rusage consists of numbers, and the call writes it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &raw mut usage);
        usage.ru_maxrss
    }
}
