//! What a group, a volume or a snapshot may be called.

/// The longest name, in bytes.
pub const NAME_LENGTH_MAX: usize = 128;

/// Why a name is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// There is nothing.
    #[error("a name has at least one character")]
    Empty,
    /// It is too long; the number is its length in bytes.
    #[error("the name is {0} characters long; {NAME_LENGTH_MAX} are the most")]
    TooLong(usize),
    /// It begins with a character with which none may begin.
    #[error("a name does not begin with {0:?}")]
    Start(char),
    /// It contains a character that none may contain.
    #[error("a name is made of letters, digits and _ . + -; {0:?} is none of them")]
    Character(char),
}

/// Whether `name` may be one: 1 to 128 of the characters `A-Z a-z 0-9 _ . + -`, the first neither `.` nor `-`.
pub fn check_name(name: &str) -> Result<(), NameError> {
    let allowed = |character: char| character.is_ascii_alphanumeric() || "_.+-".contains(character);
    if let Some(character) = name.chars().find(|character| !allowed(*character)) {
        return Err(NameError::Character(character));
    }
    match name.chars().next() {
        None => Err(NameError::Empty),
        Some(first @ ('.' | '-')) => Err(NameError::Start(first)),
        Some(_) if name.len() > NAME_LENGTH_MAX => Err(NameError::TooLong(name.len())),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_field_are_allowed_and_others_refused() {
        for name in ["data", "vm1", "_x", "0", "a.b+c-d_e", &"x".repeat(128)] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        assert_eq!(check_name(""), Err(NameError::Empty));
        assert_eq!(check_name("-rf"), Err(NameError::Start('-')));
        assert_eq!(check_name(".."), Err(NameError::Start('.')));
        assert_eq!(check_name("a/b"), Err(NameError::Character('/')));
        assert_eq!(check_name("a@b"), Err(NameError::Character('@')));
        assert_eq!(check_name("größe"), Err(NameError::Character('ö')));
        assert_eq!(check_name("a\nb"), Err(NameError::Character('\n')));
        assert_eq!(check_name(&"x".repeat(129)), Err(NameError::TooLong(129)));
    }
}
