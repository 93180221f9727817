//! The output of a command: offsets, limits, the file, redaction.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use minke_exec::command::{CommandSpec, INLINE_BYTES, INLINE_LINES, MAX_FILE_BYTES, OutputFilter};
use minke_exec::sandbox::ProcessExit;
use minke_policy::SandboxBackend;
use minke_tool::CommandEventSink;

use crate::support::{CommandFixture, RecordedNews, working_backends};

const SECRET: &[u8] = b"hunter2hunter3";
const MASK: &[u8] = b"[hidden]";

/// Replaces one secret by a mask, and holds back a possible beginning of it.
#[derive(Default)]
struct HidingFilter(Vec<u8>);

impl OutputFilter for HidingFilter {
    fn filter_bytes(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.0.extend_from_slice(bytes);
        let mut out = Vec::new();
        while let Some(at) = self.0.windows(SECRET.len()).position(|window| window == SECRET) {
            out.extend(self.0.drain(..at));
            self.0.drain(..SECRET.len());
            out.extend_from_slice(MASK);
        }
        let longest = (SECRET.len() - 1).min(self.0.len());
        let held = (0..=longest).rev().find(|held| self.0.ends_with(&SECRET[..*held])).unwrap_or(0);
        let free = self.0.len() - held;
        out.extend(self.0.drain(..free));
        out
    }

    fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

#[tokio::test]
async fn pieces_join_to_what_the_file_holds() {
    let home = CommandFixture::new();
    let commands = home.commands_in(SandboxBackend::Off);
    let told = RecordedNews::default();
    // Characters of all lengths, split by writes, over more than one publication.
    let line = r"for i in $(seq 1 40); do printf 'a\xc3'; printf '\xa9\xe2\x82'; sleep 0.005
                 printf '\xac\xf0\x9f\x90'; printf '\x8b %s\n\xff' $i; printf 'x%.0s' $(seq 1 400); echo; done";
    let finished = commands.run_command(home.command_spec(&commands, line), &told.news()).await.unwrap();
    assert_eq!(finished.exit, ProcessExit::Code(0));
    let file = finished.file.expect("it does not fit");
    let whole = std::fs::read_to_string(&file).unwrap();
    assert_eq!(whole.matches("aé€🐋").count(), 40, "characters are joined over reads");
    assert_eq!(
        whole.matches('\u{fffd}').count(),
        40,
        "an invalid byte is shown as one replacement character"
    );
    assert_eq!(told.joined_output(), whole);
    assert!(told.output_pieces().len() > 3, "it was published in several chunks");
    assert_eq!(finished.bytes, whole.len() as u64);
    assert_eq!(finished.lines, 80);
    assert!(whole.ends_with(&finished.tail));
}

#[tokio::test]
async fn nothing_hidden_is_shown_anywhere() {
    let home = CommandFixture::new();
    let commands = home.commands_with_filter(SandboxBackend::Off, || Box::new(HidingFilter::default()));
    let told = RecordedNews::default();
    let line =
        "for i in $(seq 1 200); do printf 'key=hunt'; printf 'er2hun'; [ $((i % 40)) = 0 ] && sleep 0.06
                printf 'ter3 é\\n'; done; printf hunter2hunter";
    let order = home.command_spec(&commands, &format!("{line} # hunter2hunter3"));
    let finished = commands.run_command(order, &told.news()).await.unwrap();
    let whole = std::fs::read_to_string(finished.file.expect("it does not fit")).unwrap();
    assert_eq!(whole, format!("{}hunter2hunter", "key=[hidden] é\n".repeat(200)));
    assert_eq!(told.joined_output(), whole, "offsets count the shown bytes");
    assert!(whole.ends_with(&finished.tail));
    assert!(!format!("{:?}", told.all_news()).contains("hunter2hunter3"));
}

#[tokio::test]
async fn what_fits_is_inline_and_what_does_not_is_in_a_file() {
    let home = CommandFixture::new();
    let commands = home.commands_in(SandboxBackend::Off);
    let cases = [
        ("true".to_owned(), false),
        (format!("seq 1 {INLINE_LINES}"), false),
        (format!("seq 1 {}", INLINE_LINES + 1), true),
        (format!("seq 1 {INLINE_LINES}; printf x"), true),
        (format!("printf '%{INLINE_BYTES}s' x"), false),
        (format!("printf '%{}s' x", INLINE_BYTES + 1), true),
    ];
    for (line, spills) in cases {
        let finished = commands
            .run_command(home.command_spec(&commands, &line), &CommandEventSink::discard())
            .await
            .unwrap();
        assert_eq!(finished.file.is_some(), spills, "{line}");
        assert!(finished.tail.len() <= INLINE_BYTES && finished.tail.lines().count() <= INLINE_LINES);
        match finished.file {
            Some(file) => {
                let whole = std::fs::read_to_string(&file).unwrap();
                assert_eq!(whole.len() as u64, finished.bytes);
                assert_eq!(whole.lines().count() as u64, finished.lines);
                assert!(whole.ends_with(&finished.tail) && finished.tail.len() < whole.len());
                assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
                std::fs::remove_file(file).unwrap();
            }
            None => assert_eq!(finished.tail.len() as u64, finished.bytes),
        }
        assert!(home.output_files().is_empty(), "{line}");
    }
}

#[tokio::test]
async fn the_shell_reads_spilled_output_and_does_not_write_it() {
    for backend in working_backends().into_iter().filter(|backend| *backend != SandboxBackend::Off) {
        let home = CommandFixture::new();
        let commands = home.commands_in(backend);
        let spilled = commands
            .run_command(home.command_spec(&commands, "seq 1 5000"), &CommandEventSink::discard())
            .await
            .unwrap();
        let file = spilled.file.expect("it does not fit").display().to_string();
        let line = format!("wc -l < {file}; echo more >> {file} || rm -f {file} || echo held");
        let finished = commands
            .run_command(home.command_spec(&commands, &line), &CommandEventSink::discard())
            .await
            .unwrap();
        assert!(finished.tail.starts_with("5000\n"), "{backend}: {}", finished.tail);
        assert!(finished.tail.ends_with("held\n"), "{backend}: {}", finished.tail);
        assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 5000);
    }
}

