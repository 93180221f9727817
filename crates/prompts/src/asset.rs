//! Assets: prompt texts by name, with their includes.
//!
//! Elsewhere: rendering (`template`), file locations (`sources`).
//! Invariant: no name leaves its source directory, and loading terminates (`no_name_leads_out_of_its_shelf`,
//! `includes_that_never_end_are_gathered_once`).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::template::{self, PromptError};

/// Maximum size of an asset.
pub const MAX_ASSET_BYTES: usize = 64 << 10;
/// Maximum total size of the assets of one prompt.
pub const MAX_ASSETS_BYTES: usize = 1 << 20;
/// Maximum number of assets of one prompt.
pub const MAX_ASSETS: usize = 64;
/// Maximum number of segments in a name.
const MAX_NAME_SEGMENTS: usize = 8;
/// Maximum length of one segment.
const MAX_SEGMENT_CHARS: usize = 64;

/// The source of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AssetSource {
    /// Built in.
    Minke,
    /// `prompts/` in the user's configuration directory.
    User,
    /// `.minke/prompts/` of a trusted workspace.
    Workspace,
}

impl AssetSource {
    const ALL: [AssetSource; 3] = [AssetSource::Minke, AssetSource::User, AssetSource::Workspace];

    /// Returns the prefix of names from this source.
    pub fn prefix(self) -> &'static str {
        match self {
            AssetSource::Minke => "$minke",
            AssetSource::User => "$user",
            AssetSource::Workspace => "$workspace",
        }
    }
}

/// `$minke/default`, `$user/review/short` …
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AssetName {
    pub source: AssetSource,
    path: String,
}

impl AssetName {
    /// Returns the path below the source directory, without extension: `review/short`. It never leaves the
    /// directory.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for AssetName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.source.prefix(), self.path)
    }
}

impl FromStr for AssetName {
    type Err = PromptError;

    fn from_str(text: &str) -> Result<AssetName, PromptError> {
        let shown: String = text.chars().take(MAX_SEGMENT_CHARS * 2).flat_map(char::escape_debug).collect();
        let (first, path) = text.split_once('/').unwrap_or((text, ""));
        let Some(source) = AssetSource::ALL.into_iter().find(|shelf| shelf.prefix() == first) else {
            let suggestion =
                minke_text::suggest_name(first, AssetSource::ALL.iter().map(|shelf| shelf.prefix()));
            let hint = suggestion.map(|near| format!("the nearest is `{near}/…`"));
            let what = "a prompt asset begins with `$minke/`, `$user/` or `$workspace/`";
            return Err(PromptError { asset: shown, line: None, message: what.to_owned(), hint });
        };
        if path.split('/').count() > MAX_NAME_SEGMENTS || !path.split('/').all(is_valid_segment) {
            let message = format!(
                "behind `{first}/` belong 1 to {MAX_NAME_SEGMENTS} names divided by `/`, each of 1 to {MAX_SEGMENT_CHARS} of a-z, \
                 0-9 and `-`"
            );
            return Err(PromptError { asset: shown, line: None, message, hint: None });
        }
        Ok(AssetName { source, path: path.to_owned() })
    }
}

fn is_valid_segment(segment: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=MAX_SEGMENT_CHARS).contains(&segment.len())
        && segment.bytes().all(plain)
        && !segment.starts_with('-')
        && !segment.ends_with('-')
}

/// An instruction for an agent: literal text or an asset name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstructionText<'a> {
    /// Used unchanged, not as a template.
    Literal(&'a str),
    Asset(AssetName),
}

