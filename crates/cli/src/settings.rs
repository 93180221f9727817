//! What a person declares: `--set KEY=VALUE`, options that stand for keys, and the files behind them.
//!
//! Here: the command line as a layer, and what is said when something cannot be used. Elsewhere: the keys and what values
//! mean (`manifest`), the files (`sources`), the rest of what makes a session (`create`).
//! Invariant: the keys that are taken are those of the page, and each of them reaches the manifest
//! (`the_keys_on_the_page_are_those_that_are_taken`).

use std::path::Path;

use minke_manifest::{LayerKind, ManifestError, Origin, Partial};
use minke_sources::{Asked, Declared, SourcesError};
use serde_json::json;

use crate::around::Surroundings;
use crate::create::NewPod;
use crate::failure::Failure;

/// How many things that are wrong are told at once.
const TOLD: usize = 20;
const PAGE: &str = "docs/reference/cli.md lists the keys";

/// What files and the command line declare for a pod in `cwd`.
pub(crate) fn declare(new: &NewPod, cwd: &Path, around: &Surroundings) -> Result<Declared, Failure> {
    let workspace = Surroundings::workspace(cwd);
    let paths = around.paths()?;
    let registry = crate::profile::registry(&workspace, around)?;
    let profile = registry
        .chosen(new.profile.as_deref(), &around.cwd)
        .map_err(|error| crate::profile::unusable(&error))?;
    let asked = Asked {
        config: &paths.config,
        workspace: &workspace,
        here: &around.cwd,
        said: said(new)?,
        trusted: is_trusted(&workspace, &paths.data),
        profile: Some(profile.layer),
    };
    let mut declared = minke_sources::declare(asked).map_err(|e| undeclared(&e))?;
    let name = &mut declared.manifest.pod.name;
    *name = name.take().or(profile.slug);
    Ok(declared)
}

/// Where trust cannot be looked up, nobody is trusted; the pod says so when it starts.
pub(crate) fn is_trusted(workspace: &Path, data: &Path) -> bool {
    let found = minke_trust::look(workspace);
    minke_trust::TrustStore::in_data(data).standing(&found).is_ok_and(|standing| standing.holds())
}

/// Why there is no manifest.
pub(crate) fn undeclared(error: &SourcesError) -> Failure {
    let failure = Failure::usage("what this pod is declared to be cannot be used").code("invalid_config");
    match error {
        SourcesError::Manifest(inner) => {
            let failure = inner.problems.iter().take(TOLD).fold(failure, |failure, problem| {
                failure.why(format!("{}: {}", problem.origin, problem.what))
            });
            failure.hint(error.hint())
        }
        other => failure.why(other).hint(error.hint()),
    }
}

/// What the command line says: options that stand for keys count before `--set`.
fn said(new: &NewPod) -> Result<Partial, Failure> {
    let budget = new.budget.as_deref().map(crate::budget::parse).transpose()?;
    let options = [
        ("--model", new.model.as_ref().map(|model| json!({ "model": { "ref": model } }))),
        ("--posture", new.posture.as_ref().map(|posture| json!({ "permissions": { "posture": posture } }))),
        ("--name", new.name.as_ref().map(|name| json!({ "pod": { "name": name } }))),
        ("--budget", budget.map(|budget| json!({ "budget": budget }))),
    ];
    let mut said = values(&new.set)?;
    for (option, table) in options {
        let Some(table) = table else { continue };
        let from = Origin::new(LayerKind::CommandLine, option);
        let one = Partial::read(&table, &from, &|_| None)
            .map_err(|e| told(Failure::usage(format!("`{option}` cannot be used")), &e))?;
        said = said.over(one);
    }
    Ok(said)
}

/// What was set, pair by pair.
pub(crate) fn values(pairs: &[String]) -> Result<Partial, Failure> {
    let from = Origin::new(LayerKind::CommandLine, "--set");
    pairs.iter().try_fold(Partial::default(), |sum, pair| {
        let one = Partial::set(pair, &from)
            .map_err(|e| told(Failure::usage(format!("`--set {pair}` cannot be used")), &e))?;
        Ok(sum.over(one))
    })
}

/// Everything that is wrong, and the first thing to do about it.
fn told(failure: Failure, error: &ManifestError) -> Failure {
    let failure = error.problems.iter().fold(failure, |failure, problem| failure.why(&problem.what));
    match error.problems.iter().find_map(|problem| problem.hint.as_ref()) {
        Some(hint) => failure.hint(format!("{hint}; {PAGE}")),
        None => failure.hint(PAGE),
    }
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
    use minke_manifest::{Layer, Manifest, resolve};
    use serde_json::Value;

    use super::*;

    fn set_all(pairs: &[&str]) -> Result<Manifest, String> {
        let pairs: Vec<String> = pairs.iter().map(ToString::to_string).collect();
        let values = values(&pairs).map_err(|failure| failure.text())?;
        let resolved = resolve(&[Layer { kind: LayerKind::CommandLine, values }]);
        resolved.map(|resolved| resolved.manifest).map_err(|e| e.to_string())
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
            (&["permissions.rule=[{\"action\":\"alow\"}]"], &["`permissions.rule`", "entry 1", "alow"]),
            (&["permissions.rule=[{\"action\":\"deny\",\"tol\":\"Bash\"}]"], &["tol"]),
            (&["sandbox.network=maybe"], &["sandbox.network=maybe", "list of hosts"]),
            (&["sandbox.env.set=5"], &["sandbox.env.set=5"]),
            (&["sandbox.env.set=5", "sandbox.env.set.A=b"], &["a table"]),
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
        let page = include_str!("../../../docs/reference/cli.md");
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
        let mut taken: Vec<&str> = minke_manifest::keys().map(|key| key.path).collect();
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
            let wanted: Value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
            let got = key.split('.').try_fold(&manifest.to_value(), |value, part| value.get(part)).cloned();
            assert_eq!(got.as_ref(), Some(&wanted), "{pair}");
        }
    }
}
