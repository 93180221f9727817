//! Sandbox checks: features of the kernel, a real test of each backend, the backend that pods get here, its
//! open risks, and steps to enable a better one.
//!
//! Elsewhere: the tests of the backends (`exec::probe`), the kernel settings (`kernel`).

use std::path::Path;
use std::time::Duration;

use minke_exec::probe::{BackendReport, ProbeReport, cache_backend_in, probe_backends};
use minke_exec::sandbox::HelperBinary;
use minke_policy::{SandboxBackend, default_posture};
use serde_json::{Value, json};

use super::kernel::KernelSettings;
use super::{Finding, Inspection};

/// Oldest Landlock ABI that the `landlock` backend supports.
const LANDLOCK_MIN_ABI: u32 = 3;
/// From this ABI on, a command cannot signal processes outside its sandbox.
const LANDLOCK_SIGNAL_ABI: u32 = 6;

/// Tests every backend, ignoring the cache, and stores the result for the pods of this runtime directory.
pub(super) fn inspect_sandbox(runtime: &Path) -> Inspection {
    let (report, switches) = (probe_backends(), KernelSettings::from_proc());
    cache_backend_in(&HelperBinary::default(), runtime, report.best);
    let binary =
        std::env::current_exe().map_or_else(|_| "minke".to_owned(), |path| path.display().to_string());
    Inspection {
        findings: build_findings(&report, &switches, &binary),
        value: report_json(&report, &switches, &binary),
    }
}

fn report_json(report: &ProbeReport, switches: &KernelSettings, binary: &str) -> Value {
    let backend = |tested: &BackendReport| json!({ "backend": tested.backend.as_str(), "works": tested.works, "why": tested.why, "ms": to_millis(tested.took) });
    json!({
        "backend": report.best.as_str(),
        "commands": report.best.can_run_commands(),
        "default_posture": default_posture(report.best).as_str(),
        "kernel": report.kernel,
        "landlock_abi": report.landlock_abi,
        "userns": report.user_namespaces.is_ok(),
        "seccomp": report.seccomp,
        "bwrap": report.bwrap.as_ref().map(|path| path.display().to_string()),
        "switches": switches.to_json(),
        "backends": report.backends.iter().map(backend).collect::<Value>(),
        "leaves_open": open_risks(report.best, report.landlock_abi).iter().map(|(what, _)| *what).collect::<Value>(),
        "to_do": upgrade_steps(report, switches, binary),
    })
}

/// Returns milliseconds with one decimal.
fn to_millis(elapsed: Duration) -> f64 {
    (elapsed.as_secs_f64() * 10_000.0).round() / 10.0
}

fn build_findings(report: &ProbeReport, switches: &KernelSettings, binary: &str) -> Vec<Finding> {
    let mut findings = vec![kernel_finding(report, switches)];
    // Skip backends of another operating system.
    let could =
        |tested: &&BackendReport| (tested.backend == SandboxBackend::Seatbelt) == cfg!(target_os = "macos");
    findings.extend(report.backends.iter().filter(could).map(|tried| backend_finding(tried, report)));
    let (best, todo) = (report.best, upgrade_steps(report, switches, binary));
    let posture = default_posture(best).as_str();
    findings.push(match best {
        SandboxBackend::Namespaces | SandboxBackend::Bubblewrap | SandboxBackend::Seatbelt => Finding::good(
            "commands",
            format!("sandboxed ({best}): the kernel confines them to the scope; default posture `{posture}`"),
        ),
        SandboxBackend::Landlock => Finding::note(
            "commands",
            format!("sandboxed ({best}); default posture `{posture}`, because some risks stay open (below)"),
            todo.join("\n"),
        ),
        SandboxBackend::Unavailable | SandboxBackend::Off => Finding::problem(
            "commands",
            "no sandbox is available: Bash, stdio MCP servers and helpers of hooks are not offered",
            format!(
                "{}\nor start a pod with --unsandboxed, on a machine where everything may be lost",
                todo.join("\n")
            ),
        ),
    });
    findings.extend(
        open_risks(best, report.landlock_abi)
            .into_iter()
            .map(|(what, hint)| Finding::note("left open", what, hint)),
    );
    findings
}

