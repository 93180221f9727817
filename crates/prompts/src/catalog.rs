//! Catalog: short texts that Minke itself sends to a model, by key.
//!
//! A text has variables such as `{{ tool }}` and no other template syntax, so rendering always succeeds.
//! Elsewhere: the files (`sources`), the use of the texts (`pod`, `driver`), the texts of tools (`tools`).
//! Invariant: every key has a valid built-in text and a user in the code
//! (`every_snippet_is_embedded_and_said`).

use std::collections::BTreeMap;

use minke_text::suggest_name;

use crate::template::PromptError;

/// The file of a layer.
pub const CATALOG_FILE: &str = "catalog.toml";
/// Maximum size of a text.
pub const MAX_SNIPPET_BYTES: usize = 4 << 10;

macro_rules! snippets {
    ($($(#[doc = $doc:literal])+ $name:ident = $key:literal, $needs:expr, $may:expr, $text:literal;)+) => {
        /// A text by its occasion.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Snippet { $($(#[doc = $doc])+ $name),+ }

        impl Snippet {
            pub const ALL: &'static [Snippet] = &[$(Snippet::$name),+];

            /// Returns the key in files.
            pub fn key(self) -> &'static str {
                match self { $(Snippet::$name => $key),+ }
            }

            /// Returns the required variables.
            pub fn needs(self) -> &'static [&'static str] {
                match self { $(Snippet::$name => &$needs),+ }
            }

            /// Returns the optional variables.
            pub fn may(self) -> &'static [&'static str] {
                match self { $(Snippet::$name => &$may),+ }
            }

            /// Returns one line about its use.
            pub fn about(self) -> &'static str {
                match self { $(Snippet::$name => concat!($($doc),+)),+ }
            }

            /// Returns the built-in text.
            pub fn embedded_assets(self) -> &'static str {
                match self { $(Snippet::$name => $text),+ }
            }
        }
    };
}

snippets! {
    /// A reply that ended in text must continue: providers refuse a request that ends with the assistant.
    Continue = "continue", [], [],
        "[The reply above was interrupted. Continue from where it stopped; do not repeat it.]";
    /// A new input follows a paused or interrupted run.
    Interrupt = "interrupt", [], [], "[The previous run was interrupted before it finished.]";
    /// A hook continues the run.
    GoOn = "go_on", ["why"], ["who"], "[Continue: {{ who }} says: {{ why }}]";
    /// The same call fails repeatedly.
    Loop = "loop", [], ["tool", "times", "ends"],
        "[Loop] The same call of {{ tool }} has failed {{ times }} times in a row with the same arguments; after {{ ends }} the run ends. Do something else: find the cause, change the arguments, or name the help that you need.";
    /// Open tasks have not changed for a while.
    Tasks = "tasks", ["tasks"], ["requests"],
        "[Tasks] No task has changed for {{ requests }} requests. If these are still right, continue; otherwise update them with TaskUpdate:\n{{ tasks }}";
    /// A client or a hook has notified the pod.
    Notification = "notification", ["message"], ["who"], "[{{ who }}] {{ message }}";
    /// Another pod has sent a report.
    Report = "report", ["report"], [], "[Report] {{ report }}";
    /// Work has moved into a directory with an instruction file.
    Instructions = "instructions", ["text"], ["path"],
        "[Instructions] The people you work for wrote {{ path }} for agents that work in its directory: follow it there.\n\n{{ text }}";
    /// The same, if the text exceeds the limit.
    InstructionsNamed = "instructions_named", ["path"], [], "[Instructions] Read {{ path }} before you work there.";
    /// The acceptance command of a job has failed; its output follows.
    Rejected = "rejected", ["how"], [],
        "[Not accepted] The result does not pass the acceptance command yet: {{ how }}. Fix it; the output of the command:";
    /// The heading above the project's instructions in the system prompt.
    Project = "project", [], [],
        "# Instructions of this project\nThe people you work for wrote these files for agents: follow them. If two contradict each other, the later one applies; the request of the user comes before all of them.";
}

impl Snippet {
    fn from_key(key: &str) -> Option<Snippet> {
        Snippet::ALL.iter().copied().find(|snippet| snippet.key() == key)
    }

    /// Checks a replacement for the built-in text.
    fn validate_text(self, text: &str) -> Result<(), (String, Option<String>)> {
        if text.trim().is_empty() || text.len() > MAX_SNIPPET_BYTES || text.contains('\0') {
            return Err((format!("give 1 to {MAX_SNIPPET_BYTES} bytes of text without NUL"), None));
        }
        let known: Vec<&str> = self.needs().iter().chain(self.may()).copied().collect();
        let mut seen = Vec::new();
        for piece in split_pieces(text).map_err(|what| (what, None))? {
            let TextPiece::Variable(name) = piece else { continue };
            if !known.contains(&name) {
                let suggestion =
                    suggest_name(name, known.iter().copied()).map(|near| format!("the nearest is `{near}`"));
                let all = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err((
                    format!("`{name}` is not a variable of it"),
                    suggestion.or(Some(format!("there is {all}"))),
                ));
            }
            if seen.contains(&name) {
                return Err((format!("`{name}` occurs twice"), None));
            }
            seen.push(name);
        }
        match self.needs().iter().find(|needed| !seen.contains(needed)) {
            Some(needed) => Err((format!("the required variable `{{{{ {needed} }}}}` is missing"), None)),
            None => Ok(()),
        }
    }
}