impl<'a> InstructionText<'a> {
    /// Text that begins with `$` is an asset name, other text is literal.
    pub fn parse(text: &'a str) -> Result<InstructionText<'a>, PromptError> {
        if text.starts_with('$') {
            Ok(InstructionText::Asset(text.parse()?))
        } else {
            Ok(InstructionText::Literal(text))
        }
    }
}

const EMBEDDED_ASSETS: [(&str, &str); 7] = [
    ("calls", include_str!("../assets/calls.md")),
    ("coder", include_str!("../assets/coder.md")),
    ("default", include_str!("../assets/default.md")),
    ("explorer", include_str!("../assets/explorer.md")),
    ("planner", include_str!("../assets/planner.md")),
    ("reviewer", include_str!("../assets/reviewer.md")),
    ("tools", include_str!("../assets/tools.md")),
];

/// Returns the built-in texts with their names after `$minke/`.
pub fn embedded_assets() -> impl Iterator<Item = (&'static str, &'static str)> {
    EMBEDDED_ASSETS.into_iter()
}

/// All texts of one prompt.
#[derive(Debug, Clone, Default)]
pub struct AssetSet {
    pub(crate) texts: BTreeMap<AssetName, String>,
}

impl AssetSet {
    /// Loads an asset and its includes. `load` returns the text of an asset that is not built in, or an error
    /// message.
    pub fn load_included(
        first: &AssetName,
        load: &mut dyn FnMut(&AssetName) -> Result<String, String>,
    ) -> Result<AssetSet, PromptError> {
        let mut assets = AssetSet::default();
        let (mut waiting, mut bytes) = (vec![(first.clone(), None)], 0);
        while let Some((name, included)) = waiting.pop() {
            if assets.texts.contains_key(&name) {
                continue;
            }
            let from: Option<(AssetName, u32)> = included;
            let error = |message: String, hint: Option<String>| match &from {
                Some((by, line)) => PromptError {
                    asset: by.to_string(),
                    line: Some(*line),
                    message: format!("`{name}`: {message}"),
                    hint,
                },
                None => PromptError { asset: name.to_string(), line: None, message, hint },
            };
            let text = match name.source {
                AssetSource::Minke => {
                    embedded_text(&name).map_err(|hint| error("there is no such asset".to_owned(), hint))?
                }
                AssetSource::User | AssetSource::Workspace => {
                    load(&name).map_err(|what| error(what, None))?
                }
            };
            bytes += text.len();
            if text.len() > MAX_ASSET_BYTES {
                return Err(error(
                    format!("it has {} bytes; the limit is {MAX_ASSET_BYTES}", text.len()),
                    None,
                ));
            }
            if assets.texts.len() == MAX_ASSETS || bytes > MAX_ASSETS_BYTES {
                let what = format!(
                    "the prompt has more than {MAX_ASSETS} assets or {MAX_ASSETS_BYTES} bytes of assets"
                );
                return Err(error(what, None));
            }
            for (line, included) in template::check_template(&name, &text)? {
                waiting.push((included, Some((name.clone(), line))));
            }
            assets.texts.insert(name, text);
        }
        Ok(assets)
    }
}

fn embedded_text(name: &AssetName) -> Result<String, Option<String>> {
    let found = EMBEDDED_ASSETS.iter().find(|(known, _)| *known == name.path);
    found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| {
        let suggestion =
            minke_text::suggest_name(&name.path, EMBEDDED_ASSETS.iter().map(|(known, _)| *known));
        suggestion.map(|near| format!("the nearest is `$minke/{near}`"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_such_file(_: &AssetName) -> Result<String, String> {
        Err("there is no such file".to_owned())
    }

    #[test]
    fn no_name_leads_out_of_its_shelf() {
        for bad in [
            "$user/../x",
            "$user/./x",
            "$user//x",
            "$user/",
            "$user",
            "$user/x/",
            "/etc/passwd",
            "$user/x.md",
            "$user/X",
            "$user/a b",
            "$user/x\0",
            "$user/-x",
            "$user/x-",
            "$other/x",
            "$users/x",
            "$workspace/..",
            "",
            "$user/a/b/c/d/e/f/g/h/i",
            "user/x",
            "$user\\x",
            "$user/ä",
        ] {
            bad.parse::<AssetName>().expect_err(bad);
        }
        let long = format!("$user/{}", "x".repeat(65));
        long.parse::<AssetName>().unwrap_err();
        let name: AssetName = "$workspace/review/short-1".parse().unwrap();
        assert_eq!((name.source, name.path()), (AssetSource::Workspace, "review/short-1"));
        assert_eq!(name.to_string(), "$workspace/review/short-1");
        assert!("$usr/x".parse::<AssetName>().unwrap_err().to_string().contains("`$user/…`"));
    }

    #[test]
    fn includes_that_never_end_are_gathered_once() {
        let first: AssetName = "$user/a".parse().unwrap();
        let mut loaded = Vec::new();
        let assets = AssetSet::load_included(&first, &mut |name| {
            loaded.push(name.to_string());
            Ok(format!("{{% include \"$user/{}\" %}}", if name.path() == "a" { "b" } else { "a" }))
        });
        assert_eq!((assets.unwrap().texts.len(), loaded.len()), (2, 2));
    }

    #[test]
    fn what_is_missing_or_too_much_is_told_with_where_it_is_wanted() {
        let gather = |name: &str, load: &mut dyn FnMut(&AssetName) -> Result<String, String>| {
            AssetSet::load_included(&name.parse().unwrap(), load).unwrap_err().to_string()
        };
        assert!(gather("$minke/defualt", &mut no_such_file).contains("the nearest is `$minke/default`"));
        let error = gather("$user/a", &mut |name| match name.path() {
            "a" => Ok("x\n{% include '$user/gone' %}".to_owned()),
            _ => no_such_file(name),
        });
        assert!(
            error.contains("$user/a:2") && error.contains("$user/gone") && error.contains("no such file"),
            "{error}"
        );
        let told = gather("$user/a", &mut |_| Ok("x".repeat(MAX_ASSET_BYTES + 1)));
        assert!(told.contains("65537 bytes"), "{told}");
        let mut number = 0;
        let told = gather("$user/a", &mut |_| {
            number += 1;
            Ok(format!("{{% include '$user/a{number}' %}}"))
        });
        assert!(told.contains("more than 64 assets"), "{told}");
    }
}
