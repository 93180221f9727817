//! Background commands: start, output, input, end.

use std::time::{Duration, Instant};

use minke_exec::command::{
    CommandError, CommandSpec, CommandStatus, Commands, INLINE_BYTES, MAX_BACKGROUND, MAX_REMEMBERED,
    OutputChunk,
};
use minke_exec::sandbox::ProcessExit;
use minke_policy::SandboxBackend;
use minke_tool::{CommandEnd, CommandEvent, CommandEventSink};

use crate::support::{CommandFixture, RecordedNews, wait_until_async, working_backends};

const LONG_TIMEOUT: Duration = Duration::from_secs(10);

async fn start_background(home: &CommandFixture, commands: &Commands, line: &str) -> String {
    let order = CommandSpec { timeout: None, ..home.command_spec(commands, line) };
    let id = order.id.clone();
    commands.start_background(order, &CommandEventSink::discard()).await.unwrap();
    id
}

/// Reads until the command has ended, and joins the output.
async fn read_to_end(commands: &Commands, id: &str) -> (String, OutputChunk) {
    let mut said = String::new();
    loop {
        commands.wait_for_output(id, LONG_TIMEOUT).await.unwrap();
        let piece = commands.read_output(id, None).await.unwrap();
        assert_eq!(piece.skipped, 0);
        said.push_str(&piece.text);
        assert_eq!(piece.end, said.len() as u64);
        if piece.status != CommandStatus::Running {
            return (said, piece);
        }
    }
}

#[tokio::test]
async fn a_background_command_is_looked_at_again_and_again() {
    for backend in working_backends() {
        let home = CommandFixture::new();
        let commands = home.commands_in(backend);
        let told = RecordedNews::default();
        let order = home.command_spec(&commands, "echo one; read -r x; echo got $x; read -r y; exit $y");
        let id = order.id.clone();
        commands.start_background(order, &told.news()).await.unwrap();

        commands.wait_for_output(&id, LONG_TIMEOUT).await.unwrap();
        let first = commands.read_output(&id, None).await.unwrap();
        assert_eq!((first.text.as_str(), first.start, first.end), ("one\n", 0, 4));
        assert_eq!(first.status, CommandStatus::Running);
        let nothing = commands.read_output(&id, None).await.unwrap();
        assert_eq!((nothing.text.as_str(), nothing.start, nothing.end), ("", 4, 4));
        assert_eq!(commands.running_commands().len(), 1);

        commands.write_input(&id, b"two\n").await.unwrap();
        commands.wait_for_output(&id, LONG_TIMEOUT).await.unwrap();
        assert_eq!(commands.read_output(&id, None).await.unwrap().text, "got two\n");
        assert_eq!(commands.read_output(&id, Some(0)).await.unwrap().text, "one\ngot two\n");

        commands.write_input(&id, b"7\n").await.unwrap();
        commands.wait_for_output(&id, LONG_TIMEOUT).await.unwrap();
        let last = commands.read_output(&id, None).await.unwrap();
        let ended = CommandStatus::Ended { exit: ProcessExit::Code(7), timed_out: false, killed: false };
        assert_eq!((last.text.as_str(), last.status), ("", ended));
        assert!(commands.running_commands().is_empty());
        assert_eq!(commands.list_background().len(), 1, "it is remembered");
        let refused = commands.write_input(&id, b"more\n").await.unwrap_err();
        assert!(matches!(refused, CommandError::Ended { .. }), "{refused}");
        assert_eq!(told.joined_output(), "one\ngot two\n");
        assert_eq!(
            told.last_news(),
            Some(CommandEvent::Ended { end: CommandEnd::Failed, exit_code: Some(7) })
        );
    }
}

#[tokio::test]
async fn input_reaches_a_cat_and_ends() {
    let home = CommandFixture::new();
    let commands = home.commands_in(SandboxBackend::Off);
    let id = start_background(&home, &commands, "cat; echo over").await;
    let text = "é€🐋\n".repeat(60);
    commands.write_input(&id, text.as_bytes()).await.unwrap();
    commands.close_input(&id).await.unwrap();
    let (said, last) = read_to_end(&commands, &id).await;
    assert_eq!(said, format!("{text}over\n"));
    assert_eq!(
        last.status,
        CommandStatus::Ended { exit: ProcessExit::Code(0), timed_out: false, killed: false }
    );
}

