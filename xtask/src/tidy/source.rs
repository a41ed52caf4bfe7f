//! Rules for one Rust file: its head, its lengths, what it may call, where it may be unsafe.

use super::finding::Finding;
use super::tree::{Source, is_for_tests};
use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Lines of a function, from its signature to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;
/// Lines of a file without its tests.
const FILE_LINES_MAX: usize = 500;
/// Lines of a file of tests.
const TEST_FILE_LINES_MAX: usize = 800;
/// Lines of a test module beside the code that it tests.
const INLINE_TEST_LINES_MAX: usize = 150;
/// Words of the message of an `expect`.
const EXPECT_WORDS_MIN: usize = 2;

/// Where `unsafe` may stand; the reasons are decision records.
const UNSAFE_FENCES: [&str; 6] = [
    "crates/varve-os/",
    "crates/varve-export/src/ublk/ring.rs",
    "crates/varve-export/src/vhost_user/lost_pages.rs",
    "crates/varve-block/src/buffer.rs",
    "crates/varve-block/src/device.rs",
    "crates/varve-block/tests/allocations.rs",
];
/// Where the rules of the deterministic world may be lifted: the real world and what stands above it.
const REAL_WORLD: [&str; 8] = [
    "crates/varve-os/",
    "crates/varve-sim/src/harness.rs",
    "crates/varve-daemon/",
    "crates/varve-cli/",
    "crates/varve-bench/",
    "crates/varve-faultdisk/",
    "xtask/",
    "fuzz/",
];
/// Where something may be printed.
const PRINTERS: [&str; 7] = [
    "crates/varve-sim/",
    "crates/varve-daemon/",
    "crates/varve-cli/",
    "crates/varve-bench/",
    "crates/varve-faultdisk/",
    "xtask/",
    "fuzz/",
];

/// Checks one file.
pub(super) fn check(source: &Source<'_>) -> Vec<Finding> {
    let path = &source.file.path;
    let Some(syntax) = &source.syntax else {
        let message = "this is not Rust".to_owned();
        return vec![Finding { path: path.clone(), line: 1, rule: "syntax", message }];
    };
    let mut visitor =
        Visitor { path, findings: Vec::new(), tests: usize::from(source.test_only), test_lines: 0 };
    visitor.check_head(&source.file.text);
    visitor.visit_file(syntax);
    visitor.check_length(source.file.text.lines().count(), source.test_only);
    visitor.findings
}

/// A fence behind which nothing is unsafe any more must go.
pub(super) fn check_fences(sources: &[Source<'_>]) -> Vec<Finding> {
    let is_used = |fence: &str| {
        sources.iter().any(|source| {
            source.file.path.starts_with(fence) && source.syntax.as_ref().is_some_and(has_unsafe)
        })
    };
    UNSAFE_FENCES
        .into_iter()
        .filter(|fence| !is_used(fence))
        .map(|fence| Finding {
            path: fence.to_owned(),
            line: 1,
            rule: "unsafe",
            message: "nothing is unsafe here any more: take the fence away".to_owned(),
        })
        .collect()
}

fn has_unsafe(syntax: &syn::File) -> bool {
    let mut visitor = Visitor { path: "", findings: Vec::new(), tests: 0, test_lines: 0 };
    visitor.visit_file(syntax);
    visitor.findings.iter().any(|finding| finding.rule == "unsafe")
}

struct Visitor<'a> {
    path: &'a str,
    findings: Vec<Finding>,
    /// How many items for tests we are inside of.
    tests: usize,
    /// Lines of test modules in this file.
    test_lines: usize,
}

