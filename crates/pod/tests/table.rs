//! Compares every cell of the method × state table with the specification.

use minke_pod::{Disposition, MethodKind, PodPhase, RunMode, disposition};
use minke_record::ErrorCode;

/// The specified table: one row per method, one column per phase.
const TABLE: &str = "
run reject    | start            | already_running  | start             | already_running             | conflict
run queue     | start            | queue            | queue and start   | queue                       | conflict
run steer     | start            | steer            | start             | queue                       | conflict
run interrupt | start            | cancel, start    | start             | cancel compaction, start    | conflict
dequeue       | ok or not_found  | ok or not_found  | ok or not_found   | ok or not_found             | ok or not_found
resume        | not_paused       | already_running  | continue          | not_paused                  | conflict
pause         | not_running      | pause            | nothing           | not_running                 | nothing
cancel        | not_running      | cancel           | abandon           | cancel compaction           | nothing
notify        | log, wake        | log              | log               | log                         | log
pod_event     | log, wake        | log              | log               | log                         | log
answer        | client's only    | call continues   | resume or keep    | client's only               | conflict
compact       | compact          | already_running  | conflict          | nothing                     | conflict
rewind        | ok               | already_running  | ok                | already_running             | conflict
undo          | ok               | already_running  | ok                | already_running             | conflict
call_tool     | ok               | ok               | ok                | ok                          | conflict
set           | ok               | ok, later        | ok                | ok, later                   | conflict
checkpoint    | ok               | ok, later        | ok                | ok, later                   | conflict
restart_mcp   | ok               | ok, later        | ok                | ok, later                   | conflict
yield         | ok or conflict   | already_running  | already_running   | already_running             | already_running
fork          | ok               | ok               | ok                | ok                          | ok
shutdown      | stop             | stop             | stop              | stop                        | nothing
hello         | ok               | ok               | ok                | ok                          | ok
status        | ok               | ok               | ok                | ok                          | ok
read          | ok               | ok               | ok                | ok                          | ok
read_blob     | ok               | ok               | ok                | ok                          | ok
wait          | ok               | ok               | ok                | ok                          | ok
rewind_targets   | ok            | ok               | ok                | ok                          | ok
list_completions | ok            | ok               | ok                | ok                          | ok
list_pods        | ok            | ok               | ok                | ok                          | ok
restore_pod      | ok            | ok               | ok                | ok                          | ok
get_history      | ok            | ok               | ok                | ok                          | ok
";

#[test]
fn every_cell_of_the_table() {
    let mut rows = 0;
    for line in TABLE.lines().filter(|line| !line.trim().is_empty()) {
        let mut columns = line.split('|').map(str::trim);
        let name = columns.next().unwrap();
        let method = parse_method(name);
        let cells: Vec<&str> = columns.collect();
        assert_eq!(cells.len(), PodPhase::ALL.len(), "{name}");
        for (phase, words) in PodPhase::ALL.into_iter().zip(cells) {
            assert_eq!(disposition(method, phase), parse_disposition(words), "{name} in {phase:?}");
        }
        rows += 1;
    }
    // Every method has a row: `method_name` below matches each variant without a wildcard.
    assert_eq!(rows, ALL_METHODS.len());
    for method in ALL_METHODS {
        assert!(TABLE.lines().any(|line| line.starts_with(method_name(method))), "{method:?}");
    }
}

