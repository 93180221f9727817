//! A panic is a broken promise of ours: it is written to a report file, and the person is told where that is.

use std::backtrace::Backtrace;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::panic::PanicHookInfo;
use std::path::{Path, PathBuf};

use minke_secrets::mask_shapes;

use crate::around::{Surroundings, now};
use crate::screen::clean;

/// From here on a panic leaves a report in `<state>/reports`.
pub(crate) fn report_to(around: &Surroundings) {
    let reports = around.paths().ok().map(|paths| paths.state.join("reports"));
    std::panic::set_hook(Box::new(move |info| {
        let report = report(info);
        let said = match reports.as_deref().map(|dir| write(dir, &report)) {
            Some(Ok(path)) => format!("the report is in {}", path.display()),
            // Here, then: room for it in a pod's stderr file was taken when the pod was started.
            Some(Err(e)) => format!("no report file could be written ({e}); this is the report:\n{report}"),
            None => format!("there is no state directory for a report; this is it:\n{report}"),
        };
        let line = format!(
            "error: minke broke a promise of its own: {}\n  why: {said}\n  try: please report it; nothing written to \
             a session is lost\n",
            // A pod's stderr is kept beside its socket.
            clean(&mask_shapes(what(info)))
        );
        // If stderr is gone there is nobody left to be told.
        drop(std::io::stderr().write_all(line.as_bytes()));
    }));
}

/// What is worth knowing about a panic.
fn report(info: &PanicHookInfo<'_>) -> String {
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    let backtrace = Backtrace::force_capture();
    // It may be passed on to strangers, so nothing that looks like a key stays in it.
    let what = mask_shapes(what(info));
    format!("minke {version}\n{what}\nat {place}\n\n{backtrace}\n")
}

/// Writes a report, whole or not at all: an empty one tells nobody anything.
fn write(dir: &Path, report: &str) -> std::io::Result<PathBuf> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let path = dir.join(format!("panic-{}-{}.txt", now(), std::process::id()));
    let mut file = fs::OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
    match file.write_all(report.as_bytes()) {
        Ok(()) => Ok(path),
        Err(e) => {
            fs::remove_file(&path)?;
            Err(e)
        }
    }
}

fn what<'a>(info: &'a PanicHookInfo<'_>) -> &'a str {
    info.payload_as_str().unwrap_or("a value that is no text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_that_cannot_be_written_whole_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        assert!(write(&dir.path().join("reports"), "what happened\n").is_ok());
        // A file stands where the directory would be, as on a disk without room for one.
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert!(write(&dir.path().join("file"), "what happened\n").is_err());
        for report in std::fs::read_dir(dir.path().join("reports")).unwrap() {
            assert!(report.unwrap().metadata().unwrap().len() > 0);
        }
    }

    #[test]
    fn a_panic_leaves_a_report() {
        let home = tempfile::tempdir().unwrap();
        let env = [("MINKE_HOME".into(), home.path().as_os_str().to_owned())].into();
        let around = Surroundings {
            user: minke_registry::Surroundings { env, uid: 0 },
            cwd: home.path().to_owned(),
            stdin_terminal: false,
            stdout_terminal: false,
            stderr_terminal: false,
        };
        report_to(&around);
        let panicked = std::panic::catch_unwind(|| panic!("a promise was broken here"));
        drop(std::panic::take_hook());
        assert!(panicked.is_err());
        let reports: Vec<_> = fs::read_dir(home.path().join("state/reports")).unwrap().collect();
        assert_eq!(reports.len(), 1);
        let text = fs::read_to_string(reports[0].as_ref().unwrap().path()).unwrap();
        assert!(text.contains("a promise was broken here") && text.contains("panic.rs"), "{text}");
    }
}
