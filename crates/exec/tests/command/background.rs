//! Commands in the background: their life, what is seen of it, their input.

use std::time::{Duration, Instant};

use minke_exec::command::{
    BACKGROUND_MOST, CommandError, Commands, INLINE_BYTES, Piece, REMEMBERED_MOST, RunOrder, Status,
};
use minke_exec::fence::Exit;
use minke_policy::Tier;
use minke_tool::{CommandEnd, CommandNews, News};

use crate::support::{Home, Told, tiers, until_async};

const LONG: Duration = Duration::from_secs(10);

async fn start(home: &Home, commands: &Commands, line: &str) -> String {
    let order = RunOrder { timeout: None, ..home.order(commands, line) };
    let id = order.id.clone();
    commands.start(order, &News::nobody()).await.unwrap();
    id
}

/// Looks until the command has ended, and joins what it saw.
async fn to_the_end(commands: &Commands, id: &str) -> (String, Piece) {
    let mut said = String::new();
    loop {
        commands.wait(id, LONG).await.unwrap();
        let piece = commands.output(id, None).await.unwrap();
        assert_eq!(piece.skipped, 0);
        said.push_str(&piece.text);
        assert_eq!(piece.end, said.len() as u64);
        if piece.status != Status::Running {
            return (said, piece);
        }
    }
}

#[tokio::test]
async fn a_background_command_is_looked_at_again_and_again() {
    for tier in tiers() {
        let home = Home::new();
        let commands = home.commands(tier);
        let told = Told::default();
        let order = home.order(&commands, "echo one; read -r x; echo got $x; read -r y; exit $y");
        let id = order.id.clone();
        commands.start(order, &told.news()).await.unwrap();

        commands.wait(&id, LONG).await.unwrap();
        let first = commands.output(&id, None).await.unwrap();
        assert_eq!((first.text.as_str(), first.start, first.end), ("one\n", 0, 4));
        assert_eq!(first.status, Status::Running);
        let nothing = commands.output(&id, None).await.unwrap();
        assert_eq!((nothing.text.as_str(), nothing.start, nothing.end), ("", 4, 4));
        assert_eq!(commands.running().len(), 1);

        commands.input(&id, b"two\n").await.unwrap();
        commands.wait(&id, LONG).await.unwrap();
        assert_eq!(commands.output(&id, None).await.unwrap().text, "got two\n");
        assert_eq!(commands.output(&id, Some(0)).await.unwrap().text, "one\ngot two\n");

        commands.input(&id, b"7\n").await.unwrap();
        commands.wait(&id, LONG).await.unwrap();
        let last = commands.output(&id, None).await.unwrap();
        let ended = Status::Ended { exit: Exit::Code(7), timed_out: false, killed: false };
        assert_eq!((last.text.as_str(), last.status), ("", ended));
        assert!(commands.running().is_empty());
        assert_eq!(commands.list().len(), 1, "it is remembered");
        let refused = commands.input(&id, b"more\n").await.unwrap_err();
        assert!(matches!(refused, CommandError::Ended { .. }), "{refused}");
        assert_eq!(told.joined(), "one\ngot two\n");
        assert_eq!(told.last(), Some(CommandNews::Ended { end: CommandEnd::Failed, exit_code: Some(7) }));
    }
}

#[tokio::test]
async fn input_reaches_a_cat_and_ends() {
    let home = Home::new();
    let commands = home.commands(Tier::Off);
    let id = start(&home, &commands, "cat; echo over").await;
    let text = "é€🐋\n".repeat(60);
    commands.input(&id, text.as_bytes()).await.unwrap();
    commands.end_input(&id).await.unwrap();
    let (said, last) = to_the_end(&commands, &id).await;
    assert_eq!(said, format!("{text}over\n"));
    assert_eq!(last.status, Status::Ended { exit: Exit::Code(0), timed_out: false, killed: false });
}

