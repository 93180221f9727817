//! How commands are started and how they end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use minke_exec::command::{CommandError, RunOrder};
use minke_exec::fence::Exit;
use minke_policy::Tier;
use minke_tool::{CommandEnd, CommandNews, News};

use crate::support::{Home, Told, tiers};

#[tokio::test]
async fn exits_and_signals_are_told_as_they_are() {
    for tier in tiers() {
        let home = Home::new();
        let commands = home.commands(tier);
        let cases = [
            ("true", Exit::Code(0)),
            ("exit 3", Exit::Code(3)),
            ("exit 255", Exit::Code(255)),
            ("no-such-program-at-all", Exit::Code(127)),
            ("./", Exit::Code(126)),
            ("kill -TERM $$", Exit::Signal(15)),
            ("kill -KILL $$", Exit::Signal(9)),
            ("kill -SEGV $$", Exit::Signal(11)),
            ("bash -c 'kill -KILL $$'", Exit::Code(137)),
            ("-x", Exit::Code(127)),
            ("if then", Exit::Code(2)),
        ];
        for (line, exit) in cases {
            let finished = commands.run(home.order(&commands, line), &News::nobody()).await.unwrap();
            // A shell whose last command is another program becomes it, so that its signal is the command's.
            let same = finished.exit == exit || (exit == Exit::Code(137) && finished.exit == Exit::Signal(9));
            assert!(same, "tier {tier}, `{line}`: {:?}, not {exit:?}", finished.exit);
            assert!(!finished.timed_out);
            assert_eq!(finished.file, None);
        }
        assert!(commands.running().is_empty());
    }
}

#[tokio::test]
async fn both_outputs_keep_their_order() {
    for tier in tiers() {
        let home = Home::new();
        let commands = home.commands(tier);
        let told = Told::default();
        let line = "for i in 1 2 3 4 5 6 7 8 9; do echo out $i; echo err $i >&2; done";
        let finished = commands.run(home.order(&commands, line), &told.news()).await.unwrap();
        let expected: String = (1..=9).map(|i| format!("out {i}\nerr {i}\n")).collect();
        assert_eq!(finished.tail, expected);
        assert_eq!((finished.lines, finished.bytes), (18, expected.len() as u64));
        assert_eq!(told.joined(), expected);
        let first = told.all().into_iter().next();
        let cwd = home.work().to_string_lossy().into_owned();
        assert_eq!(first, Some(CommandNews::Started { command: line.to_owned(), cwd }));
        let ended = CommandNews::Ended { end: CommandEnd::Completed, exit_code: Some(0) };
        assert_eq!(told.last(), Some(ended));
    }
}

#[tokio::test]
async fn a_command_runs_in_its_directory_with_empty_input() {
    for tier in tiers() {
        let home = Home::new();
        let commands = home.commands(tier);
        let line = "pwd; cat; read -r x || echo end; test -t 0 || echo no terminal";
        let finished = commands.run(home.order(&commands, line), &News::nobody()).await.unwrap();
        assert_eq!(finished.tail, format!("{}\nend\nno terminal\n", home.work().display()), "tier {tier}");
    }
}

#[tokio::test]
async fn a_broken_pipe_ends_a_program_as_it_should() {
    let home = Home::new();
    let commands = home.commands(Tier::Off);
    let line = "yes | head -n 1; echo ${PIPESTATUS[0]}";
    let finished = commands.run(home.order(&commands, line), &News::nobody()).await.unwrap();
    assert_eq!(finished.tail, "y\n141\n");
}

#[tokio::test]
async fn time_that_is_over_ends_a_command_and_leaves_what_it_said() {
    for tier in tiers() {
        let home = Home::new();
        let commands = home.commands(tier);
        let told = Told::default();
        let order = RunOrder {
            timeout: Some(Duration::from_millis(400)),
            ..home.order(&commands, "echo before; trap '' TERM INT HUP; sleep 100; echo after")
        };
        let began = Instant::now();
        let finished = commands.run(order, &told.news()).await.unwrap();
        assert!(finished.timed_out);
        assert_eq!(finished.exit, Exit::Signal(9));
        assert_eq!(finished.tail, "before\n");
        assert!(began.elapsed() < Duration::from_secs(3), "tier {tier}: {:?}", began.elapsed());
        assert_eq!(told.last(), Some(CommandNews::Ended { end: CommandEnd::TimedOut, exit_code: None }));
    }
}

