//! The catalog: short texts that the product itself puts before a model, by their keys.
//!
//! Here: the embedded texts, layers that put others in their place, filling in what they speak of. A text has places such
//! as `{{ tool }}` and nothing else of a template, so it says something whatever is filled in. Elsewhere: the files
//! (`sources`), who says what when (`pod`, `driver`), what tools say (`tools`).
//! Invariant: every key has an embedded text that fits its own rules, and somebody who says it
//! (`every_snippet_is_embedded_and_said`).

use std::collections::BTreeMap;

use crate::asset::nearest;
use crate::template::PromptError;

/// The file of a layer.
pub const CATALOG: &str = "catalog.toml";
/// The longest text.
pub const SNIPPET_BYTES: usize = 4 << 10;

macro_rules! snippets {
    ($($(#[doc = $doc:literal])+ $name:ident = $key:literal, $needs:expr, $may:expr, $text:literal;)+) => {
        /// What is said, by the occasion.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Snippet { $($(#[doc = $doc])+ $name),+ }

        impl Snippet {
            pub const ALL: &'static [Snippet] = &[$(Snippet::$name),+];

            /// As it is called in files.
            pub fn key(self) -> &'static str {
                match self { $(Snippet::$name => $key),+ }
            }

            /// What a text must speak of.
            pub fn needs(self) -> &'static [&'static str] {
                match self { $(Snippet::$name => &$needs),+ }
            }

            /// What it may speak of besides.
            pub fn may(self) -> &'static [&'static str] {
                match self { $(Snippet::$name => &$may),+ }
            }

            /// When it is said, in one line.
            pub fn about(self) -> &'static str {
                match self { $(Snippet::$name => concat!($($doc),+)),+ }
            }

            /// The built-in text.
            pub fn embedded(self) -> &'static str {
                match self { $(Snippet::$name => $text),+ }
            }
        }
    };
}

snippets! {
    /// A reply that ended in text is to go on: providers refuse a request that ends with the assistant.
    Continue = "continue", [], [],
        "[The reply above was interrupted. Continue from where it stopped; do not repeat it.]";
    /// A new input follows a run that was paused or interrupted.
    Interrupt = "interrupt", [], [], "[The previous run was interrupted before it finished.]";
    /// A hook does not let the run end.
    GoOn = "go_on", ["why"], ["who"], "[Go on: {{ who }} says: {{ why }}]";
    /// The same call fails again and again.
    Loop = "loop", [], ["tool", "times", "ends"],
        "[Loop] The same call of {{ tool }} has failed {{ times }} times in a row with the same arguments; after {{ ends }} the run ends. Do something else: find the cause, change the arguments, or say what you need.";
    /// Tasks are open and none has changed for a while.
    Tasks = "tasks", ["tasks"], ["requests"],
        "[Tasks] No task has changed for {{ requests }} requests. If these are still right go on; else update them with TaskUpdate:\n{{ tasks }}";
    /// Somebody has notified the pod, or a hook has.
    Notification = "notification", ["message"], ["who"], "[{{ who }}] {{ message }}";
    /// Another pod has reported.
    Report = "report", ["report"], [], "[Report] {{ report }}";
    /// Work has moved into a directory that has instructions.
    Instructions = "instructions", ["text"], ["path"],
        "[Instructions] The people you work for wrote {{ path }} for agents that work in its directory: follow it there.\n\n{{ text }}";
    /// The same, where their text does not fit any more.
    InstructionsNamed = "instructions_named", ["path"], [], "[Instructions] Read {{ path }} before you work there.";
    /// The acceptance command of a job has not accepted what was done; its output follows.
    Rejected = "rejected", ["how"], [],
        "[Not accepted] What was done does not pass the acceptance command yet: {{ how }}. Mend that; its output:";
    /// What stands above the project's instructions in the system prompt.
    Project = "project", [], [],
        "# Instructions of this project\nThe people you work for wrote these files for agents: follow them. Where two contradict each other the later one counts, and before all of them what you are asked.";
}

impl Snippet {
    fn of(key: &str) -> Option<Snippet> {
        Snippet::ALL.iter().copied().find(|snippet| snippet.key() == key)
    }

