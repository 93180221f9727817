//! `--set KEY=VALUE`: keys of the manifest by their dotted names.
//!
//! Here: which keys there are and how a value comes into its place. Elsewhere: what values mean (`manifest`), the rest of
//! what makes a session (`create`).
//! Invariant: the keys that are taken are those of the page, and each of them reaches the manifest
//! (`the_keys_on_the_page_are_those_that_are_taken`).

use minke_manifest::{Manifest, SandboxMode};
use serde_json::{Map, Value};

use crate::failure::Failure;

/// Keys that a manifest leaves out when nothing is set.
const OPTIONAL_KEYS: [&str; 30] = [
    "model.ref",
    "model.scheme",
    "model.base_url",
    "model.model_id",
    "model.auth",
    "model.capability",
    "model.context_window",
    "model.max_output",
    "worker.max_tokens",
    "worker.reasoning",
    "worker.instruction",
    "budget.usd",
    "budget.tokens",
    "budget.turns",
    "budget.wall_s",
    "budget.children",
    "permissions.posture",
    "permissions.default_action",
    "permissions.rule",
    "permissions.ask_expires_s",
    "web.enabled",
    "web.search.provider",
    "web.search.base_url",
    "web.search.api_key_env",
    "web.search.timeout_s",
    "web.fetch.timeout_s",
    "web.fetch.redirects",
    "web.fetch.max_response_bytes",
    "web.fetch.max_output_bytes",
    "web.fetch.allow_private",
];
/// A table whose names are the person's own, and whose values are texts.
const VARIABLES: &str = "sandbox.env.set";
const PAGE: &str = "docs/cli.md lists the keys";

/// The defaults with everything that was set.
pub(crate) fn manifest(pairs: &[String]) -> Result<Manifest, Failure> {
    let mut value = Manifest::default().to_value();
    for pair in pairs {
        set(&mut value, pair)?;
    }
    let manifest = Manifest::read(&value).map_err(|e| match guilty(pairs, &e) {
        Some(pair) => Failure::usage(format!("`--set {pair}` does not fit its key")).why(e).hint(PAGE),
        None => Failure::usage("a value given with --set does not fit its key").why(e).hint(PAGE),
    })?;
    if manifest.sandbox.mode == SandboxMode::Off || !manifest.sandbox.lifted.is_empty() {
        return Err(Failure::usage("a fence is not taken down by a key of the manifest").hint(
            "--unsandboxed runs commands without one, --lift PATH lets the agent write a protected name",
        ));
    }
    manifest.check().map_err(|why| Failure::usage("a value given with --set cannot be used").why(why))?;
    Ok(manifest)
}

/// The pair that brings about the same complaint by itself.
fn guilty<'a>(pairs: &'a [String], complaint: &serde_json::Error) -> Option<&'a String> {
    pairs.iter().find(|pair| {
        let mut value = Manifest::default().to_value();
        let alone = set(&mut value, pair).ok().and_then(|()| Manifest::read(&value).err());
        alone.is_some_and(|alone| alone.to_string() == complaint.to_string())
    })
}

/// Puts `a.b=value` in its place. A value that is not JSON is a text.
fn set(manifest: &mut Value, pair: &str) -> Result<(), Failure> {
    let Some((key, value)) = pair.split_once('=') else {
        return Err(Failure::usage(format!("`--set {pair}` has no `=`")).hint("--set worker.max_turns=5"));
    };
    let variable = key.strip_prefix(VARIABLES).and_then(|rest| rest.strip_prefix('.'));
    if let Some(name) = variable.filter(|name| !name.is_empty()) {
        // Its name may have dots, and its value is a text even if it looks like a number.
        let mut place: Vec<&str> = VARIABLES.split('.').collect();
        place.push(name);
        return put(manifest, &place, Value::from(value));
    }
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
    set_value(manifest, key, value)
}

fn set_value(manifest: &mut Value, key: &str, value: Value) -> Result<(), Failure> {
    let known = keys();
    if known.iter().any(|have| have == key) {
        return put(manifest, &key.split('.').collect::<Vec<_>>(), value);
    }
    let section = format!("{key}.");
    if !known.iter().any(|have| have.starts_with(&section)) {
        return Err(unknown(key, &known));
    }
    let Value::Object(members) = value else {
        let inside: Vec<&str> =
            known.iter().filter(|have| have.starts_with(&section)).map(String::as_str).collect();
        return Err(Failure::usage(format!("`{key}` is a section, not a key with one value"))
            .hint(format!("it has {}; or give it whole, as a JSON object", inside.join(", "))));
    };
    // A section that is there and says nothing means something, too.
    if members.is_empty() && value_at(manifest, key).is_none() {
        return put(manifest, &key.split('.').collect::<Vec<_>>(), Value::Object(members));
    }
    members.into_iter().try_for_each(|(name, member)| set_value(manifest, &format!("{key}.{name}"), member))
}

