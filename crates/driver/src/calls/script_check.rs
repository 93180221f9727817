//! Script check: finds the files that a shell line would run, by reading only, so that an approval covers
//! their content.
//!
//! Here: the candidates that are files of the scope, their hashes, and short texts. Elsewhere: which words
//! are candidates (`policy::shell`), binding an answer to them (`pod`).
//! Programs outside the scope are not checked: no command can change them. During the few milliseconds
//! between the last check and the start of the command only another process of the user could change a file.
//! Invariant: every change of a named file changes the result (`whatever_happens_to_a_script_is_seen`).

use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use minke_files::{FileError, OpenedFile, ScopedFiles};
use minke_policy::AccessLevel;
use minke_record::{ExecutedScript, to_hex};
use minke_secrets::KeyRedactor;
use sha2::{Digest, Sha256};

/// A larger file is not hashed, and its line needs an approval each time.
const MAX_SCRIPT_BYTES: u64 = 64 * 1024 * 1024;
/// The maximum number of bytes hashed for one line.
const MAX_TOTAL_BYTES: u64 = 256 * 1024 * 1024;
/// The maximum number of scripts of one line; with more, the line needs an approval each time.
const MAX_SCRIPTS: usize = 64;
/// Texts up to this length are stored in the ask, to show changes later.
const MAX_TEXT_BYTES: usize = 8 * 1024;
/// The maximum length of all texts of one ask.
const MAX_TEXTS_BYTES: usize = 48 * 1024;

/// Inspects the scripts of a line.
pub(crate) struct ScriptInspector<'a> {
    pub(crate) files: &'a ScopedFiles,
    pub(crate) cwd: &'a Path,
    pub(crate) redactor: &'a KeyRedactor,
}