#[tokio::test]
async fn the_command_is_over_when_its_shell_is() {
    for tier in tiers() {
        let home = Home::new();
        let commands = home.commands(tier);
        let line = "sleep 100 & (setsid sleep 100 &) ; echo done; exit 5";
        let began = Instant::now();
        let finished = commands.run(home.order(&commands, line), &News::nobody()).await.unwrap();
        assert_eq!((finished.exit, finished.tail.as_str()), (Exit::Code(5), "done\n"));
        assert!(began.elapsed() < Duration::from_secs(3), "tier {tier}: {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn a_cancelled_command_tells_its_end_and_leaves_no_file() {
    let home = Home::new();
    let commands = home.commands(Tier::Off);
    let told = Told::default();
    let order = home.order(&commands, "seq 1 100000; sleep 100");
    let news = told.news();
    {
        let run = commands.run(order, &news);
        tokio::pin!(run);
        let spilled =
            crate::support::until_async(Duration::from_secs(10), "a file", || !home.files().is_empty());
        tokio::select! {
            finished = &mut run => panic!("it ended by itself: {finished:?}"),
            () = spilled => {}
        }
        assert_eq!(commands.running().len(), 1);
    }
    assert_eq!(told.last(), Some(CommandNews::Ended { end: CommandEnd::Cancelled, exit_code: None }));
    assert!(commands.running().is_empty());
    assert_eq!(home.files(), Vec::<std::path::PathBuf>::new());
}

#[tokio::test]
async fn a_terminal_is_one() {
    for tier in tiers() {
        let home = Home::new();
        let commands = home.commands(tier);
        let line = "test -t 0 && test -t 1 && test -t 2 && echo all; stty size; echo $TERM; \
                    printf 'no break'; : < /dev/tty && echo open";
        let order = RunOrder { tty: true, ..home.order(&commands, line) };
        let finished = commands.run(order, &News::nobody()).await.unwrap();
        let said = finished.tail.replace("\r\n", "\n");
        for part in ["all\n", "24 80\n", "xterm-256color\n", "no break", "open\n"] {
            assert!(said.contains(part), "tier {tier}: `{part}` is missing in {said:?}");
        }
        assert!(finished.tail.contains("all\r\n"), "nothing is taken out of what a terminal says");
    }
}

#[tokio::test]
async fn nothing_that_a_terminal_says_is_lost() {
    for tier in tiers() {
        let home = Home::new();
        let commands = home.commands(tier);
        let run = async |line| {
            let order = RunOrder { tty: true, ..home.order(&commands, line) };
            commands.run(order, &News::nobody()).await.unwrap()
        };
        for _ in 0..10 {
            let finished = run("seq 1 2000").await;
            assert_eq!(finished.lines, 2000, "tier {tier}");
            assert!(finished.tail.ends_with("2000\r\n"), "tier {tier}: {:?}", finished.tail);
        }
        // One that nobody has open for a while is not over.
        let late = run("exec 0<&- 1>&- 2>&-; sleep 0.2; echo late > /dev/tty").await;
        assert_eq!(late.tail, "late\r\n", "tier {tier}");
    }
}

#[tokio::test]
async fn a_command_that_closes_its_outputs_is_waited_for() {
    let home = Home::new();
    let commands = home.commands(Tier::Off);
    let line = "echo before; exec 1>&- 2>&-; sleep 0.2; exit 6";
    let finished = commands.run(home.order(&commands, line), &News::nobody()).await.unwrap();
    assert_eq!((finished.exit, finished.tail.as_str()), (Exit::Code(6), "before\n"));
}

#[tokio::test]
async fn orders_that_cannot_be_tried_are_refused() {
    let home = Home::new();
    let commands = home.commands(Tier::Off);
    let good = home.order(&commands, "true");
    let bad = [
        RunOrder { command: String::new(), ..good.clone() },
        RunOrder { command: " \n\t".to_owned(), ..good.clone() },
        RunOrder { command: "echo a\0b".to_owned(), ..good.clone() },
        RunOrder { command: format!("echo {}", "x".repeat(200_000)), ..good.clone() },
        RunOrder { id: String::new(), ..good.clone() },
        RunOrder { id: "../x".to_owned(), ..good.clone() },
        RunOrder { id: "a\0b".to_owned(), ..good.clone() },
        RunOrder { id: "x".repeat(65), ..good.clone() },
        RunOrder { env: BTreeMap::from([(String::new(), "v".to_owned())]), ..good.clone() },
        RunOrder { env: BTreeMap::from([("A=B".to_owned(), "v".to_owned())]), ..good.clone() },
        RunOrder { env: BTreeMap::from([("A".to_owned(), "v\0".to_owned())]), ..good.clone() },
    ];
    for order in bad {
        let refused = commands.run(order.clone(), &News::nobody()).await;
        assert!(matches!(refused, Err(CommandError::BadOrder(_))), "{refused:?}");
        let refused = commands.start(order, &News::nobody()).await;
        assert!(matches!(refused, Err(CommandError::BadOrder(_))), "{refused:?}");
    }
    let long = RunOrder { command: format!("echo {} | wc -c", "x".repeat(100_000)), ..good.clone() };
    let finished = commands.run(long, &News::nobody()).await.unwrap();
    assert_eq!(finished.tail.trim(), "100001");
}

#[tokio::test]
async fn variables_of_an_order_are_its_own_and_win() {
    for tier in tiers() {
        let home = Home::new();
        let commands = home.commands(tier);
        let env = [("LANG", "from the order"), ("TMPDIR", "/elsewhere")];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let line = "echo \"$LANG $TMPDIR\"";
        let order = RunOrder { env, ..home.order(&commands, line) };
        let finished = commands.run(order, &News::nobody()).await.unwrap();
        assert_eq!(finished.tail, "from the order /elsewhere\n", "tier {tier}");
        let finished = commands.run(home.order(&commands, line), &News::nobody()).await.unwrap();
        assert!(
            !finished.tail.contains("order") && !finished.tail.contains("elsewhere"),
            "{}",
            finished.tail
        );
    }
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_an_error_that_says_so() {
    for tier in tiers() {
        let home = Home::new();
        let commands = home.commands(tier);
        let order = RunOrder { cwd: home.work().join("gone"), ..home.order(&commands, "true") };
        let error = commands.run(order, &News::nobody()).await.unwrap_err().to_string();
        assert!(error.contains("gone"), "tier {tier}: {error}");
        assert!(commands.running().is_empty());
    }
}

#[tokio::test]
async fn the_fence_is_that_of_the_moment_of_starting() {
    use std::sync::{Arc, Mutex};

    if !tiers().contains(&Tier::A) {
        return;
    }
    let home = Home::new();
    let spec = Arc::new(Mutex::new(home.spec()));
    let live = Arc::clone(&spec);
    let commands = minke_exec::command::Commands::new(minke_exec::command::CommandsConfig {
        tier: Tier::A,
        spec: Arc::new(move || live.lock().unwrap().clone()),
        output_dir: home.at("output"),
        cover: Arc::new(|| Box::new(crate::support::Clear)),
        helper: crate::support::helper(),
        guard: minke_exec::command::Guard::default(),
    });
    let write = "echo x > file && echo written";
    let before = commands.run(home.order(&commands, write), &News::nobody()).await.unwrap();
    assert_eq!(before.tail, "written\n");
    spec.lock().unwrap().read_only = true;
    let after = commands.run(home.order(&commands, write), &News::nobody()).await.unwrap();
    assert_ne!(after.exit, Exit::Code(0), "{}", after.tail);
}

/// Only where nothing holds a command can a process outside its tree get at its pipe.
#[tokio::test]
#[cfg(target_os = "linux")]
async fn a_stranger_who_holds_the_pipe_holds_nobody_up() {
    let home = Home::new();
    let commands = home.commands(Tier::Off);
    let told = Told::default();
    let news = told.news();
    let order = home.order(&commands, "echo $$; until [ -e go ]; do :; done; echo over");
    let stranger = async {
        crate::support::until_async(Duration::from_secs(10), "its number", || !told.joined().is_empty())
            .await;
        let pipe = format!("/proc/{}/fd/1", told.joined().trim());
        let held = std::fs::File::options().write(true).open(pipe).unwrap();
        std::fs::write(home.work().join("go"), "").unwrap();
        held
    };
    let began = Instant::now();
    let (finished, held) = tokio::join!(commands.run(order, &news), stranger);
    let finished = finished.unwrap();
    assert_eq!(finished.exit, Exit::Code(0));
    assert!(finished.tail.ends_with("\nover\n"), "{}", finished.tail);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    drop(held);
}

#[tokio::test]
async fn a_refused_set_id_file_is_reported_with_the_result() {
    for tier in tiers().into_iter().filter(|tier| *tier != Tier::Off) {
        let home = Home::new();
        let commands = home.commands(tier);
        let refused = "touch tool; chmod u+s tool || echo failed";
        let finished = commands.run(home.order(&commands, refused), &News::nobody()).await.unwrap();
        assert!(finished.set_id_refused && finished.tail.ends_with("failed\n"), "tier {tier}: {finished:?}");
        let finished = commands.run(home.order(&commands, "chmod u+x tool"), &News::nobody()).await.unwrap();
        assert!(!finished.set_id_refused, "tier {tier}: {finished:?}");
        // One that is killed at the end of its time has been refused all the same.
        let order = home.order(&commands, "chmod g+s tool; sleep 60");
        let order = RunOrder { timeout: Some(Duration::from_secs(1)), ..order };
        let finished = commands.run(order, &News::nobody()).await.unwrap();
        assert!(finished.set_id_refused && finished.timed_out, "tier {tier}: {finished:?}");
        // A background command says it while it runs.
        let order = home.order(&commands, "chmod g+s tool; echo tried; sleep 60");
        let id = order.id.clone();
        commands.start(RunOrder { timeout: None, ..order }, &News::nobody()).await.unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while !commands.output(&id, Some(0)).await.unwrap().set_id_refused {
            assert!(Instant::now() < until, "tier {tier}: the refusal is not reported");
            commands.wait(&id, Duration::from_millis(20)).await.unwrap();
        }
        commands.kill(&id).await.unwrap();
    }
}
