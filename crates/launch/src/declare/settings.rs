//! Declared settings: `--set KEY=VALUE`, options that stand for keys, and the configuration files.
//!
//! Here: the command line as a layer, and its errors. Elsewhere: the keys and their values (`manifest`), the
//! files (`sources`), its errors (`config`), creating the session (`create`).
//! Invariant: the accepted keys are those of the reference page, and each of them reaches the manifest
//! (`the_keys_on_the_page_are_those_that_are_taken`).

use std::path::Path;

use minke_config::sources::{DeclareRequest, DeclaredManifest};
use minke_manifest::{LayerKind, ManifestError, Origin, PartialManifest};
use serde_json::json;

use crate::create::NewPod;
use crate::declare::budget::parse_budget;
use crate::declare::config::config_error;
use crate::declare::profiles::{load_profiles, profile_error};
use crate::environment::{LaunchEnv, find_workspace};
use crate::error::{SetupError, SetupRefusal};

const KEYS_HINT: &str = "docs/reference/cli.md lists the keys";

/// Merges files and command line into the manifest of a pod in `cwd`.
pub fn declare_pod(new: &NewPod, cwd: &Path, env: &LaunchEnv) -> Result<DeclaredManifest, SetupError> {
    let workspace = find_workspace(cwd);
    let paths = env.find_paths()?;
    let registry = load_profiles(&workspace, env)?;
    let profile =
        registry.select_profile(new.profile.as_deref(), &env.cwd).map_err(|error| profile_error(&error))?;
    let asked = DeclareRequest {
        config: &paths.config,
        workspace: &workspace,
        cwd: &env.cwd,
        options: command_line_values(new)?,
        trusted: is_trusted(&workspace, &paths.data),
        profile: Some(profile.layer),
    };
    let mut declared = minke_config::sources::declare_manifest(asked).map_err(|e| config_error(&e))?;
    let name = &mut declared.manifest.pod.name;
    *name = name.take().or(profile.slug);
    Ok(declared)
}

/// Returns true for a trusted workspace. If its trust cannot be read, it is not trusted; the pod reports that
/// at start.
pub fn is_trusted(workspace: &Path, data: &Path) -> bool {
    let found = minke_config::trust::scan_workspace(workspace);
    minke_config::trust::TrustStore::in_data_dir(data)
        .trust_status(&found)
        .is_ok_and(|standing| standing.is_trusted())
}

/// Returns the command line as a layer. `--set` overrides options that stand for keys.
fn command_line_values(new: &NewPod) -> Result<PartialManifest, SetupRefusal> {
    let budget = new.budget.as_deref().map(parse_budget).transpose()?;
    let options = [
        ("--model", new.model.as_ref().map(|model| json!({ "model": { "ref": model } }))),
        ("--posture", new.posture.as_ref().map(|posture| json!({ "permissions": { "posture": posture } }))),
        ("--name", new.name.as_ref().map(|name| json!({ "pod": { "name": name } }))),
        ("--budget", budget.map(|budget| json!({ "budget": budget }))),
    ];
    let mut said = parse_pairs(&new.set)?;
    for (option, table) in options {
        let Some(table) = table else { continue };
        let from = Origin::new(LayerKind::CommandLine, option);
        let one = PartialManifest::from_table(&table, &from, &|_| None)
            .map_err(|e| with_problems(SetupRefusal::invalid(format!("could not use `{option}`")), &e))?;
        said = said.overridden_by(one);
    }
    Ok(said)
}

/// Parses the pairs of `--set`.
pub(crate) fn parse_pairs(pairs: &[String]) -> Result<PartialManifest, SetupRefusal> {
    let from = Origin::new(LayerKind::CommandLine, "--set");
    pairs.iter().try_fold(PartialManifest::default(), |sum, pair| {
        let one = PartialManifest::from_assignment(pair, &from)
            .map_err(|e| with_problems(SetupRefusal::invalid(format!("could not use `--set {pair}`")), &e))?;
        Ok(sum.overridden_by(one))
    })
}

/// Adds all problems and the first hint to an error.
fn with_problems(failure: SetupRefusal, error: &ManifestError) -> SetupRefusal {
    let failure =
        error.problems.iter().fold(failure, |failure, problem| failure.with_reason(&problem.message));
    match error.problems.iter().find_map(|problem| problem.hint.as_ref()) {
        Some(hint) => failure.with_hint(format!("{hint}; {KEYS_HINT}")),
        None => failure.with_hint(KEYS_HINT),
    }
}

#[cfg(test)]
mod tests {
    use minke_manifest::{ConfigLayer, Manifest, resolve_layers};
    use serde_json::Value;

    use super::*;

    fn set_all(pairs: &[&str]) -> Result<Manifest, String> {
        let pairs: Vec<String> = pairs.iter().map(ToString::to_string).collect();
        let values = parse_pairs(&pairs).map_err(|failure| failure.to_string())?;
        let resolved = resolve_layers(&[ConfigLayer { kind: LayerKind::CommandLine, values }]);
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
            (&["permissions.rules=[]"], &["is not a key", "`permissions.rule`"]),
            (&["permissions={\"rules\":[]}"], &["`permissions.rules` is not a key"]),
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
            (&["=5"], &["not a key"]),
            (&["web.=5"], &["not a key"]),
        ] {
            let said = set_all(pairs).unwrap_err();
            for word in words {
                assert!(said.contains(word), "{pairs:?}: `{word}` is missing: {said}");
            }
        }
    }

    /// Returns the keys of the page's table, each with an example value.
    fn documented_keys() -> Vec<(&'static str, &'static str)> {
        let page = include_str!("../../../../docs/reference/cli.md");
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
        let rows = documented_keys();
        let mut documented: Vec<&str> = rows.iter().map(|(key, _)| *key).collect();
        let mut taken: Vec<&str> = minke_manifest::all_keys().map(|key| key.path).collect();
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
            // The value must reach the manifest: a key that is parsed but unused would be lost.
            let wanted: Value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
            let got = key.split('.').try_fold(&manifest.to_value(), |value, part| value.get(part)).cloned();
            assert_eq!(got.as_ref(), Some(&wanted), "{pair}");
        }
    }
}
