//! Rules: what people decided beforehand, in layers.
//!
//! Here: what a rule is, and how it is spelled in one line. Elsewhere: reading rule files (`file`), writing them
//! (`append`), which commands a rule is about (`command`, with what is known of commands in `table`), which rules fit
//! what an action would do (`fit`, with words that may be paths in `mention` and `pattern`, and
//! what a command may start in `hidden`), the verdict (`crate::judge`), the rule that "always" would write (`propose`), grants
//! (`grant`).

mod append;
mod command;
mod denied;
mod file;
mod fit;
mod grant;
mod hidden;
mod mention;
mod pattern;
mod propose;
mod table;
mod word;

use minke_record::Judgement;
use serde::{Deserialize, Serialize};

pub use append::{AppendError, append};
pub use denied::DeniedPaths;
pub use file::{BadRules, FILE_BYTES, Problem, RULES, TEXT_CHARS};
pub(crate) use fit::{Decided, Opening, Part, decide, hides_rules, openings, parts};
pub use grant::granted;
pub use propose::propose;

/// Who said it. The strictest word over all layers wins, so the order does not decide anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// The machine's owner: `/etc/minke/policy.toml`.
    Managed,
    /// The person: `policy.toml`, configuration, command line.
    User,
    /// The repository: may only say ask and deny.
    Workspace,
}

impl Layer {
    pub const ALL: [Layer; 3] = [Layer::Managed, Layer::User, Layer::Workspace];

    /// As verdicts and lists name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Layer::Managed => "managed",
            Layer::User => "user",
            Layer::Workspace => "workspace",
        }
    }
}

/// One rule. All keys that it has must fit an action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub action: Judgement,
    /// A kind of action: `Bash`, `Write`, `Read`, `WebFetch`, `SpawnPod`, `mcp__server__tool`; may end with `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The first words of a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// A glob of paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// A host: `docs.rs`, or `*.example.org` for what is below a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Examples that the rule must fit, checked when the file is loaded.
    #[serde(default, rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<String>,
    /// Examples that it must not fit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_match: Vec<String>,
}

impl Rule {
    fn new(action: Judgement) -> Rule {
        Rule {
            action,
            tool: None,
            command: None,
            path: None,
            host: None,
            matches: Vec::new(),
            not_match: Vec::new(),
        }
    }

    /// The least specific rule there is: what `default_action` means.
    pub fn everything(action: Judgement) -> Rule {
        Rule { tool: Some("*".to_owned()), ..Rule::new(action) }
    }

    /// A rule about commands that begin with these words.
    pub fn command(action: Judgement, words: &str) -> Rule {
        Rule { command: Some(words.to_owned()), ..Rule::new(action) }
    }

    /// Reads one rule: `{ action = "allow", command = "cargo test" }`, with or without the braces.
    pub fn parse(text: &str) -> Result<Rule, Problem> {
        file::one(text)
    }

    /// Why the rule means nothing, if it does: an unknown tool, keys that never fit together, an example that is wrong.
    pub fn check(&self) -> Result<(), String> {
        file::check(self)
    }

    /// The rule as one line of TOML, without its examples.
    pub fn line(&self) -> String {
        let keys = [
            ("action", Some(self.action.as_str())),
            ("tool", self.tool.as_deref()),
            ("command", self.command.as_deref()),
            ("path", self.path.as_deref()),
            ("host", self.host.as_deref()),
        ];
        let pairs = keys.into_iter().filter_map(|(key, value)| Some(format!("{key} = {}", quoted(value?))));
        format!("{{ {} }}", pairs.collect::<Vec<String>>().join(", "))
    }

    /// Whether two rules are about the same, whatever they say to it.
    fn is_about_the_same(&self, other: &Rule) -> bool {
        self.tool == other.tool
            && self.command == other.command
            && self.path == other.path
            && self.host == other.host
    }
}

/// A TOML string on one line.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            other if other.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(other))),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// How strict a word is.
pub(crate) fn rank(word: &Judgement) -> u8 {
    match word {
        Judgement::Allow => 0,
        Judgement::Ask => 1,
        // A word that we do not know is never taken for a weaker one.
        Judgement::Deny | Judgement::Other(_) => 2,
    }
}

/// The stricter of two words.
pub fn strictest(a: Judgement, b: Judgement) -> Judgement {
    if rank(&b) > rank(&a) { b } else { a }
}

/// A rule and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    pub layer: Layer,
    /// `policy.toml:12`, `--set permissions.rule`, …
    pub origin: String,
    pub rule: Rule,
}

/// Every rule that holds for a pod, of all layers. It is in the pod's log before it counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleSet {
    pub rules: Vec<Placed>,
}

impl RuleSet {
    /// Reads a rule file. What is wrong in it is an error as a whole, because to leave out a rule that tightens would be
    /// to loosen; what is merely worth knowing comes beside the rules.
    pub fn read(layer: Layer, origin: &str, text: &str) -> Result<(RuleSet, Vec<Problem>), BadRules> {
        file::read(layer, origin, text)
    }
}