/// Texts that replace built-in ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnippetCatalog {
    texts: BTreeMap<String, String>,
}

impl SnippetCatalog {
    /// Applies a layer: `text` is the content of `file`, which errors name.
    pub fn with_layer(mut self, file: &str, text: &str) -> Result<SnippetCatalog, PromptError> {
        let wrong = |line: Option<u32>, message: String, hint: Option<String>| PromptError {
            asset: file.to_owned(),
            line,
            message,
            hint,
        };
        let table: BTreeMap<String, String> = toml::from_str(text).map_err(|e| {
            let before =
                e.span().map(|span| text.bytes().take(span.start).filter(|byte| *byte == b'\n').count());
            let line = before.and_then(|before| u32::try_from(before + 1).ok());
            wrong(line, format!("it is not a table of texts: {}", e.message().trim_end()), None)
        })?;
        for (key, text) in table {
            let Some(snippet) = Snippet::from_key(&key) else {
                let suggestion = suggest_name(&key, Snippet::ALL.iter().map(|snippet| snippet.key()));
                let hint = suggestion.map(|near| format!("the nearest is `{near}`"));
                return Err(wrong(None, format!("`{}` is not a catalog key", key.escape_debug()), hint));
            };
            snippet
                .validate_text(&text)
                .map_err(|(what, hint)| wrong(None, format!("`{key}`: {what}"), hint))?;
            self.texts.insert(key, text);
        }
        Ok(self)
    }

    /// Returns the replaced texts by key.
    pub fn texts(&self) -> &BTreeMap<String, String> {
        &self.texts
    }

    /// Restores a logged catalog. Texts that are no longer valid are ignored.
    pub fn from_texts(texts: BTreeMap<String, String>) -> SnippetCatalog {
        let fits = |key: &str, text: &str| {
            Snippet::from_key(key).is_some_and(|snippet| snippet.validate_text(text).is_ok())
        };
        SnippetCatalog { texts: texts.into_iter().filter(|(key, text)| fits(key, text)).collect() }
    }

    /// Renders the text of the highest layer.
    pub fn render(&self, snippet: Snippet, values: &[(&str, &str)]) -> String {
        let text = self.texts.get(snippet.key()).map_or(snippet.embedded_assets(), String::as_str);
        let mut rendered = String::new();
        for piece in split_pieces(text).unwrap_or_default() {
            match piece {
                TextPiece::Text(text) => rendered.push_str(text),
                TextPiece::Variable(name) => {
                    let value = values.iter().find(|(known, _)| *known == name);
                    rendered.push_str(value.map_or("", |(_, value)| value));
                }
            }
        }
        rendered
    }
}

impl SnippetCatalog {
    /// Extracts the values from a rendered text; `None` if it has another text.
    pub fn parse_rendered(&self, snippet: Snippet, said: &str) -> Option<BTreeMap<String, String>> {
        let text = self.texts.get(snippet.key()).map_or(snippet.embedded_assets(), String::as_str);
        let pieces = split_pieces(text).ok()?;
        let (mut rest, mut values) = (said, BTreeMap::new());
        for (at, piece) in pieces.iter().enumerate() {
            match (piece, pieces.get(at + 1)) {
                (TextPiece::Text(text), _) if at == 0 => rest = rest.strip_prefix(text)?,
                (TextPiece::Text(_), _) => {}
                (TextPiece::Variable(name), Some(TextPiece::Text(next))) => {
                    let last = at + 2 == pieces.len();
                    let (value, behind) =
                        if last { (rest.strip_suffix(next)?, "") } else { rest.split_once(next)? };
                    values.insert((*name).to_owned(), value.to_owned());
                    rest = behind;
                }
                (TextPiece::Variable(_), _) => return None,
            }
        }
        rest.is_empty().then_some(values)
    }
}

