//! Each rule for Rust files, broken once and kept once.

use super::super::tree::Tree;
use super::*;

const HEAD: &str = "//! Knows nothing.\n";

/// The rules that `text` breaks at `path`, with their lines.
fn broken(path: &str, text: &str) -> Vec<(usize, &'static str)> {
    let tree = Tree::of(&[(path, text)]);
    let sources = tree.sources();
    check(&sources[0]).iter().map(|finding| (finding.line, finding.rule)).collect()
}

fn broken_below_head(text: &str) -> Vec<(usize, &'static str)> {
    broken("crates/varve-target/src/a.rs", &format!("{HEAD}{text}"))
}

#[test]
fn a_file_says_first_what_it_knows() {
    for text in ["", "// Knows.\n", "//!\n", "//! Knows\n", "use a;\n//! Knows.\n"] {
        assert!(
            broken("a.rs", text).contains(&(1, "head")) || broken("a.rs", text) == [(1, "syntax")],
            "{text}"
        );
    }
    assert_eq!(broken("a.rs", "//! Knows a thing\n//! over two lines.\n"), []);
}

#[test]
fn what_is_not_rust_is_said() {
    assert_eq!(broken("a.rs", "//! Knows.\nfn {"), [(1, "syntax")]);
}

#[test]
fn functions_are_short() {
    let function = |lines: usize| format!("fn long() {{\n{}}}\n", "    step();\n".repeat(lines - 2));
    assert_eq!(broken_below_head(&function(70)), []);
    assert_eq!(broken_below_head(&function(71)), [(2, "function-length")]);
    let method = format!("impl A {{\n/// Does.\n#[inline]\n{}}}\n", function(71));
    assert_eq!(broken_below_head(&method), [(5, "function-length")]);
    let default = format!("trait A {{\n{}}}\n", function(71));
    assert_eq!(broken_below_head(&default), [(3, "function-length")]);
}

#[test]
fn files_are_short_without_their_tests() {
    let lines = |count: usize| "const A: u8 = 0;\n".repeat(count);
    let tests = |count: usize| format!("#[cfg(test)]\nmod tests {{\n{}}}\n", lines(count - 3));
    assert_eq!(broken_below_head(&lines(499)), []);
    assert_eq!(broken_below_head(&lines(500)), [(1, "file-length")]);
    assert_eq!(broken_below_head(&(lines(499) + &tests(150))), []);
    assert_eq!(broken_below_head(&(lines(499) + &tests(151))), [(501, "test-length")]);
    let long = format!("{HEAD}{}", lines(800));
    assert_eq!(broken("crates/a/src/tests.rs", &long), [(1, "file-length")]);
}

#[test]
fn unwrap_is_for_tests() {
    assert_eq!(broken_below_head("fn a() { b.unwrap(); }\n"), [(2, "unwrap")]);
    assert_eq!(broken_below_head("fn a() { assert!(b.unwrap()); }\n"), [(2, "unwrap")], "in a macro too");
    assert_eq!(broken_below_head("fn a() { b.unwrap_or(1); }\n"), []);
    assert_eq!(broken_below_head("#[test]\nfn a() { b.unwrap(); }\n"), []);
    assert_eq!(broken_below_head("#[cfg(test)]\nmod tests {\nfn a() { b.unwrap(); }\n}\n"), []);
    assert_eq!(broken_below_head("#[cfg(not(test))]\nmod a {\nfn a() { b.unwrap(); }\n}\n"), [(4, "unwrap")]);
    assert_eq!(broken("crates/a/tests/b.rs", &format!("{HEAD}fn a() {{ b.unwrap(); }}\n")), []);
}

#[test]
fn expect_names_an_invariant() {
    assert_eq!(broken_below_head("fn a() { b.expect(\"\"); }\n"), [(2, "expect")]);
    assert_eq!(broken_below_head("fn a() { b.expect(\"oops\"); }\n"), [(2, "expect")]);
    assert_eq!(broken_below_head("fn a() { b.expect(\"B1: it fits\"); }\n"), []);
}

#[test]
fn nothing_is_left_unfinished() {
    assert_eq!(broken_below_head("fn a() { todo!() }\n"), [(2, "unfinished")]);
    assert_eq!(broken_below_head("fn a() { unimplemented!() }\n"), [(2, "unfinished")]);
    assert_eq!(broken_below_head("#[test]\nfn a() { dbg!(1); }\n"), [(3, "unfinished")]);
}

#[test]
fn only_the_top_prints() {
    assert_eq!(broken_below_head("fn a() { println!(); }\n"), [(2, "print")]);
    assert_eq!(broken_below_head("#[test]\nfn a() { println!(); }\n"), []);
    assert_eq!(broken("crates/varve-cli/src/a.rs", &format!("{HEAD}fn a() {{ println!(); }}\n")), []);
}

#[test]
fn unsafe_stays_behind_its_fences() {
    let cases = [
        "fn a() { unsafe { b() } }\n",
        "unsafe fn a() {}\n",
        "unsafe impl Send for A {}\n",
        "unsafe trait A {}\n",
        "#![allow(unsafe_code)]\n",
        "fn a() { assert!(unsafe { b() }); }\n",
        "#[test]\nfn a() { unsafe { b() } }\n",
    ];
    for case in cases {
        let rules = broken_below_head(case);
        assert!(matches!(rules.as_slice(), [(_, "unsafe")]), "{case}: {rules:?}");
        assert_eq!(broken("crates/varve-os/src/sys.rs", &format!("{HEAD}{case}")), [], "{case}");
    }
}

#[test]
fn a_fence_without_need_is_taken_away() {
    let tree = Tree::of(&[
        ("crates/varve-block/src/buffer.rs", "fn a() { unsafe { b() } }"),
        ("crates/varve-block/src/device.rs", "fn a() { unsafe { b() } }"),
        ("crates/varve-block/tests/allocations.rs", "unsafe impl A for B {}"),
        ("crates/varve-export/src/vhost_user/lost_pages.rs", "fn a() { unsafe { b() } }"),
        ("crates/varve-export/src/ublk/ring.rs", "fn a() { unsafe { b() } }"),
        ("crates/varve-os/src/a.rs", ""),
    ]);
    let findings = check_fences(&tree.sources());
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].path, "crates/varve-os/");
}

#[test]
fn a_lint_is_lifted_with_a_reason_and_in_the_right_place() {
    assert_eq!(broken_below_head("#[allow(dead_code)]\nfn a() {}\n"), [(2, "lifted-lint")]);
    assert_eq!(broken_below_head("#[expect(dead_code, reason = \"so\")]\nfn a() {}\n"), []);
    assert_eq!(broken_below_head("#[test]\n#[expect(dead_code)]\nfn a() {}\n"), []);
    let clock = "#[expect(clippy::disallowed_methods, reason = \"so\")]\nfn a() {}\n";
    assert_eq!(broken_below_head(clock), [(2, "lifted-lint")]);
    assert_eq!(broken("crates/varve-os/src/clock.rs", &format!("{HEAD}{clock}")), []);
}
