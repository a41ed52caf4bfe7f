//! What the keys of the screen do.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What the screen lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum List {
    Volumes,
    Exports,
    Disks,
    Pools,
}

/// The lists, in the order of their keys.
pub(super) const LISTS: [List; 4] = [List::Volumes, List::Exports, List::Disks, List::Pools];

/// What the user has chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Choice {
    pub(super) list: List,
    /// The first row that is shown.
    pub(super) first: usize,
    /// Rows of the list.
    pub(super) rows: usize,
    /// Rows that fit on the screen.
    pub(super) page: usize,
    pub(super) quits: bool,
}

impl Default for Choice {
    fn default() -> Self {
        Self { list: List::Volumes, first: 0, rows: 0, page: 1, quits: false }
    }
}

impl Choice {
    /// The choice after `key`.
    pub(super) fn after(self, key: KeyEvent) -> Self {
        let last = self.rows.saturating_sub(self.page);
        let first = |first: usize| Self { first: first.min(last), ..self };
        let is_interrupt = key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
        let at = LISTS.iter().position(|list| *list == self.list).unwrap_or(0);
        let list = |at: usize| Self { list: LISTS[at % LISTS.len()], first: 0, ..self };
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => Self { quits: true, ..self },
            _ if is_interrupt => Self { quits: true, ..self },
            KeyCode::Char(digit @ '1'..='4') => list(digit as usize - '1' as usize),
            KeyCode::Tab | KeyCode::Right => list(at + 1),
            KeyCode::BackTab | KeyCode::Left => list(at + LISTS.len() - 1),
            KeyCode::Down => first(self.first + 1),
            KeyCode::Up => first(self.first.saturating_sub(1)),
            KeyCode::PageDown => first(self.first + self.page),
            KeyCode::PageUp => first(self.first.saturating_sub(self.page)),
            KeyCode::Home => first(0),
            KeyCode::End => first(last),
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(choice: Choice, keys: &[KeyCode]) -> Choice {
        keys.iter().fold(choice, |choice, key| choice.after(KeyEvent::new(*key, KeyModifiers::NONE)))
    }

    #[test]
    fn keys_choose_a_list_and_move_within_it() {
        let choice = Choice { rows: 30, page: 10, ..Choice::default() };
        let moved = |keys: &[KeyCode]| (after(choice, keys).list, after(choice, keys).first);
        assert_eq!(moved(&[KeyCode::Down, KeyCode::PageDown, KeyCode::Up]), (List::Volumes, 10));
        assert_eq!(moved(&[KeyCode::End, KeyCode::Down]), (List::Volumes, 20));
        assert_eq!(moved(&[KeyCode::End, KeyCode::PageUp, KeyCode::Home, KeyCode::Up]), (List::Volumes, 0));
        assert_eq!(moved(&[KeyCode::Down, KeyCode::Char('3')]), (List::Disks, 0));
        assert_eq!(moved(&[KeyCode::Tab, KeyCode::Tab, KeyCode::Tab, KeyCode::Tab]), (List::Volumes, 0));
        assert_eq!(moved(&[KeyCode::BackTab, KeyCode::Left]), (List::Disks, 0));
        assert!(after(choice, &[KeyCode::Esc]).quits && after(choice, &[KeyCode::Char('q')]).quits);
        assert!(choice.after(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)).quits);
        assert_eq!(after(choice, &[KeyCode::Char('c'), KeyCode::F(1)]), choice);
    }
}
