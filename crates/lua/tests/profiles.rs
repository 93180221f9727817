//! Typical profiles: their recipes, and rejected content with its line.

mod common;

use common::{evaluate, evaluate_with_full_limit, evaluate_with_modules};
use minke_lua::{Recipe, WorkspaceAccess};
use serde_json::json;

fn evaluate_recipe(text: &str) -> Recipe {
    evaluate(text).result.unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Returns the line and message of the error for `profile { … }`.
fn refusal_of(fields: &str) -> (Option<u32>, String) {
    let text = format!(
        "local profile, scope, models = require('minke.profile'), require('minke.scope'), require('minke.models')\n\
         local compact = require('minke.compact')\nreturn profile {{\n{fields}\n}}"
    );
    let error = evaluate(&text).result.expect_err(fields);
    (error.line, error.message)
}

#[test]
fn the_example_of_the_page_is_a_recipe() {
    let text = r#"
local profile = require("minke.profile")
local scope   = require("minke.scope")
local models  = require("minke.models")
local compact = require("minke.compact")
return profile {
  slug = "reviewer", description = "Reads, never writes",
  model = models.catalog("acme/large-4"),
  worker = { instruction = "$minke/reviewer", max_turns = 40 },
  scope = scope.workspace_read(),
  compaction = compact.ratio { threshold = 0.7, request = 0.8 },
}"#;
    let recipe = evaluate_recipe(text);
    assert_eq!(recipe.slug.as_deref(), Some("reviewer"));
    assert_eq!(recipe.description.as_deref(), Some("Reads, never writes"));
    assert_eq!(recipe.scope, Some(WorkspaceAccess::Read));
    let wanted = json!({
        "model": { "ref": "acme/large-4" },
        "worker": { "instruction": "$minke/reviewer", "max_turns": 40 },
        "compaction": { "threshold": "70%", "request_threshold": "80%" },
    });
    assert_eq!(serde_json::Value::Object(recipe.fields.clone()), wanted);
    assert_eq!(recipe.line_of_key("worker.max_turns"), Some(9));
    assert_eq!(recipe.line_of_key("model.ref"), Some(8));
    assert_eq!(recipe.line_of_key("nothing"), recipe.line_of_key(""));
}

#[test]
fn what_is_common_to_both_dialects_works() {
    let text = r#"
local profile = require "minke.profile"
local function twice(n) return n * 2 end
local words = {}
for _, word in ipairs { "b", "a" } do words[#words + 1] = string.upper(word) end
table.sort(words)
local ok, why = pcall(error, "caught")
assert(not ok and why == "caught")
local made = setmetatable({}, { __index = function(_, key) return key .. "!" end })
assert(utf8.len("äö") == 2 and math.floor(2.5) == 2 and made.x == "x!")
assert(select('#', 1, nil, nil) == 3 and ("%d-%s"):format(3, "x") == "3-x")
assert(({ ("a,b"):gsub(",", ";") })[1] == "a;b" and ("abc"):find("b", 1, true) == 2)
local t = { 1, 2 } table.insert(t, 3) table.insert(t, 1, 0) assert(table.concat(t, ",") == "0,1,2,3")
assert(table.remove(t) == 3 and table.remove(t, 1) == 0 and #t == 2)
return profile { worker = { max_turns = twice(21), temperature = 0.5, stop_sequences = words } }"#;
    let wanted = json!({ "worker": { "max_turns": 42, "temperature": 0.5, "stop_sequences": ["A", "B"] } });
    assert_eq!(serde_json::Value::Object(evaluate_recipe(text).fields), wanted);
}

#[test]
fn a_recipe_holds_no_authority() {
    for (fields, line, words) in [
        (
            "slug = 'a',\nscope = { allow = { { target = '/', permission = 'write' } } }",
            5,
            "workspace_read()",
        ),
        ("scope = 'write'", 4, "workspace_write()"),
        (
            "scope = setmetatable({ workspace = 'write' }, { __metatable = getmetatable(scope.workspace_read()) })",
            4,
            "workspace_read()",
        ),
        ("\npod = { name = 'x' }", 5, "`pod` is not a field"),
        ("hooks = {}", 4, "the user's own"),
        ("manifest = {}", 4, "not a whole manifest"),
        ("workers = {}", 4, "`worker`"),
        ("qqqqqqqqqqqqqqq = {}", 4, "slug, description"),
        ("skills = {\n directories = {\n '/etc' } }", 5, "absolute path"),
        ("skills = { directories = { '~/x' } }", 4, "absolute path"),
        ("model = { auth = { api_key = { file = '/root/key' } } }", 4, "absolute path"),
        ("model = {\n auth = 'sk-123' }", 5, "secret"),
        ("model = { auth = { api_key = 'sk-123' } }", 4, "secret"),
        ("web = { search = { api_key = 'x' } }", 4, "secret"),
        ("sandbox = { env = { set = { GITHUB_TOKEN = 'x' } } }", 4, "secret"),
        ("model = 'provider/model'", 4, "models.catalog"),
        ("model = models.catalog('x')", 4, "PROVIDER/MODEL"),
        ("worker = 5", 4, "section"),
        ("slug = 'A B'", 4, "a-z"),
        ("slug = 'a--b'", 4, "twice"),
        ("description = 'a\\nb'", 4, "one line"),
        ("description = ('x'):rep(400)", 4, "300"),
        ("extends = 'a/b'", 4, "never a path"),
        ("compaction = compact.ratio { threshold = 7 }", 4, "share"),
        ("compaction = compact.tokens { threshold = 0.5 }", 4, "whole number"),
        ("compaction = compact.tokens { treshold = 5 }", 4, "nothing else"),
    ] {
        let (at, message) = refusal_of(fields);
        assert!(message.contains(words), "{fields}: `{words}` is missing: {message}");
        assert_eq!(at, Some(line), "{fields}: {message}");
    }
    let put_together = "local w = {}\nw.pod = 1\nlocal fields = { worker = { max_turns = 1 } }\nfields.pod = w\n\n\
                        return require('minke.profile')(fields)";
    assert_eq!(evaluate(put_together).result.unwrap_err().line, Some(6), "the line of the call");
    let wrong_place =
        evaluate_recipe("return require('minke.profile') { worker = { instruction = '/etc is yours' } }");
    assert_eq!(wrong_place.fields["worker"]["instruction"], "/etc is yours", "words are no places");
}

#[test]
fn a_script_reaches_what_is_listed_and_nothing_else() {
    let text = r#"
local names = {}
for name in pairs(_G) do names[#names + 1] = name end
for name in pairs(getmetatable(_G) and getmetatable(_G).__index or {}) do names[#names + 1] = name end
table.sort(names)
return require("minke.profile") { worker = { instruction = table.concat(names, " ") } }"#;
    let found = evaluate_recipe(text).fields["worker"]["instruction"].as_str().unwrap().to_owned();
    let wanted = "_G _VERSION assert error getmetatable ipairs math next pairs pcall print rawequal rawget rawlen rawset \
                  require select setmetatable string table tonumber tostring type utf8 xpcall";
    assert_eq!(found, wanted);
}

#[test]
fn the_same_text_gives_the_same_recipe() {
    let text = r#"
local t = {}
for i = 1, 20 do t[i] = math.random(1e6) end
local said = { tostring({}), tostring(print), string.format("%s %s", {}, require), tostring(math.pi) }
local ok, why = pcall(function() local x = nil; x() end)
said[#said + 1] = tostring(why)
local ok, why = pcall(require, "nowhere")
said[#said + 1] = tostring(why)
local order = {}
for k in pairs { a = 1, b = 2, c = 3, [1] = 1, [true] = 1, [2.5] = 1 } do order[#order + 1] = tostring(k) end
print("said", {}, 5)
return require("minke.profile") { worker = { stop_sequences = { table.concat(t, " "), table.concat(said, "\n"), table.concat(order, " ") } } }"#;
    let first = evaluate_recipe(text);
    assert_eq!(first.printed, "said\ttable\t5\n");
    assert!(!format!("{first:?}").contains("0x"), "{first:?}");
    for _ in 0..20 {
        assert_eq!(evaluate_recipe(text), first);
    }
}

/// The instruction count is deterministic, so the limit is exceeded at the same point every time.
#[test]
fn the_count_of_instructions_decides() {
    let text = |turns: u32| {
        format!(
            "for i = 1, {turns} do end return require('minke.profile') {{ worker = {{ max_turns = 1 }} }}"
        )
    };
    let ends = |turns: u32| evaluate(&text(turns)).result.is_ok();
    let (mut fits, mut too_many) = (1, 1_000_000);
    assert!(ends(fits) && !ends(too_many));
    while too_many - fits > 1 {
        let middle = fits.midpoint(too_many);
        *(if ends(middle) { &mut fits } else { &mut too_many }) = middle;
    }
    for _ in 0..5 {
        assert!(ends(fits) && !ends(too_many), "{fits}");
    }
    assert!(evaluate_with_full_limit(&text(800_000)).result.is_ok());
    let error = evaluate(&text(u32::MAX)).result.unwrap_err();
    assert!(error.message.contains("10000000 instructions"), "{error}");
}

#[test]
fn modules_are_loaded_once_and_circles_are_told() {
    let text = "local a, b = require('lib.a'), require('lib.a')\na.n = a.n + 1\nreturn require('minke.profile') { worker \
                = { max_turns = b.n } }";
    let given = evaluate_with_modules(text, &[("lib.a", "return { n = require('b') }"), ("b", "return 6")]);
    assert_eq!(given.result.unwrap().fields["worker"]["max_turns"], 7);

    let circle = [("a", "\nreturn require('b')"), ("b", "return require('a')")];
    let error = evaluate_with_modules("require('a')", &circle).result.unwrap_err();
    assert_eq!((error.file.as_str(), error.line), ("b.lua", Some(1)), "{error}");
    assert!(error.message.contains("a → b → a"), "{error}");

    let broken =
        evaluate_with_modules("\nrequire('a')", &[("a", "local x = 1\n\nx.y.z = 1")]).result.unwrap_err();
    assert_eq!((broken.file.as_str(), broken.line), ("a.lua", Some(3)), "{broken}");
    let empty = evaluate_with_modules("require('a')", &[("a", "local x = 1")]).result.unwrap_err();
    assert!(empty.message.contains("returns nothing"), "{empty}");
    let inside = evaluate_with_modules(
        "return require('a')",
        &[(
            "a",
            "local profile = require('minke.profile')\nreturn profile {\n\
                               pod = 1 }",
        )],
    );
    let inside = inside.result.unwrap_err();
    assert_eq!((inside.file.as_str(), inside.line), ("a.lua", Some(3)), "{inside}");
}

#[test]
fn a_module_that_failed_is_not_taken_for_a_cycle() {
    let text = "for i = 1, 3 do local ok, why = pcall(require, 'a') assert(not ok and not tostring(why):find('circle'), \
                tostring(why)) end return require('minke.profile') {}";
    assert!(evaluate_with_modules(text, &[("a", "error('broken')")]).result.is_ok());
    let endless = "while true do pcall(require, 'a') end";
    assert!(evaluate_with_modules(endless, &[("a", "")]).result.is_err());
    let many: Vec<(String, String)> = (0..40).map(|n| (format!("m{n}"), "return 1".to_owned())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let error = evaluate_with_modules("for n = 0, 39 do require('m' .. n) end", &many).result.unwrap_err();
    assert!(error.message.contains("32 modules"), "{error}");
    let deep: Vec<(String, String)> =
        (0..40).map(|n| (format!("m{n}"), format!("return require('m{}')", n + 1))).collect();
    let deep: Vec<(&str, &str)> = deep.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let error = evaluate_with_modules("require('m0')", &deep).result.unwrap_err();
    assert!(error.message.contains("16 levels deep"), "{error}");
}