impl Visitor<'_> {
    fn report(&mut self, line: usize, rule: &'static str, message: impl Into<String>) {
        self.findings.push(Finding { path: self.path.to_owned(), line, rule, message: message.into() });
    }

    fn lies_in(&self, places: &[&str]) -> bool {
        places.iter().any(|place| self.path.starts_with(place))
    }

    /// The file says first, in a sentence, what it knows.
    fn check_head(&mut self, text: &str) {
        let sentence: Vec<&str> = text
            .lines()
            .map_while(|line| line.strip_prefix("//! "))
            .take_while(|line| !line.is_empty())
            .collect();
        let complete = sentence.iter().any(|line| line.trim_end().ends_with('.') || line.contains(". "));
        if !complete {
            self.report(1, "head", "a file begins with //! and one sentence that says what it knows");
        }
    }

    fn check_length(&mut self, lines: usize, test_only: bool) {
        let (own, most) = match test_only {
            true => (lines, TEST_FILE_LINES_MAX),
            false => (lines - self.test_lines, FILE_LINES_MAX),
        };
        if own > most {
            self.report(
                1,
                "file-length",
                format!("{own} lines, at most {most}: what are the two things in it?"),
            );
        }
    }

    fn check_function(&mut self, name: &syn::Ident, signature: Span, block: &syn::Block) {
        let lines = block.span().end().line - signature.start().line + 1;
        if lines > FUNCTION_LINES_MAX {
            let message = format!("`{name}` has {lines} lines, at most {FUNCTION_LINES_MAX}");
            self.report(signature.start().line, "function-length", message);
        }
    }

    fn check_unsafe(&mut self, span: Span) {
        if !self.lies_in(&UNSAFE_FENCES) {
            self.report(span.start().line, "unsafe", "unsafe outside the fences");
        }
    }

    fn check_attribute(&mut self, attribute: &syn::Attribute) {
        let path = attribute.path();
        if !path.is_ident("allow") && !path.is_ident("expect") || self.tests > 0 {
            return;
        }
        let syn::Meta::List(list) = &attribute.meta else { return };
        let (line, text) = (attribute.span().start().line, list.tokens.to_string());
        if text.contains("unsafe_code") {
            if !self.lies_in(&UNSAFE_FENCES) {
                self.report(line, "unsafe", "unsafe allowed outside the fences");
            }
        } else if !text.contains("reason") {
            self.report(line, "lifted-lint", "a lint is lifted with a reason, or not at all");
        }
        if text.contains("disallowed_methods") && !self.lies_in(&REAL_WORLD) {
            self.report(line, "lifted-lint", "time, threads and environment are handed in below the daemon");
        }
    }

    fn check_call(&mut self, call: &syn::ExprMethodCall) {
        let line = call.method.span().start().line;
        let no_arguments = call.args.is_empty();
        if call.method == "unwrap" && no_arguments {
            self.report(line, "unwrap", "`unwrap` outside tests: handle it, or `expect` the invariant");
        }
        if call.method == "expect" && call.args.len() == 1 && !says_why(&call.args[0]) {
            self.report(line, "expect", "`expect` names the invariant that makes failure impossible");
        }
    }

    fn check_macro(&mut self, call: &syn::Macro) {
        let name = call.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        let line = call.path.span().start().line;
        match name.as_str() {
            "dbg" | "todo" | "unimplemented" => {
                self.report(line, "unfinished", format!("`{name}!` is for the time before the commit"));
            }
            "print" | "println" | "eprint" | "eprintln" if self.tests == 0 && !self.lies_in(&PRINTERS) => {
                self.report(line, "print", "people are told by the command line; here, trace");
            }
            _ => {}
        }
    }
}

/// Whether the argument of an `expect` can be a reason: not a literal of too few words.
fn says_why(argument: &syn::Expr) -> bool {
    match argument {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => {
            text.value().split_whitespace().count() >= EXPECT_WORDS_MIN
        }
        _ => true,
    }
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let for_tests = is_for_tests(&module.attrs);
        if for_tests && module.content.is_some() && self.tests == 0 {
            let span = module.span();
            let lines = span.end().line - span.start().line + 1;
            self.test_lines += lines;
            if lines > INLINE_TEST_LINES_MAX {
                let message =
                    format!("{lines} lines of tests, at most {INLINE_TEST_LINES_MAX}: move them to tests.rs");
                self.report(span.start().line, "test-length", message);
            }
        }
        self.tests += usize::from(for_tests);
        visit::visit_item_mod(self, module);
        self.tests -= usize::from(for_tests);
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        let for_tests = is_for_tests(&function.attrs);
        self.tests += usize::from(for_tests);
        self.check_function(&function.sig.ident, function.sig.span(), &function.block);
        visit::visit_item_fn(self, function);
        self.tests -= usize::from(for_tests);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        let for_tests = is_for_tests(&function.attrs);
        self.tests += usize::from(for_tests);
        self.check_function(&function.sig.ident, function.sig.span(), &function.block);
        visit::visit_impl_item_fn(self, function);
        self.tests -= usize::from(for_tests);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.check_function(&function.sig.ident, function.sig.span(), block);
        }
        visit::visit_trait_item_fn(self, function);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let for_tests = is_for_tests(&item.attrs);
        if let Some(keyword) = &item.unsafety {
            self.check_unsafe(keyword.span);
        }
        self.tests += usize::from(for_tests);
        visit::visit_item_impl(self, item);
        self.tests -= usize::from(for_tests);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        if let Some(keyword) = &item.unsafety {
            self.check_unsafe(keyword.span);
        }
        visit::visit_item_trait(self, item);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        if let Some(keyword) = &signature.unsafety {
            self.check_unsafe(keyword.span);
        }
        visit::visit_signature(self, signature);
    }

    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.check_unsafe(block.unsafe_token.span);
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        self.check_attribute(attribute);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if self.tests == 0 {
            self.check_call(call);
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.check_macro(call);
        // Inside assertions and the like stand ordinary expressions; what is none is not looked into.
        let arguments = syn::punctuated::Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated;
        if let Ok(arguments) = call.parse_body_with(arguments) {
            let owned: Vec<syn::Expr> = arguments.into_iter().collect();
            let mut inner =
                Visitor { path: self.path, findings: Vec::new(), tests: self.tests, test_lines: 0 };
            owned.iter().for_each(|argument| inner.visit_expr(argument));
            self.findings.extend(inner.findings);
        }
    }
}

#[cfg(test)]
mod tests;