fn kernel_finding(report: &ProbeReport, switches: &KernelSettings) -> Finding {
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

fn backend_finding(tested: &BackendReport, report: &ProbeReport) -> Finding {
    let (name, best) = (tested.backend.as_str(), report.best);
    if tested.works {
        return Finding::good(name, format!("works ({} ms)", to_millis(tested.took)));
    }
    let no_bwrap = tested.backend == SandboxBackend::Bubblewrap && report.bwrap.is_none();
    let why = if no_bwrap { "bwrap is not installed" } else { &tested.why };
    let hint = if best.enforces_scope() {
        format!("nothing to do: `{best}` works and is as strong")
    } else {
        "see `commands` below".to_owned()
    };
    Finding::note(name, format!("does not work: {why}"), hint)
}

/// Returns the open risks of a backend, each with a hint.
fn open_risks(backend: SandboxBackend, landlock_abi: u32) -> Vec<(&'static str, &'static str)> {
    match backend {
        SandboxBackend::Namespaces | SandboxBackend::Bubblewrap | SandboxBackend::Unavailable => Vec::new(),
        SandboxBackend::Seatbelt => {
            vec![("commands see other processes", "nothing to do: they cannot signal ours")]
        }
        SandboxBackend::Off => vec![("everything", "omit --unsandboxed")],
        SandboxBackend::Landlock => vec![
            (
                "commands may change modes, times and attributes of files outside the scope that you own",
                "approve only commands that you know",
            ),
            (
                "protected names (.git/hooks, .minke …) are guarded by the file tools only, not against commands",
                "check them before you use git after a run: `git diff` does not show them",
            ),
            if landlock_abi < LANDLOCK_SIGNAL_ABI {
                ("commands see other processes and may signal yours", "Linux 6.12 prevents the signals")
            } else {
                ("commands see other processes", "nothing to do: they cannot signal them")
            },
            (
                "a scope with a deny or a loan inside a write grant cannot be enforced: Bash is refused there",
                "give a pod that needs commands a scope without them",
            ),
            (
                "hosts granted with `sandbox.network` are refused: commands could not be limited to them",
                "keep `sandbox.network` off, or enable the backend `namespaces`",
            ),
        ],
    }
}

/// Returns the steps that enable the `namespaces` backend.
fn upgrade_steps(report: &ProbeReport, switches: &KernelSettings, binary: &str) -> Vec<String> {
    if report.best.enforces_scope() {
        return Vec::new();
    }
    let mut todo = Vec::new();
    if switches.max_user_namespaces == Some(0) {
        todo.push(sysctl_hint("user.max_user_namespaces=15000", "user namespaces are switched off"));
    }
    if switches.unprivileged_userns_clone == Some(0) {
        let why = "only root may make user namespaces";
        todo.push(sysctl_hint("kernel.unprivileged_userns_clone=1", why));
    }
    if switches.apparmor_restricts_userns.is_some_and(|on| on != 0) {
        let mut text = format!(
            "AppArmor denies user namespaces to programs without a profile: give {binary} one \
             (see docs/reference/doctor.md)"
        );
        if report.bwrap.is_none() {
            text.push_str(", or install bubblewrap with its profile, for the backend `bubblewrap`");
        }
        todo.push(text);
    }
    if report.landlock_abi == 0 {
        let modules = switches.security_modules.as_deref().unwrap_or("those that are active");
        todo.push(format!(
            "Landlock is off: it needs Linux 5.13 or later and `landlock` among the security modules: boot with \
             lsm=landlock,{modules}"
        ));
    } else if report.landlock_abi < LANDLOCK_MIN_ABI {
        todo.push(format!(
            "Landlock {} is too old for the backend `landlock`: Linux 6.2 or later has {LANDLOCK_MIN_ABI}",
            report.landlock_abi
        ));
    }
    if !report.seccomp {
        todo.push("seccomp filters are missing: use a kernel with CONFIG_SECCOMP_FILTER".to_owned());
    }
    if switches.container && !namespaces_work(report) {
        todo.push(
            "this is a container, whose own rules may forbid namespaces: allow them there (Docker: --security-opt \
             seccomp=unconfined), or run minke outside"
                .to_owned(),
        );
    }
    if todo.is_empty() {
        let a = report
            .backends
            .iter()
            .find(|tested| tested.backend == SandboxBackend::Namespaces)
            .map_or("", |tried| &tried.why);
        todo.push(format!("fix the cause of the failure of `namespaces`: {a}"));
    }
    todo
}

fn namespaces_work(report: &ProbeReport) -> bool {
    report.backends.iter().any(|tested| tested.backend == SandboxBackend::Namespaces && tested.works)
}

fn sysctl_hint(setting: &str, why: &str) -> String {
    format!("{why}: `sudo sysctl -w {setting}`, and keep it in /etc/sysctl.d/minke.conf")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKENDS: [SandboxBackend; 4] = [
        SandboxBackend::Namespaces,
        SandboxBackend::Bubblewrap,
        SandboxBackend::Landlock,
        SandboxBackend::Seatbelt,
    ];

    /// A machine on which these backends work.
    fn sample_report(works: &[SandboxBackend]) -> ProbeReport {
        let tested = |backend| BackendReport {
            backend,
            works: works.contains(&backend),
            why: if works.contains(&backend) { String::new() } else { format!("cannot make {backend}") },
            took: Duration::from_micros(5_250),
        };
        ProbeReport {
            backends: BACKENDS.into_iter().map(tested).collect(),
            best: works.first().copied().unwrap_or(SandboxBackend::Unavailable),
            kernel: "6.1.0".to_owned(),
            landlock_abi: 4,
            user_namespaces: if works.contains(&SandboxBackend::Namespaces) {
                Ok(())
            } else {
                Err("a switch".to_owned())
            },
            seccomp: true,
            bwrap: None,
        }
    }

    fn findings_text(report: &ProbeReport, switches: &KernelSettings) -> String {
        let lines = |finding: &Finding| finding.to_lines(10);
        build_findings(report, switches, "/opt/minke").iter().map(lines).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_machine_with_everything_has_nothing_to_be_done() {
        let text = findings_text(
            &sample_report(&[SandboxBackend::Namespaces, SandboxBackend::Landlock]),
            &KernelSettings::default(),
        );
        assert!(text.contains("namespaces  works (5.3 ms)"), "{text}");
        assert!(text.contains("default posture `auto`"), "{text}");
        assert!(text.contains("does not work: bwrap is not installed"), "{text}");
        let there = ProbeReport {
            bwrap: Some("/usr/bin/bwrap".into()),
            ..sample_report(&[SandboxBackend::Namespaces])
        };
        let said = findings_text(&there, &KernelSettings::default());
        assert!(said.contains("does not work: cannot make bubblewrap"), "{said}");
        assert!(!said.contains("FIX") && !said.contains("left open"), "{said}");
    }

    #[test]
    fn landlock_says_what_it_leaves_open_and_how_to_get_namespaces() {
        let switches = KernelSettings { max_user_namespaces: Some(0), ..KernelSettings::default() };
        let text = findings_text(&sample_report(&[SandboxBackend::Landlock]), &switches);
        assert!(text.contains("default posture `ask`"), "{text}");
        assert!(text.contains("sudo sysctl -w user.max_user_namespaces=15000"), "{text}");
        assert_eq!(text.matches("left open").count(), 5, "{text}");
        assert!(text.contains("may signal yours"), "{text}");
        assert!(!text.contains("FIX"), "{text}");
        let newer = ProbeReport { landlock_abi: 6, ..sample_report(&[SandboxBackend::Landlock]) };
        assert!(!findings_text(&newer, &switches).contains("may signal yours"));
    }

    #[test]
    fn each_reason_has_its_remedy() {
        let off = KernelSettings::default;
        let cases = [
            (KernelSettings { unprivileged_userns_clone: Some(0), ..off() }, "unprivileged_userns_clone=1"),
            (KernelSettings { apparmor_restricts_userns: Some(1), ..off() }, "give /opt/minke one"),
            (KernelSettings { container: true, ..off() }, "--security-opt"),
            (off(), "fix the cause of the failure of `namespaces`: cannot make namespaces"),
        ];
        for (switches, wanted) in cases {
            let text = findings_text(&sample_report(&[SandboxBackend::Landlock]), &switches);
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
    }

    #[test]
    fn a_machine_with_nothing_is_a_problem_that_says_what_to_do() {
        let bare = ProbeReport { landlock_abi: 0, seccomp: false, ..sample_report(&[]) };
        let switches = KernelSettings {
            security_modules: Some("capability,yama".to_owned()),
            ..KernelSettings::default()
        };
        let text = findings_text(&bare, &switches);
        for wanted in
            ["FIX   commands", "lsm=landlock,capability,yama", "CONFIG_SECCOMP_FILTER", "--unsandboxed"]
        {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        let old = ProbeReport { landlock_abi: 2, ..sample_report(&[]) };
        assert!(findings_text(&old, &switches).contains("Linux 6.2"));
    }
}
