//! Fences: what the kernel offers, each tier tried for real, which one pods get here, what it leaves open, and what to do
//! to get a better one.
//!
//! Elsewhere: the trying (`exec::probe`), the kernel's switches (`kernel`).

use std::path::Path;
use std::time::Duration;

use minke_exec::fence::Helper;
use minke_exec::probe::{Report, TierReport, probe, remember_in};
use minke_policy::{Tier, default_posture};
use serde_json::{Value, json};

use super::kernel::Switches;
use super::{Finding, Looked};

/// What tier B needs at least.
const LANDLOCK_FOR_B: u32 = 3;
/// From here on a command cannot signal what is outside.
const LANDLOCK_WITH_SIGNALS: u32 = 6;

/// Tries for real, whatever is remembered, and has the pods of this runtime directory remember what was seen.
pub(super) fn look(runtime: &Path) -> Looked {
    let (report, switches) = (probe(), Switches::read());
    remember_in(&Helper::default(), runtime, report.best);
    let binary =
        std::env::current_exe().map_or_else(|_| "minke".to_owned(), |path| path.display().to_string());
    Looked { findings: findings(&report, &switches, &binary), value: value(&report, &switches, &binary) }
}

fn value(report: &Report, switches: &Switches, binary: &str) -> Value {
    let tier = |tried: &TierReport| json!({ "tier": tried.tier.as_str(), "works": tried.works, "why": tried.why, "ms": millis(tried.took) });
    json!({
        "tier": report.best.as_str(),
        "commands": report.best.offers_commands(),
        "default_posture": default_posture(report.best).as_str(),
        "kernel": report.kernel,
        "landlock_abi": report.landlock_abi,
        "userns": report.user_namespaces.is_ok(),
        "seccomp": report.seccomp,
        "bwrap": report.bwrap.as_ref().map(|path| path.display().to_string()),
        "switches": switches.json(),
        "tiers": report.tiers.iter().map(tier).collect::<Value>(),
        "leaves_open": left_open(report.best, report.landlock_abi).iter().map(|(what, _)| *what).collect::<Value>(),
        "to_do": to_get_a(report, switches, binary),
    })
}

/// Milliseconds with one digit after the point.
fn millis(took: Duration) -> f64 {
    (took.as_secs_f64() * 10_000.0).round() / 10.0
}

fn findings(report: &Report, switches: &Switches, binary: &str) -> Vec<Finding> {
    let mut findings = vec![kernel(report, switches)];
    // What only another system could have is no finding.
    let could = |tried: &&TierReport| (tried.tier == Tier::C) == cfg!(target_os = "macos");
    findings.extend(report.tiers.iter().filter(could).map(|tried| tier(tried, report)));
    let (best, todo) = (report.best, to_get_a(report, switches, binary));
    let posture = default_posture(best).as_str();
    findings.push(match best {
        Tier::A | Tier::APrime | Tier::C => Finding::good(
            "commands",
            format!("fenced by tier {best}: the kernel holds them to the scope; default posture `{posture}`"),
        ),
        Tier::B => Finding::note(
            "commands",
            format!("fenced by tier B; default posture `{posture}`, as it leaves something open (below)"),
            todo.join("\n"),
        ),
        Tier::D | Tier::Off => Finding::problem(
            "commands",
            "nothing holds a command here: Bash, stdio MCP servers and hooks' helpers are not offered",
            format!(
                "{}\nor, where everything on this machine may be lost, start a pod with --unsandboxed",
                todo.join("\n")
            ),
        ),
    });
    findings.extend(
        left_open(best, report.landlock_abi)
            .into_iter()
            .map(|(what, hint)| Finding::note("left open", what, hint)),
    );
    findings
}

fn kernel(report: &Report, switches: &Switches) -> Finding {
    let on = |on: bool| if on { "on" } else { "off" };
    let mut words = vec![
        format!("{} {}", rustix::system::uname().sysname().to_string_lossy(), report.kernel),
        match report.landlock_abi {
            0 => "no Landlock".to_owned(),
            abi => format!("Landlock {abi}"),
        },
        match &report.user_namespaces {
            Ok(()) => "user namespaces on".to_owned(),
            Err(why) => format!("no user namespaces ({why})"),
        },
        format!("seccomp {}", on(report.seccomp)),
    ];
    words.push(match &report.bwrap {
        Some(path) => format!("{}", path.display()),
        None => "no bwrap".to_owned(),
    });
    words.extend(switches.ptrace_scope.map(|scope| format!("ptrace scope {scope}")));
    Finding::good("kernel", words.join(", "))
}

