//! Says which flame graphs `biopsy flame` can make here: each kind needs programs of its own.

use super::locks;
use super::spec::{Here, View};
use crate::host::abilities::{State, ViewState};

pub const VIEW: View = View { name: "flame", state: view };

fn view(here: &Here<'_>) -> ViewState {
    of_kinds(here, &(locks::VIEW.state)(here))
}

fn of_kinds(here: &Here<'_>, locks: &ViewState) -> ViewState {
    let of_program = |option: &'static str, program: &str| {
        let program = here.lacks(|name| name == program)?;
        Some((option, program.reason.clone().unwrap_or_default(), program.remedy.clone()))
    };
    let lacking: Vec<_> = [
        of_program("--on-cpu", "on_cpu"),
        of_program("--off-cpu", "blocked_switch"),
        (locks.state == State::Missing)
            .then(|| ("--lock-wait", locks.reason.clone().unwrap_or_default(), locks.remedy.clone())),
        of_program("--reclaim", "direct_reclaim_begin"),
    ]
    .into_iter()
    .flatten()
    .collect();
    match lacking.as_slice() {
        [] => ViewState::ok(),
        [(_, why, remedy), ..] if lacking.len() == 4 => ViewState::missing(Some(why.clone()), remedy.clone()),
        [(_, why, remedy), ..] => {
            let options: Vec<&str> = lacking.iter().map(|(option, ..)| *option).collect();
            ViewState::degraded(format!("without {}: {why}", options.join(", ")), remedy.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;
    use crate::host::abilities::ProgramState;
    use crate::host::rights::Rights;

    #[test]
    fn a_picture_needs_its_own_programs_only() {
        let program = |name: &str| ProgramState {
            name: name.to_string(),
            event: String::new(),
            optional: false,
            state: State::Missing,
            reason: Some(format!("no {name}")),
            remedy: None,
        };
        let flame = |programs: &[ProgramState], locks: &ViewState| {
            of_kinds(&Here { programs, host: &Host::default(), rights: &Rights::default() }, locks)
        };
        assert_eq!(flame(&[], &ViewState::ok()).state, State::Ok);
        let some = flame(&[program("blocked_switch")], &ViewState::degraded("less", None));
        assert_eq!(
            (some.state, some.reason.as_deref()),
            (State::Degraded, Some("without --off-cpu: no blocked_switch"))
        );
        let all = ["on_cpu", "blocked_switch", "direct_reclaim_begin"].map(program);
        let none = flame(&all, &ViewState::missing(None, None));
        assert_eq!((none.state, none.reason.as_deref()), (State::Missing, Some("no on_cpu")));
    }
}
