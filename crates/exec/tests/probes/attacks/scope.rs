//! The scope's own edges: read grants, grants that do not reach down, denied and loaned subtrees, read-only mode, the
//! pod's `tmp` and `output`, the machine's `/tmp`.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use crate::inside::{lists, read};
use crate::probe::{Bare, Probe, Rest, Seen, Stage, Wall, probe, tried};

pub(super) const PROBES: &[Probe] = &[
    probe("write-read-grant", "openat O_WRONLY", Wall::LandlockFiles, |g| overwrite(&g.at("reads/file"))),
    probe("create-in-read-grant", "openat O_CREAT", Wall::LandlockFiles, |g| {
        tried(fs::write(g.at("reads/planted"), "planted"))
    }),
    probe("chmod-read-grant", "fchmodat", Wall::ReadOnlyRoot, |g| {
        use std::os::unix::fs::PermissionsExt;
        tried(fs::set_permissions(g.at("reads/file"), fs::Permissions::from_mode(0o666)))
    })
    .left_by_b(Rest::Metadata),
    probe("link-read-grant", "linkat", Wall::LandlockFiles, |g| {
        match fs::hard_link(g.at("reads/file"), g.own("link")) {
            Ok(()) => overwrite(&g.own("link")),
            err => tried(err),
        }
    }),
    probe("below-flat-grant-write", "openat O_CREAT", Wall::LandlockFiles, |g| {
        tried(fs::write(g.at("flat/sub/planted"), "planted"))
    })
    .on(Stage::Denied),
    probe("below-flat-grant-read", "openat", Wall::LandlockFiles, |g| read(g.at("flat/sub/inner")))
        .on(Stage::Denied),
    probe("output-write", "openat O_CREAT", Wall::LandlockFiles, |g| {
        tried(fs::write(g.at("runtime/pods/probe/output/planted"), "planted"))
    }),
    probe("output-overwrite", "openat O_WRONLY", Wall::LandlockFiles, |g| {
        overwrite(&g.at("runtime/pods/probe/output/1.txt"))
    }),
    probe("machine-tmp-read", "openat /tmp", Wall::Tmp, |g| read(g.fact("host_tmp_file"))),
    probe("machine-tmp-list", "getdents64 /tmp", Wall::Tmp, |g| {
        let file = Path::new(g.fact("host_tmp_file"));
        let dir = file.parent().and_then(Path::file_name).unwrap_or_default();
        lists("/tmp", &dir.to_string_lossy())
    }),
    probe("tmp-link-for-the-next", "rename, symlink", Wall::Tmp, |g| {
        // Where the next fence makes a mount point in the pod's own `tmp`, a link now leads outside.
        let tmp = env::var_os("TMPDIR").unwrap_or_default();
        let grant = Path::new(g.fact("tmp_grant")).parent().and_then(Path::file_name).unwrap_or_default();
        let room = Path::new(&tmp).join(grant);
        let _ = fs::rename(&room, Path::new(&tmp).join("moved"));
        match std::os::unix::fs::symlink(g.outside(""), room) {
            Ok(()) => Seen::Held("told from outside".to_owned()),
            err => tried(err),
        }
    })
    .bare(Bare::Never("only a fence makes such mount points"))
    .alone(),
    probe("denied-write", "openat O_WRONLY", Wall::Carved, |g| overwrite(&g.work("box/denied/file")))
        .on(Stage::Denied),
    probe("denied-create", "openat O_CREAT", Wall::Carved, |g| {
        tried(fs::write(g.work("box/denied/planted"), "planted"))
    })
    .on(Stage::Denied),
    probe("denied-unlink", "unlink", Wall::Carved, |g| tried(fs::remove_file(g.work("box/denied/gone"))))
        .on(Stage::Denied),
    probe("denied-chmod", "fchmodat", Wall::Carved, |g| {
        use std::os::unix::fs::PermissionsExt;
        tried(fs::set_permissions(g.work("box/denied/mode"), fs::Permissions::from_mode(0o777)))
    })
    .on(Stage::Denied),
    probe("denied-link", "linkat", Wall::Carved, |g| {
        match fs::hard_link(g.work("box/denied/file"), g.own("link")) {
            Ok(()) => overwrite(&g.own("link")),
            err => tried(err),
        }
    })
    .on(Stage::Denied),
    probe("denied-rename", "rename", Wall::Carved, |g| {
        tried(fs::rename(g.work("far/denied"), g.work("far/away")))
    })
    .on(Stage::Denied),
    probe("denied-parent-rename", "rename, mkdir", Wall::Carved, |g| {
        // The mount goes along with the directory; the name that was denied would be free.
        let done = fs::rename(g.work("pinned"), g.work("unpinned"))
            .and_then(|()| fs::create_dir_all(g.work("pinned/deep/denied")))
            .and_then(|()| fs::write(g.work("pinned/deep/denied/planted"), "planted"));
        tried(done)
    })
    .on(Stage::Denied),
    probe("denied-missing-create", "mkdir", Wall::Carved, |g| tried(fs::create_dir(g.work("box/later"))))
        .on(Stage::Denied),
    probe("hidden-read", "openat", Wall::Carved, |g| read(g.work("box/hidden/file"))).on(Stage::Denied),
    probe("hidden-file-read", "openat", Wall::Carved, |g| read(g.work("box/hidden.txt"))).on(Stage::Denied),
    probe("hidden-file-rename", "rename", Wall::Carved, |g| {
        match fs::rename(g.work("box/hidden.txt"), g.own("found")) {
            Ok(()) => read(g.own("found")),
            err => tried(err),
        }
    })
    .on(Stage::Denied)
    .alone(),
    probe("hidden-link", "linkat", Wall::Carved, |g| {
        match fs::hard_link(g.work("box/hidden/file"), g.own("link")) {
            Ok(()) => read(g.own("link")),
            err => tried(err),
        }
    })
    .on(Stage::Denied),
    probe("read-only-write", "openat O_CREAT", Wall::LandlockFiles, |g| {
        tried(fs::write(g.own("planted"), "planted"))
    })
    .on(Stage::ReadOnly),
    probe("read-only-overwrite", "openat O_WRONLY", Wall::LandlockFiles, |g| overwrite(&g.work("file")))
        .on(Stage::ReadOnly),
    probe("read-only-unlink", "unlink", Wall::LandlockFiles, |g| tried(fs::remove_file(g.work("gone"))))
        .on(Stage::ReadOnly),
    probe("read-only-tmp", "openat O_CREAT", Wall::LandlockFiles, |g| {
        tried(fs::write(g.at("runtime/pods/probe/tmp/planted"), "planted"))
    })
    .on(Stage::ReadOnly),
    probe("read-only-tmpdir", "openat O_CREAT", Wall::LandlockFiles, |_| match env::var_os("TMPDIR") {
        Some(dir) => tried(fs::write(Path::new(&dir).join("planted"), "planted")),
        None => tried(
            fs::write("/tmp/minke-probe-planted", "planted")
                .and_then(|()| fs::remove_file("/tmp/minke-probe-planted")),
        ),
    })
    .on(Stage::ReadOnly),
];

fn overwrite(path: &Path) -> Seen {
    tried(OpenOptions::new().append(true).open(path).and_then(|mut file| file.write_all(b"planted")))
}
