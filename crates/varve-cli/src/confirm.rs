//! Asking before something is destroyed.

use crate::answer::{print_aside, print_question};
use std::io::{BufRead, IsTerminal};
use varve_api::{Code, Failure, Plan};

/// Whether there is a user to be asked.
pub(crate) fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// The refusal where there is no user to be asked.
pub(crate) fn declined(what: &str) -> Failure {
    Failure::new(Code::Declined, format!("{what} needs confirmation, and there is no terminal"))
        .help("add --yes (-y) to go ahead, or --dry-run (-n) to see what would happen")
}

/// Shows `plan` and asks whether to go ahead.
pub(crate) fn ask(what: &str, plan: &Plan) -> Result<(), Failure> {
    plan.steps.iter().for_each(|step| print_aside(step));
    ask_plainly(&format!("{what}: go ahead?"))
}

/// Asks a question that only "y" or "yes" answers with yes.
pub(crate) fn ask_plainly(question: &str) -> Result<(), Failure> {
    print_question(&format!("{question} [y/N] "));
    let mut line = String::new();
    let _ = std::io::stdin().lock().read_line(&mut line);
    if is_yes(&line) { Ok(()) } else { Err(Failure::new(Code::Declined, "nothing was changed")) }
}

fn is_yes(line: &str) -> bool {
    matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_is_one() {
        assert!(is_yes("y\n") && is_yes(" YES\n"));
        assert!(!is_yes("\n") && !is_yes("") && !is_yes("yess") && !is_yes("n"));
    }
}
