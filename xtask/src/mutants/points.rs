//! Where a file can be mutated, and how: one point for each place and kind of fault.

use std::fmt;
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A file of the tree.
pub(super) struct SourceText {
    /// Path from the root.
    pub(super) path: String,
    pub(super) text: String,
}

/// The kinds of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    /// `<` is `<=`, `==` is `!=`, and so on.
    Comparison,
    /// A condition is negated, always true or never true.
    Condition,
    /// `&&` is `||`.
    Connective,
    /// A number is one more.
    Number,
    /// `+` is `-`, `/` is `*`.
    Arithmetic,
    /// A statement is left out.
    Statement,
    /// A function returns at once.
    Return,
    /// A word is another one: `min` for `max`, `Volatile` for `Durable`.
    Word,
}

/// A mutant: a place in a file, and what stands there when it is switched on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Point {
    /// Path from the root of the tree.
    pub(super) path: String,
    /// Line, counted from one.
    pub(super) line: usize,
    pub(super) kind: Kind,
    /// Bytes of the file that are replaced.
    pub(super) range: Range<usize>,
    /// The replacement; [`SWITCH`] in it is the question whether this mutant is switched on.
    pub(super) text: String,
    /// For people.
    pub(super) what: String,
}

/// Stands for the question whether a mutant is switched on.
pub(super) const SWITCH: &str = "\u{1}";
/// Words that are exchanged, in both directions: methods, and variants with their type.
const METHODS: [(&str, &str); 8] = [
    ("min", "max"),
    ("any", "all"),
    ("is_some", "is_none"),
    ("is_ok", "is_err"),
    ("first", "last"),
    ("align_in", "align_out"),
    ("front", "back"),
    ("pop_front", "pop_back"),
];
const PATHS: [(&str, &str); 4] = [
    ("Durability::Durable", "Durability::Volatile"),
    ("LockMode::Exclusive", "LockMode::Shared"),
    ("align_up", "align_down"),
    ("true", "false"),
];
/// Functions that only tell.
const TELLERS: [&str; 4] = ["fmt", "source", "description", "describe"];
/// Longest text of a mutant that is shown.
const SHOWN_MAX: usize = 70;

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// All points of a file.
pub(super) fn find(source: &SourceText) -> Vec<Point> {
    let Ok(syntax) = syn::parse_file(&source.text) else { return Vec::new() };
    let mut finder = Finder { source, points: Vec::new() };
    finder.visit_file(&syntax);
    finder.points
}

struct Finder<'a> {
    source: &'a SourceText,
    points: Vec<Point>,
}

/// The other word of a pair.
fn exchanged(pairs: &[(&'static str, &'static str)], word: &str) -> Option<&'static str> {
    pairs.iter().find_map(|(one, other)| match word {
        _ if word == *one => Some(*other),
        _ if word == *other => Some(*one),
        _ => None,
    })
}

/// On one line, and cut if it is long.
fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= SHOWN_MAX {
        line
    } else {
        line.chars().take(SHOWN_MAX).chain("…".chars()).collect()
    }
}

