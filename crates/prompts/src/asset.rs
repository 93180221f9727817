//! Assets: prompt texts by name, and gathering those that one needs.
//!
//! Here: what a name may be, the embedded texts, following includes to a closed set within bounds. Elsewhere: what is done
//! with a text (`template`), where files lie (`sources`).
//! Invariant: no name leads out of its shelf, and gathering ends (`no_name_leads_out_of_its_shelf`,
//! `includes_that_never_end_are_gathered_once`).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::template::{self, PromptError};

/// The longest asset.
pub const ASSET_BYTES: usize = 64 << 10;
/// The longest that all assets of one prompt are together.
pub const ASSETS_BYTES: usize = 1 << 20;
/// Assets of one prompt.
pub const ASSETS_MOST: usize = 64;
/// Parts of a name.
const SEGMENTS: usize = 8;
/// Letters of one part.
const SEGMENT_CHARS: usize = 64;

/// Where a text comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shelf {
    /// Embedded.
    Minke,
    /// `prompts/` of the person's configuration.
    User,
    /// `.minke/prompts/` of a workspace that is trusted.
    Workspace,
}

impl Shelf {
    const ALL: [Shelf; 3] = [Shelf::Minke, Shelf::User, Shelf::Workspace];

    /// How names begin that are on it.
    pub fn prefix(self) -> &'static str {
        match self {
            Shelf::Minke => "$minke",
            Shelf::User => "$user",
            Shelf::Workspace => "$workspace",
        }
    }
}

/// `$minke/default`, `$user/review/short` …
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AssetName {
    pub shelf: Shelf,
    path: String,
}

impl AssetName {
    /// Its place on the shelf, without an ending: `review/short`. Never leads anywhere else.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for AssetName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.shelf.prefix(), self.path)
    }
}

impl FromStr for AssetName {
    type Err = PromptError;

    fn from_str(text: &str) -> Result<AssetName, PromptError> {
        let shown: String = text.chars().take(SEGMENT_CHARS * 2).flat_map(char::escape_debug).collect();
        let (first, path) = text.split_once('/').unwrap_or((text, ""));
        let Some(shelf) = Shelf::ALL.into_iter().find(|shelf| shelf.prefix() == first) else {
            let near = nearest(first, Shelf::ALL.iter().map(|shelf| shelf.prefix()));
            let hint = near.map(|near| format!("the nearest is `{near}/…`"));
            let what =
                "it begins with none of `$minke/`, `$user/` and `$workspace/`, as every prompt asset does";
            return Err(PromptError { asset: shown, line: None, what: what.to_owned(), hint });
        };
        if path.split('/').count() > SEGMENTS || !path.split('/').all(is_segment) {
            let what = format!(
                "behind `{first}/` belong 1 to {SEGMENTS} names divided by `/`, each of 1 to {SEGMENT_CHARS} of a-z, \
                 0-9 and `-`"
            );
            return Err(PromptError { asset: shown, line: None, what, hint: None });
        }
        Ok(AssetName { shelf, path: path.to_owned() })
    }
}

fn is_segment(segment: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=SEGMENT_CHARS).contains(&segment.len())
        && segment.bytes().all(plain)
        && !segment.starts_with('-')
        && !segment.ends_with('-')
}

/// The known word that is most like one that is none.
pub(crate) fn nearest<'a>(word: &str, among: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = among.map(|known| (strsim::damerau_levenshtein(word, known), known));
    scored.min().filter(|(distance, known)| *distance <= known.len().div_ceil(2)).map(|(_, known)| known)
}

/// What an agent is told of how to work: words, or the name of an asset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Instruction<'a> {
    /// As it stands; no template.
    Literal(&'a str),
    Asset(AssetName),
}

