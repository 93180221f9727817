//! The limits of the scope: read grants, non-recursive grants, denied and lent subtrees, read-only mode, the pod's
//! `tmp` and `output`, the host's `/tmp`.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use crate::attacker::{lists_name, read_secret};
use crate::probe::{
    DocumentedGap, ProbeOutcome, ProbeStage, SandboxProbe, TestedRestriction, UnsandboxedResult,
    attack_probe, outcome_of,
};

pub(super) const PROBES: &[SandboxProbe] = &[
    attack_probe("write-read-grant", "openat O_WRONLY", TestedRestriction::LandlockFiles, |g| {
        overwrite_file(&g.path_to("reads/file"))
    }),
    attack_probe("create-in-read-grant", "openat O_CREAT", TestedRestriction::LandlockFiles, |g| {
        outcome_of(fs::write(g.path_to("reads/planted"), "planted"))
    }),
    attack_probe("chmod-read-grant", "fchmodat", TestedRestriction::ReadOnlyRoot, |g| {
        use std::os::unix::fs::PermissionsExt;
        outcome_of(fs::set_permissions(g.path_to("reads/file"), fs::Permissions::from_mode(0o666)))
    })
    .left_by_landlock(DocumentedGap::Metadata),
    attack_probe("link-read-grant", "linkat", TestedRestriction::LandlockFiles, |g| {
        match fs::hard_link(g.path_to("reads/file"), g.own_path("link")) {
            Ok(()) => overwrite_file(&g.own_path("link")),
            err => outcome_of(err),
        }
    }),
    attack_probe("below-flat-grant-write", "openat O_CREAT", TestedRestriction::LandlockFiles, |g| {
        outcome_of(fs::write(g.path_to("flat/sub/planted"), "planted"))
    })
    .in_stage(ProbeStage::Denied),
    attack_probe("below-flat-grant-read", "openat", TestedRestriction::LandlockFiles, |g| {
        read_secret(g.path_to("flat/sub/inner"))
    })
    .in_stage(ProbeStage::Denied),
    attack_probe("output-write", "openat O_CREAT", TestedRestriction::LandlockFiles, |g| {
        outcome_of(fs::write(g.path_to("runtime/pods/probe/output/planted"), "planted"))
    }),
    attack_probe("output-overwrite", "openat O_WRONLY", TestedRestriction::LandlockFiles, |g| {
        overwrite_file(&g.path_to("runtime/pods/probe/output/1.txt"))
    }),
    attack_probe("machine-tmp-read", "openat /tmp", TestedRestriction::Tmp, |g| {
        read_secret(g.fact_text("host_tmp_file"))
    }),
    attack_probe("machine-tmp-list", "getdents64 /tmp", TestedRestriction::Tmp, |g| {
        let file = Path::new(g.fact_text("host_tmp_file"));
        let dir = file.parent().and_then(Path::file_name).unwrap_or_default();
        lists_name("/tmp", &dir.to_string_lossy())
    }),
    attack_probe("tmp-link-for-the-next", "rename, symlink", TestedRestriction::Tmp, |g| {
        // A link leads outside where the next sandbox creates a mount point in the pod's own `tmp`.
        let tmp = env::var_os("TMPDIR").unwrap_or_default();
        let grant =
            Path::new(g.fact_text("tmp_grant")).parent().and_then(Path::file_name).unwrap_or_default();
        let room = Path::new(&tmp).join(grant);
        let _ = fs::rename(&room, Path::new(&tmp).join("moved"));
        match std::os::unix::fs::symlink(g.path_outside(""), room) {
            Ok(()) => ProbeOutcome::Stopped("checked from outside".to_owned()),
            err => outcome_of(err),
        }
    })
    .unsandboxed(UnsandboxedResult::Never("only a sandbox creates such mount points"))
    .run_alone(),
    attack_probe("denied-write", "openat O_WRONLY", TestedRestriction::Exclusions, |g| {
        overwrite_file(&g.path_in_work("box/denied/file"))
    })
    .in_stage(ProbeStage::Denied),
    attack_probe("denied-create", "openat O_CREAT", TestedRestriction::Exclusions, |g| {
        outcome_of(fs::write(g.path_in_work("box/denied/planted"), "planted"))
    })
    .in_stage(ProbeStage::Denied),
    attack_probe("denied-unlink", "unlink", TestedRestriction::Exclusions, |g| {
        outcome_of(fs::remove_file(g.path_in_work("box/denied/gone")))
    })
    .in_stage(ProbeStage::Denied),
    attack_probe("denied-chmod", "fchmodat", TestedRestriction::Exclusions, |g| {
        use std::os::unix::fs::PermissionsExt;
        outcome_of(fs::set_permissions(g.path_in_work("box/denied/mode"), fs::Permissions::from_mode(0o777)))
    })
    .in_stage(ProbeStage::Denied),
    attack_probe("denied-link", "linkat", TestedRestriction::Exclusions, |g| {
        match fs::hard_link(g.path_in_work("box/denied/file"), g.own_path("link")) {
            Ok(()) => overwrite_file(&g.own_path("link")),
            err => outcome_of(err),
        }
    })
    .in_stage(ProbeStage::Denied),
    attack_probe("denied-rename", "rename", TestedRestriction::Exclusions, |g| {
        outcome_of(fs::rename(g.path_in_work("far/denied"), g.path_in_work("far/away")))
    })
    .in_stage(ProbeStage::Denied),
    attack_probe("denied-parent-rename", "rename, mkdir", TestedRestriction::Exclusions, |g| {
        // The mount would move with the directory, and the denied name would be free.
        let done = fs::rename(g.path_in_work("pinned"), g.path_in_work("unpinned"))
            .and_then(|()| fs::create_dir_all(g.path_in_work("pinned/deep/denied")))
            .and_then(|()| fs::write(g.path_in_work("pinned/deep/denied/planted"), "planted"));
        outcome_of(done)
    })
    .in_stage(ProbeStage::Denied),
    attack_probe("denied-missing-create", "mkdir", TestedRestriction::Exclusions, |g| {
        outcome_of(fs::create_dir(g.path_in_work("box/later")))
    })
    .in_stage(ProbeStage::Denied),
    attack_probe("hidden-read", "openat", TestedRestriction::Exclusions, |g| {
        read_secret(g.path_in_work("box/hidden/file"))
    })
    .in_stage(ProbeStage::Denied),
    attack_probe("hidden-file-read", "openat", TestedRestriction::Exclusions, |g| {
        read_secret(g.path_in_work("box/hidden.txt"))
    })
    .in_stage(ProbeStage::Denied),
    attack_probe("hidden-file-rename", "rename", TestedRestriction::Exclusions, |g| {
        match fs::rename(g.path_in_work("box/hidden.txt"), g.own_path("found")) {
            Ok(()) => read_secret(g.own_path("found")),
            err => outcome_of(err),
        }
    })
    .in_stage(ProbeStage::Denied)
    .run_alone(),
    attack_probe("hidden-link", "linkat", TestedRestriction::Exclusions, |g| {
        match fs::hard_link(g.path_in_work("box/hidden/file"), g.own_path("link")) {
            Ok(()) => read_secret(g.own_path("link")),
            err => outcome_of(err),
        }
    })
    .in_stage(ProbeStage::Denied),
    attack_probe("read-only-write", "openat O_CREAT", TestedRestriction::LandlockFiles, |g| {
        outcome_of(fs::write(g.own_path("planted"), "planted"))
    })
    .in_stage(ProbeStage::ReadOnly),
    attack_probe("read-only-overwrite", "openat O_WRONLY", TestedRestriction::LandlockFiles, |g| {
        overwrite_file(&g.path_in_work("file"))
    })
    .in_stage(ProbeStage::ReadOnly),
    attack_probe("read-only-unlink", "unlink", TestedRestriction::LandlockFiles, |g| {
        outcome_of(fs::remove_file(g.path_in_work("gone")))
    })
    .in_stage(ProbeStage::ReadOnly),
    attack_probe("read-only-tmp", "openat O_CREAT", TestedRestriction::LandlockFiles, |g| {
        outcome_of(fs::write(g.path_to("runtime/pods/probe/tmp/planted"), "planted"))
    })
    .in_stage(ProbeStage::ReadOnly),
    attack_probe(
        "read-only-tmpdir",
        "openat O_CREAT",
        TestedRestriction::LandlockFiles,
        |_| match env::var_os("TMPDIR") {
            Some(dir) => outcome_of(fs::write(Path::new(&dir).join("planted"), "planted")),
            None => outcome_of(
                fs::write("/tmp/minke-probe-planted", "planted")
                    .and_then(|()| fs::remove_file("/tmp/minke-probe-planted")),
            ),
        },
    )
    .in_stage(ProbeStage::ReadOnly),
];

fn overwrite_file(path: &Path) -> ProbeOutcome {
    outcome_of(OpenOptions::new().append(true).open(path).and_then(|mut file| file.write_all(b"planted")))
}