fn unknown(key: &str, known: &[String]) -> Failure {
    let failure = Failure::usage(format!("`{key}` is no key of the manifest"));
    if key == "sandbox.lifted" {
        return failure.hint("--lift PATH lets the agent write a protected name");
    }
    match nearest(key, known.iter().map(String::as_str)) {
        Some(nearest) => failure.hint(format!("the nearest key is `{nearest}`; {PAGE}")),
        None => failure.hint(PAGE),
    }
}

fn value_at<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    key.split('.').try_fold(value, |value, part| value.get(part))
}

fn put(manifest: &mut Value, place: &[&str], value: Value) -> Result<(), Failure> {
    let mut here = manifest;
    for part in place {
        let Value::Object(members) = here else {
            return Err(Failure::usage(format!("`{}` was given a value that is no table", place.join(".")))
                .hint("set it once, or only its single keys"));
        };
        here = members.entry(*part).or_insert_with(|| Value::Object(Map::new()));
    }
    *here = value;
    Ok(())
}

/// Every key of a manifest, in dotted form.
fn keys() -> Vec<String> {
    fn walk(value: &Value, path: &str, out: &mut Vec<String>) {
        match value {
            // An empty table is one that is filled with names of the person's own.
            Value::Object(members) if !members.is_empty() => {
                for (name, member) in members {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    walk(member, &path, out);
                }
            }
            _ => out.push(path.to_owned()),
        }
    }
    let mut out = Vec::new();
    walk(&Manifest::default().to_value(), "", &mut out);
    // A section of which nothing is set stands there empty.
    out.retain(|key| !OPTIONAL_KEYS.iter().any(|optional| optional.starts_with(&format!("{key}."))));
    out.extend(OPTIONAL_KEYS.map(str::to_owned));
    out
}

/// The word that is most like this one.
pub(crate) fn nearest<'a>(word: &str, among: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    among.min_by_key(|have| distance(have, word))
}

