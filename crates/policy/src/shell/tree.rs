//! The second reading: tree-sitter's grammar of bash. It knows nothing of ours, so where both agree a mistake in one of
//! them is unlikely to hide a command. Any node that is not in the closed list makes the line unsure.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::OnceLock;

use tree_sitter::{Language, Node, Parser, TreeCursor};

/// Nodes that are understood. Everything else is a reason to ask.
const NODES: &[&str] = &[
    "ansi_c_string",
    "arithmetic_expansion",
    "array",
    "binary_expression",
    "brace_expression",
    "c_style_for_statement",
    "case_item",
    "case_statement",
    "command",
    "command_name",
    "command_substitution",
    "comment",
    "compound_statement",
    "concatenation",
    "declaration_command",
    "do_group",
    "elif_clause",
    "else_clause",
    "expansion",
    "extglob_pattern",
    "file_descriptor",
    "file_redirect",
    "for_statement",
    "function_definition",
    "heredoc_body",
    "heredoc_content",
    "heredoc_end",
    "heredoc_redirect",
    "heredoc_start",
    "herestring_redirect",
    "if_statement",
    "list",
    "negated_command",
    "number",
    "parenthesized_expression",
    "pipeline",
    "postfix_expression",
    "process_substitution",
    "program",
    "raw_string",
    "redirected_statement",
    "regex",
    "simple_expansion",
    "special_variable_name",
    "string",
    "string_content",
    "subscript",
    "subshell",
    "ternary_expression",
    "test_command",
    "test_operator",
    "translated_string",
    "unary_expression",
    "unset_command",
    "variable_assignment",
    "variable_assignments",
    "variable_name",
    "while_statement",
    "word",
];

/// What a node means here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Not in the list.
    Strange,
    /// Understood, and no command by itself.
    Plain,
    /// The name of a command, or a command that is all one node.
    Command,
}

/// What each node of the grammar means, by its number: names are compared once.
fn kinds() -> &'static [Kind] {
    static KINDS: OnceLock<Vec<Kind>> = OnceLock::new();
    KINDS.get_or_init(|| {
        let language = Language::from(tree_sitter_bash::LANGUAGE);
        let count = u16::try_from(language.node_kind_count()).unwrap_or(u16::MAX);
        let meaning = |id| match language.node_kind_for_id(id) {
            Some("command_name" | "declaration_command" | "unset_command") => Kind::Command,
            Some(kind) if NODES.contains(&kind) => Kind::Plain,
            _ => Kind::Strange,
        };
        (0..count).map(meaning).collect()
    })
}

thread_local! {
    static PARSER: RefCell<Option<Parser>> = const { RefCell::new(None) };
}

/// Whether the second reading sees no command that the first one did not see, and understands everything.
pub(super) fn agrees(line: &str, starts: &[usize]) -> Result<(), String> {
    let tree = PARSER.with_borrow_mut(|slot| {
        let parser = match slot {
            Some(parser) => parser,
            None => {
                let mut parser = Parser::new();
                parser.set_language(&tree_sitter_bash::LANGUAGE.into()).map_err(|error| error.to_string())?;
                slot.insert(parser)
            }
        };
        parser.parse(line, None).ok_or_else(|| "the grammar gave no tree".to_owned())
    })?;
    let starts: BTreeSet<usize> = starts.iter().copied().collect();
    let mut cursor = tree.walk();
    loop {
        check(cursor.node(), line, &starts)?;
        if !advance(&mut cursor) {
            return Ok(());
        }
    }
}

/// The next node, parents before children.
fn advance(cursor: &mut TreeCursor<'_>) -> bool {
    if cursor.goto_first_child() {
        return true;
    }
    while !cursor.goto_next_sibling() {
        if !cursor.goto_parent() {
            return false;
        }
    }
    true
}

fn check(node: Node<'_>, line: &str, starts: &BTreeSet<usize>) -> Result<(), String> {
    if node.is_error() || node.is_missing() {
        let near: String = line.get(node.start_byte()..).unwrap_or_default().chars().take(20).collect();
        return Err(format!("the line does not follow the grammar near `{near}`"));
    }
    if !node.is_named() {
        return Ok(());
    }
    let at = node.start_byte();
    match kinds().get(usize::from(node.kind_id())).copied().unwrap_or(Kind::Strange) {
        Kind::Strange => Err(format!("the line holds something that is not understood ({})", node.kind())),
        Kind::Command if !starts.contains(&at) && !in_test(node) => {
            let near: String = line.get(at..).unwrap_or_default().chars().take(20).collect();
            Err(format!("two readings of the line differ: `{near}` may be a command of its own"))
        }
        Kind::Command | Kind::Plain => Ok(()),
    }
}

/// Tree-sitter reads the words of `[ … ]` as commands if they look like some.
fn in_test(node: Node<'_>) -> bool {
    let mut parent = node.parent();
    while let Some(node) = parent {
        match node.kind() {
            "test_command" => return true,
            "command_substitution" | "process_substitution" | "subshell" => return false,
            _ => parent = node.parent(),
        }
    }
    false
}
