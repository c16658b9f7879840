//! Runs another process, which holds a device or tries to write.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use biopsy::load::guard;

use super::allowed;
use super::machine::Folder;

/// The environment variable that makes this test binary the helper: how it holds something, and what.
const HOLD: &str = "BIOPSY_TEST_HOLD";

/// A helper process that holds something until this is dropped.
pub struct Holder(Child);

impl Holder {
    pub fn start(how: &str, path: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "guard::holder", "--nocapture"])
            .env(HOLD, format!("{how}:{}", path.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let told = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("[held]")));
        let holder = Self(child);
        assert!(told.is_some(), "{how} of {} did not come about", path.display());
        holder
    }

    pub fn pid(&self) -> String {
        format!("process {} (", self.0.id())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _status = self.0.wait();
        // The helper's own folder, which it could not remove; in this namespace nothing was mounted there.
        let _gone = fs::remove_dir(Folder::first_of(self.0.id()));
    }
}

/// What the helper process does; in any other process nothing.
pub fn hold() {
    let Ok(order) = std::env::var(HOLD) else { return };
    let (how, path) = order.split_once(':').unwrap();
    let c_path = std::ffi::CString::new(path).unwrap();
    let told = || {
        println!("[held]");
        // Until the test ends, or kills this process.
        let _end = std::io::stdin().read(&mut [0]);
    };
    match how {
        "read" => {
            let _file = File::open(path).unwrap();
            told();
        }
        "hostile" => {
            // SAFETY: the name is a C string.
            unsafe { libc::prctl(libc::PR_SET_NAME, c"\x1b[2J)\nx".as_ptr()) };
            fs::write("/proc/self/comm", "\x1b[2J)\nx").unwrap();
            let _file = File::open(path).unwrap();
            told();
        }
        "map" => {
            let file = File::open(path).unwrap();
            // SAFETY: a mapping of our own that nothing else refers to.
            let map = unsafe {
                libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
            };
            assert_ne!(map, libc::MAP_FAILED);
            drop(file);
            told();
        }
        "thread" => {
            let path = path.to_string();
            std::thread::spawn(move || {
                // SAFETY: this thread gets a copy of its descriptor table, which only it changes.
                assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
                let _file = File::open(path).unwrap();
                told();
            })
            .join()
            .unwrap();
        }
        "ring" => {
            let ring = io_uring::IoUring::new(2).unwrap();
            let file = File::open(path).unwrap();
            ring.submitter().register_files(&[file.as_raw_fd()]).unwrap();
            drop(file);
            told();
        }
        "try" | "nobody" => {
            if how == "nobody" {
                // SAFETY: the calls take numbers; the capabilities are dropped with the user id.
                assert_eq!(unsafe { (libc::setgid(65534), libc::setuid(65534)) }, (0, 0));
            }
            let name = path.rsplit('/').next().unwrap();
            let outcome = guard::writable(Path::new(path), &allowed(&[name]), false);
            println!(
                "[said] {}",
                outcome.map_or_else(|refusal| refusal.to_string(), |_| "opened".to_string())
            );
        }
        "mount" | "lazy" => {
            let point = Folder::new();
            let c_point = std::ffi::CString::new(point.0.as_os_str().as_bytes()).unwrap();
            // SAFETY: all arguments are C strings or null, and the calls only read them.
            unsafe {
                assert_eq!(libc::unshare(libc::CLONE_NEWNS), 0);
                let private = libc::MS_REC | libc::MS_PRIVATE;
                assert_eq!(
                    libc::mount(std::ptr::null(), c"/".as_ptr(), std::ptr::null(), private, std::ptr::null()),
                    0
                );
                let done =
                    libc::mount(c_path.as_ptr(), c_point.as_ptr(), c"ext4".as_ptr(), 0, std::ptr::null());
                assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
                if how == "lazy" {
                    // In no mount table any more, but still in use.
                    let _kept = File::open(point.join("lost+found")).unwrap();
                    std::env::set_current_dir(&point.0).unwrap();
                    assert_eq!(libc::umount2(c_point.as_ptr(), libc::MNT_DETACH), 0);
                    told();
                } else {
                    told();
                }
            }
        }
        _ => panic!("no such order: {how}"),
    }
}

/// The guard's answer to another process that tries to open the device: started by `command`, with `how` and the
/// device.
pub fn said(command: &[&str], how: &str, path: &Path) -> Option<String> {
    let program = std::env::current_exe().unwrap();
    let words: Vec<&str> = command.iter().copied().chain([program.to_str().unwrap()]).collect();
    let output = Command::new(words[0])
        .args(&words[1..])
        .args(["--exact", "guard::holder", "--nocapture"])
        .env(HOLD, format!("{how}:{}", path.display()))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().find_map(|line| Some(line.split_once("[said] ")?.1.to_string()))
}
