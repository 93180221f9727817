//! Panic hook: a panic is a bug in Minke. Writes a report file and prints its path.

use std::backtrace::Backtrace;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::panic::PanicHookInfo;
use std::path::{Path, PathBuf};

use minke_secrets::mask_keys;

use crate::context::{CliContext, now_millis};
use crate::output::sanitize_text;

/// Installs a hook that writes panic reports to `<state>/reports`.
pub(crate) fn install_hook(context: &CliContext) {
    let reports = context.find_paths().ok().map(|paths| paths.state.join("reports"));
    std::panic::set_hook(Box::new(move |info| {
        let report = panic_report(info);
        let said = match reports.as_deref().map(|dir| write_report(dir, &report)) {
            Some(Ok(path)) => format!("the report is in {}", path.display()),
            // Print it instead; the stderr file of a pod has reserved space for it.
            Some(Err(e)) => format!("could not write a report file ({e}); this is the report:\n{report}"),
            None => format!("no state directory exists for a report; this is the report:\n{report}"),
        };
        let line = format!(
            "error: internal error in minke: {}\n  why: {said}\n  try: please report it; nothing written to \
             a session is lost\n",
            // A pod's stderr is stored next to its socket.
            sanitize_text(&mask_keys(panic_message(info)))
        );
        // If stderr is closed, nothing can be reported.
        drop(std::io::stderr().write_all(line.as_bytes()));
    }));
}

/// Returns the text of a panic report.
fn panic_report(info: &PanicHookInfo<'_>) -> String {
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    let backtrace = Backtrace::force_capture();
    // The report may be shared, so everything that looks like a key is redacted.
    let what = mask_keys(panic_message(info));
    format!("minke {version}\n{what}\nat {place}\n\n{backtrace}\n")
}

/// Writes a report completely or not at all.
fn write_report(dir: &Path, report: &str) -> std::io::Result<PathBuf> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let path = dir.join(format!("panic-{}-{}.txt", now_millis(), std::process::id()));
    let mut file = fs::OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
    match file.write_all(report.as_bytes()) {
        Ok(()) => Ok(path),
        Err(e) => {
            fs::remove_file(&path)?;
            Err(e)
        }
    }
}

fn panic_message<'a>(info: &'a PanicHookInfo<'_>) -> &'a str {
    info.payload_as_str().unwrap_or("a value that is not text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_that_cannot_be_written_whole_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        assert!(write_report(&dir.path().join("reports"), "what happened\n").is_ok());
        // A file in place of the directory makes the write fail, as a full disk would.
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert!(write_report(&dir.path().join("file"), "what happened\n").is_err());
        for report in std::fs::read_dir(dir.path().join("reports")).unwrap() {
            assert!(report.unwrap().metadata().unwrap().len() > 0);
        }
    }

    #[test]
    fn a_panic_leaves_a_report() {
        let home = tempfile::tempdir().unwrap();
        let env = [("MINKE_HOME".into(), home.path().as_os_str().to_owned())].into();
        let context = CliContext {
            env: minke_launch::LaunchEnv {
                user_env: minke_registry::ProcessEnv { env, uid: 0 },
                cwd: home.path().to_owned(),
                helper: None,
            },
            stdin_terminal: false,
            stdout_terminal: false,
            stderr_terminal: false,
        };
        install_hook(&context);
        let panicked = std::panic::catch_unwind(|| panic!("a promise was broken here"));
        drop(std::panic::take_hook());
        assert!(panicked.is_err());
        let reports: Vec<_> = fs::read_dir(home.path().join("state/reports")).unwrap().collect();
        assert_eq!(reports.len(), 1);
        let text = fs::read_to_string(reports[0].as_ref().unwrap().path()).unwrap();
        assert!(text.contains("a promise was broken here") && text.contains("panic.rs"), "{text}");
    }
}