#[tokio::test]
async fn a_terminal_in_the_background_takes_keys() {
    for backend in working_backends() {
        let home = CommandFixture::new();
        let commands = home.commands_in(backend);
        let line =
            "trap 'echo stopped; exit 4' INT; echo ready; while true; do read -r x && echo got $x; done";
        let order = CommandSpec { tty: true, ..home.command_spec(&commands, line) };
        let id = order.id.clone();
        commands.start_background(order, &CommandEventSink::discard()).await.unwrap();
        let mut said = String::new();
        for (key, answer) in [(&b""[..], "ready"), (b"hello\n", "got hello"), (b"\x03", "stopped")] {
            commands.write_input(&id, key).await.unwrap();
            let end = Instant::now() + LONG_TIMEOUT;
            while !said.contains(answer) {
                assert!(Instant::now() < end, "{backend}: no `{answer}` in {said:?}");
                commands.wait_for_output(&id, Duration::from_secs(1)).await.unwrap();
                said.push_str(&commands.read_output(&id, None).await.unwrap().text);
                // A shell that got the signal just before it began to read waits for the next line, so press Enter.
                if key == b"\x03" && !said.contains(answer) && !commands.running_commands().is_empty() {
                    let pressed = commands.write_input(&id, b"\n").await;
                    let over = |e: &CommandError| {
                        matches!(e, CommandError::Ended { .. } | CommandError::InputClosed { .. })
                    };
                    assert!(pressed.as_ref().err().is_none_or(over), "{pressed:?}");
                }
            }
        }
        let status = commands.kill_command(&id).await.unwrap();
        let ended = CommandStatus::Ended { exit: ProcessExit::Code(4), timed_out: false, killed: false };
        assert!(status == ended || matches!(status, CommandStatus::Ended { killed: true, .. }), "{status:?}");
    }
}

#[tokio::test]
async fn input_that_nobody_reads_is_refused_in_time_and_says_how_far_it_came() {
    let home = CommandFixture::new();
    let commands = home.commands_in(SandboxBackend::Off);
    let id = start_background(&home, &commands, "sleep 100").await;
    let full = vec![b'x'; 64 * 1024];
    commands.write_input(&id, &full).await.unwrap();
    let began = Instant::now();
    let refused = commands.write_input(&id, &full).await.unwrap_err();
    assert!(matches!(refused, CommandError::InputFull { taken: 0, given: 65_536, .. }), "{refused}");
    assert!(began.elapsed() < LONG_TIMEOUT);
    let refused = commands.write_input(&id, &vec![b'x'; 64 * 1024 + 1]).await.unwrap_err();
    assert!(matches!(refused, CommandError::InvalidCommand(_)), "{refused}");
    commands.kill_command(&id).await.unwrap();

    let id = start_background(&home, &commands, "exec 0<&-; echo closed; sleep 100").await;
    commands.wait_for_output(&id, LONG_TIMEOUT).await.unwrap();
    let refused = commands.write_input(&id, b"x").await.unwrap_err();
    assert!(matches!(refused, CommandError::InputClosed { .. }), "{refused}");
    commands.kill_command(&id).await.unwrap();
}

#[tokio::test]
async fn killing_is_quick_and_can_be_repeated() {
    for backend in working_backends() {
        let home = CommandFixture::new();
        let commands = home.commands_in(backend);
        let told = RecordedNews::default();
        let order = home.command_spec(&commands, "echo here; trap '' TERM; sleep 1000");
        let id = order.id.clone();
        commands.start_background(order, &told.news()).await.unwrap();
        commands.wait_for_output(&id, LONG_TIMEOUT).await.unwrap();
        let began = Instant::now();
        let status = commands.kill_command(&id).await.unwrap();
        assert!(matches!(status, CommandStatus::Ended { killed: true, timed_out: false, .. }), "{status:?}");
        assert!(began.elapsed() < Duration::from_secs(2), "{backend}: {:?}", began.elapsed());
        assert_eq!(commands.kill_command(&id).await.unwrap(), status);
        assert_eq!(commands.read_output(&id, None).await.unwrap().text, "here\n");
        assert_eq!(
            told.last_news(),
            Some(CommandEvent::Ended { end: CommandEnd::Cancelled, exit_code: None })
        );
    }
}

#[tokio::test]
async fn there_are_only_so_many_and_the_oldest_are_forgotten() {
    let home = CommandFixture::new();
    let commands = home.commands_in(SandboxBackend::Off);
    let mut ids = Vec::new();
    for _ in 0..MAX_BACKGROUND {
        ids.push(start_background(&home, &commands, "cat").await);
    }
    let order = home.command_spec(&commands, "true");
    let refused =
        commands.start_background(order.clone(), &CommandEventSink::discard()).await.unwrap_err().to_string();
    assert!(refused.contains(&ids[0]) && refused.contains("16"), "{refused}");
    // Foreground commands do not count.
    commands.run_command(order.clone(), &CommandEventSink::discard()).await.unwrap();
    commands.kill_command(&ids[3]).await.unwrap();
    commands.start_background(order, &CommandEventSink::discard()).await.unwrap();
    commands.stop_all().await;
    assert!(commands.running_commands().is_empty());
    for (_, status) in commands.list_background() {
        assert_ne!(status, CommandStatus::Running);
    }

    let mut last = Vec::new();
    for number in 0..MAX_REMEMBERED {
        let id = start_background(&home, &commands, &format!("echo {number}")).await;
        read_to_end(&commands, &id).await;
        last.push(id);
    }
    assert_eq!(commands.list_background().len(), MAX_REMEMBERED);
    assert_eq!(commands.read_output(&last[0], Some(0)).await.unwrap().text, "0\n");
    let gone = commands.read_output(&ids[0], None).await.unwrap_err().to_string();
    assert!(gone.contains(&ids[0]) && gone.contains("no command runs"), "{gone}");
}