#[tokio::test]
async fn the_end_of_long_output_is_whole_lines() {
    let home = CommandFixture::new();
    let commands = home.commands_in(SandboxBackend::Off);
    let finished = commands
        .run_command(home.command_spec(&commands, "seq 1 5000"), &CommandEventSink::discard())
        .await
        .unwrap();
    let expected: String = (4921..=5000).map(|i| format!("{i}\n")).collect();
    assert_eq!(finished.tail, expected);
    assert_eq!(finished.lines, 5000);
}

#[tokio::test]
async fn output_that_is_no_text_becomes_text() {
    let home = CommandFixture::new();
    let commands = home.commands_in(SandboxBackend::Off);
    let run = async |line| {
        commands.run_command(home.command_spec(&commands, line), &CommandEventSink::discard()).await.unwrap()
    };
    assert_eq!(run(r"printf 'a\0b\xff\xfec'").await.tail, "a\u{fffd}b\u{fffd}\u{fffd}c");
    assert_eq!(run(r"printf '\xf0\x9f\x90'").await.tail, "\u{fffd}", "an incomplete character at the end");
    let random = run("head -c 3000000 /dev/urandom").await;
    let whole = std::fs::read_to_string(random.file.expect("it does not fit")).unwrap();
    assert_eq!(whole.len() as u64, random.bytes);
    assert!(whole.ends_with(&random.tail));
}

#[tokio::test]
async fn one_line_without_end_is_cut_within_it() {
    let home = CommandFixture::new();
    let commands = home.commands_in(SandboxBackend::Off);
    let line = "head -c 3000000 /dev/zero | sed 's/\\x0/é/g'";
    let finished =
        commands.run_command(home.command_spec(&commands, line), &CommandEventSink::discard()).await.unwrap();
    assert_eq!((finished.lines, finished.bytes), (1, 6_000_000));
    assert_eq!(finished.tail, "é".repeat(INLINE_BYTES / 2));
}

#[tokio::test]
async fn output_beyond_its_bound_is_counted_and_the_command_goes_on() {
    let home = CommandFixture::new();
    let commands = home.commands_in(SandboxBackend::Off);
    let told = RecordedNews::default();
    let line = "head -c 70000000 /dev/zero | tr '\\0' x; echo; echo the end";
    let finished = commands.run_command(home.command_spec(&commands, line), &told.news()).await.unwrap();
    assert_eq!(finished.exit, ProcessExit::Code(0));
    assert_eq!(finished.bytes, 70_000_009);
    assert_eq!(finished.dropped, 70_000_009 - MAX_FILE_BYTES);
    assert_eq!(std::fs::metadata(finished.file.unwrap()).unwrap().len(), MAX_FILE_BYTES);
    assert!(finished.tail.ends_with("x\nthe end\n"));
    let pieces = told.output_pieces();
    let (_, end, text) = pieces.last().expect("output was published");
    assert_eq!(*end, finished.bytes, "the end is never lost");
    assert!(text.ends_with("the end\n"));
}

