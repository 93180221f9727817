//! Templates that try to run forever, grow without limit or access more than their variables.

#![expect(clippy::disallowed_methods, reason = "a test measures how long it takes")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::time::{Duration, Instant};

use minke_prompts::{
    AssetName, AssetSet, MAX_INSTRUCTION_BYTES, PromptError, PromptVariables, VARIABLES, render_asset,
};

fn test_variables() -> PromptVariables {
    PromptVariables {
        date: "2026-11-16".to_owned(),
        cwd: "/project/<sub>".to_owned(),
        workspace: "/project".to_owned(),
        language: "French".to_owned(),
        tools: ["Bash", "Edit", "Read"].map(str::to_owned).to_vec(),
        platform: "linux".to_owned(),
        model: "scripted/demo".to_owned(),
    }
}

/// Renders the first asset, with others available for inclusion.
fn render_first(first: &str, others: &[(&str, &str)]) -> Result<String, PromptError> {
    let name: AssetName = "$user/first".parse().unwrap();
    let assets = AssetSet::load_included(&name, &mut |name| {
        let all = std::iter::once(("first", first)).chain(others.iter().copied());
        let found = all.into_iter().find(|(known, _)| *known == name.path());
        found.map(|(_, text)| text.to_owned()).ok_or_else(|| "there is no such file".to_owned())
    })?;
    render_asset(&name, &assets, &test_variables())
}

