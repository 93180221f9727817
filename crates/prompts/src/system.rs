//! The system prompt: its parts in their order.
//!
//! Parts: instruction, boundaries, project instructions, the list of skills and workflows. Elsewhere:
//! instructions (`template`, `asset`), their inputs (`sources`, `driver`).
//! Invariant: it is short (`the_system_prompt_is_short_and_says_what_holds`) and constant while session and
//! sandbox are the same, so that requests share their prefix. The external parts can be extracted again by
//! the known boundaries (`what_came_from_outside_is_found_again`).

use std::path::Path;

use minke_record::{PodName, Scope};

/// Maximum length of the list of skills and workflows.
pub const MAX_SKILLS_CHARS: usize = 2_400;
const PART_SEPARATOR: &str = "\n\n";

/// The inputs of a system prompt.
#[derive(Debug, Clone, Copy)]
pub struct PromptInputs<'a> {
    pub name: &'a PodName,
    pub cwd: &'a Path,
    pub scope: &'a Scope,
    /// The sandbox backend of commands: `A`, `D` …
    pub sandbox_backend: &'a str,
    /// The hosts that commands may connect to; `off` if none.
    pub network: &'a str,
    /// The rendered instruction of the agent.
    pub instruction: &'a str,
    /// The language of the agent; the user's language if absent.
    pub language: Option<&'a str>,
    /// The project instructions from `project_section`.
    pub project: &'a str,
    /// Skills and workflows to list.
    pub skills: &'a [ListedSkill],
}

/// A skill or workflow that the agent can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSkill {
    /// `skill`, `workflow`
    pub kind: &'static str,
    pub name: String,
    pub description: String,
}

/// A part of the system prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptPart {
    pub name: &'static str,
    pub text: String,
}

/// Returns the non-empty parts in their order.
pub fn prompt_parts(inputs: &PromptInputs<'_>) -> Vec<PromptPart> {
    let all = [
        ("instruction", inputs.instruction.trim_end().to_owned()),
        ("boundaries", boundaries_text(inputs)),
        ("project", inputs.project.to_owned()),
        ("known", skills_text(inputs.skills)),
    ];
    all.into_iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(name, text)| PromptPart { name, text })
        .collect()
}

/// Returns the system prompt of a pod.
pub fn system_prompt(who: &PromptInputs<'_>) -> String {
    let texts: Vec<String> = prompt_parts(who).into_iter().map(|part| part.text).collect();
    texts.join(PART_SEPARATOR)
}

/// Returns the text before and after the boundaries of a prompt that was made with the same inputs.
pub fn split_at_boundaries<'p>(prompt: &'p str, inputs: &PromptInputs<'_>) -> Option<(&'p str, &'p str)> {
    let boundaries = boundaries_text(inputs);
    let mut from = 0;
    while let Some(at) = prompt.get(from..).and_then(|rest| rest.find(&boundaries)) {
        let (before, rest) = prompt.split_at(from + at);
        let behind = rest.strip_prefix(boundaries.as_str()).unwrap_or_default();
        let fits_before = before.is_empty() || before.ends_with(PART_SEPARATOR);
        if fits_before && (behind.is_empty() || behind.starts_with(PART_SEPARATOR)) {
            let before = before.strip_suffix(PART_SEPARATOR).unwrap_or(before);
            return Some((before, behind.strip_prefix(PART_SEPARATOR).unwrap_or(behind)));
        }
        from += at + boundaries.len();
    }
    None
}

fn boundaries_text(inputs: &PromptInputs<'_>) -> String {
    let PromptInputs { name, cwd, scope, sandbox_backend, network, language, .. } = inputs;
    let sandbox_text = match *sandbox_backend {
        "none" => {
            "Commands cannot run on this machine, because no sandbox can limit them to the scope.".to_owned()
        }
        "off" => "Commands run without a sandbox, with all rights of the user: be careful.".to_owned(),
        _ => format!(
            "The kernel limits every command to this; network for commands: {network}. A refusal is final, \
             so do not look for ways around it: name the access that you need."
        ),
    };
    let language_text = language
        .map(|language| format!("\nSpeak {language}, whatever language others use."))
        .unwrap_or_default();
    format!(
        "# Where you are\nYou are the pod `{name}` on {} and work in {}.{language_text}\n\n# What you may touch\n{}. {sandbox_text}",
        std::env::consts::OS,
        cwd.display(),
        scope.summary(),
    )
}