#[tokio::test]
async fn a_flood_is_told_in_measured_pieces() {
    let home = CommandFixture::new();
    let commands = home.commands_in(SandboxBackend::Off);
    let told = RecordedNews::default();
    let order =
        CommandSpec { timeout: Some(Duration::from_millis(1_500)), ..home.command_spec(&commands, "yes") };
    let before = peak_kib();
    let news = told.news();
    let flood = commands.run_command(order, &news);
    let beside = async {
        let began = Instant::now();
        for _ in 0..5 {
            let finished = commands
                .run_command(home.command_spec(&commands, "echo ok"), &CommandEventSink::discard())
                .await
                .unwrap();
            assert_eq!(finished.tail, "ok\n");
        }
        began.elapsed()
    };
    let (finished, beside) = tokio::join!(flood, beside);
    let (finished, grown) = (finished.unwrap(), peak_kib().saturating_sub(before));
    assert!(finished.timed_out);
    assert!(finished.elapsed < Duration::from_millis(3_500), "{:?}", finished.elapsed);
    assert!(finished.bytes > 1_000_000);
    let pieces = told.output_pieces();
    eprintln!(
        "flood: {} bytes in {:?}, {} pieces, {grown} KiB grown; five commands beside it {beside:?}",
        finished.bytes,
        finished.elapsed,
        pieces.len()
    );
    // At most twenty publications per second of eight chunks each, and the last output.
    let tellings = finished.elapsed.as_millis() as usize / 50 + 3;
    assert!(pieces.len() <= tellings * 9, "{} pieces", pieces.len());
    assert!(
        pieces.iter().all(|(start, end, text)| end - start == text.len() as u64 && text.len() <= 8 * 1024)
    );
    assert!(pieces.is_sorted_by(|a, b| a.1 <= b.0), "chunks never overlap");
    assert_eq!(pieces.last().unwrap().1, finished.bytes);
    assert!(grown < 24 * 1024, "{grown} KiB");
    assert!(beside < Duration::from_secs(8), "other tasks were blocked: {beside:?}");
}

#[tokio::test]
async fn output_is_told_while_it_comes() {
    let home = CommandFixture::new();
    let commands = home.commands_in(SandboxBackend::Off);
    let told = RecordedNews::default();
    let news = told.news();
    let run = commands
        .run_command(home.command_spec(&commands, "echo first; read -t 20 < fifo; echo second"), &news);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        home.work_dir().join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let heard = async {
        let said = || told.output_pieces().iter().any(|(_, _, text)| text == "first\n");
        crate::support::wait_until_async(Duration::from_secs(10), "the first line", said).await;
        std::fs::write(home.work_dir().join("fifo"), "go\n").unwrap();
    };
    let (finished, ()) = tokio::join!(run, heard);
    assert_eq!(finished.unwrap().tail, "first\nsecond\n");
}

#[tokio::test]
async fn output_that_cannot_be_kept_is_said_and_the_command_goes_on() {
    let home = CommandFixture::new();
    let commands = home.commands_in(SandboxBackend::Off);
    let order = home.command_spec(&commands, "seq 1 5000");
    // An existing file or link at the path is neither followed nor replaced.
    let taken = home.path_to("output").join(format!("{}.txt", order.id));
    std::os::unix::fs::symlink("/dev/null", &taken).unwrap();
    let finished = commands.run_command(order, &CommandEventSink::discard()).await.unwrap();
    assert_eq!(finished.exit, ProcessExit::Code(0));
    assert_eq!(finished.file, None);
    assert!(finished.tail.ends_with("4999\n5000\n"));
    let why = finished.spill_error.expect("the reason why there is no file");
    assert!(why.contains(taken.to_str().unwrap()) && why.contains("exists"), "{why}");
    assert_eq!(finished.dropped, finished.bytes);
}

/// Returns the peak memory of this process.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    line.and_then(|line| line.split_whitespace().nth(1)).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}
