//! What the tests of commands share: a pod's places in a temporary directory, commands in a tier, news as they came.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use minke_exec::command::{Commands, CommandsConfig, RunOrder, Veil};
use minke_exec::fence::{EnvRules, Fence, FenceSpec, Helper, Limits, Network, PodDirs, Start};
use minke_policy::Tier;
use minke_record::Scope;
use minke_tool::{CommandNews, News};

pub(crate) fn helper() -> Helper {
    Helper::at(env!("CARGO_BIN_EXE_minke-fence"))
}

/// Shows everything.
pub(crate) struct Clear;

impl Veil for Clear {
    fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        bytes.to_vec()
    }
    fn end(&mut self) -> Vec<u8> {
        Vec::new()
    }
}

/// A pod's own places, and a directory that it may write.
pub(crate) struct Home {
    pub(crate) dir: tempfile::TempDir,
}

impl Home {
    pub(crate) fn new() -> Home {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for name in ["work", "tmp", "output"] {
            std::fs::create_dir(dir.path().join(name)).expect("a directory");
        }
        std::fs::write(dir.path().join("fences"), "").expect("a lock file");
        Home { dir }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().expect("it is there").join(name)
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.at("work")
    }

    pub(crate) fn spec(&self) -> FenceSpec {
        spec_at(&self.at(""))
    }

    pub(crate) fn commands(&self, tier: Tier) -> Commands {
        self.covered(tier, || Box::new(Clear))
    }

    pub(crate) fn covered(
        &self,
        tier: Tier,
        cover: impl Fn() -> Box<dyn Veil> + Send + Sync + 'static,
    ) -> Commands {
        commands_at(&self.at(""), tier, cover)
    }

    pub(crate) fn order(&self, commands: &Commands, command: &str) -> RunOrder {
        order_at(&self.work(), commands, command)
    }

    /// What stands in the directory of spilled output.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.at("output")).expect("the directory");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    }
}

pub(crate) fn spec_at(dir: &Path) -> FenceSpec {
    let work = dir.join("work");
    FenceSpec {
        scope: Scope::write(work.to_str().expect("plain names")),
        read_only: false,
        dirs: PodDirs {
            tmp: dir.join("tmp"),
            output: dir.join("output"),
            fences: dir.join("fences"),
            writable_tmp: true,
        },
        masked: Vec::new(),
        lifted: Vec::new(),
        findings: minke_exec::fence::Findings::default(),
        network: Network::Off,
        env: EnvRules::default(),
    }
}

pub(crate) fn commands_at(
    dir: &Path,
    tier: Tier,
    cover: impl Fn() -> Box<dyn Veil> + Send + Sync + 'static,
) -> Commands {
    let spec = spec_at(dir);
    Commands::new(CommandsConfig {
        tier,
        spec: Arc::new(move || spec.clone()),
        output_dir: dir.join("output"),
        cover: Arc::new(cover),
        helper: helper(),
        guard: minke_exec::command::Guard::default(),
    })
}

pub(crate) fn order_at(work: &Path, commands: &Commands, command: &str) -> RunOrder {
    RunOrder {
        id: commands.new_id(),
        command: command.to_owned(),
        cwd: work.to_owned(),
        timeout: Some(Duration::from_secs(30)),
        tty: false,
        env: BTreeMap::new(),
    }
}

/// The tiers of this kernel that hold commands; those that are missing are named.
pub(crate) fn tiers() -> Vec<Tier> {
    [Tier::Off, Tier::B, Tier::A].into_iter().filter(|tier| stands(*tier)).collect()
}

fn stands(tier: Tier) -> bool {
    let home = Home::new();
    let null =
        || std::fs::File::options().read(true).write(true).open("/dev/null").expect("it is there").into();
    let tried = Fence::compile(tier, &home.spec()).and_then(|fence| {
        fence.with_helper(helper()).start(Start {
            argv: vec!["/bin/true".into()],
            cwd: home.work(),
            stdin: null(),
            stdout: null(),
            stderr: null(),
            tty: false,
            limits: Limits::default(),
        })
    });
    if let Err(why) = &tried {
        assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "SKIPPED tier {tier}: {why}");
        eprintln!("SKIPPED tier {tier}: {why}");
    }
    tried.is_ok()
}

/// News as they came.
#[derive(Clone, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<(Instant, CommandNews)>>>);

impl Told {
    pub(crate) fn news(&self) -> News {
        let told = self.clone();
        News::new(move |_, news| told.0.lock().unwrap().push((Instant::now(), news)))
    }

    pub(crate) fn all(&self) -> Vec<CommandNews> {
        self.0.lock().unwrap().iter().map(|(_, news)| news.clone()).collect()
    }

    /// The told pieces: start, end and text of each.
    pub(crate) fn pieces(&self) -> Vec<(u64, u64, String)> {
        let pieces = self.all().into_iter().filter_map(|news| match news {
            CommandNews::Output { start, end, text, .. } => Some((start, end, text)),
            _ => None,
        });
        pieces.collect()
    }

    /// The told text, which must have no gap and no overlap.
    pub(crate) fn joined(&self) -> String {
        let mut joined = String::new();
        for (start, end, text) in self.pieces() {
            assert_eq!(start, joined.len() as u64, "a piece begins where the one before it ended");
            joined.push_str(&text);
            assert_eq!(end, joined.len() as u64, "offsets count the bytes of the text");
        }
        joined
    }

    pub(crate) fn last(&self) -> Option<CommandNews> {
        self.all().pop()
    }
}

/// Looks again and again until it is so, or the time is over.
pub(crate) fn until(longest: Duration, what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + longest;
    while !so() {
        assert!(Instant::now() < end, "not within {longest:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) async fn until_async(longest: Duration, what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + longest;
    while !so() {
        assert!(Instant::now() < end, "not within {longest:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