fn skills_text(known: &[ListedSkill]) -> String {
    if known.is_empty() {
        return String::new();
    }
    let head = "# Skills and workflows\nUse them when you need them:";
    let line = |known: &ListedSkill| {
        let about = known.description.split_whitespace().collect::<Vec<_>>().join(" ");
        format!("\n- {} `{}`: {about}", known.kind, known.name)
    };
    let left_out = |number: usize| format!("\n({number} more are left out here)");
    let room = MAX_SKILLS_CHARS - head.chars().count() - left_out(usize::MAX).chars().count();
    let (mut part, mut chars, mut listed) = (head.to_owned(), 0, 0);
    for one in known {
        let line = line(one);
        chars += line.chars().count();
        if chars > room {
            break;
        }
        part.push_str(&line);
        listed += 1;
    }
    if listed < known.len() {
        part.push_str(&left_out(known.len() - listed));
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_inputs<'a>(name: &'a PodName, scope: &'a Scope) -> PromptInputs<'a> {
        PromptInputs {
            name,
            cwd: Path::new("/project"),
            scope,
            sandbox_backend: "namespaces",
            network: "off",
            instruction: "Sing.",
            language: None,
            project: "",
            skills: &[],
        }
    }

    #[test]
    fn the_parts_come_in_their_order() {
        let (name, scope) = ("tale".parse().unwrap(), Scope::writable("/project"));
        let known =
            [ListedSkill { kind: "skill", name: "pdf".to_owned(), description: "reads\n  PDFs".to_owned() }];
        let inputs = PromptInputs {
            project: "# Instructions\nBe kind.",
            skills: &known,
            ..test_inputs(&name, &scope)
        };
        let names: Vec<&str> = prompt_parts(&inputs).iter().map(|part| part.name).collect();
        assert_eq!(names, ["instruction", "boundaries", "project", "known"]);
        let prompt = system_prompt(&inputs);
        assert!(prompt.starts_with("Sing.\n\n# Where you are\nYou are the pod `tale`"), "{prompt}");
        assert!(prompt.ends_with(
            "Be kind.\n\n# Skills and workflows\nUse them when you need them:\n- skill `pdf`: reads PDFs"
        ));
        let french = system_prompt(&PromptInputs { language: Some("French"), ..inputs });
        assert!(french.contains("Speak French") && !prompt.contains("Speak"), "{french}");
    }

    #[test]
    fn what_can_be_used_is_listed_within_its_bound() {
        let (name, scope) = ("tale".parse().unwrap(), Scope::writable("/project"));
        let one = ListedSkill { kind: "workflow", name: "w".repeat(30), description: "ä".repeat(70) };
        let many = vec![one; 40];
        let part =
            prompt_parts(&PromptInputs { skills: &many, ..test_inputs(&name, &scope) }).pop().unwrap().text;
        assert!(part.chars().count() <= MAX_SKILLS_CHARS, "{}", part.chars().count());
        let listed = part.matches("- workflow").count();
        assert!(
            listed > 15 && part.ends_with(&format!("({} more are left out here)", 40 - listed)),
            "{part}"
        );
        let huge =
            [ListedSkill { kind: "skill", name: "x".to_owned(), description: "y".repeat(MAX_SKILLS_CHARS) }];
        let part =
            prompt_parts(&PromptInputs { skills: &huge, ..test_inputs(&name, &scope) }).pop().unwrap().text;
        assert!(part.ends_with("(1 more are left out here)") && part.chars().count() <= MAX_SKILLS_CHARS);
    }

    #[test]
    fn what_came_from_outside_is_found_again() {
        let (name, scope) = ("tale".parse().unwrap(), Scope::writable("/project"));
        let plain = test_inputs(&name, &scope);
        for (instruction, project) in
            [("Sing.", ""), ("", "# I\nBe.\n\n# x"), ("A\n\n# Where you are\nB", "C")]
        {
            let prompt = system_prompt(&PromptInputs { instruction, project, ..plain });
            assert_eq!(split_at_boundaries(&prompt, &plain), Some((instruction, project)));
        }
        // A file that contains the boundaries does not confuse the split.
        let own = boundaries_text(&plain);
        let prompt = system_prompt(&PromptInputs { instruction: &format!("x{own}y"), ..plain });
        assert_eq!(split_at_boundaries(&prompt, &plain), Some((format!("x{own}y").as_str(), "")));
        assert_eq!(split_at_boundaries("Something else", &plain), None);
        let other = "other".parse().unwrap();
        assert_eq!(split_at_boundaries(&system_prompt(&plain), &test_inputs(&other, &scope)), None);
    }
}