impl ScriptInspector<'_> {
    /// The files of the scope that a line would run, sorted by path.
    pub(crate) fn scripts_in(&self, line: &str) -> Vec<ExecutedScript> {
        let found = minke_policy::shell::find_scripts(line, &self.cwd.to_string_lossy());
        let mut scripts: Vec<ExecutedScript> = Vec::new();
        let mut remaining = MAX_TOTAL_BYTES;
        let programs = found.programs.iter().flat_map(|name| self.path_candidates(name));
        let named = found.named.iter().map(PathBuf::from).chain(programs).map(|path| (path, true));
        for (path, surely) in named.chain(found.possible.iter().map(|path| (PathBuf::from(path), false))) {
            let name = path.to_string_lossy().into_owned();
            if scripts.iter().any(|script| script.path == name) {
                continue;
            }
            let Some(script) = self.inspect_file(&path, surely, &mut remaining) else { continue };
            if scripts.len() >= MAX_SCRIPTS {
                scripts
                    .push(unreadable_script("…", format!("the line names more than {MAX_SCRIPTS} scripts")));
                break;
            }
            scripts.push(script);
        }
        let later = found.unknown.iter().take(MAX_SCRIPTS);
        scripts.extend(
            later.map(|word| unreadable_script(word, "which file this is depends on the run".to_owned())),
        );
        scripts.sort_by(|a, b| a.path.cmp(&b.path));
        self.limit_texts(&mut scripts);
        scripts
    }

    /// Checks whether a line would still run the approved scripts.
    pub(crate) fn find_change(&self, line: &str, approved: &[ExecutedScript]) -> Option<String> {
        let now = self.scripts_in(line);
        let pair = now.iter().zip(approved).find(|(now, approved)| !now.is_same(approved));
        let changed = match pair {
            Some((now, approved)) => (&now.path).min(&approved.path),
            None if now.len() == approved.len() => return None,
            None => &now.get(approved.len()).or_else(|| approved.get(now.len()))?.path,
        };
        Some(format!(
            "the command was not started: {changed} has changed since the approval; repeat the call to request an approval \
             of the current content"
        ))
    }

    /// Looks up a bare name in the directories of `PATH` that are in the scope.
    fn path_candidates(&self, name: &str) -> Vec<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs = std::env::split_paths(&path).filter(|dir| dir.is_absolute());
        dirs.filter(|dir| self.files.access_level(dir) == AccessLevel::Write)
            .map(|dir| dir.join(name))
            .collect()
    }

    /// Inspects one file; `None` if it does not exist in the scope.
    fn inspect_file(&self, path: &Path, surely: bool, remaining: &mut u64) -> Option<ExecutedScript> {
        let name = path.to_string_lossy().into_owned();
        let real;
        let path = if path.components().any(|part| part == Component::ParentDir) {
            // Only the kernel can resolve `..` after a symbolic link.
            match path.canonicalize() {
                Ok(found) => {
                    real = found;
                    real.as_path()
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                    return None;
                }
                Err(e) => return surely.then(|| unreadable_script(&name, e.to_string())),
            }
        } else {
            path
        };
        match self.files.open_file(path) {
            Ok(opened) => {
                let runs = surely || opened.meta.permissions().mode() & 0o111 != 0;
                runs.then(|| self.read_script(name, opened, remaining))
            }
            Err(e) if e.is_missing() => None,
            Err(FileError::IsDirectory { .. }) => None,
            // A candidate such as `deploy.sh/__main__.py` cannot exist below a file.
            Err(FileError::NotADirectory { .. }) => None,
            // What lies outside the scope by its own name is a program of the system.
            Err(_) if !surely || self.files.access_level(path) == AccessLevel::None => None,
            Err(e) => Some(unreadable_script(&name, e.to_string())),
        }
    }

    fn read_script(&self, name: String, opened: OpenedFile, remaining: &mut u64) -> ExecutedScript {
        let leads_to = (opened.path != Path::new(&name)).then(|| opened.path.to_string_lossy().into_owned());
        let mut script = ExecutedScript { path: name, leads_to, ..ExecutedScript::default() };
        let max_bytes = MAX_SCRIPT_BYTES.min(*remaining);
        match read_content(opened, max_bytes) {
            Ok(ScriptContent { hash, text, bytes }) => {
                *remaining = remaining.saturating_sub(bytes);
                script.hash = Some(hash);
                script.text = text.and_then(|text| self.redact_text(text));
            }
            Err(e) => script.problem = Some(e.to_string()),
        }
        script
    }

    /// Redacts a text; returns `None` if the check for secrets fails.
    fn redact_text(&self, mut text: String) -> Option<String> {
        self.redactor.redact(&mut [&mut text]).ok().map(|()| text)
    }

    fn limit_texts(&self, scripts: &mut [ExecutedScript]) {
        let mut room = MAX_TEXTS_BYTES;
        for script in scripts {
            let bytes = script.text.as_ref().map_or(0, String::len);
            match room.checked_sub(bytes) {
                Some(rest) => room = rest,
                None => script.text = None,
            }
        }
    }
}

fn unreadable_script(path: &str, problem: String) -> ExecutedScript {
    ExecutedScript { path: path.to_owned(), problem: Some(problem), ..ExecutedScript::default() }
}

struct ScriptContent {
    hash: String,
    text: Option<String>,
    bytes: u64,
}

