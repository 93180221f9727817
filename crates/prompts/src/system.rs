//! The system prompt: its parts, in their order.
//!
//! Here: instruction, working boundaries, project instructions, skills and workflows in short. Elsewhere: what an
//! instruction says (`template`, `asset`), who finds the rest (`sources`, `driver`).
//! Invariant: it is short (`the_system_prompt_is_short_and_says_what_holds`) and the same as long as the session and the
//! fence are, so that requests share their prefix; whoever has the prompt and knows the boundaries finds the parts that
//! came from outside in it again (`what_came_from_outside_is_found_again`).

use std::path::Path;

use minke_record::{PodName, Scope};

/// How long the list of skills and workflows is.
pub const KNOWN_CHARS: usize = 2_400;
const BETWEEN: &str = "\n\n";

/// What a pod's first words to its model are made from.
#[derive(Debug, Clone, Copy)]
pub struct Who<'a> {
    pub name: &'a PodName,
    pub cwd: &'a Path,
    pub scope: &'a Scope,
    /// The tier of the fence around commands: `A`, `D` …
    pub fence: &'a str,
    /// Where to commands may connect, in a few words; `off` if nowhere.
    pub network: &'a str,
    /// How this agent is to work, as it was rendered.
    pub instruction: &'a str,
    /// The language in which it speaks; the person's own if absent.
    pub language: Option<&'a str>,
    /// What `project_part` made of the project's instructions.
    pub project: &'a str,
    /// What it could use and is told of in short.
    pub known: &'a [Known],
}

/// Something that an agent can use when it needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// `skill`, `workflow`
    pub kind: &'static str,
    pub name: String,
    pub description: String,
}

/// A part of the system prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub name: &'static str,
    pub text: String,
}

/// The parts that there are, in their order; none is empty.
pub fn parts(who: &Who<'_>) -> Vec<Part> {
    let all = [
        ("instruction", who.instruction.trim_end().to_owned()),
        ("boundaries", boundaries(who)),
        ("project", who.project.to_owned()),
        ("known", known(who.known)),
    ];
    all.into_iter().filter(|(_, text)| !text.is_empty()).map(|(name, text)| Part { name, text }).collect()
}

/// The system prompt of a pod.
pub fn system_prompt(who: &Who<'_>) -> String {
    let texts: Vec<String> = parts(who).into_iter().map(|part| part.text).collect();
    texts.join(BETWEEN)
}

/// What stands before the boundaries and behind them in a prompt that was made for the same pod; only whoever was there
/// knows what it was made from.
pub fn outside<'p>(prompt: &'p str, who: &Who<'_>) -> Option<(&'p str, &'p str)> {
    let boundaries = boundaries(who);
    let mut from = 0;
    while let Some(at) = prompt.get(from..).and_then(|rest| rest.find(&boundaries)) {
        let (before, rest) = prompt.split_at(from + at);
        let behind = rest.strip_prefix(boundaries.as_str()).unwrap_or_default();
        let fits_before = before.is_empty() || before.ends_with(BETWEEN);
        if fits_before && (behind.is_empty() || behind.starts_with(BETWEEN)) {
            let before = before.strip_suffix(BETWEEN).unwrap_or(before);
            return Some((before, behind.strip_prefix(BETWEEN).unwrap_or(behind)));
        }
        from += at + boundaries.len();
    }
    None
}

fn boundaries(who: &Who<'_>) -> String {
    let Who { name, cwd, scope, fence, network, language, .. } = who;
    let fenced = match *fence {
        "D" => "No command can be run on this machine, because nothing holds it to the scope.".to_owned(),
        "off" => "Commands run without a fence, with all rights of the person: be careful.".to_owned(),
        _ => format!(
            "The kernel holds every command to this; network for commands: {network}. What is refused stays refused, \
             so do not look for ways around it: say what you would need."
        ),
    };
    let spoken = language
        .map(|language| format!("\nSpeak {language}, whatever language others use."))
        .unwrap_or_default();
    format!(
        "# Where you are\nYou are the pod `{name}` on {} and work in {}.{spoken}\n\n# What you may touch\n{}. {fenced}",
        std::env::consts::OS,
        cwd.display(),
        scope.summary(),
    )
}