impl<'a> Instruction<'a> {
    /// What begins with `$` is a name, everything else is words.
    pub fn read(text: &'a str) -> Result<Instruction<'a>, PromptError> {
        if text.starts_with('$') {
            Ok(Instruction::Asset(text.parse()?))
        } else {
            Ok(Instruction::Literal(text))
        }
    }
}

const EMBEDDED: [(&str, &str); 7] = [
    ("calls", include_str!("../assets/calls.md")),
    ("coder", include_str!("../assets/coder.md")),
    ("default", include_str!("../assets/default.md")),
    ("explorer", include_str!("../assets/explorer.md")),
    ("planner", include_str!("../assets/planner.md")),
    ("reviewer", include_str!("../assets/reviewer.md")),
    ("tools", include_str!("../assets/tools.md")),
];

/// The embedded texts, by their names behind `$minke/`.
pub fn embedded() -> impl Iterator<Item = (&'static str, &'static str)> {
    EMBEDDED.into_iter()
}

/// The texts that one prompt needs, all of them.
#[derive(Debug, Clone, Default)]
pub struct Assets {
    pub(crate) texts: BTreeMap<AssetName, String>,
}

impl Assets {
    /// Follows includes from one asset. `load` gives the text of one that is not embedded; `None` if there is none, and
    /// then the error says what `load`'s words for that are.
    pub fn gather(
        first: &AssetName,
        load: &mut dyn FnMut(&AssetName) -> Result<String, String>,
    ) -> Result<Assets, PromptError> {
        let mut assets = Assets::default();
        let (mut waiting, mut bytes) = (vec![(first.clone(), None)], 0);
        while let Some((name, included)) = waiting.pop() {
            if assets.texts.contains_key(&name) {
                continue;
            }
            let from: Option<(AssetName, u32)> = included;
            let wrong = |what: String, hint: Option<String>| match &from {
                Some((by, line)) => PromptError {
                    asset: by.to_string(),
                    line: Some(*line),
                    what: format!("`{name}`: {what}"),
                    hint,
                },
                None => PromptError { asset: name.to_string(), line: None, what, hint },
            };
            let text = match name.shelf {
                Shelf::Minke => {
                    built_in(&name).map_err(|hint| wrong("there is no such asset".to_owned(), hint))?
                }
                Shelf::User | Shelf::Workspace => load(&name).map_err(|what| wrong(what, None))?,
            };
            bytes += text.len();
            if text.len() > ASSET_BYTES {
                return Err(wrong(
                    format!("it has {} bytes, and {ASSET_BYTES} are the most", text.len()),
                    None,
                ));
            }
            if assets.texts.len() == ASSETS_MOST || bytes > ASSETS_BYTES {
                let what = format!(
                    "with it the prompt is made of more than {ASSETS_MOST} assets or {ASSETS_BYTES} bytes of them"
                );
                return Err(wrong(what, None));
            }
            for (line, included) in template::look(&name, &text)? {
                waiting.push((included, Some((name.clone(), line))));
            }
            assets.texts.insert(name, text);
        }
        Ok(assets)
    }
}

fn built_in(name: &AssetName) -> Result<String, Option<String>> {
    let found = EMBEDDED.iter().find(|(known, _)| *known == name.path);
    found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| {
        let near = nearest(&name.path, EMBEDDED.iter().map(|(known, _)| *known));
        near.map(|near| format!("the nearest is `$minke/{near}`"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(_: &AssetName) -> Result<String, String> {
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
        assert_eq!((name.shelf, name.path()), (Shelf::Workspace, "review/short-1"));
        assert_eq!(name.to_string(), "$workspace/review/short-1");
        assert!("$usr/x".parse::<AssetName>().unwrap_err().to_string().contains("`$user/…`"));
    }

    #[test]
    fn includes_that_never_end_are_gathered_once() {
        let first: AssetName = "$user/a".parse().unwrap();
        let mut loaded = Vec::new();
        let assets = Assets::gather(&first, &mut |name| {
            loaded.push(name.to_string());
            Ok(format!("{{% include \"$user/{}\" %}}", if name.path() == "a" { "b" } else { "a" }))
        });
        assert_eq!((assets.unwrap().texts.len(), loaded.len()), (2, 2));
    }

    #[test]
    fn what_is_missing_or_too_much_is_told_with_where_it_is_wanted() {
        let gather = |name: &str, load: &mut dyn FnMut(&AssetName) -> Result<String, String>| {
            Assets::gather(&name.parse().unwrap(), load).unwrap_err().to_string()
        };
        assert!(gather("$minke/defualt", &mut none).contains("the nearest is `$minke/default`"));
        let told = gather("$user/a", &mut |name| match name.path() {
            "a" => Ok("x\n{% include '$user/gone' %}".to_owned()),
            _ => none(name),
        });
        assert!(
            told.contains("$user/a:2") && told.contains("$user/gone") && told.contains("no such file"),
            "{told}"
        );
        let told = gather("$user/a", &mut |_| Ok("x".repeat(ASSET_BYTES + 1)));
        assert!(told.contains("65537 bytes"), "{told}");
        let mut number = 0;
        let told = gather("$user/a", &mut |_| {
            number += 1;
            Ok(format!("{{% include '$user/a{number}' %}}"))
        });
        assert!(told.contains("more than 64 assets"), "{told}");
    }
}