enum TextPiece<'t> {
    Text(&'t str),
    Variable(&'t str),
}

fn split_pieces(text: &str) -> Result<Vec<TextPiece<'_>>, String> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while let Some((before, behind)) = rest.split_once("{{") {
        let Some((name, after)) = behind.split_once("}}") else {
            return Err("`{{` has no `}}`".to_owned());
        };
        pieces.extend([TextPiece::Text(before), TextPiece::Variable(name.trim())]);
        rest = after;
    }
    pieces.push(TextPiece::Text(rest));
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_puts_texts_in_the_place_of_others() {
        let user = SnippetCatalog::default()
            .with_layer("a.toml", "continue = 'Go.'\nloop = 'Stop {{tool}}!'")
            .unwrap();
        let both =
            user.clone().with_layer("b.toml", "loop = \"\"\"\nNo {{ tool }}, {{ times }}.\"\"\"").unwrap();
        assert_eq!(user.render(Snippet::Continue, &[]), "Go.");
        assert_eq!(user.render(Snippet::Loop, &[("tool", "Bash"), ("times", "3")]), "Stop Bash!");
        assert_eq!(
            both.render(Snippet::Loop, &[("tool", "{{ times }}"), ("times", "3")]),
            "No {{ times }}, 3."
        );
        assert_eq!(both.render(Snippet::Interrupt, &[]), Snippet::Interrupt.embedded_assets());
        let rendered = both.render(Snippet::GoOn, &[("who", "a hook"), ("why", "x] says: y]")]);
        let values = both.parse_rendered(Snippet::GoOn, &rendered).unwrap();
        assert_eq!((values["who"].as_str(), values["why"].as_str()), ("a hook", "x] says: y]"));
        assert_eq!(both.parse_rendered(Snippet::GoOn, "Go on!"), None);
        let own = both.clone().with_layer("c.toml", "go_on = '{{ why }} (by {{ who }})'").unwrap();
        assert_eq!(own.parse_rendered(Snippet::GoOn, "No (by h)").unwrap()["why"], "No");
        assert_eq!(own.parse_rendered(Snippet::GoOn, &rendered), None);
        assert_eq!(SnippetCatalog::from_texts(both.texts().clone()), both);
        let broken =
            BTreeMap::from([("gone".to_owned(), "x".to_owned()), ("report".to_owned(), "x".to_owned())]);
        assert_eq!(SnippetCatalog::from_texts(broken), SnippetCatalog::default());
    }

    #[test]
    fn what_cannot_be_a_text_is_told() {
        let long = format!("continue = '{}'", "x".repeat(MAX_SNIPPET_BYTES + 1));
        for (text, words) in [
            ("contine = 'x'", "a.toml: `contine` is not a catalog key; the nearest is `continue`"),
            ("continue = 5", "a.toml:1: it is not a table of texts"),
            ("\ncontinue = ", "a.toml:2: it is not a table of texts"),
            ("continue = ''", "`continue`: give 1 to 4096 bytes"),
            (long.as_str(), "`continue`: give 1 to 4096 bytes"),
            ("continue = 'a\\u0000'", "\\u0000"),
            ("continue = \"a\\u0000\"", "give 1 to 4096"),
            ("continue = '{{ tool }}'", "`tool` is not a variable of it; there is none"),
            ("loop = '{{ tol }}'", "the nearest is `tool`"),
            ("loop = '{{ tool }} {{ tool }}'", "twice"),
            ("loop = 'x {{ tool'", "has no `}}`"),
            ("report = 'A report without a variable.'", "`{{ report }}` is missing"),
            ("report = '{% for x in y %}{{ report }}'", ""),
        ] {
            let read = SnippetCatalog::default().with_layer("a.toml", text);
            let told =
                read.map(|read| read.render(Snippet::Report, &[("report", "r")])).map_err(|e| e.to_string());
            match told {
                Err(told) => assert!(told.contains(words) || words == "\\u0000", "{text}: {told}"),
                // Only variables are template syntax.
                Ok(rendered) => {
                    assert!(
                        rendered.contains("{% for x in y %}r") || words == "\\u0000",
                        "{text}: {rendered}"
                    )
                }
            }
        }
    }

    #[test]
    fn every_snippet_is_embedded_and_said() {
        let sources = [
            include_str!("../../pod/src/run.rs"),
            include_str!("../../pod/src/calls/hooks.rs"),
            include_str!("../../pod/src/run/loop_guard.rs"),
            include_str!("../../pod/src/calls/internal_calls.rs"),
            include_str!("../../pod/src/run/inbox.rs"),
            include_str!("../../pod/src/session/nested_instructions.rs"),
            include_str!("../../pod/src/job.rs"),
            include_str!("../../driver/src/calls/nested_instructions.rs"),
            include_str!("project.rs"),
        ];
        let page = include_str!("../../../docs/guide/prompts.md");
        for snippet in Snippet::ALL {
            snippet
                .validate_text(snippet.embedded_assets())
                .unwrap_or_else(|e| panic!("{}: {e:?}", snippet.key()));
            let rendered = format!("Snippet::{snippet:?}");
            assert!(sources.iter().any(|source| source.contains(&rendered)), "unused: {rendered}");
            let places = snippet.needs().iter().map(|place| format!("`{place}`*"));
            let places = places.chain(snippet.may().iter().map(|place| format!("`{place}`")));
            let (begin, end) = (format!("| `{}` | ", snippet.key()), places.collect::<Vec<_>>().join(", "));
            let row = page.lines().find(|line| line.starts_with(&begin));
            assert!(row.is_some_and(|row| row.ends_with(&format!("| {end} |")) || end.is_empty()), "{begin}");
        }
    }
}