    /// Whether a text can stand for the embedded one.
    fn check(self, text: &str) -> Result<(), (String, Option<String>)> {
        if text.trim().is_empty() || text.len() > SNIPPET_BYTES || text.contains('\0') {
            return Err((format!("give 1 to {SNIPPET_BYTES} bytes of text without NUL"), None));
        }
        let known: Vec<&str> = self.needs().iter().chain(self.may()).copied().collect();
        let mut seen = Vec::new();
        for piece in pieces(text).map_err(|what| (what, None))? {
            let Piece::Place(name) = piece else { continue };
            if !known.contains(&name) {
                let near =
                    nearest(name, known.iter().copied()).map(|near| format!("the nearest is `{near}`"));
                let all = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err((
                    format!("`{name}` is no place of it"),
                    near.or(Some(format!("there is {all}"))),
                ));
            }
            if seen.contains(&name) {
                return Err((format!("`{name}` stands in it twice"), None));
            }
            seen.push(name);
        }
        match self.needs().iter().find(|needed| !seen.contains(needed)) {
            Some(needed) => {
                Err((format!("it does not say what it is for: `{{{{ {needed} }}}}` is missing"), None))
            }
            None => Ok(()),
        }
    }
}

/// Texts that stand in the place of embedded ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Catalog {
    texts: BTreeMap<String, String>,
}

impl Catalog {
    /// Puts a layer over this one: the text of its file, and how errors call it.
    pub fn over(mut self, file: &str, text: &str) -> Result<Catalog, PromptError> {
        let wrong = |line: Option<u32>, what: String, hint: Option<String>| PromptError {
            asset: file.to_owned(),
            line,
            what,
            hint,
        };
        let table: BTreeMap<String, String> = toml::from_str(text).map_err(|e| {
            let before =
                e.span().map(|span| text.bytes().take(span.start).filter(|byte| *byte == b'\n').count());
            let line = before.and_then(|before| u32::try_from(before + 1).ok());
            wrong(line, format!("it is not a table of texts: {}", e.message().trim_end()), None)
        })?;
        for (key, text) in table {
            let Some(snippet) = Snippet::of(&key) else {
                let near = nearest(&key, Snippet::ALL.iter().map(|snippet| snippet.key()));
                let hint = near.map(|near| format!("the nearest is `{near}`"));
                return Err(wrong(None, format!("`{}` is no key of the catalog", key.escape_debug()), hint));
            };
            snippet.check(&text).map_err(|(what, hint)| wrong(None, format!("`{key}`: {what}"), hint))?;
            self.texts.insert(key, text);
        }
        Ok(self)
    }

    /// What stands in the place of embedded texts, by key.
    pub fn texts(&self) -> &BTreeMap<String, String> {
        &self.texts
    }

    /// A catalog that was written down. What is no text of it any more is as if it were not there.
    pub fn restore(texts: BTreeMap<String, String>) -> Catalog {
        let fits =
            |key: &str, text: &str| Snippet::of(key).is_some_and(|snippet| snippet.check(text).is_ok());
        Catalog { texts: texts.into_iter().filter(|(key, text)| fits(key, text)).collect() }
    }

    /// What is said: the text of the highest layer, filled in.
    pub fn say(&self, snippet: Snippet, values: &[(&str, &str)]) -> String {
        let text = self.texts.get(snippet.key()).map_or(snippet.embedded(), String::as_str);
        let mut said = String::new();
        for piece in pieces(text).unwrap_or_default() {
            match piece {
                Piece::Text(text) => said.push_str(text),
                Piece::Place(name) => {
                    let value = values.iter().find(|(known, _)| *known == name);
                    said.push_str(value.map_or("", |(_, value)| value));
                }
            }
        }
        said
    }
}

impl Catalog {
    /// What was filled in, from what was said; `None` if it was said by another text.
    pub fn heard(&self, snippet: Snippet, said: &str) -> Option<BTreeMap<String, String>> {
        let text = self.texts.get(snippet.key()).map_or(snippet.embedded(), String::as_str);
        let pieces = pieces(text).ok()?;
        let (mut rest, mut heard) = (said, BTreeMap::new());
        for (at, piece) in pieces.iter().enumerate() {
            match (piece, pieces.get(at + 1)) {
                (Piece::Text(text), _) if at == 0 => rest = rest.strip_prefix(text)?,
                (Piece::Text(_), _) => {}
                (Piece::Place(name), Some(Piece::Text(next))) => {
                    let last = at + 2 == pieces.len();
                    let (value, behind) =
                        if last { (rest.strip_suffix(next)?, "") } else { rest.split_once(next)? };
                    heard.insert((*name).to_owned(), value.to_owned());
                    rest = behind;
                }
                (Piece::Place(_), _) => return None,
            }
        }
        rest.is_empty().then_some(heard)
    }
}