const ALL_METHODS: [MethodKind; 31] = [
    MethodKind::Run(RunMode::Reject),
    MethodKind::Run(RunMode::Queue),
    MethodKind::Run(RunMode::Steer),
    MethodKind::Run(RunMode::Interrupt),
    MethodKind::Dequeue,
    MethodKind::Resume,
    MethodKind::Pause,
    MethodKind::Cancel,
    MethodKind::Notify,
    MethodKind::PodEvent,
    MethodKind::Answer,
    MethodKind::Compact,
    MethodKind::Rewind,
    MethodKind::Undo,
    MethodKind::CallTool,
    MethodKind::Set,
    MethodKind::Checkpoint,
    MethodKind::RestartMcp,
    MethodKind::Yield,
    MethodKind::Fork,
    MethodKind::Shutdown,
    MethodKind::Hello,
    MethodKind::Status,
    MethodKind::Read,
    MethodKind::ReadBlob,
    MethodKind::Wait,
    MethodKind::RewindTargets,
    MethodKind::ListCompletions,
    MethodKind::ListPods,
    MethodKind::RestorePod,
    MethodKind::GetHistory,
];

/// Matches every variant, so that a new method does not compile until it has a row.
fn method_name(method: MethodKind) -> &'static str {
    match method {
        MethodKind::Run(RunMode::Reject) => "run reject",
        MethodKind::Run(RunMode::Queue) => "run queue",
        MethodKind::Run(RunMode::Steer) => "run steer",
        MethodKind::Run(RunMode::Interrupt) => "run interrupt",
        MethodKind::Dequeue => "dequeue",
        MethodKind::Resume => "resume",
        MethodKind::Pause => "pause",
        MethodKind::Cancel => "cancel",
        MethodKind::Notify => "notify",
        MethodKind::PodEvent => "pod_event",
        MethodKind::Answer => "answer",
        MethodKind::Compact => "compact",
        MethodKind::Rewind => "rewind ",
        MethodKind::Undo => "undo",
        MethodKind::CallTool => "call_tool",
        MethodKind::Set => "set",
        MethodKind::Checkpoint => "checkpoint",
        MethodKind::RestartMcp => "restart_mcp",
        MethodKind::Yield => "yield",
        MethodKind::Fork => "fork",
        MethodKind::Shutdown => "shutdown",
        MethodKind::Hello => "hello",
        MethodKind::Status => "status",
        MethodKind::Read => "read ",
        MethodKind::ReadBlob => "read_blob",
        MethodKind::Wait => "wait",
        MethodKind::RewindTargets => "rewind_targets",
        MethodKind::ListCompletions => "list_completions",
        MethodKind::ListPods => "list_pods",
        MethodKind::RestorePod => "restore_pod",
        MethodKind::GetHistory => "get_history",
    }
}

fn parse_method(name: &str) -> MethodKind {
    let found = ALL_METHODS.into_iter().find(|method| method_name(*method).trim() == name);
    found.unwrap_or_else(|| panic!("no method is called `{name}`"))
}

fn parse_disposition(words: &str) -> Disposition {
    match words {
        "start" => Disposition::Start,
        "queue" => Disposition::Queue,
        "queue and start" => Disposition::QueueAndStart,
        "steer" => Disposition::Steer,
        "cancel, start" => Disposition::CancelThenStart,
        "cancel compaction, start" => Disposition::CancelCompactionThenStart,
        "ok or not_found" => Disposition::DequeueIfPresent,
        "continue" => Disposition::Continue,
        "pause" => Disposition::Pause,
        "cancel" => Disposition::Cancel,
        "abandon" => Disposition::Abandon,
        "cancel compaction" => Disposition::CancelCompaction,
        "log, wake" => Disposition::LogAndWake,
        "log" => Disposition::Log,
        "client's only" => Disposition::ClientCallOnly,
        "call continues" => Disposition::ContinueCall,
        "resume or keep" => Disposition::ResumeOrKeep,
        "compact" => Disposition::Compact,
        "ok" => Disposition::Execute,
        "ok, later" => Disposition::ExecuteLater,
        "nothing" => Disposition::NoChange,
        "ok or conflict" => Disposition::YieldIfFree,
        "stop" => Disposition::Stop,
        code => {
            let code = ErrorCode::from(code);
            assert!(ErrorCode::KNOWN.contains(&code), "`{code}` is neither a cell nor an error code");
            Disposition::Refuse(code)
        }
    }
}
