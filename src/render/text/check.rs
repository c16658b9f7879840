//! Renders `biopsy check` as text.

use super::clean;
use crate::host::Host;
use crate::host::abilities::{Abilities, State};
use crate::host::rights::Rights;

fn word(state: State, optional: bool, color: bool) -> String {
    let (text, code) = match state {
        State::Ok => ("ok", 32),
        State::Degraded => ("degraded", 33),
        State::Missing if optional => ("optional", 33),
        State::Missing => ("missing", 31),
    };
    if color { format!("\x1b[{code}m{text:<8}\x1b[0m") } else { format!("{text:<8}") }
}

/// Views first (what a user wants), then the programs behind them, then the rights.
pub fn render(host: &Host, rights: &Rights, abilities: &Abilities, color: bool) -> String {
    let mut out = format!(
        "kernel {}, BTF {}\n\nviews\n",
        clean(&host.kernel),
        if abilities.btf { "present" } else { "absent" }
    );
    let names = abilities.views.iter().map(|view| &view.name);
    let names = names.chain(abilities.programs.iter().map(|program| &program.name));
    let width = names.map(String::len).max().unwrap_or(0);
    let line = |name: &str, word: String, reason: &Option<String>, remedy: &Option<String>| {
        let mut text = format!("  {:<width$}  {word}", clean(name));
        if let Some(reason) = reason {
            text.push_str(&format!("  {}", clean(reason)));
        }
        if let Some(remedy) = remedy {
            text.push_str(&format!("; {}", clean(remedy)));
        }
        format!("{}\n", text.trim_end())
    };
    for view in &abilities.views {
        out.push_str(&line(&view.name, word(view.state, false, color), &view.reason, &view.remedy));
    }
    out.push_str("\nprograms\n");
    for program in &abilities.programs {
        // A remedy that a view already states is not repeated.
        let said = abilities.views.iter().any(|view| view.remedy == program.remedy);
        let remedy = if said { &None } else { &program.remedy };
        let word = word(program.state, program.optional, color);
        out.push_str(&line(&program.name, word, &program.reason, remedy));
    }
    out.push_str("\nrights\n");
    let yes = |has: bool, without: &str| if has { "yes".to_string() } else { format!("no: {without}") };
    let number = |value: Option<i64>| value.map_or("unknown".to_string(), |v| v.to_string());
    let rows = vec![
        vec!["CAP_SYS_ADMIN".into(), yes(rights.sys_admin, "no cost figures")],
        vec!["CAP_BPF".into(), yes(rights.bpf || rights.sys_admin, "no probes")],
        vec!["CAP_PERFMON".into(), yes(rights.perfmon || rights.sys_admin, "no probes, no profile")],
        vec!["CAP_SYSLOG".into(), yes(rights.syslog, "kernel functions have no names")],
        vec!["CAP_SYS_PTRACE".into(), yes(rights.sys_ptrace, "other users' functions have no names")],
        vec!["lockdown".into(), rights.lockdown.clone().map_or("unknown".into(), |l| clean(&l))],
        vec!["perf_event_paranoid".into(), number(rights.perf_event_paranoid.map(i64::from))],
        vec!["kptr_restrict".into(), number(rights.kptr_restrict.map(i64::from))],
        vec!["io_uring_disabled".into(), number(rights.io_uring_disabled.map(i64::from))],
    ];
    let width = rows.iter().map(|row: &Vec<String>| row[0].len()).max().unwrap_or(0);
    for row in &rows {
        out.push_str(&format!("  {:<width$}  {}\n", row[0], row[1]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::abilities::{ProgramState, ViewState};

    #[test]
    fn the_longest_name_breaks_no_column() {
        let program = |name: &str| ProgramState {
            name: name.into(),
            event: String::new(),
            optional: false,
            state: State::Ok,
            reason: None,
            remedy: None,
        };
        let programs = vec![program("ring_queue_work"), program("sys_exit")];
        let abilities = Abilities { btf: true, programs, views: Vec::new() };
        let text = render(&Host::default(), &Rights::default(), &abilities, false);
        assert!(text.contains("\n  ring_queue_work  ok\n  sys_exit         ok\n"), "{text}");
    }

    #[test]
    fn a_refused_optional_program_reads_as_what_is_lost() {
        let program = ProgramState {
            name: "call_enter".into(),
            event: String::new(),
            state: State::Missing,
            optional: true,
            reason: Some("--functions has no effect (the kernel refused it)".into()),
            remedy: None,
        };
        let abilities = Abilities { btf: true, programs: vec![program], views: Vec::new() };
        let text = render(&Host::default(), &Rights::default(), &abilities, false);
        let line = "\n  call_enter  optional  --functions has no effect (the kernel refused it)\n";
        assert!(text.contains(line) && !text.contains("missing"), "{text}");
    }

    #[test]
    fn what_is_missing_comes_with_its_reason_and_remedy() {
        let abilities = Abilities {
            btf: false,
            programs: Vec::new(),
            views: vec![ViewState {
                name: "late\x1bncy".into(),
                state: State::Missing,
                reason: Some("no\x1bBTF".into()),
                remedy: Some("boot another kernel".into()),
            }],
        };
        let text = render(&Host::default(), &Rights::default(), &abilities, false);
        assert!(text.contains("missing   no\\u{1b}BTF; boot another kernel"), "{text}");
        assert!(
            text.contains("\n  late\\u{1b}ncy  missing")
                && text.contains("BTF absent")
                && text.contains("CAP_BPF")
        );
    }
}