#[tokio::test]
async fn an_unknown_id_is_answered_with_those_that_run() {
    let home = CommandFixture::new();
    let commands = home.commands_in(SandboxBackend::Off);
    let id = start_background(&home, &commands, "sleep 77; true").await;
    for unknown in ["", "nope", "../../etc/passwd", "a\0b", &"x".repeat(100_000)] {
        for error in [
            commands.read_output(unknown, None).await.unwrap_err(),
            commands.write_input(unknown, b"x").await.unwrap_err(),
            commands.kill_command(unknown).await.unwrap_err(),
        ] {
            let error = error.to_string();
            assert!(error.contains(&id) && error.contains("sleep 77"), "{error}");
            assert!(error.len() < 300);
        }
    }
    let order = CommandSpec { id: id.clone(), ..home.command_spec(&commands, "true") };
    let taken = commands.start_background(order, &CommandEventSink::discard()).await.unwrap_err();
    assert!(matches!(taken, CommandError::DuplicateId { .. }), "{taken}");
    commands.stop_all().await;
}

#[tokio::test]
async fn offsets_lead_through_all_of_a_long_output() {
    let home = CommandFixture::new();
    let commands = home.commands_in(SandboxBackend::Off);
    let id = start_background(&home, &commands, "for i in $(seq 1 30000); do echo é $i; done").await;
    wait_until_async(LONG_TIMEOUT, "the end", || commands.running_commands().is_empty()).await;
    let expected: String = (1..=30_000).map(|i| format!("é {i}\n")).collect();
    let mut said = String::new();
    loop {
        let piece = commands.read_output(&id, Some(said.len() as u64)).await.unwrap();
        assert_eq!((piece.start, piece.skipped), (said.len() as u64, 0));
        if piece.text.is_empty() {
            break;
        }
        said.push_str(&piece.text);
    }
    assert_eq!(said, expected);
    // An offset within a character returns the next character.
    let within = commands.read_output(&id, Some(1)).await.unwrap();
    assert_eq!((within.start, within.skipped), (2, 1));
    assert!(within.text.starts_with(" 1\né 2\n"));
    let beyond = commands.read_output(&id, Some(u64::MAX)).await.unwrap();
    assert_eq!((beyond.text.as_str(), beyond.start), ("", expected.len() as u64));
    // One read returns the end, and says how much it skipped.
    let look = commands.read_output(&id, None).await.unwrap();
    assert!(look.text.len() <= INLINE_BYTES && look.text.ends_with("é 30000\n"));
    assert_eq!(look.skipped, (expected.len() - look.text.len()) as u64);
    assert_eq!(std::fs::read_to_string(look.file.unwrap()).unwrap(), expected);
}

#[tokio::test]
async fn a_timeout_ends_a_background_command_too() {
    let home = CommandFixture::new();
    let commands = home.commands_in(SandboxBackend::Off);
    let timeout = Some(Duration::from_millis(200));
    let order = CommandSpec { timeout, ..home.command_spec(&commands, "sleep 100") };
    let id = order.id.clone();
    commands.start_background(order, &CommandEventSink::discard()).await.unwrap();
    let (_, last) = read_to_end(&commands, &id).await;
    assert!(matches!(last.status, CommandStatus::Ended { timed_out: true, killed: false, .. }), "{last:?}");
}

#[tokio::test]
async fn waiting_ends_with_its_time() {
    let home = CommandFixture::new();
    let commands = home.commands_in(SandboxBackend::Off);
    let id = start_background(&home, &commands, "sleep 100").await;
    let began = Instant::now();
    commands.wait_for_output(&id, Duration::from_millis(100)).await.unwrap();
    assert!((Duration::from_millis(100)..Duration::from_secs(5)).contains(&began.elapsed()));
    assert_eq!(commands.read_output(&id, None).await.unwrap().text, "");
    commands.stop_all().await;
}

/// The thread that starts a command may end before the command does.
#[test]
fn a_background_command_outlives_the_thread_that_started_it() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(Duration::from_millis(20))
        .build()
        .unwrap();
    for backend in working_backends() {
        let home = CommandFixture::new();
        let commands = home.commands_in(backend);
        runtime.block_on(async {
            let id = start_background(&home, &commands, "cat").await;
            // The starting thread ends after 20 ms without work; no other event shows that it has ended.
            tokio::time::sleep(Duration::from_millis(200)).await;
            commands.write_input(&id, b"still here\n").await.unwrap();
            commands.wait_for_output(&id, LONG_TIMEOUT).await.unwrap();
            let piece = commands.read_output(&id, None).await.unwrap();
            assert_eq!(
                (piece.text.as_str(), piece.status),
                ("still here\n", CommandStatus::Running),
                "{backend}"
            );
            commands.stop_all().await;
        });
    }
}
