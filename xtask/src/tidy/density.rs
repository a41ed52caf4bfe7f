//! How many assertions the engine makes for each of its functions.
//!
//! An assertion is `assert!` and its siblings, or a call of a function named `assert_…`. An `expect` or an `unreachable!` only
//! takes apart what the type says less of than the code knows, and is not counted.

use super::finding::Finding;
use super::tree::{Source, is_for_tests};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Crates whose every function has something to say about its state, and assertions per function, least.
const CRATES: [(&str, f64); 2] = [("crates/varve-target/src/", 0.5), ("crates/varve-vg/src/", 0.5)];
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
    for (folder, density_min) in CRATES {
        let mut count = Count::default();
        let inside =
            sources.iter().filter(|source| source.file.path.starts_with(folder) && !source.test_only);
        inside.filter_map(|source| source.syntax.as_ref()).for_each(|syntax| count.visit_file(syntax));
        let density = f64::from(count.assertions) / f64::from(count.functions.max(1));
        report.push(format!(
            "tidy: {folder}: {} assertions in {} functions, {density:.2} each",
            count.assertions, count.functions
        ));
        if count.functions > 0 && density < density_min {
            let message = format!("{density:.2} assertions a function, at least {density_min}");
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

    /// Counts a call of a macro or a function with this name.
    fn call(&mut self, name: &syn::Ident) {
        let name = name.to_string();
        let name = name.trim_start_matches("debug_");
        let asserts = name == "assert" || name.starts_with("assert_");
        self.assertions += u32::from(self.tests == 0 && asserts);
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

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let syn::Expr::Path(function) = &*call.func
            && let Some(last) = function.path.segments.last()
        {
            self.call(&last.ident);
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.call(&call.method);
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        if let Some(last) = call.path.segments.last() {
            self.call(&last.ident);
        }
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
    fn assertions_in_tests_and_expectations_do_not_count() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function("assert!(true);"));
        let whole = function("step();") + &tests;
        let tree = Tree::of(&[("crates/varve-vg/src/a.rs", &whole)]);
        assert_eq!(check(&tree.sources()).0.len(), 1);
        for (line, count) in [
            ("assert_eq!(1, 1);", 4),
            ("debug_assert!(b);", 4),
            ("self.assert_consistent();", 4),
            ("tree::assert_sorted(b);", 4),
            ("b.expect(\"it is there\");", 0),
            ("unreachable!();", 0),
        ] {
            let tree = Tree::of(&[("crates/varve-vg/src/a.rs", &function(line))]);
            let (findings, report) = check(&tree.sources());
            assert_eq!(findings.is_empty(), count > 0, "{line}");
            assert!(report[1].contains(&format!("{count} assertions in 1 functions")), "{line}");
        }
    }
}