#[test]
fn a_template_says_what_it_is_given() {
    let text = "{{ date }} {{ cwd }} {{ workspace }} {{ language }} {{ platform }} {{ model }}\n\
                {% for tool in tools %}{{ loop.index }}:{{ tool }}{% if not loop.last %} {% endif %}{% endfor %}\n\
                {% if \"Bash\" in tools and model == \"scripted/demo\" %}yes{% else %}no{% endif %} {{ tools | length }}\n\
                {{ tools | join(\", \") }} {{ platform | upper }}{# a hidden comment #} {% raw %}{{ nope }}{% endraw %}\n\n";
    let expected = "2026-11-16 /project/<sub> /project French linux scripted/demo\n1:Bash 2:Edit 3:Read\nyes 3\n\
                    Bash, Edit, Read LINUX {{ nope }}";
    assert_eq!(render_first(text, &[]).unwrap(), expected);
    for name in VARIABLES {
        render_first(&format!("{{{{ {name} }}}}"), &[]).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    let included = render_first("a {% include \"$user/b\" %} c", &[("b", "<{{ date }}>\n")]).unwrap();
    assert_eq!(included, "a <2026-11-16> c");
    assert!(render_first("{% include \"$minke/calls\" %}", &[]).unwrap().starts_with("- Calls"));
}

#[test]
fn an_undefined_variable_is_told_with_its_place() {
    let error_of = |text: &str| render_first(text, &[]).unwrap_err().to_string();
    assert_eq!(error_of("a\n{{ dat }}"), "$user/first:2: `dat` is not a variable; the nearest is `date`");
    assert!(
        error_of("\n\n{% if wurkspace %}x{% endif %}")
            .contains("$user/first:3: `wurkspace` is not a variable")
    );
    assert!(error_of("{% if false %}{{ dat }}{% endif %}").contains("`dat`"), "even where it is not reached");
    assert!(error_of("{{ secret_key }}").contains("there are cwd, date, language"));
    assert!(
        error_of("{% for x in tools %}{% endfor %}\n{{ x }}").contains("$user/first:2"),
        "behind its loop"
    );
    assert!(
        error_of("{{ date.year }}").contains("$user/first:1: undefined value"),
        "{}",
        error_of("{{ date.year }}")
    );
    let inner = render_first("{% include '$user/b' %}", &[("b", "\n{{ modle }}")]).unwrap_err().to_string();
    assert_eq!(inner, "$user/b:2: `modle` is not a variable; the nearest is `model`");
}

#[test]
fn every_hostile_template_ends_with_an_error() {
    let loops = |deep: usize, text: &str| {
        let begin: String = (0..deep).map(|at| format!("{{% for x{at} in tools %}}")).collect();
        format!("{begin}{text}{}", "{% endfor %}".repeat(deep))
    };
    let long = format!("{{{{ tools | join(\"{}\") }}}}", "x".repeat(60_000));
    let cases: Vec<(&str, String, &str)> = vec![
        ("loops that multiply", loops(40, "x"), "steps"),
        ("loops that print", loops(12, "xxxxxxxxxxxxxxxxxxxx"), "bytes"),
        ("deep loops", loops(300, "x"), "recursion"),
        (
            "a loop that calls itself",
            "{% for x in tools recursive %}{{ loop(tools) }}{% endfor %}".into(),
            "recursive",
        ),
        ("an include of itself", "{% include '$user/first' %}".into(), "recursion"),
        ("an include that doubles", "{% include '$user/a' %}{% include '$user/a' %}".into(), "recursion"),
        ("a text that doubles", "{% set a = 'x' %}".into(), "no `{% set %}`"),
        ("joined texts", "{{ date ~ date }}".into(), "no `~`"),
        ("multiplied texts", "{{ 'x' * 1000000000 }}".into(), "no `*`"),
        ("powers", "{{ 9 ** 999 }}".into(), "no `**`"),
        ("lists", "{% for x in [date, date] %}{% endfor %}".into(), "no `[`"),
        ("tuples", "{% for x in (date, date) %}{% endfor %}".into(), "no `,`"),
        ("maps", "{{ {} }}".into(), "no `{`"),
        ("a filter that is long", long, "more than 131072 bytes"),
        ("ranges", "{% for x in range(1000000) %}{% endfor %}".into(), "`range`"),
        ("unknown filters", "{{ date | replace('2', 'x') }}".into(), "`replace` is not a filter"),
        ("tests", "{{ date is string }}".into(), "no tests"),
        ("macros", "{% macro x() %}{% endmacro %}".into(), "no `{% macro %}`"),
        ("inheritance", "{% extends '$minke/default' %}".into(), "no `{% extends %}`"),
        ("imports", "{% import '$minke/default' as x %}".into(), "no `{% import %}`"),
        ("an include of a variable", "{% include date %}".into(), "in quotes"),
        ("an include of an expression", "{% include ('$user/x') %}".into(), "in quotes"),
        ("an include of a path", "{% include '/etc/passwd' %}".into(), "/etc/passwd"),
        ("an include out of the shelf", "{% include '$user/../x' %}".into(), "$user/../x"),
        ("an include by escapes", "{% include '$user/\\x2e\\x2e/x' %}".into(), "$user/"),
        ("an include of nothing", "{% include '$user/gone' %}".into(), "no such file"),
        ("an include that may be missing", "{% include '$user/gone' ignore missing %}".into(), "`ignore`"),
        ("bad syntax", "a\n{% if %}".into(), "$user/first:2"),
        ("an open block", "{% if date %}".into(), "syntax"),
        ("an open tag", "{{ date".into(), "$user/first:1"),
        ("an open text", "{{ 'x".into(), "$user/first:1"),
        ("a NUL", "a\nb\0".into(), "$user/first:2: it contains a NUL"),
        (
            "deep parentheses",
            format!("{{{{ {}date{} }}}}", "(".repeat(20_000), ")".repeat(20_000)),
            "in one tag",
        ),
        ("deep negations", format!("{{{{ {}date }}}}", "not ".repeat(15_000)), "in one tag"),
        ("long comparisons", format!("{{{{ date{} }}}}", " or date".repeat(7_000)), "in one tag"),
        ("long chains", format!("{{{{ date{} }}}}", ".x".repeat(30_000)), "in one tag"),
        ("many branches", format!("{{% if false %}}{}{{% endif %}}", "{% elif 0 %}".repeat(5_000)), "`elif`"),
        ("deep blocks", "{% if 1 %}".repeat(6_000), "recursion"),
        ("calls", "{{ date() }}".into(), "$user/first:1"),
        ("methods", "{{ date.upper() }}".into(), "method"),
        ("too long", "x".repeat(65_537), "65537 bytes"),
    ];
    assert!(cases.len() > 30);
    let begin = Instant::now();
    for (case, text, word) in cases {
        let error = render_first(&text, &[("a", "{% include '$user/first' %}")]).map(|text| text.len());
        let error = error.expect_err(case).to_string();
        assert!(error.contains(word), "{case}: `{word}` is missing: {error}");
    }
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[test]
fn includes_that_multiply_end_within_their_steps() {
    let names: Vec<String> = (0..19).map(|at| format!("a{at}")).collect();
    let texts: Vec<String> = (1..20)
        .map(|at| if at == 19 { "x".to_owned() } else { format!("{{% include '$user/a{at}' %}}").repeat(9) })
        .collect();
    let others: Vec<(&str, &str)> =
        names.iter().map(String::as_str).zip(texts.iter().map(String::as_str)).collect();
    let begin = Instant::now();
    let error = render_first("{% include '$user/a0' %}", &others).unwrap_err().to_string();
    assert!(error.contains("steps") || error.contains("bytes"), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
}

#[test]
fn what_is_as_long_as_it_may_be_is_taken() {
    let half = "y".repeat(MAX_INSTRUCTION_BYTES / 2);
    let twice = "{% include '$user/h' %}{% include '$user/h' %}";
    assert_eq!(render_first(twice, &[("h", &half)]).unwrap().len(), MAX_INSTRUCTION_BYTES);
    let more = format!("{twice}z");
    assert!(
        render_first(&more, &[("h", &half)]).unwrap_err().to_string().contains("longer than 131072 bytes")
    );
}
