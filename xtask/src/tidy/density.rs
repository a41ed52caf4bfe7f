//! How many assertions the engine makes for each of its functions.

use super::Finding;
use super::source::is_for_tests;
use super::tree::Source;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Crates whose every function has something to say about its state.
const CRATES: [&str; 2] = ["crates/varve-target/src/", "crates/varve-vg/src/"];
/// Assertions per function, least.
const DENSITY_MIN: f64 = 0.5;
/// Functions up to this many lines only hand something on, and are not counted.
const TRIVIAL_LINES: usize = 5;

/// What was counted in one crate.
#[derive(Default)]
struct Count {
    functions: u32,
    assertions: u32,
    tests: usize,
}

/// Findings, and a line for each crate.
pub(super) fn check(sources: &[Source<'_>]) -> (Vec<Finding>, Vec<String>) {
    let mut findings = Vec::new();
    let mut report = Vec::new();
    for folder in CRATES {
        let mut count = Count::default();
        let inside =
            sources.iter().filter(|source| source.file.path.starts_with(folder) && !source.test_only);
        inside.filter_map(|source| source.syntax.as_ref()).for_each(|syntax| count.visit_file(syntax));
        let density = f64::from(count.assertions) / f64::from(count.functions.max(1));
        report.push(format!(
            "tidy: {folder}: {} assertions in {} functions, {density:.2} each",
            count.assertions, count.functions
        ));
        if count.functions > 0 && density < DENSITY_MIN {
            let message = format!("{density:.2} assertions a function, at least {DENSITY_MIN}");
            findings.push(Finding { path: folder.to_owned(), line: 1, rule: "assertions", message });
        }
    }
    (findings, report)
}

impl Count {
    fn function(&mut self, attributes: &[syn::Attribute], block: &syn::Block, inner: impl FnOnce(&mut Self)) {
        let for_tests = is_for_tests(attributes);
        self.tests += usize::from(for_tests);
        let span = block.span();
        if self.tests == 0 && span.end().line - span.start().line + 1 > TRIVIAL_LINES {
            self.functions += 1;
        }
        inner(self);
        self.tests -= usize::from(for_tests);
    }
}

impl<'ast> Visit<'ast> for Count {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.function(&function.attrs, &function.block, |count| visit::visit_item_fn(count, function));
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.function(&function.attrs, &function.block, |count| visit::visit_impl_item_fn(count, function));
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        // An `expect` states an invariant and stops when it does not hold.
        self.assertions += u32::from(self.tests == 0 && call.method == "expect");
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let name = call.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        let asserts = matches!(name.as_str(), "assert" | "assert_eq" | "assert_ne" | "unreachable" | "panic");
        self.assertions += u32::from(self.tests == 0 && asserts);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;

    fn function(line: &str) -> String {
        format!("fn a() {{\n{}}}\n", format!("    {line}\n").repeat(4))
    }

    #[test]
    fn thin_crates_are_found() {
        let thin = function("step();").repeat(2) + "fn b() { c() }\n";
        let tree = Tree::of(&[("crates/varve-vg/src/a.rs", &thin)]);
        let (findings, report) = check(&tree.sources());
        assert_eq!(findings.len(), 1);
        assert!(report[1].contains("0 assertions in 2 functions"), "{}", report[1]);
    }

    #[test]
    fn assertions_in_tests_do_not_count_and_expectations_do() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function("assert!(true);"));
        let whole = function("step();") + &tests;
        let tree = Tree::of(&[("crates/varve-vg/src/a.rs", &whole)]);
        assert_eq!(check(&tree.sources()).0.len(), 1);
        let tree = Tree::of(&[("crates/varve-vg/src/a.rs", &function("b.expect(\"it is there\");"))]);
        assert_eq!(check(&tree.sources()).0, []);
    }
}
