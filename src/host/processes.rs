//! Finds processes by the id that a user gives.

use std::path::Path;

use anyhow::Result;

use super::attribute::file;
use super::cpu::field;
use crate::refusal::Refusal;

/// Returns the id of an existing process; refuses a thread id.
pub fn find(root: &Path, pid: u32) -> Result<u32> {
    let status = file(&root.join(format!("proc/{pid}/status")));
    let Some(process) = status.ok().and_then(|status| field(&status, "Tgid")?.parse::<u32>().ok()) else {
        return Err(Refusal::Refused(format!(
            "no process {pid}: it has ended, or has another number outside of this container"
        ))
        .into());
    };
    if process != pid {
        return Err(Refusal::Refused(format!(
            "{pid} is a thread of process {process}: name that with -p {process}"
        ))
        .into());
    }
    Ok(pid)
}

/// Whether the process has not ended. A zombie counts as ended.
pub fn is_running(root: &Path, pid: u32) -> bool {
    let status = file(&root.join(format!("proc/{pid}/status"))).unwrap_or_default();
    field(&status, "State").is_some_and(|state| !state.starts_with(['Z', 'X']))
}

/// The name of a process, which is that of its first thread: any bytes. None: it has ended.
pub fn name(root: &Path, pid: u32) -> Option<Vec<u8>> {
    let mut name = std::fs::read(root.join(format!("proc/{pid}/comm"))).ok()?;
    if name.last() == Some(&b'\n') {
        name.pop();
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_not_one_of_its_threads() {
        let root = std::env::temp_dir().join(format!("biopsy-processes-{}", std::process::id()));
        let process = |pid: u32, status: &str| {
            let folder = root.join(format!("proc/{pid}"));
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("status"), status).unwrap();
        };
        process(10, "Name:\ta b\nState:\tS (sleeping)\nTgid:\t10\n");
        process(12, "Name:\tworker\nState:\tR (running)\nTgid:\t10\n");
        process(13, "Name:\tdead\nState:\tZ (zombie)\nTgid:\t13\n");
        assert_eq!(find(&root, 10).unwrap(), 10);
        assert!(find(&root, 12).unwrap_err().to_string().contains("-p 10"));
        assert!(find(&root, 11).unwrap_err().to_string().starts_with("no process 11"));
        std::fs::write(root.join("proc/10/comm"), b"a\n\xff\n").unwrap();
        assert_eq!((name(&root, 10), name(&root, 12)), (Some(b"a\n\xff".to_vec()), None));
        assert_eq!([10, 11, 13].map(|pid| is_running(&root, pid)), [true, false, false]);
        std::fs::remove_dir_all(&root).unwrap();
    }
}
