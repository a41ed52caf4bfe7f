//! What a command ends with, and how it is printed: JSON for programs, text for users.

use crate::table;
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, ErrorKind, Write};
use varve_api::{Code, Empty, Envelope, Exit, Failure, Plan};

/// A command that did not fail.
pub(crate) struct Answer {
    pub(crate) json: String,
    text: String,
    /// The exit code of the command.
    pub(crate) code: u8,
}

impl Answer {
    /// `data` for programs, `text` for users (lines, with or without the last newline).
    pub(crate) fn new(data: &impl Serialize, text: impl Into<String>) -> Self {
        let json = serde_json::to_string(&Envelope::data(data)).expect("the nouns are plain data");
        Self { json, text: text.into(), code: Exit::Ok as u8 }
    }

    /// What would be done.
    pub(crate) fn planned(plan: &Plan) -> Self {
        Self::new(plan, table::plan(plan))
    }

    /// Prints nothing for users.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self::new(&Empty {}, "").exit(exit)
    }

    /// The same answer with another exit code.
    pub(crate) fn exit(self, exit: Exit) -> Self {
        self.code(exit as u8)
    }

    /// The same answer with an exit code that another contract gives it.
    pub(crate) fn code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }
}

/// Prints the end of a command and gives its exit code. A reader that went away is no error; an answer that cannot be written is.
pub(crate) fn print(result: Result<Answer, Failure>, json: bool) -> u8 {
    match result {
        Ok(answer) => {
            let text = if json { &answer.json } else { &answer.text };
            match write_line(&mut io::stdout().lock(), text) {
                Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                    let failure = unwritten(&error);
                    let _ = write_line(&mut io::stderr().lock(), &failure.to_string());
                    failure.exit() as u8
                }
                Ok(()) | Err(_) => answer.code,
            }
        }
        Err(failure) => {
            if json {
                let envelope = Envelope::<Empty>::error(failure.clone());
                let text = serde_json::to_string(&envelope).expect("the nouns are plain data");
                let _ = write_line(&mut io::stdout().lock(), &text);
            } else {
                let _ = write_line(&mut io::stderr().lock(), &failure.to_string());
            }
            failure.exit() as u8
        }
    }
}

fn unwritten(error: &io::Error) -> Failure {
    Failure::new(Code::FileUnusable, format!("the answer cannot be written to standard output: {error}"))
        .help("the command itself succeeded; make room where its output goes")
}

/// What a file says of itself may be anything: no terminal is to obey it. All that the program prints passes here (main.rs denies
/// other ways).
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let is_order = |character: char| character.is_control() && !matches!(character, '\n' | '\t');
    if !text.contains(is_order) {
        return Cow::Borrowed(text);
    }
    let shown = |character: char| match is_order(character) {
        true => character.escape_default().to_string(),
        false => character.to_string(),
    };
    Cow::Owned(text.chars().map(shown).collect())
}

/// Prints lines for users beside the answer of a command.
pub(crate) fn print_aside(text: &str) {
    let _ = write_line(&mut io::stderr().lock(), text);
}

/// Prints a question, of which the answer is to be on the same line.
pub(crate) fn print_question(text: &str) {
    let mut err = io::stderr().lock();
    let _ = write!(err, "{}", printable(text)).and_then(|()| err.flush());
}

/// Prints one of several answers of a command. Whether the output still takes them.
pub(crate) fn print_line(answer: &Answer, json: bool) -> bool {
    write_line(&mut io::stdout().lock(), if json { &answer.json } else { &answer.text }).is_ok()
}

fn write_line(out: &mut impl Write, text: &str) -> io::Result<()> {
    let text = printable(text.trim_end_matches('\n'));
    if text.is_empty() {
        return Ok(());
    }
    writeln!(out, "{text}").and_then(|()| out.flush())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_gives_orders_to_a_terminal() {
        assert_eq!(printable("a\tb\nc é"), "a\tb\nc é");
        assert_eq!(printable("\u{1b}[2Jx\r\u{7}\u{9b}1m\u{7f}"), "\\u{1b}[2Jx\\r\\u{7}\\u{9b}1m\\u{7f}");
        let mut written = Vec::new();
        write_line(&mut written, "\u{1b}c\n").expect("it is in memory");
        assert_eq!(written, b"\\u{1b}c\n");
    }
}