/// Reads a file completely unless it is too long; it may grow meanwhile.
fn read_content(mut opened: OpenedFile, max_bytes: u64) -> io::Result<ScriptContent> {
    let too_long = || io::Error::other(format!("it has more than {max_bytes} bytes"));
    if opened.meta.len() > max_bytes {
        return Err(too_long());
    }
    let (mut hash, mut bytes, mut kept) = (Sha256::new(), 0_u64, Vec::new());
    let mut chunk = vec![0; 64 * 1024];
    loop {
        let got = opened.file.read(&mut chunk)?;
        let piece = chunk.get(..got).unwrap_or_default();
        if piece.is_empty() {
            break;
        }
        bytes += got as u64;
        if bytes > max_bytes {
            return Err(too_long());
        }
        hash.update(piece);
        if kept.len() <= MAX_TEXT_BYTES {
            kept.extend_from_slice(piece);
        }
    }
    let text =
        Some(kept).filter(|kept| kept.len() <= MAX_TEXT_BYTES).and_then(|kept| String::from_utf8(kept).ok());
    let text = text.filter(|text| !text.contains('\0'));
    Ok(ScriptContent { hash: to_hex(&hash.finalize()), text, bytes })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use minke_files::FilesConfig;
    use minke_llm::{ResolveContext, build_key_redactor};
    use minke_record::Scope;

    use super::*;

    struct ScriptFixture {
        dir: tempfile::TempDir,
        files: ScopedFiles,
        redactor: KeyRedactor,
    }

    impl ScriptFixture {
        fn new() -> ScriptFixture {
            let dir = tempfile::tempdir().unwrap();
            let ws = dir.path().canonicalize().unwrap().join("ws");
            fs::create_dir(&ws).unwrap();
            let scope = Scope::writable(ws.to_string_lossy());
            let files = ScopedFiles::new(FilesConfig { scope, ..FilesConfig::default() }).unwrap();
            ScriptFixture {
                files,
                redactor: build_key_redactor(ResolveContext::for_process("nowhere", None)),
                dir,
            }
        }

        fn path_of(&self, name: &str) -> PathBuf {
            self.dir.path().canonicalize().unwrap().join(name)
        }

        fn inspect_line(&self, line: &str) -> Vec<ExecutedScript> {
            ScriptInspector { files: &self.files, cwd: &self.path_of("ws"), redactor: &self.redactor }
                .scripts_in(line)
        }

        fn find_change(&self, line: &str, approved: &[ExecutedScript]) -> Option<String> {
            ScriptInspector { files: &self.files, cwd: &self.path_of("ws"), redactor: &self.redactor }
                .find_change(line, approved)
        }
    }

    #[test]
    fn a_script_is_named_with_its_hash_and_its_text() {
        let world = ScriptFixture::new();
        fs::write(world.path_of("ws/x.sh"), "echo good\n").unwrap();
        for line in ["bash ./x.sh", "./x.sh", "cd . && sh x.sh", "timeout 5 ./x.sh", "bash -c './x.sh'"] {
            let found = world.inspect_line(line);
            assert_eq!(found.len(), 1, "{line}: {found:?}");
            assert_eq!(
                found[0].hash.as_deref(),
                Some(to_hex(&Sha256::digest("echo good\n")).as_str()),
                "{line}"
            );
            assert_eq!(found[0].text.as_deref(), Some("echo good\n"), "{line}");
            assert_eq!(world.find_change(line, &found), None, "{line}");
        }
        for line in ["ls x.sh", "cat ./x.sh", "cargo test", "bash y.sh", "/bin/ls", "git status"] {
            assert_eq!(world.inspect_line(line), Vec::new(), "{line}");
        }
    }

    /// Each of these changes `x.sh`.
    #[test]
    fn whatever_happens_to_a_script_is_seen() {
        type FileChange = fn(&ScriptFixture);
        let changes: [(&str, FileChange); 11] = [
            ("another content", |w| fs::write(w.path_of("ws/x.sh"), "echo evil").unwrap()),
            ("one byte more", |w| fs::write(w.path_of("ws/x.sh"), "echo good\n ").unwrap()),
            ("gone", |w| fs::remove_file(w.path_of("ws/x.sh")).unwrap()),
            ("a directory", |w| {
                fs::remove_file(w.path_of("ws/x.sh")).unwrap();
                fs::create_dir(w.path_of("ws/x.sh")).unwrap();
            }),
            ("a link to the same content", |w| {
                fs::rename(w.path_of("ws/x.sh"), w.path_of("ws/y.sh")).unwrap();
                symlink("y.sh", w.path_of("ws/x.sh")).unwrap();
            }),
            ("a link out of the scope", |w| {
                fs::remove_file(w.path_of("ws/x.sh")).unwrap();
                fs::write(w.path_of("evil.sh"), "echo good\n").unwrap();
                symlink(w.path_of("evil.sh"), w.path_of("ws/x.sh")).unwrap();
            }),
            ("a link to nothing", |w| {
                fs::remove_file(w.path_of("ws/x.sh")).unwrap();
                symlink("nothing", w.path_of("ws/x.sh")).unwrap();
            }),
            ("a FIFO", |w| {
                fs::remove_file(w.path_of("ws/x.sh")).unwrap();
                let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o700));
                rustix::fs::mknodat(rustix::fs::CWD, w.path_of("ws/x.sh"), kind, mode, 0).unwrap();
            }),
            ("too large", |w| {
                let file = fs::File::create(w.path_of("ws/x.sh")).unwrap();
                file.set_len(MAX_SCRIPT_BYTES + 1).unwrap();
            }),
            ("longer than its text", |w| {
                fs::write(w.path_of("ws/x.sh"), "#".repeat(MAX_TEXT_BYTES + 1)).unwrap()
            }),
            ("a second script", |w| fs::write(w.path_of("ws/y.sh"), "echo more").unwrap()),
        ];
        for (what, change) in changes {
            let world = ScriptFixture::new();
            fs::write(world.path_of("ws/x.sh"), "echo good\n").unwrap();
            let line = "bash x.sh; bash ./y.sh";
            let before = world.inspect_line(line);
            assert_eq!(before.len(), 1, "{what}");
            change(&world);
            assert!(world.find_change(line, &before).is_some_and(|why| why.contains("changed")), "{what}");
        }
    }

    #[test]
    fn what_cannot_be_read_whole_has_no_hash_and_says_why() {
        let world = ScriptFixture::new();
        let file = fs::File::create(world.path_of("ws/big.sh")).unwrap();
        file.set_len(MAX_SCRIPT_BYTES + 1).unwrap();
        let found = world.inspect_line("bash big.sh");
        assert!(found[0].hash.is_none() && found[0].problem.as_ref().unwrap().contains("bytes"), "{found:?}");
        let later = world.inspect_line("bash \"$SCRIPT\"");
        assert!(later[0].hash.is_none() && later[0].problem.is_some(), "{later:?}");
    }

    #[test]
    fn a_program_counts_where_it_can_be_executed() {
        let world = ScriptFixture::new();
        fs::write(world.path_of("ws/tool"), "#!/bin/sh\n").unwrap();
        assert_eq!(world.inspect_line("hyperfine ./tool"), Vec::new(), "a plain file is data");
        fs::set_permissions(world.path_of("ws/tool"), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(world.inspect_line("hyperfine ./tool").len(), 1);
        fs::write(world.path_of("ws/Makefile"), "all:\n").unwrap();
        assert_eq!(world.inspect_line("make all").len(), 1, "a runner reads its file automatically");
    }

    #[test]
    fn a_script_behind_dots_is_the_file_that_the_kernel_opens() {
        let world = ScriptFixture::new();
        fs::create_dir(world.path_of("ws/sub")).unwrap();
        fs::write(world.path_of("ws/x.sh"), "echo good\n").unwrap();
        for line in ["cd sub && ../x.sh", "bash sub/../x.sh"] {
            let found = world.inspect_line(line);
            assert!(
                found.iter().any(|one| one.leads_to.is_some() && one.hash.is_some()),
                "{line}: {found:?}"
            );
        }
        assert_eq!(world.inspect_line("bash no/../x.sh"), Vec::new(), "the kernel finds nothing there");
    }

    #[test]
    fn a_line_with_many_scripts_says_that_not_all_are_named() {
        let world = ScriptFixture::new();
        let mut line = String::new();
        for number in 0..=MAX_SCRIPTS {
            fs::write(world.path_of(&format!("ws/s{number}.sh")), "x".repeat(1_000)).unwrap();
            line.push_str(&format!("bash s{number}.sh;"));
        }
        let found = world.inspect_line(&line);
        assert!(found.iter().any(|script| script.path == "…" && script.hash.is_none()));
        let texts: usize = found.iter().filter_map(|script| script.text.as_ref()).map(String::len).sum();
        assert!(texts <= MAX_TEXTS_BYTES, "{texts}");
    }
}
