//! How commands are started and how they end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use minke_exec::command::{CommandError, CommandSpec};
use minke_exec::sandbox::ProcessExit;
use minke_policy::SandboxBackend;
use minke_tool::{CommandEnd, CommandEvent, CommandEventSink};

use crate::support::{CommandFixture, RecordedNews, working_backends};

#[tokio::test]
async fn exits_and_signals_are_told_as_they_are() {
    for backend in working_backends() {
        let home = CommandFixture::new();
        let commands = home.commands_in(backend);
        let cases = [
            ("true", ProcessExit::Code(0)),
            ("exit 3", ProcessExit::Code(3)),
            ("exit 255", ProcessExit::Code(255)),
            ("no-such-program-at-all", ProcessExit::Code(127)),
            ("./", ProcessExit::Code(126)),
            ("kill -TERM $$", ProcessExit::Signal(15)),
            ("kill -KILL $$", ProcessExit::Signal(9)),
            ("kill -SEGV $$", ProcessExit::Signal(11)),
            ("bash -c 'kill -KILL $$'", ProcessExit::Code(137)),
            ("-x", ProcessExit::Code(127)),
            ("if then", ProcessExit::Code(2)),
        ];
        for (line, exit) in cases {
            let finished = commands
                .run_command(home.command_spec(&commands, line), &CommandEventSink::discard())
                .await
                .unwrap();
            // A shell replaces itself by its last command, so that its signal is the command's.
            let same = finished.exit == exit
                || (exit == ProcessExit::Code(137) && finished.exit == ProcessExit::Signal(9));
            assert!(same, "{backend}, `{line}`: {:?}, not {exit:?}", finished.exit);
            assert!(!finished.timed_out);
            assert_eq!(finished.file, None);
        }
        assert!(commands.running_commands().is_empty());
    }
}

#[tokio::test]
async fn both_outputs_keep_their_order() {
    for backend in working_backends() {
        let home = CommandFixture::new();
        let commands = home.commands_in(backend);
        let told = RecordedNews::default();
        let line = "for i in 1 2 3 4 5 6 7 8 9; do echo out $i; echo err $i >&2; done";
        let finished = commands.run_command(home.command_spec(&commands, line), &told.news()).await.unwrap();
        let expected: String = (1..=9).map(|i| format!("out {i}\nerr {i}\n")).collect();
        assert_eq!(finished.tail, expected);
        assert_eq!((finished.lines, finished.bytes), (18, expected.len() as u64));
        assert_eq!(told.joined_output(), expected);
        let first = told.all_news().into_iter().next();
        let cwd = home.work_dir().to_string_lossy().into_owned();
        assert_eq!(first, Some(CommandEvent::Started { command: line.to_owned(), cwd }));
        let ended = CommandEvent::Ended { end: CommandEnd::Exited, exit_code: Some(0) };
        assert_eq!(told.last_news(), Some(ended));
    }
}

#[tokio::test]
async fn a_command_runs_in_its_directory_with_empty_input() {
    for backend in working_backends() {
        let home = CommandFixture::new();
        let commands = home.commands_in(backend);
        let line = "pwd; cat; read -r x || echo end; test -t 0 || echo no terminal";
        let finished = commands
            .run_command(home.command_spec(&commands, line), &CommandEventSink::discard())
            .await
            .unwrap();
        assert_eq!(finished.tail, format!("{}\nend\nno terminal\n", home.work_dir().display()), "{backend}");
    }
}

#[tokio::test]
async fn a_broken_pipe_ends_a_program_as_it_should() {
    let home = CommandFixture::new();
    let commands = home.commands_in(SandboxBackend::Off);
    let line = "yes | head -n 1; echo ${PIPESTATUS[0]}";
    let finished =
        commands.run_command(home.command_spec(&commands, line), &CommandEventSink::discard()).await.unwrap();
    assert_eq!(finished.tail, "y\n141\n");
}

