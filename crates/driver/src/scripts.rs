//! Scripts: the files that a shell line would run, looked at by reading only, so that an approval covers their content.
//!
//! Here: which of the candidates are files of the scope, their hashes, their text where it is short. Elsewhere: which
//! words are candidates (`policy::shell`), what an answer is bound to (`pod`).
//! Programs outside the scope are not looked at: no command can change them. Between the last look and the start of the
//! command lie some milliseconds in which only another process of the user could change a file.
//! Invariant: every way in which a named file can become another one changes what is said here
//! (`whatever_happens_to_a_script_is_seen`).

use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use minke_files::{FileError, Files, Opened};
use minke_llm::Cover;
use minke_policy::Level;
use minke_record::{Script, hex};
use sha2::{Digest, Sha256};

/// A larger file is not hashed: its line is asked about each time.
const FILE_BYTES: u64 = 64 * 1024 * 1024;
/// What is hashed for one line.
const ALL_BYTES: u64 = 256 * 1024 * 1024;
/// How many scripts of one line are named; with more, the line is asked about each time.
const SCRIPTS: usize = 64;
/// How long a text is kept in the question, to show what changed.
const TEXT_BYTES: usize = 8 * 1024;
/// The texts of one question.
const TEXTS_BYTES: usize = 48 * 1024;

/// Looks at the scripts of a line.
pub(crate) struct Looking<'a> {
    pub(crate) files: &'a Files,
    pub(crate) cwd: &'a Path,
    pub(crate) cover: &'a Cover,
}

impl Looking<'_> {
    /// The files of the scope that a line would run, in the order of their paths.
    pub(crate) fn at(&self, line: &str) -> Vec<Script> {
        let found = minke_policy::shell::scripts(line, &self.cwd.to_string_lossy());
        let mut scripts: Vec<Script> = Vec::new();
        let mut left = ALL_BYTES;
        let programs = found.programs.iter().flat_map(|name| self.in_path(name));
        let named = found.named.iter().map(PathBuf::from).chain(programs).map(|path| (path, true));
        for (path, surely) in named.chain(found.maybe.iter().map(|path| (PathBuf::from(path), false))) {
            let name = path.to_string_lossy().into_owned();
            if scripts.iter().any(|script| script.path == name) {
                continue;
            }
            let Some(script) = self.look(&path, surely, &mut left) else { continue };
            if scripts.len() >= SCRIPTS {
                scripts.push(unseen("…", format!("the line names more than {SCRIPTS} scripts")));
                break;
            }
            scripts.push(script);
        }
        let later = found.unknown.iter().take(SCRIPTS);
        scripts.extend(later.map(|word| unseen(word, "which file this is depends on the run".to_owned())));
        scripts.sort_by(|a, b| a.path.cmp(&b.path));
        self.bound_texts(&mut scripts);
        scripts
    }

    /// Whether a line would still run what these scripts say.
    pub(crate) fn changed(&self, line: &str, approved: &[Script]) -> Option<String> {
        let now = self.at(line);
        let pair = now.iter().zip(approved).find(|(now, approved)| !now.is_same(approved));
        let changed = match pair {
            Some((now, approved)) => (&now.path).min(&approved.path),
            None if now.len() == approved.len() => return None,
            None => &now.get(approved.len()).or_else(|| approved.get(now.len()))?.path,
        };
        Some(format!(
            "nothing was started, since {changed} has changed after the approval; make the call again to have it asked \
             about as it is now"
        ))
    }

    /// A bare name in the directories of `PATH` that lie in the scope.
    fn in_path(&self, name: &str) -> Vec<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs = std::env::split_paths(&path).filter(|dir| dir.is_absolute());
        dirs.filter(|dir| self.files.level(dir) == Level::Write).map(|dir| dir.join(name)).collect()
    }

    /// One file; none, if there is no such file in the scope.
    fn look(&self, path: &Path, surely: bool, left: &mut u64) -> Option<Script> {
        let name = path.to_string_lossy().into_owned();
        let real;
        let path = if path.components().any(|part| part == Component::ParentDir) {
            // Only the kernel can say where `..` leads behind a link.
            match path.canonicalize() {
                Ok(found) => {
                    real = found;
                    real.as_path()
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                    return None;
                }
                Err(e) => return surely.then(|| unseen(&name, e.to_string())),
            }
        } else {
            path
        };
        match self.files.open(path) {
            Ok(opened) => {
                let runs = surely || opened.meta.permissions().mode() & 0o111 != 0;
                runs.then(|| self.read(name, opened, left))
            }
            Err(e) if e.is_missing() => None,
            Err(FileError::IsDirectory { .. }) => None,
            // What lies outside the scope by its own name is a program of the system.
            Err(_) if !surely || self.files.level(path) == Level::None => None,
            Err(e) => Some(unseen(&name, e.to_string())),
        }
    }

    fn read(&self, name: String, opened: Opened, left: &mut u64) -> Script {
        let leads_to = (opened.path != Path::new(&name)).then(|| opened.path.to_string_lossy().into_owned());
        let mut script = Script { path: name, leads_to, ..Script::default() };
        let most = FILE_BYTES.min(*left);
        match content_of(opened, most) {
            Ok(Content { hash, text, bytes }) => {
                *left = left.saturating_sub(bytes);
                script.hash = Some(hash);
                script.text = text.and_then(|text| self.covered(text));
            }
            Err(e) => script.problem = Some(e.to_string()),
        }
        script
    }

    /// A text without keys; one in which keys cannot be looked for is not kept.
    fn covered(&self, mut text: String) -> Option<String> {
        self.cover.hide(&mut [&mut text]).ok().map(|()| text)
    }

    fn bound_texts(&self, scripts: &mut [Script]) {
        let mut room = TEXTS_BYTES;
        for script in scripts {
            let bytes = script.text.as_ref().map_or(0, String::len);
            match room.checked_sub(bytes) {
                Some(rest) => room = rest,
                None => script.text = None,
            }
        }
    }
}