fn tier(tried: &TierReport, report: &Report) -> Finding {
    let (name, best) = (format!("tier {}", tried.tier), report.best);
    if tried.works {
        return Finding::good(&name, format!("works ({} ms)", millis(tried.took)));
    }
    let no_bwrap = tried.tier == Tier::APrime && report.bwrap.is_none();
    let why = if no_bwrap { "bwrap is not installed" } else { &tried.why };
    let hint = if best.holds() {
        format!("nothing to do: tier {best} works and holds the same")
    } else {
        "see `commands` below".to_owned()
    };
    Finding::note(&name, format!("does not work: {why}"), hint)
}

/// What a tier leaves open, each with what to do about it.
fn left_open(tier: Tier, landlock_abi: u32) -> Vec<(&'static str, &'static str)> {
    match tier {
        Tier::A | Tier::APrime | Tier::D => Vec::new(),
        Tier::C => vec![("commands see other processes", "nothing to do: they cannot signal ours")],
        Tier::Off => vec![("everything", "leave --unsandboxed out")],
        Tier::B => vec![
            (
                "commands may change modes, times and attributes of files outside the scope that you own",
                "approve a command only if you know it",
            ),
            (
                "protected names (.git/hooks, .minke …) are held by the file tools only, not against commands",
                "look at them before you use git after a run: `git diff` does not show them",
            ),
            if landlock_abi < LANDLOCK_WITH_SIGNALS {
                ("commands see other processes and may signal yours", "Linux 6.12 closes the second half")
            } else {
                ("commands see other processes", "nothing to do: they cannot signal them")
            },
            (
                "a scope with a deny or a loan inside a write grant cannot be held: Bash is refused there",
                "give such a pod a scope without them if it needs commands",
            ),
            (
                "hosts granted with `sandbox.network` are refused: nothing would hold a command to them",
                "leave `sandbox.network` off, or get tier A",
            ),
        ],
    }
}

/// What a person can do so that tier A works.
fn to_get_a(report: &Report, switches: &Switches, binary: &str) -> Vec<String> {
    if report.best.holds() {
        return Vec::new();
    }
    let mut todo = Vec::new();
    if switches.max_user_namespaces == Some(0) {
        todo.push(sysctl("user.max_user_namespaces=15000", "user namespaces are switched off"));
    }
    if switches.unprivileged_userns_clone == Some(0) {
        let why = "only root may make user namespaces";
        todo.push(sysctl("kernel.unprivileged_userns_clone=1", why));
    }
    if switches.apparmor_restricts_userns.is_some_and(|on| on != 0) {
        let mut text = format!(
            "AppArmor keeps programs without a profile from user namespaces: give {binary} one \
             (docs/reference/doctor.md has it)"
        );
        if report.bwrap.is_none() {
            text.push_str(", or install bubblewrap with its profile, for tier A\u{2032}");
        }
        todo.push(text);
    }
    if report.landlock_abi == 0 {
        let modules = switches.security_modules.as_deref().unwrap_or("those that are active");
        todo.push(format!(
            "Landlock is off: it needs Linux 5.13 or later and `landlock` among the security modules: boot with \
             lsm=landlock,{modules}"
        ));
    } else if report.landlock_abi < LANDLOCK_FOR_B {
        todo.push(format!(
            "Landlock {} is too old for tier B: Linux 6.2 or later has {LANDLOCK_FOR_B}",
            report.landlock_abi
        ));
    }
    if !report.seccomp {
        todo.push("seccomp filters are missing: use a kernel with CONFIG_SECCOMP_FILTER".to_owned());
    }
    if switches.container && !a_works(report) {
        todo.push(
            "this is a container, whose own rules may forbid namespaces: allow them there (Docker: --security-opt \
             seccomp=unconfined), or run minke outside"
                .to_owned(),
        );
    }
    if todo.is_empty() {
        let a = report.tiers.iter().find(|tried| tried.tier == Tier::A).map_or("", |tried| &tried.why);
        todo.push(format!("put right what stopped tier A: {a}"));
    }
    todo
}