#[tokio::test]
async fn time_that_is_over_ends_a_command_and_leaves_what_it_said() {
    for backend in working_backends() {
        let home = CommandFixture::new();
        let commands = home.commands_in(backend);
        let told = RecordedNews::default();
        let order = CommandSpec {
            timeout: Some(Duration::from_millis(400)),
            ..home.command_spec(&commands, "echo before; trap '' TERM INT HUP; sleep 100; echo after")
        };
        let began = Instant::now();
        let finished = commands.run_command(order, &told.news()).await.unwrap();
        assert!(finished.timed_out);
        assert_eq!(finished.exit, ProcessExit::Signal(9));
        assert_eq!(finished.tail, "before\n");
        assert!(began.elapsed() < Duration::from_secs(3), "{backend}: {:?}", began.elapsed());
        assert_eq!(
            told.last_news(),
            Some(CommandEvent::Ended { end: CommandEnd::TimedOut, exit_code: None })
        );
    }
}

#[tokio::test]
async fn the_command_is_over_when_its_shell_is() {
    for backend in working_backends() {
        let home = CommandFixture::new();
        let commands = home.commands_in(backend);
        let line = "sleep 100 & (setsid sleep 100 &) ; echo done; exit 5";
        let began = Instant::now();
        let finished = commands
            .run_command(home.command_spec(&commands, line), &CommandEventSink::discard())
            .await
            .unwrap();
        assert_eq!((finished.exit, finished.tail.as_str()), (ProcessExit::Code(5), "done\n"));
        assert!(began.elapsed() < Duration::from_secs(3), "{backend}: {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn a_cancelled_command_tells_its_end_and_leaves_no_file() {
    let home = CommandFixture::new();
    let commands = home.commands_in(SandboxBackend::Off);
    let told = RecordedNews::default();
    let order = home.command_spec(&commands, "seq 1 100000; sleep 100");
    let news = told.news();
    {
        let run = commands.run_command(order, &news);
        tokio::pin!(run);
        let spilled = crate::support::wait_until_async(Duration::from_secs(10), "a file", || {
            !home.output_files().is_empty()
        });
        tokio::select! {
            finished = &mut run => panic!("it ended too early: {finished:?}"),
            () = spilled => {}
        }
        assert_eq!(commands.running_commands().len(), 1);
    }
    assert_eq!(told.last_news(), Some(CommandEvent::Ended { end: CommandEnd::Cancelled, exit_code: None }));
    assert!(commands.running_commands().is_empty());
    assert_eq!(home.output_files(), Vec::<std::path::PathBuf>::new());
}

#[tokio::test]
async fn a_terminal_is_one() {
    for backend in working_backends() {
        let home = CommandFixture::new();
        let commands = home.commands_in(backend);
        let line = "test -t 0 && test -t 1 && test -t 2 && echo all; stty size; echo $TERM; \
                    printf 'no break'; : < /dev/tty && echo open";
        let order = CommandSpec { tty: true, ..home.command_spec(&commands, line) };
        let finished = commands.run_command(order, &CommandEventSink::discard()).await.unwrap();
        let said = finished.tail.replace("\r\n", "\n");
        for part in ["all\n", "24 80\n", "xterm-256color\n", "no break", "open\n"] {
            assert!(said.contains(part), "{backend}: `{part}` is missing in {said:?}");
        }
        assert!(finished.tail.contains("all\r\n"), "terminal output is not changed");
    }
}

#[tokio::test]
async fn nothing_that_a_terminal_says_is_lost() {
    for backend in working_backends() {
        let home = CommandFixture::new();
        let commands = home.commands_in(backend);
        let run = async |line| {
            let order = CommandSpec { tty: true, ..home.command_spec(&commands, line) };
            commands.run_command(order, &CommandEventSink::discard()).await.unwrap()
        };
        for _ in 0..10 {
            let finished = run("seq 1 2000").await;
            assert_eq!(finished.lines, 2000, "{backend}");
            assert!(finished.tail.ends_with("2000\r\n"), "{backend}: {:?}", finished.tail);
        }
        // A terminal that no process has open for a while is still usable.
        let late = run("exec 0<&- 1>&- 2>&-; sleep 0.2; echo late > /dev/tty").await;
        assert_eq!(late.tail, "late\r\n", "{backend}");
    }
}

#[tokio::test]
async fn a_command_that_closes_its_outputs_is_waited_for() {
    let home = CommandFixture::new();
    let commands = home.commands_in(SandboxBackend::Off);
    let line = "echo before; exec 1>&- 2>&-; sleep 0.2; exit 6";
    let finished =
        commands.run_command(home.command_spec(&commands, line), &CommandEventSink::discard()).await.unwrap();
    assert_eq!((finished.exit, finished.tail.as_str()), (ProcessExit::Code(6), "before\n"));
}

#[tokio::test]
async fn orders_that_cannot_be_tried_are_refused() {
    let home = CommandFixture::new();
    let commands = home.commands_in(SandboxBackend::Off);
    let good = home.command_spec(&commands, "true");
    let bad = [
        CommandSpec { command: String::new(), ..good.clone() },
        CommandSpec { command: " \n\t".to_owned(), ..good.clone() },
        CommandSpec { command: "echo a\0b".to_owned(), ..good.clone() },
        CommandSpec { command: format!("echo {}", "x".repeat(200_000)), ..good.clone() },
        CommandSpec { id: String::new(), ..good.clone() },
        CommandSpec { id: "../x".to_owned(), ..good.clone() },
        CommandSpec { id: "a\0b".to_owned(), ..good.clone() },
        CommandSpec { id: "x".repeat(65), ..good.clone() },
        CommandSpec { env: BTreeMap::from([(String::new(), "v".to_owned())]), ..good.clone() },
        CommandSpec { env: BTreeMap::from([("A=B".to_owned(), "v".to_owned())]), ..good.clone() },
        CommandSpec { env: BTreeMap::from([("A".to_owned(), "v\0".to_owned())]), ..good.clone() },
    ];
    for order in bad {
        let refused = commands.run_command(order.clone(), &CommandEventSink::discard()).await;
        assert!(matches!(refused, Err(CommandError::InvalidCommand(_))), "{refused:?}");
        let refused = commands.start_background(order, &CommandEventSink::discard()).await;
        assert!(matches!(refused, Err(CommandError::InvalidCommand(_))), "{refused:?}");
    }
    let long = CommandSpec { command: format!("echo {} | wc -c", "x".repeat(100_000)), ..good.clone() };
    let finished = commands.run_command(long, &CommandEventSink::discard()).await.unwrap();
    assert_eq!(finished.tail.trim(), "100001");
}

#[tokio::test]
async fn variables_of_an_order_are_its_own_and_win() {
    for backend in working_backends() {
        let home = CommandFixture::new();
        let commands = home.commands_in(backend);
        let env = [("LANG", "from the order"), ("TMPDIR", "/elsewhere")];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let line = "echo \"$LANG $TMPDIR\"";
        let order = CommandSpec { env, ..home.command_spec(&commands, line) };
        let finished = commands.run_command(order, &CommandEventSink::discard()).await.unwrap();
        assert_eq!(finished.tail, "from the order /elsewhere\n", "{backend}");
        let finished = commands
            .run_command(home.command_spec(&commands, line), &CommandEventSink::discard())
            .await
            .unwrap();
        assert!(
            !finished.tail.contains("order") && !finished.tail.contains("elsewhere"),
            "{}",
            finished.tail
        );
    }
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_an_error_that_says_so() {
    for backend in working_backends() {
        let home = CommandFixture::new();
        let commands = home.commands_in(backend);
        let order = CommandSpec { cwd: home.work_dir().join("gone"), ..home.command_spec(&commands, "true") };
        let error = commands.run_command(order, &CommandEventSink::discard()).await.unwrap_err().to_string();
        assert!(error.contains("gone"), "{backend}: {error}");
        assert!(commands.running_commands().is_empty());
    }
}

#[tokio::test]
async fn the_sandbox_is_that_of_the_moment_of_starting() {
    use std::sync::{Arc, Mutex};

    if !working_backends().contains(&SandboxBackend::Namespaces) {
        return;
    }
    let home = CommandFixture::new();
    let spec = Arc::new(Mutex::new(home.sandbox_spec()));
    let live = Arc::clone(&spec);
    let commands = minke_exec::command::Commands::new(minke_exec::command::CommandsConfig {
        backend: SandboxBackend::Namespaces,
        spec: Arc::new(move || live.lock().unwrap().clone()),
        output_dir: home.path_to("output"),
        output_filter: Arc::new(|| Box::new(crate::support::PassthroughFilter)),
        helper: crate::support::helper_binary(),
        guard: minke_exec::command::RepositoryGuard::default(),
    });
    let write = "echo x > file && echo written";
    let before = commands
        .run_command(home.command_spec(&commands, write), &CommandEventSink::discard())
        .await
        .unwrap();
    assert_eq!(before.tail, "written\n");
    spec.lock().unwrap().read_only = true;
    let after = commands
        .run_command(home.command_spec(&commands, write), &CommandEventSink::discard())
        .await
        .unwrap();
    assert_ne!(after.exit, ProcessExit::Code(0), "{}", after.tail);
}

/// Only without a sandbox can a process outside its tree access its pipe.
#[tokio::test]
#[cfg(target_os = "linux")]
async fn a_stranger_who_holds_the_pipe_holds_nobody_up() {
    let home = CommandFixture::new();
    let commands = home.commands_in(SandboxBackend::Off);
    let told = RecordedNews::default();
    let news = told.news();
    let order = home.command_spec(&commands, "echo $$; until [ -e go ]; do :; done; echo over");
    let stranger = async {
        crate::support::wait_until_async(Duration::from_secs(10), "its process id", || {
            !told.joined_output().is_empty()
        })
        .await;
        let pipe = format!("/proc/{}/fd/1", told.joined_output().trim());
        let held = std::fs::File::options().write(true).open(pipe).unwrap();
        std::fs::write(home.work_dir().join("go"), "").unwrap();
        held
    };
    let began = Instant::now();
    let (finished, held) = tokio::join!(commands.run_command(order, &news), stranger);
    let finished = finished.unwrap();
    assert_eq!(finished.exit, ProcessExit::Code(0));
    assert!(finished.tail.ends_with("\nover\n"), "{}", finished.tail);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    drop(held);
}

#[tokio::test]
async fn a_refused_set_id_file_is_reported_with_the_result() {
    for backend in working_backends().into_iter().filter(|backend| *backend != SandboxBackend::Off) {
        let home = CommandFixture::new();
        let commands = home.commands_in(backend);
        let refused = "touch tool; chmod u+s tool || echo failed";
        let finished = commands
            .run_command(home.command_spec(&commands, refused), &CommandEventSink::discard())
            .await
            .unwrap();
        assert!(finished.set_id_refused && finished.tail.ends_with("failed\n"), "{backend}: {finished:?}");
        let finished = commands
            .run_command(home.command_spec(&commands, "chmod u+x tool"), &CommandEventSink::discard())
            .await
            .unwrap();
        assert!(!finished.set_id_refused, "{backend}: {finished:?}");
        // A refusal is reported even if the command times out.
        let order = home.command_spec(&commands, "chmod g+s tool; sleep 60");
        let order = CommandSpec { timeout: Some(Duration::from_secs(1)), ..order };
        let finished = commands.run_command(order, &CommandEventSink::discard()).await.unwrap();
        assert!(finished.set_id_refused && finished.timed_out, "{backend}: {finished:?}");
        // A background command reports it while it runs.
        let order = home.command_spec(&commands, "chmod g+s tool; echo tried; sleep 60");
        let id = order.id.clone();
        commands
            .start_background(CommandSpec { timeout: None, ..order }, &CommandEventSink::discard())
            .await
            .unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while !commands.read_output(&id, Some(0)).await.unwrap().set_id_refused {
            assert!(Instant::now() < until, "{backend}: the refusal is not reported");
            commands.wait_for_output(&id, Duration::from_millis(20)).await.unwrap();
        }
        commands.kill_command(&id).await.unwrap();
    }
}