fn unseen(path: &str, problem: String) -> Script {
    Script { path: path.to_owned(), problem: Some(problem), ..Script::default() }
}

struct Content {
    hash: String,
    text: Option<String>,
    bytes: u64,
}

/// Reads a file to its end, if it is not too long; it may grow meanwhile.
fn content_of(mut opened: Opened, most: u64) -> io::Result<Content> {
    let too_long = || io::Error::other(format!("it has more than {most} bytes, which are not looked at"));
    if opened.meta.len() > most {
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
        if bytes > most {
            return Err(too_long());
        }
        hash.update(piece);
        if kept.len() <= TEXT_BYTES {
            kept.extend_from_slice(piece);
        }
    }
    let text =
        Some(kept).filter(|kept| kept.len() <= TEXT_BYTES).and_then(|kept| String::from_utf8(kept).ok());
    let text = text.filter(|text| !text.contains('\0'));
    Ok(Content { hash: hex(&hash.finalize()), text, bytes })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use minke_files::FilesConfig;
    use minke_llm::Around;
    use minke_record::Scope;

    use super::*;

    struct World {
        dir: tempfile::TempDir,
        files: Files,
        cover: Cover,
    }

    impl World {
        fn new() -> World {
            let dir = tempfile::tempdir().unwrap();
            let ws = dir.path().canonicalize().unwrap().join("ws");
            fs::create_dir(&ws).unwrap();
            let scope = Scope::write(ws.to_string_lossy());
            let files = Files::new(FilesConfig { scope, ..FilesConfig::default() }).unwrap();
            World { files, cover: Cover::new(Around::here("nowhere", None)), dir }
        }

        fn at(&self, name: &str) -> PathBuf {
            self.dir.path().canonicalize().unwrap().join(name)
        }

        fn look(&self, line: &str) -> Vec<Script> {
            Looking { files: &self.files, cwd: &self.at("ws"), cover: &self.cover }.at(line)
        }

        fn changed(&self, line: &str, approved: &[Script]) -> Option<String> {
            Looking { files: &self.files, cwd: &self.at("ws"), cover: &self.cover }.changed(line, approved)
        }
    }

    #[test]
    fn a_script_is_named_with_its_hash_and_its_text() {
        let world = World::new();
        fs::write(world.at("ws/x.sh"), "echo good\n").unwrap();
        for line in ["bash ./x.sh", "./x.sh", "cd . && sh x.sh", "timeout 5 ./x.sh", "bash -c './x.sh'"] {
            let found = world.look(line);
            assert_eq!(found.len(), 1, "{line}: {found:?}");
            assert_eq!(
                found[0].hash.as_deref(),
                Some(hex(&Sha256::digest("echo good\n")).as_str()),
                "{line}"
            );
            assert_eq!(found[0].text.as_deref(), Some("echo good\n"), "{line}");
            assert_eq!(world.changed(line, &found), None, "{line}");
        }
        for line in ["ls x.sh", "cat ./x.sh", "cargo test", "bash y.sh", "/bin/ls", "git status"] {
            assert_eq!(world.look(line), Vec::new(), "{line}");
        }
    }

    /// Each of these makes another thing of `x.sh`.
    #[test]
    fn whatever_happens_to_a_script_is_seen() {
        type Change = fn(&World);
        let changes: [(&str, Change); 11] = [
            ("another content", |w| fs::write(w.at("ws/x.sh"), "echo evil").unwrap()),
            ("one byte more", |w| fs::write(w.at("ws/x.sh"), "echo good\n ").unwrap()),
            ("gone", |w| fs::remove_file(w.at("ws/x.sh")).unwrap()),
            ("a directory", |w| {
                fs::remove_file(w.at("ws/x.sh")).unwrap();
                fs::create_dir(w.at("ws/x.sh")).unwrap();
            }),
            ("a link to the same content", |w| {
                fs::rename(w.at("ws/x.sh"), w.at("ws/y.sh")).unwrap();
                symlink("y.sh", w.at("ws/x.sh")).unwrap();
            }),
            ("a link out of the scope", |w| {
                fs::remove_file(w.at("ws/x.sh")).unwrap();
                fs::write(w.at("evil.sh"), "echo good\n").unwrap();
                symlink(w.at("evil.sh"), w.at("ws/x.sh")).unwrap();
            }),
            ("a link to nothing", |w| {
                fs::remove_file(w.at("ws/x.sh")).unwrap();
                symlink("nothing", w.at("ws/x.sh")).unwrap();
            }),
            ("a FIFO", |w| {
                fs::remove_file(w.at("ws/x.sh")).unwrap();
                let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o700));
                rustix::fs::mknodat(rustix::fs::CWD, w.at("ws/x.sh"), kind, mode, 0).unwrap();
            }),
            ("too large", |w| {
                let file = fs::File::create(w.at("ws/x.sh")).unwrap();
                file.set_len(FILE_BYTES + 1).unwrap();
            }),
            ("longer than its text", |w| fs::write(w.at("ws/x.sh"), "#".repeat(TEXT_BYTES + 1)).unwrap()),
            ("a second script", |w| fs::write(w.at("ws/y.sh"), "echo more").unwrap()),
        ];
        for (what, change) in changes {
            let world = World::new();
            fs::write(world.at("ws/x.sh"), "echo good\n").unwrap();
            let line = "bash x.sh; bash ./y.sh";
            let before = world.look(line);
            assert_eq!(before.len(), 1, "{what}");
            change(&world);
            assert!(world.changed(line, &before).is_some_and(|why| why.contains("changed")), "{what}");
        }
    }

    #[test]
    fn what_cannot_be_read_whole_has_no_hash_and_says_why() {
        let world = World::new();
        let file = fs::File::create(world.at("ws/big.sh")).unwrap();
        file.set_len(FILE_BYTES + 1).unwrap();
        let found = world.look("bash big.sh");
        assert!(found[0].hash.is_none() && found[0].problem.as_ref().unwrap().contains("bytes"), "{found:?}");
        let later = world.look("bash \"$SCRIPT\"");
        assert!(later[0].hash.is_none() && later[0].problem.is_some(), "{later:?}");
    }

    #[test]
    fn a_program_counts_where_it_can_be_executed() {
        let world = World::new();
        fs::write(world.at("ws/tool"), "#!/bin/sh\n").unwrap();
        assert_eq!(world.look("hyperfine ./tool"), Vec::new(), "a plain file is data");
        fs::set_permissions(world.at("ws/tool"), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(world.look("hyperfine ./tool").len(), 1);
        fs::write(world.at("ws/Makefile"), "all:\n").unwrap();
        assert_eq!(world.look("make all").len(), 1, "a runner reads its file by itself");
    }

    #[test]
    fn a_script_behind_dots_is_the_file_that_the_kernel_opens() {
        let world = World::new();
        fs::create_dir(world.at("ws/sub")).unwrap();
        fs::write(world.at("ws/x.sh"), "echo good\n").unwrap();
        for line in ["cd sub && ../x.sh", "bash sub/../x.sh"] {
            let found = world.look(line);
            assert!(
                found.iter().any(|one| one.leads_to.is_some() && one.hash.is_some()),
                "{line}: {found:?}"
            );
        }
        assert_eq!(world.look("bash no/../x.sh"), Vec::new(), "the kernel finds nothing there");
    }

    #[test]
    fn a_line_with_many_scripts_says_that_not_all_are_named() {
        let world = World::new();
        let mut line = String::new();
        for number in 0..=SCRIPTS {
            fs::write(world.at(&format!("ws/s{number}.sh")), "x".repeat(1_000)).unwrap();
            line.push_str(&format!("bash s{number}.sh;"));
        }
        let found = world.look(&line);
        assert!(found.iter().any(|script| script.path == "…" && script.hash.is_none()));
        let texts: usize = found.iter().filter_map(|script| script.text.as_ref()).map(String::len).sum();
        assert!(texts <= TEXTS_BYTES, "{texts}");
    }
}
