//! A second, independent parse with tree-sitter's grammar of bash. A command that one parser misses is
//! unlikely to be missed by the other too. A node outside the closed list makes the line uncertain.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::OnceLock;

use tree_sitter::{Language, Node, Parser, TreeCursor};

/// Supported nodes. Any other node makes the line uncertain.
const KNOWN_NODES: &[&str] = &[
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

/// The meaning of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeMeaning {
    /// Not in the list.
    Unknown,
    /// Supported, and not a command itself.
    Plain,
    /// The name of a command, or a command without a name node.
    Command,
}

/// Returns the meaning of each node kind by its number, so that names are compared only once.
fn node_meanings() -> &'static [NodeMeaning] {
    static MEANINGS: OnceLock<Vec<NodeMeaning>> = OnceLock::new();
    MEANINGS.get_or_init(|| {
        let language = Language::from(tree_sitter_bash::LANGUAGE);
        let count = u16::try_from(language.node_kind_count()).unwrap_or(u16::MAX);
        let meaning = |id| match language.node_kind_for_id(id) {
            Some("command_name" | "declaration_command" | "unset_command") => NodeMeaning::Command,
            Some(kind) if KNOWN_NODES.contains(&kind) => NodeMeaning::Plain,
            _ => NodeMeaning::Unknown,
        };
        (0..count).map(meaning).collect()
    })
}

thread_local! {
    static PARSER: RefCell<Option<Parser>> = const { RefCell::new(None) };
}

/// Checks that tree-sitter finds only commands that the parser found, and only supported nodes.
pub(super) fn check_agreement(line: &str, starts: &[usize]) -> Result<(), String> {
    let tree = PARSER.with_borrow_mut(|slot| {
        let parser = match slot {
            Some(parser) => parser,
            None => {
                let mut parser = Parser::new();
                parser.set_language(&tree_sitter_bash::LANGUAGE.into()).map_err(|error| error.to_string())?;
                slot.insert(parser)
            }
        };
        parser.parse(line, None).ok_or_else(|| "tree-sitter returned no tree".to_owned())
    })?;
    let starts: BTreeSet<usize> = starts.iter().copied().collect();
    let mut cursor = tree.walk();
    loop {
        check_node(cursor.node(), line, &starts)?;
        if !next_node(&mut cursor) {
            return Ok(());
        }
    }
}

/// Moves to the next node in pre-order.
fn next_node(cursor: &mut TreeCursor<'_>) -> bool {
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

fn check_node(node: Node<'_>, line: &str, starts: &BTreeSet<usize>) -> Result<(), String> {
    if node.is_error() || node.is_missing() {
        let near: String = line.get(node.start_byte()..).unwrap_or_default().chars().take(20).collect();
        return Err(format!("the line does not follow the grammar near `{near}`"));
    }
    if !node.is_named() {
        return Ok(());
    }
    let at = node.start_byte();
    match node_meanings().get(usize::from(node.kind_id())).copied().unwrap_or(NodeMeaning::Unknown) {
        NodeMeaning::Unknown => Err(format!("the line contains unknown syntax ({})", node.kind())),
        NodeMeaning::Command if !starts.contains(&at) && !is_in_test(node) => {
            let near: String = line.get(at..).unwrap_or_default().chars().take(20).collect();
            Err(format!("two parsers disagree about the line: `{near}` may be a separate command"))
        }
        NodeMeaning::Command | NodeMeaning::Plain => Ok(()),
    }
}

/// Returns whether a node is in `[ … ]`, whose words tree-sitter may parse as commands.
fn is_in_test(node: Node<'_>) -> bool {
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