enum Piece<'t> {
    Text(&'t str),
    Place(&'t str),
}

fn pieces(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while let Some((before, behind)) = rest.split_once("{{") {
        let Some((name, after)) = behind.split_once("}}") else {
            return Err("`{{` has no `}}`".to_owned());
        };
        pieces.extend([Piece::Text(before), Piece::Place(name.trim())]);
        rest = after;
    }
    pieces.push(Piece::Text(rest));
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_puts_texts_in_the_place_of_others() {
        let user = Catalog::default().over("a.toml", "continue = 'Go.'\nloop = 'Stop {{tool}}!'").unwrap();
        let both = user.clone().over("b.toml", "loop = \"\"\"\nNo {{ tool }}, {{ times }}.\"\"\"").unwrap();
        assert_eq!(user.say(Snippet::Continue, &[]), "Go.");
        assert_eq!(user.say(Snippet::Loop, &[("tool", "Bash"), ("times", "3")]), "Stop Bash!");
        assert_eq!(both.say(Snippet::Loop, &[("tool", "{{ times }}"), ("times", "3")]), "No {{ times }}, 3.");
        assert_eq!(both.say(Snippet::Interrupt, &[]), Snippet::Interrupt.embedded());
        let said = both.say(Snippet::GoOn, &[("who", "a hook"), ("why", "x] says: y]")]);
        let heard = both.heard(Snippet::GoOn, &said).unwrap();
        assert_eq!((heard["who"].as_str(), heard["why"].as_str()), ("a hook", "x] says: y]"));
        assert_eq!(both.heard(Snippet::GoOn, "Go on!"), None);
        let own = both.clone().over("c.toml", "go_on = '{{ why }} (by {{ who }})'").unwrap();
        assert_eq!(own.heard(Snippet::GoOn, "No (by h)").unwrap()["why"], "No");
        assert_eq!(own.heard(Snippet::GoOn, &said), None);
        assert_eq!(Catalog::restore(both.texts().clone()), both);
        let broken =
            BTreeMap::from([("gone".to_owned(), "x".to_owned()), ("report".to_owned(), "x".to_owned())]);
        assert_eq!(Catalog::restore(broken), Catalog::default());
    }

    #[test]
    fn what_cannot_be_a_text_is_told() {
        let long = format!("continue = '{}'", "x".repeat(SNIPPET_BYTES + 1));
        for (text, words) in [
            ("contine = 'x'", "a.toml: `contine` is no key of the catalog; the nearest is `continue`"),
            ("continue = 5", "a.toml:1: it is not a table of texts"),
            ("\ncontinue = ", "a.toml:2: it is not a table of texts"),
            ("continue = ''", "`continue`: give 1 to 4096 bytes"),
            (long.as_str(), "`continue`: give 1 to 4096 bytes"),
            ("continue = 'a\\u0000'", "\\u0000"),
            ("continue = \"a\\u0000\"", "give 1 to 4096"),
            ("continue = '{{ tool }}'", "`tool` is no place of it; there is none"),
            ("loop = '{{ tol }}'", "the nearest is `tool`"),
            ("loop = '{{ tool }} {{ tool }}'", "twice"),
            ("loop = 'x {{ tool'", "has no `}}`"),
            ("report = 'Somebody said something.'", "`{{ report }}` is missing"),
            ("report = '{% for x in y %}{{ report }}'", ""),
        ] {
            let read = Catalog::default().over("a.toml", text);
            let told =
                read.map(|read| read.say(Snippet::Report, &[("report", "r")])).map_err(|e| e.to_string());
            match told {
                Err(told) => assert!(told.contains(words) || words == "\\u0000", "{text}: {told}"),
                // Nothing but places is a template.
                Ok(said) => {
                    assert!(said.contains("{% for x in y %}r") || words == "\\u0000", "{text}: {said}")
                }
            }
        }
    }

    #[test]
    fn every_snippet_is_embedded_and_said() {
        let sources = [
            include_str!("../../pod/src/run.rs"),
            include_str!("../../pod/src/hooks.rs"),
            include_str!("../../pod/src/loops.rs"),
            include_str!("../../pod/src/own.rs"),
            include_str!("../../pod/src/notes.rs"),
            include_str!("../../pod/src/instructed.rs"),
            include_str!("../../pod/src/job.rs"),
            include_str!("../../driver/src/nested.rs"),
            include_str!("project.rs"),
        ];
        let page = include_str!("../../../docs/guide/prompts.md");
        for snippet in Snippet::ALL {
            snippet.check(snippet.embedded()).unwrap_or_else(|e| panic!("{}: {e:?}", snippet.key()));
            let said = format!("Snippet::{snippet:?}");
            assert!(sources.iter().any(|source| source.contains(&said)), "nobody says {said}");
            let places = snippet.needs().iter().map(|place| format!("`{place}`*"));
            let places = places.chain(snippet.may().iter().map(|place| format!("`{place}`")));
            let (begin, end) = (format!("| `{}` | ", snippet.key()), places.collect::<Vec<_>>().join(", "));
            let row = page.lines().find(|line| line.starts_with(&begin));
            assert!(row.is_some_and(|row| row.ends_with(&format!("| {end} |")) || end.is_empty()), "{begin}");
        }
    }
}