/// How many letters must be changed to make one word the other.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut before = row.first().copied().unwrap_or(0);
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let kept = before + usize::from(x != *y);
            before = row[j + 1];
            row[j + 1] = kept.min(before + 1).min(row[j] + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_all(pairs: &[&str]) -> Result<Manifest, String> {
        let pairs: Vec<String> = pairs.iter().map(ToString::to_string).collect();
        manifest(&pairs).map_err(|failure| failure.text())
    }

    #[test]
    fn a_key_is_set_by_its_dotted_name_and_an_unknown_one_names_the_nearest() {
        let manifest = set_all(&["worker.max_turns=5", "model.ref=scripted/demo"]).unwrap();
        assert_eq!(manifest.worker.max_turns, 5);
        assert_eq!(manifest.model.reference.as_deref(), Some("scripted/demo"));
        let wrong = set_all(&["worker.max_turn=5"]).unwrap_err();
        assert!(wrong.contains("`worker.max_turns`"), "{wrong}");
        assert!(set_all(&["worker.max_turns"]).is_err());
    }

    #[test]
    fn sections_that_are_not_there_and_tables_of_names_are_set_key_by_key_or_whole() {
        let manifest = set_all(&[
            "web.fetch.timeout_s=7",
            "web.search.timeout_s=9",
            "web.search.provider=brave",
            "sandbox.env.set.PORT=8080",
            "sandbox.env.set.a.b=x=y",
            "sandbox.env.pass=[\"LC_ALL\"]",
        ])
        .unwrap();
        let web = manifest.web.unwrap();
        assert!(web.enabled);
        assert_eq!((web.fetch.timeout_s, web.fetch.redirects), (7, 5));
        let search = web.search.unwrap();
        assert_eq!((search.provider.as_str(), search.timeout_s), ("brave", 9));
        assert_eq!(manifest.sandbox.env.set["PORT"], "8080");
        assert_eq!(manifest.sandbox.env.set["a.b"], "x=y");
        assert_eq!(set_all(&["web={}"]).unwrap().web, Some(minke_manifest::WebSection::default()));
        let whole = set_all(&["web={\"fetch\":{\"redirects\":2}}", "sandbox.env.set={\"A\":\"b\"}"]).unwrap();
        assert_eq!(whole.web.unwrap().fetch.redirects, 2);
        assert_eq!(whole.sandbox.env.set["A"], "b");
        assert_eq!(set_all(&[]).unwrap().web, None);
    }

    #[test]
    fn what_cannot_be_set_is_refused_with_what_to_do() {
        for (pairs, words) in [
            (
                &["sandbox.mode=of"][..],
                &["`--set sandbox.mode=of`", "`of`", "read_only", "--unsandboxed"][..],
            ),
            (&["sandbox.mode=off"], &["--unsandboxed"]),
            (&["sandbox={\"mode\":\"off\"}"], &["--unsandboxed"]),
            (&["sandbox.lifted=[\"/x\"]"], &["--lift"]),
            (&["permissions.rules=[]"], &["no key", "`permissions.rule`"]),
            (&["permissions={\"rules\":[]}"], &["`permissions.rules` is no key"]),
            (&["permissions.default_action=alow"], &["permissions.default_action", "`alow`", "`deny`"]),
            (&["permissions.rule=[{\"action\":\"alow\"}]"], &["rule 1 of permissions.rule"]),
            (&["permissions.rule=[{\"action\":\"deny\",\"tol\":\"Bash\"}]"], &["tol"]),
            (&["sandbox.network=maybe"], &["sandbox.network=maybe", "list of hosts"]),
            (&["sandbox.env.set=5"], &["sandbox.env.set=5"]),
            (&["sandbox.env.set=5", "sandbox.env.set.A=b"], &["no table"]),
            (&["sandbox.env.set.A=b\0c"], &["sandbox.env", "NUL"]),
            (&["sandbox.env.pass=[\"A=B\"]"], &["sandbox.env", "A=B"]),
            (&["web=5"], &["section", "web.fetch.timeout_s"]),
            (&["web=5", "web.enabled=true"], &["section"]),
            (&["web={\"ftech\":{}}"], &["`web.ftech`", "nearest"]),
            (&["web.fetch.tmeout_s=5"], &["`web.fetch.timeout_s`"]),
            (&["web.search.timeout_s=5"], &["web.search.provider"]),
            (&["web.search.provider=bravo"], &["bravo", "brave", "searxng"]),
            (&["web.search.provider=searxng"], &["web.search.base_url"]),
            (&["web.fetch.timeout_s=0"], &["web.fetch.timeout_s", "600"]),
            (&["web.fetch.max_response_bytes=99999999999"], &["web.fetch.max_response_bytes"]),
            (&["web.fetch.redirects=-1"], &["web.fetch.redirects=-1"]),
            (&["=5"], &["no key"]),
            (&["web.=5"], &["no key"]),
        ] {
            let said = set_all(pairs).unwrap_err();
            for word in words {
                assert!(said.contains(word), "{pairs:?}: `{word}` is missing: {said}");
            }
        }
    }

    /// Each row of the page's table: a key and a value that it takes.
    fn on_the_page() -> Vec<(&'static str, &'static str)> {
        let page = include_str!("../../../docs/cli.md");
        let table = page.split("### Keys of `--set`").nth(1).expect("the page has the table");
        let table = table.split("\n#").next().unwrap_or_default();
        let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
        rows.map(|row| {
            let mut cells = row.split('`');
            let (key, value) = (cells.next(), cells.nth(1));
            (key.expect("a key"), value.expect("a value to try"))
        })
        .collect()
    }

    #[test]
    fn the_keys_on_the_page_are_those_that_are_taken() {
        let rows = on_the_page();
        let mut documented: Vec<&str> = rows.iter().map(|(key, _)| *key).collect();
        let mut taken = keys();
        documented.sort_unstable();
        taken.sort_unstable();
        assert_eq!(documented, taken);
        for (key, value) in rows {
            let pair = format!("{key}={value}");
            let mut pairs = vec![pair.as_str()];
            if key.starts_with("web.search.") {
                pairs.push("web.search.provider=brave");
            }
            let manifest = set_all(&pairs).unwrap_or_else(|e| panic!("{pair}: {e}"));
            // A key that is only spelled, and that nobody reads, would be lost on the way.
            let wanted = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
            assert_eq!(value_at(&manifest.to_value(), key), Some(&wanted), "{pair}");
        }
    }
}
