//! Lines with code, crate by crate: what stands between blanks, comments and tests.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What is not part of the engine: it measures, simulates or checks.
const ASIDE: [&str; 5] =
    ["crates/varve-bench", "crates/varve-sim", "crates/varve-faultdisk", "xtask", "fuzz"];

/// Prints the number of lines with code of each crate, and of all.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let mut crates: BTreeMap<String, usize> = BTreeMap::new();
    for (path, text) in crate::tidy::product_files(root)? {
        let name = path.split_once("/src/").or(path.split_once('/')).map_or(path.as_str(), |(name, _)| name);
        let tokens = text.parse().map_err(|error| format!("{path}: {error}"))?;
        *crates.entry(name.to_owned()).or_default() += count(tokens);
    }
    let is_aside = |name: &str| ASIDE.iter().any(|aside| name.starts_with(aside));
    for (name, lines) in &crates {
        println!("{lines:8}  {name}{}", if is_aside(name) { "  (aside)" } else { "" });
    }
    let total: usize = crates.iter().filter(|(name, _)| !is_aside(name)).map(|(_, lines)| lines).sum();
    println!("{total:8}  in all, but for what is aside");
    Ok(())
}

/// Lines on which a token stands that is neither a comment nor compiled for tests only.
fn count(tokens: TokenStream) -> usize {
    let mut lines = BTreeSet::new();
    read(tokens, &mut lines);
    lines.len()
}

fn read(tokens: TokenStream, lines: &mut BTreeSet<usize>) {
    let mut tokens = tokens.into_iter().peekable();
    let mut is_for_tests = false;
    while let Some(token) = tokens.next() {
        if is_sign(Some(&token), '#') {
            let is_inner = is_sign(tokens.peek(), '!') && tokens.next().is_some();
            let attribute = tokens.peek().map(ToString::to_string).unwrap_or_default().replace(' ', "");
            is_for_tests |= !is_inner && ["[cfg(test)]", "[test]"].contains(&attribute.as_str());
            if is_for_tests || attribute.starts_with("[doc=") {
                tokens.next();
                continue;
            }
        }
        if is_for_tests {
            is_for_tests = !ends_an_item(&token);
            continue;
        }
        match token {
            TokenTree::Group(group) => {
                lines.extend([group.span_open().start().line, group.span_close().end().line]);
                read(group.stream(), lines);
            }
            token => lines.extend(token.span().start().line..=token.span().end().line),
        }
    }
}

fn is_sign(token: Option<&TokenTree>, sign: char) -> bool {
    matches!(token, Some(TokenTree::Punct(found)) if found.as_char() == sign)
}

/// Whether an item, a field or a statement is over after `token`.
fn ends_an_item(token: &TokenTree) -> bool {
    match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(sign) => matches!(sign.as_char(), ';' | ','),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> usize {
        count(text.parse().expect("Rust"))
    }

    #[test]
    fn blanks_and_comments_are_no_code() {
        assert_eq!(lines("//! Head.\n\n/// One.\nfn one() {\n    // Why.\n    two(); /* what */\n\n}\n"), 3);
        assert_eq!(lines("const TEXT: &str = \"a\nb\nc\";\n"), 3);
    }

    #[test]
    fn what_is_compiled_for_tests_is_left_out_wherever_it_stands() {
        assert_eq!(lines("fn one() {}\n#[cfg(test)]\nmod tests {\n    fn two() {}\n}\nfn three() {}\n"), 2);
        assert_eq!(lines("struct S {\n    #[cfg(test)]\n    /// One.\n    one: u8,\n    two: u8,\n}\n"), 3);
        assert_eq!(lines("fn f() {\n    #[cfg(test)]\n    g();\n    h();\n}\n#[cfg(test)]\nmod tests;\n"), 3);
        assert_eq!(lines("#[cfg(not(test))]\nfn one() {}\n"), 2);
    }
}
