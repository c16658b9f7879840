//! Opens the perf map of a process that generates code: `/tmp/perf-PID.map`.

use std::fs;
use std::path::Path;

use super::file::{MappedFile, open_regular};

/// Opens the map of a process, under the process id of its own namespace, in the file system that it sees. None if
/// another user could have written it: any user can write to `/tmp`, and a foreign file would name the code of root's
/// processes.
pub(super) fn of_process(folder: &Path, pid: u32) -> Option<MappedFile> {
    let status = fs::read_to_string(folder.join("status")).ok()?;
    let name = format!("root/tmp/perf-{}.map", innermost(&status).unwrap_or(pid));
    let file = MappedFile::new(open_regular(&folder.join(name), false)?)?;
    let owner = file.owner();
    let own_group = ids(&status, "Gid:").contains(&owner.group);
    let others_write = owner.all_write || owner.group_writes && !own_group;
    let own = owner.user == 0 || ids(&status, "Uid:").contains(&owner.user);
    (own && !others_write).then_some(file)
}

/// The process id in the innermost pid namespace of the process.
fn innermost(status: &str) -> Option<u32> {
    field(status, "NStgid:")?.split_ascii_whitespace().next_back()?.parse().ok()
}

/// The real and the effective id.
fn ids(status: &str, name: &str) -> Vec<u32> {
    let ids = field(status, name).unwrap_or_default();
    ids.split_ascii_whitespace().take(2).filter_map(|id| id.parse().ok()).collect()
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_map_is_the_own_one_of_the_process() {
        let root = std::env::temp_dir().join(format!("biopsy-perf-map-{}", std::process::id()));
        let folder = root.join("proc/7");
        fs::create_dir_all(folder.join("root/tmp")).unwrap();
        // SAFETY: geteuid takes no argument and cannot fail.
        let me = unsafe { libc::geteuid() };
        fs::write(folder.join("status"), format!("Name:\tx\nUid:\t{me}\t{me}\t{me}\t{me}\nNStgid:\t7\t3\n"))
            .unwrap();
        let map = folder.join("root/tmp/perf-3.map");
        fs::write(&map, "1000 10 f\n").unwrap();
        fs::set_permissions(&map, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(of_process(&folder, 7).is_some());
        fs::set_permissions(&map, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(of_process(&folder, 7).is_none(), "anybody may have written into it");
        fs::set_permissions(&map, fs::Permissions::from_mode(0o644)).unwrap();
        fs::rename(&map, folder.join("root/tmp/other")).unwrap();
        std::os::unix::fs::symlink("other", &map).unwrap();
        assert!(of_process(&folder, 7).is_none(), "a link may lead to anybody's file");
        if me == 0 {
            fs::remove_file(&map).unwrap();
            fs::write(&map, "1000 10 f\n").unwrap();
            std::os::unix::fs::chown(&map, Some(65534), None).unwrap();
            assert!(of_process(&folder, 7).is_none(), "a stranger's");
        }
        fs::remove_dir_all(&root).unwrap();
    }
}