#[tokio::test]
async fn a_terminal_in_the_background_takes_keys() {
    for tier in tiers() {
        let home = Home::new();
        let commands = home.commands(tier);
        let line =
            "trap 'echo stopped; exit 4' INT; echo ready; while true; do read -r x && echo got $x; done";
        let order = RunOrder { tty: true, ..home.order(&commands, line) };
        let id = order.id.clone();
        commands.start(order, &News::nobody()).await.unwrap();
        let mut said = String::new();
        for (key, answer) in [(&b""[..], "ready"), (b"hello\n", "got hello"), (b"\x03", "stopped")] {
            commands.input(&id, key).await.unwrap();
            let end = Instant::now() + LONG;
            while !said.contains(answer) {
                assert!(Instant::now() < end, "tier {tier}: no `{answer}` in {said:?}");
                commands.wait(&id, Duration::from_secs(1)).await.unwrap();
                said.push_str(&commands.output(&id, None).await.unwrap().text);
                // A shell that got the signal just before it began to read remembers it and reads on: a person
                // presses Enter.
                if key == b"\x03" && !said.contains(answer) && !commands.running().is_empty() {
                    let pressed = commands.input(&id, b"\n").await;
                    let over = |e: &CommandError| {
                        matches!(e, CommandError::Ended { .. } | CommandError::Closed { .. })
                    };
                    assert!(pressed.as_ref().err().is_none_or(over), "{pressed:?}");
                }
            }
        }
        let status = commands.kill(&id).await.unwrap();
        let ended = Status::Ended { exit: Exit::Code(4), timed_out: false, killed: false };
        assert!(status == ended || matches!(status, Status::Ended { killed: true, .. }), "{status:?}");
    }
}

#[tokio::test]
async fn input_that_nobody_reads_is_refused_in_time_and_says_how_far_it_came() {
    let home = Home::new();
    let commands = home.commands(Tier::Off);
    let id = start(&home, &commands, "sleep 100").await;
    let full = vec![b'x'; 64 * 1024];
    commands.input(&id, &full).await.unwrap();
    let began = Instant::now();
    let refused = commands.input(&id, &full).await.unwrap_err();
    assert!(matches!(refused, CommandError::Full { taken: 0, given: 65_536, .. }), "{refused}");
    assert!(began.elapsed() < LONG);
    let refused = commands.input(&id, &vec![b'x'; 64 * 1024 + 1]).await.unwrap_err();
    assert!(matches!(refused, CommandError::BadOrder(_)), "{refused}");
    commands.kill(&id).await.unwrap();

    let id = start(&home, &commands, "exec 0<&-; echo closed; sleep 100").await;
    commands.wait(&id, LONG).await.unwrap();
    let refused = commands.input(&id, b"x").await.unwrap_err();
    assert!(matches!(refused, CommandError::Closed { .. }), "{refused}");
    commands.kill(&id).await.unwrap();
}

#[tokio::test]
async fn killing_is_quick_and_can_be_repeated() {
    for tier in tiers() {
        let home = Home::new();
        let commands = home.commands(tier);
        let told = Told::default();
        let order = home.order(&commands, "echo here; trap '' TERM; sleep 1000");
        let id = order.id.clone();
        commands.start(order, &told.news()).await.unwrap();
        commands.wait(&id, LONG).await.unwrap();
        let began = Instant::now();
        let status = commands.kill(&id).await.unwrap();
        assert!(matches!(status, Status::Ended { killed: true, timed_out: false, .. }), "{status:?}");
        assert!(began.elapsed() < Duration::from_secs(2), "tier {tier}: {:?}", began.elapsed());
        assert_eq!(commands.kill(&id).await.unwrap(), status);
        assert_eq!(commands.output(&id, None).await.unwrap().text, "here\n");
        assert_eq!(told.last(), Some(CommandNews::Ended { end: CommandEnd::Cancelled, exit_code: None }));
    }
}

#[tokio::test]
async fn there_are_only_so_many_and_the_oldest_are_forgotten() {
    let home = Home::new();
    let commands = home.commands(Tier::Off);
    let mut ids = Vec::new();
    for _ in 0..BACKGROUND_MOST {
        ids.push(start(&home, &commands, "cat").await);
    }
    let order = home.order(&commands, "true");
    let refused = commands.start(order.clone(), &News::nobody()).await.unwrap_err().to_string();
    assert!(refused.contains(&ids[0]) && refused.contains("16"), "{refused}");
    // Those that somebody waits for are not among them.
    commands.run(order.clone(), &News::nobody()).await.unwrap();
    commands.kill(&ids[3]).await.unwrap();
    commands.start(order, &News::nobody()).await.unwrap();
    commands.stop_all().await;
    assert!(commands.running().is_empty());
    for (_, status) in commands.list() {
        assert_ne!(status, Status::Running);
    }

    let mut last = Vec::new();
    for number in 0..REMEMBERED_MOST {
        let id = start(&home, &commands, &format!("echo {number}")).await;
        to_the_end(&commands, &id).await;
        last.push(id);
    }
    assert_eq!(commands.list().len(), REMEMBERED_MOST);
    assert_eq!(commands.output(&last[0], Some(0)).await.unwrap().text, "0\n");
    let gone = commands.output(&ids[0], None).await.unwrap_err().to_string();
    assert!(gone.contains(&ids[0]) && gone.contains("none runs"), "{gone}");
}