fn known(known: &[Known]) -> String {
    if known.is_empty() {
        return String::new();
    }
    let head = "# Skills and workflows\nEach is there when you need it:";
    let line = |known: &Known| {
        let about = known.description.split_whitespace().collect::<Vec<_>>().join(" ");
        format!("\n- {} `{}`: {about}", known.kind, known.name)
    };
    let left_out = |number: usize| format!("\n({number} more are left out here)");
    let room = KNOWN_CHARS - head.chars().count() - left_out(usize::MAX).chars().count();
    let (mut part, mut chars, mut taken) = (head.to_owned(), 0, 0);
    for one in known {
        let line = line(one);
        chars += line.chars().count();
        if chars > room {
            break;
        }
        part.push_str(&line);
        taken += 1;
    }
    if taken < known.len() {
        part.push_str(&left_out(known.len() - taken));
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who<'a>(name: &'a PodName, scope: &'a Scope) -> Who<'a> {
        Who {
            name,
            cwd: Path::new("/project"),
            scope,
            fence: "A",
            network: "off",
            instruction: "Sing.",
            language: None,
            project: "",
            known: &[],
        }
    }

    #[test]
    fn the_parts_come_in_their_order() {
        let (name, scope) = ("tale".parse().unwrap(), Scope::write("/project"));
        let known =
            [Known { kind: "skill", name: "pdf".to_owned(), description: "reads\n  PDFs".to_owned() }];
        let who = Who { project: "# Instructions\nBe kind.", known: &known, ..who(&name, &scope) };
        let names: Vec<&str> = parts(&who).iter().map(|part| part.name).collect();
        assert_eq!(names, ["instruction", "boundaries", "project", "known"]);
        let prompt = system_prompt(&who);
        assert!(prompt.starts_with("Sing.\n\n# Where you are\nYou are the pod `tale`"), "{prompt}");
        assert!(prompt.ends_with(
            "Be kind.\n\n# Skills and workflows\nEach is there when you need it:\n- skill `pdf`: reads PDFs"
        ));
        let french = system_prompt(&Who { language: Some("French"), ..who });
        assert!(french.contains("Speak French") && !prompt.contains("Speak"), "{french}");
    }

    #[test]
    fn what_can_be_used_is_listed_within_its_bound() {
        let (name, scope) = ("tale".parse().unwrap(), Scope::write("/project"));
        let one = Known { kind: "workflow", name: "w".repeat(30), description: "ä".repeat(70) };
        let many = vec![one; 40];
        let part = parts(&Who { known: &many, ..who(&name, &scope) }).pop().unwrap().text;
        assert!(part.chars().count() <= KNOWN_CHARS, "{}", part.chars().count());
        let listed = part.matches("- workflow").count();
        assert!(
            listed > 15 && part.ends_with(&format!("({} more are left out here)", 40 - listed)),
            "{part}"
        );
        let huge = [Known { kind: "skill", name: "x".to_owned(), description: "y".repeat(KNOWN_CHARS) }];
        let part = parts(&Who { known: &huge, ..who(&name, &scope) }).pop().unwrap().text;
        assert!(part.ends_with("(1 more are left out here)") && part.chars().count() <= KNOWN_CHARS);
    }

    #[test]
    fn what_came_from_outside_is_found_again() {
        let (name, scope) = ("tale".parse().unwrap(), Scope::write("/project"));
        let plain = who(&name, &scope);
        for (instruction, project) in
            [("Sing.", ""), ("", "# I\nBe.\n\n# x"), ("A\n\n# Where you are\nB", "C")]
        {
            let prompt = system_prompt(&Who { instruction, project, ..plain });
            assert_eq!(outside(&prompt, &plain), Some((instruction, project)));
        }
        // Who writes the boundaries into a file is not believed.
        let own = boundaries(&plain);
        let prompt = system_prompt(&Who { instruction: &format!("x{own}y"), ..plain });
        assert_eq!(outside(&prompt, &plain), Some((format!("x{own}y").as_str(), "")));
        assert_eq!(outside("Something else", &plain), None);
        let other = "other".parse().unwrap();
        assert_eq!(outside(&system_prompt(&plain), &who(&other, &scope)), None);
    }
}
