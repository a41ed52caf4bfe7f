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
    /// Rows above the first one that is shown.
    pub(super) above: usize,
    /// Rows that fit on the screen.
    pub(super) page: usize,
    pub(super) is_over: bool,
}

impl Default for Choice {
    fn default() -> Self {
        Self { list: List::Volumes, above: 0, page: 1, is_over: false }
    }
}

impl Choice {
    /// The choice after `key`, of a list of `rows`.
    pub(super) fn after(self, key: KeyEvent, rows: usize) -> Self {
        let lowest = rows.saturating_sub(self.page);
        let above = |above: usize| Self { above: above.min(lowest), ..self };
        let is_interrupt = key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
        let at = LISTS.iter().position(|list| *list == self.list).unwrap_or(0);
        let list = |at: usize| Self { list: LISTS[at % LISTS.len()], above: 0, ..self };
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => Self { is_over: true, ..self },
            _ if is_interrupt => Self { is_over: true, ..self },
            KeyCode::Char(digit @ '1'..='4') => list(digit as usize - '1' as usize),
            KeyCode::Tab | KeyCode::Right => list(at + 1),
            KeyCode::BackTab | KeyCode::Left => list(at + LISTS.len() - 1),
            KeyCode::Down => above(self.above + 1),
            KeyCode::Up => above(self.above.saturating_sub(1)),
            KeyCode::PageDown => above(self.above + self.page),
            KeyCode::PageUp => above(self.above.saturating_sub(self.page)),
            KeyCode::Home => above(0),
            KeyCode::End => above(lowest),
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(choice: Choice, keys: &[KeyCode]) -> Choice {
        keys.iter().fold(choice, |choice, key| choice.after(KeyEvent::new(*key, KeyModifiers::NONE), 30))
    }

    #[test]
    fn keys_choose_a_list_and_move_within_it() {
        let choice = Choice { page: 10, ..Choice::default() };
        let moved = |keys: &[KeyCode]| (after(choice, keys).list, after(choice, keys).above);
        assert_eq!(moved(&[KeyCode::Down, KeyCode::PageDown, KeyCode::Up]), (List::Volumes, 10));
        assert_eq!(moved(&[KeyCode::End, KeyCode::Down]), (List::Volumes, 20));
        assert_eq!(moved(&[KeyCode::End, KeyCode::PageUp, KeyCode::Home, KeyCode::Up]), (List::Volumes, 0));
        assert_eq!(moved(&[KeyCode::Down, KeyCode::Char('3')]), (List::Disks, 0));
        assert_eq!(moved(&[KeyCode::Tab, KeyCode::Tab, KeyCode::Tab, KeyCode::Tab]), (List::Volumes, 0));
        assert_eq!(moved(&[KeyCode::BackTab, KeyCode::Left]), (List::Disks, 0));
        assert!(after(choice, &[KeyCode::Esc]).is_over && after(choice, &[KeyCode::Char('q')]).is_over);
        assert!(choice.after(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), 0).is_over);
        assert_eq!(after(choice, &[KeyCode::Char('c'), KeyCode::F(1)]), choice);
    }
}