#[tokio::test]
async fn an_unknown_id_is_answered_with_those_that_run() {
    let home = Home::new();
    let commands = home.commands(Tier::Off);
    let id = start(&home, &commands, "sleep 77; true").await;
    for unknown in ["", "nope", "../../etc/passwd", "a\0b", &"x".repeat(100_000)] {
        for error in [
            commands.output(unknown, None).await.unwrap_err(),
            commands.input(unknown, b"x").await.unwrap_err(),
            commands.kill(unknown).await.unwrap_err(),
        ] {
            let error = error.to_string();
            assert!(error.contains(&id) && error.contains("sleep 77"), "{error}");
            assert!(error.len() < 300);
        }
    }
    let order = RunOrder { id: id.clone(), ..home.order(&commands, "true") };
    let taken = commands.start(order, &News::nobody()).await.unwrap_err();
    assert!(matches!(taken, CommandError::Taken { .. }), "{taken}");
    commands.stop_all().await;
}

#[tokio::test]
async fn offsets_lead_through_all_of_a_long_output() {
    let home = Home::new();
    let commands = home.commands(Tier::Off);
    let id = start(&home, &commands, "for i in $(seq 1 30000); do echo é $i; done").await;
    until_async(LONG, "the end", || commands.running().is_empty()).await;
    let expected: String = (1..=30_000).map(|i| format!("é {i}\n")).collect();
    let mut said = String::new();
    loop {
        let piece = commands.output(&id, Some(said.len() as u64)).await.unwrap();
        assert_eq!((piece.start, piece.skipped), (said.len() as u64, 0));
        if piece.text.is_empty() {
            break;
        }
        said.push_str(&piece.text);
    }
    assert_eq!(said, expected);
    // In the middle of a character the next one is the first.
    let within = commands.output(&id, Some(1)).await.unwrap();
    assert_eq!((within.start, within.skipped), (2, 1));
    assert!(within.text.starts_with(" 1\né 2\n"));
    let beyond = commands.output(&id, Some(u64::MAX)).await.unwrap();
    assert_eq!((beyond.text.as_str(), beyond.start), ("", expected.len() as u64));
    // A look shows the end, and says what it left out and where that is.
    let look = commands.output(&id, None).await.unwrap();
    assert!(look.text.len() <= INLINE_BYTES && look.text.ends_with("é 30000\n"));
    assert_eq!(look.skipped, (expected.len() - look.text.len()) as u64);
    assert_eq!(std::fs::read_to_string(look.file.unwrap()).unwrap(), expected);
}

#[tokio::test]
async fn a_timeout_ends_a_background_command_too() {
    let home = Home::new();
    let commands = home.commands(Tier::Off);
    let timeout = Some(Duration::from_millis(200));
    let order = RunOrder { timeout, ..home.order(&commands, "sleep 100") };
    let id = order.id.clone();
    commands.start(order, &News::nobody()).await.unwrap();
    let (_, last) = to_the_end(&commands, &id).await;
    assert!(matches!(last.status, Status::Ended { timed_out: true, killed: false, .. }), "{last:?}");
}

#[tokio::test]
async fn waiting_ends_with_its_time() {
    let home = Home::new();
    let commands = home.commands(Tier::Off);
    let id = start(&home, &commands, "sleep 100").await;
    let began = Instant::now();
    commands.wait(&id, Duration::from_millis(100)).await.unwrap();
    assert!((Duration::from_millis(100)..Duration::from_secs(5)).contains(&began.elapsed()));
    assert_eq!(commands.output(&id, None).await.unwrap().text, "");
    commands.stop_all().await;
}

/// The thread that starts a command may end long before the command does.
#[test]
fn a_background_command_outlives_the_thread_that_started_it() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(Duration::from_millis(20))
        .build()
        .unwrap();
    for tier in tiers() {
        let home = Home::new();
        let commands = home.commands(tier);
        runtime.block_on(async {
            let id = start(&home, &commands, "cat").await;
            // The thread that started it ends when it has been idle for 20 ms, and nothing else tells when it has.
            tokio::time::sleep(Duration::from_millis(200)).await;
            commands.input(&id, b"still here\n").await.unwrap();
            commands.wait(&id, LONG).await.unwrap();
            let piece = commands.output(&id, None).await.unwrap();
            assert_eq!((piece.text.as_str(), piece.status), ("still here\n", Status::Running), "tier {tier}");
            commands.stop_all().await;
        });
    }
}