fn a_works(report: &Report) -> bool {
    report.tiers.iter().any(|tried| tried.tier == Tier::A && tried.works)
}

fn sysctl(setting: &str, why: &str) -> String {
    format!("{why}: `sudo sysctl -w {setting}`, and keep it in /etc/sysctl.d/minke.conf")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIERS: [Tier; 4] = [Tier::A, Tier::APrime, Tier::B, Tier::C];

    /// A machine on which these tiers work.
    fn machine(works: &[Tier]) -> Report {
        let tried = |tier| TierReport {
            tier,
            works: works.contains(&tier),
            why: if works.contains(&tier) { String::new() } else { format!("cannot make {tier}") },
            took: Duration::from_micros(5_250),
        };
        Report {
            tiers: TIERS.into_iter().map(tried).collect(),
            best: works.first().copied().unwrap_or(Tier::D),
            kernel: "6.1.0".to_owned(),
            landlock_abi: 4,
            user_namespaces: if works.contains(&Tier::A) { Ok(()) } else { Err("a switch".to_owned()) },
            seccomp: true,
            bwrap: None,
        }
    }

    fn text(report: &Report, switches: &Switches) -> String {
        let lines = |finding: &Finding| finding.lines(10);
        findings(report, switches, "/opt/minke").iter().map(lines).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_machine_with_everything_has_nothing_to_be_done() {
        let said = text(&machine(&[Tier::A, Tier::B]), &Switches::default());
        assert!(said.contains("tier A      works (5.3 ms)"), "{said}");
        assert!(said.contains("default posture `auto`"), "{said}");
        assert!(said.contains("does not work: bwrap is not installed"), "{said}");
        let there = Report { bwrap: Some("/usr/bin/bwrap".into()), ..machine(&[Tier::A]) };
        let said = text(&there, &Switches::default());
        assert!(said.contains("does not work: cannot make A\u{2032}"), "{said}");
        assert!(!said.contains("FIX") && !said.contains("left open"), "{said}");
    }

    #[test]
    fn tier_b_says_what_it_leaves_open_and_how_to_get_a() {
        let switches = Switches { max_user_namespaces: Some(0), ..Switches::default() };
        let said = text(&machine(&[Tier::B]), &switches);
        assert!(said.contains("default posture `ask`"), "{said}");
        assert!(said.contains("sudo sysctl -w user.max_user_namespaces=15000"), "{said}");
        assert_eq!(said.matches("left open").count(), 5, "{said}");
        assert!(said.contains("may signal yours"), "{said}");
        assert!(!said.contains("FIX"), "{said}");
        let newer = Report { landlock_abi: 6, ..machine(&[Tier::B]) };
        assert!(!text(&newer, &switches).contains("may signal yours"));
    }

    #[test]
    fn each_reason_has_its_remedy() {
        let off = Switches::default;
        let cases = [
            (Switches { unprivileged_userns_clone: Some(0), ..off() }, "unprivileged_userns_clone=1"),
            (Switches { apparmor_restricts_userns: Some(1), ..off() }, "give /opt/minke one"),
            (Switches { container: true, ..off() }, "--security-opt"),
            (off(), "put right what stopped tier A: cannot make A"),
        ];
        for (switches, wanted) in cases {
            let said = text(&machine(&[Tier::B]), &switches);
            assert!(said.contains(wanted), "{wanted}: {said}");
        }
    }

    #[test]
    fn a_machine_with_nothing_is_a_problem_that_says_what_to_do() {
        let bare = Report { landlock_abi: 0, seccomp: false, ..machine(&[]) };
        let switches =
            Switches { security_modules: Some("capability,yama".to_owned()), ..Switches::default() };
        let said = text(&bare, &switches);
        for wanted in
            ["FIX   commands", "lsm=landlock,capability,yama", "CONFIG_SECCOMP_FILTER", "--unsandboxed"]
        {
            assert!(said.contains(wanted), "{wanted}: {said}");
        }
        let old = Report { landlock_abi: 2, ..machine(&[]) };
        assert!(text(&old, &switches).contains("Linux 6.2"));
    }
}
