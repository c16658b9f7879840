//! Makes system calls fail by a seccomp filter.

use std::io;

/// Makes a system call of this process and its children fail with `errno`: always, or if its first argument is one of
/// `firsts`. For use in `CommandExt::pre_exec`.
///
/// # Errors
/// If the kernel refuses the filter.
pub fn forbid(call: libc::c_long, firsts: &[u32], errno: i32) -> io::Result<()> {
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |offset: u32| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let equal = |jt: u8, jf: u8, k: u32| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, jf, k);
    let (fail, allow) = (
        step(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        step(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ALLOW),
    );
    // `struct seccomp_data`: the number of the call comes first; the low half of its first argument is at offset 16.
    let mut filter = match firsts.len() as u8 {
        0 => vec![load(0), equal(0, 1, call as u32), fail, allow],
        n => {
            let head = [load(0), equal(0, n + 1, call as u32), load(16)];
            let tests = firsts.iter().zip(0..).map(|(first, i)| equal(n - i, 0, *first));
            head.into_iter().chain(tests).chain([allow, fail]).collect()
        }
    };
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program lives until the call returns; the kernel keeps a copy.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