impl Finder<'_> {
    fn text(&self, node: &impl Spanned) -> &str {
        &self.source.text[node.span().byte_range()]
    }

    fn add(&mut self, kind: Kind, node: &impl Spanned, text: String, what: &str) {
        self.add_at(kind, node.span().byte_range(), node.span().start().line, text, what);
    }

    fn add_at(&mut self, kind: Kind, range: Range<usize>, line: usize, text: String, what: &str) {
        let path = self.source.path.clone();
        self.points.push(Point { path, line, kind, range, text, what: short(what) });
    }

    /// MUTANT2: `mutated` beside the original; on one line, so that no line is added.
    fn instead(&mut self, kind: Kind, node: &impl Spanned, mutated: &str) {
        let original = self.text(node).to_owned();
        if mutated.contains("//") {
            return;
        }
        let mutated = mutated.lines().map(str::trim).collect::<Vec<_>>().join(" ");
        let text = format!("(if {SWITCH} {{ {mutated} }} else {{ {original} }})");
        self.add(kind, node, text, &format!("{original} -> {mutated}"));
    }

    fn binary(&mut self, expression: &syn::ExprBinary) {
        use syn::BinOp;
        let (kind, operator) = match expression.op {
            BinOp::Lt(_) => (Kind::Comparison, "<="),
            BinOp::Le(_) => (Kind::Comparison, "<"),
            BinOp::Gt(_) => (Kind::Comparison, ">="),
            BinOp::Ge(_) => (Kind::Comparison, ">"),
            BinOp::Eq(_) => (Kind::Comparison, "!="),
            BinOp::Ne(_) => (Kind::Comparison, "=="),
            BinOp::And(_) if !has_let(&expression.left) && !has_let(&expression.right) => {
                (Kind::Connective, "||")
            }
            BinOp::Or(_) => (Kind::Connective, "&&"),
            BinOp::Add(_) => (Kind::Arithmetic, "-"),
            BinOp::Sub(_) => (Kind::Arithmetic, "+"),
            BinOp::Div(_) => (Kind::Arithmetic, "*"),
            _ => return,
        };
        let mutated =
            format!("({}) {operator} ({})", self.text(&expression.left), self.text(&expression.right));
        self.instead(kind, expression, &mutated);
    }

    fn condition(&mut self, condition: &syn::Expr) {
        if has_let(condition) {
            return;
        }
        let text = self.text(condition).to_owned();
        for (mutated, what) in [
            (format!("({SWITCH} != ({text}))"), "negated"),
            (format!("({SWITCH} || ({text}))"), "always true"),
            (format!("(!{SWITCH} && ({text}))"), "never true"),
        ] {
            self.add(Kind::Condition, condition, mutated, &format!("{what}: {text}"));
        }
    }

    fn statement(&mut self, statement: &syn::Stmt, expression: &syn::Expr) {
        use syn::Expr;
        let can_go = matches!(
            expression,
            Expr::Call(_) | Expr::MethodCall(_) | Expr::Assign(_) | Expr::Try(_) | Expr::Await(_)
        ) || matches!(expression, Expr::Binary(_));
        if can_go {
            let text = self.text(statement).to_owned();
            let mutated = format!("if !{SWITCH} {{ {text} }}");
            self.add(Kind::Statement, statement, mutated, &format!("left out: {text}"));
        }
    }

    /// A function that returns at once, where its type tells with what.
    fn body(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let answers: &[&str] = match &signature.output {
            syn::ReturnType::Default => &[""],
            syn::ReturnType::Type(_, kind) => {
                let kind = self.text(kind.as_ref()).replace(' ', "");
                match kind.as_str() {
                    "bool" => &["true", "false"],
                    "Outcome" => &["Ok(Default::default())"],
                    _ if kind.contains("Result<()") => &["Ok(())"],
                    _ if kind.starts_with("Option<") => &["None"],
                    _ => &[],
                }
            }
        };
        let start = block.brace_token.span.open();
        for answer in answers {
            let text = format!(" if {SWITCH} {{ return {answer}; }}");
            let what = format!("fn {} returns {answer} at once", signature.ident);
            let end = start.byte_range().end;
            self.add_at(Kind::Return, end..end, start.start().line, text, &what);
        }
    }
}

/// Whether a condition binds names, as `if let` does.
fn has_let(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

/// Whether a function can be mutated: it runs, and does more than tell.
fn is_mutable(attributes: &[syn::Attribute], signature: &syn::Signature) -> bool {
    !crate::tidy::is_for_tests(attributes)
        && signature.constness.is_none()
        && !TELLERS.contains(&signature.ident.to_string().as_str())
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if is_mutable(&item.attrs, &item.sig) {
            self.body(&item.sig, &item.block);
            self.visit_block(&item.block);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if is_mutable(&item.attrs, &item.sig) {
            self.body(&item.sig, &item.block);
            self.visit_block(&item.block);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !crate::tidy::is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !crate::tidy::is_for_tests(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast syn::Stmt) {
        if let syn::Stmt::Expr(expression, Some(_)) = statement {
            self.statement(statement, expression);
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_expr(&mut self, expression: &'ast syn::Expr) {
        match expression {
            syn::Expr::Binary(binary) => self.binary(binary),
            syn::Expr::If(condition) => self.condition(&condition.cond),
            syn::Expr::While(condition) => self.condition(&condition.cond),
            syn::Expr::Lit(literal) => match &literal.lit {
                syn::Lit::Int(_) => {
                    let text = self.text(literal).to_owned();
                    self.instead(Kind::Number, literal, &format!("{text} + 1"));
                }
                syn::Lit::Bool(bool) => {
                    let other = if bool.value { "false" } else { "true" };
                    self.instead(Kind::Word, literal, other);
                }
                _ => {}
            },
            syn::Expr::Path(path) => {
                if let Some(other) = exchanged(&PATHS, self.text(path)) {
                    self.instead(Kind::Word, path, other);
                }
            }
            syn::Expr::MethodCall(call) => {
                if let Some(other) = exchanged(&METHODS, &call.method.to_string()) {
                    let all = self.text(expression);
                    let before = call.method.span().byte_range().start - call.span().byte_range().start;
                    let after = before + call.method.to_string().len();
                    let mutated = format!("{}{other}{}", &all[..before], &all[after..]);
                    self.instead(Kind::Word, expression, &mutated);
                }
            }
            _ => {}
        }
        visit::visit_expr(self, expression);
    }

    /// A length must be known to the compiler.
    fn visit_expr_repeat(&mut self, expression: &'ast syn::ExprRepeat) {
        self.visit_expr(&expression.expr);
    }

    // What is no running code, or known to the compiler.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_path(&mut self, _: &'ast syn::Path) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}
