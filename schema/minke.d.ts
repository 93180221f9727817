// Generated from the JSON Schema of the pod protocol. Do not edit.

/** The identity of this session. Constant, except for the name (`Facts::name`). */
export type About = {
  session: SessionId;
  created: number;
  created_by: Actor;
  cwd: string;
  workspace: string;
  manifest: unknown;
  scope: Scope;
  mandate?: unknown;
  parent?: ParentCall | null;
  from?: ForkOrigin | null;
};

/** The effects of a call. Paths are absolute. */
export type Action = {
  reads?: Array<string>;
  writes?: Array<string>;
  hosts?: Array<string>;
  /** The shell line. */
  command?: string | null;
  /** The commands that the line would run, formatted for the user; the policy parses the line itself. */
  commands?: Array<string>;
  /** Files of the scope that the line would run, with their state at inspection. */
  scripts?: Array<ExecutedScript>;
  /** A tool of an MCP server, `mcp__server__tool`. */
  mcp?: string | null;
  /** The pod that would get a message or be started. */
  pod?: string | null;
  side_effects?: boolean;
};

export type Activity = "model" | "tool" | "ask" | "child" | "time" | "hook" | "compacting" | "stopping" | (string & {});

/** The author of an action or message. */
export type Actor = {
  actor: ActorKind;
  session?: SessionId | null;
  surface?: string | null;
};

export type ActorKind = "person" | "pod" | "job" | "hook" | "minke" | (string & {});

/** A message for the user, not for the model. */
export type Alert = {
  level: AlertLevel;
  source: AlertSource;
  message: string;
};

/** A message for the user, not for the model. */
export type AlertEvent = {
  level: AlertLevel;
  source: AlertSource;
  message: string;
  timestamp_ms?: number;
};

export type AlertLevel = "warn" | "error" | (string & {});

export type AlertSource = "pod" | "worker" | "compactor" | "agents_md" | "policy" | "storage" | (string & {});

export type Answer = {
  id: AskId;
  decision: Decision;
  note?: string | null;
  by: Actor;
};

export type AnswerParams = {
  ask: AskId;
  decision: Decision;
  note?: string | null;
};

export type Answered = {
  ask: AskId;
  decision: Decision;
  by: Actor;
};

/** An answered ask. */
export type AnsweredAsk = {
  id: AskId;
  decision: Decision;
};

/** A call in the form of API clients. */
export type ApiCall = {
  name: string;
  payload: ToolPayload;
  raw_tool_call_id?: string | null;
};

/** An event about a call: the lines that event hooks receive. */
export type ApiEvent = {
  type: "tool_lifecycle";
  response_id: string;
  tool_name: string;
  phase: ToolPhase;
  payload: unknown;
} | {
  type: "approval_lifecycle";
  approval_id: string;
  phase: ApprovalPhase;
  reason?: string | null;
} | {
  type: "generic_event_frame";
  frame: ApiFrame;
};

/** A frame about a call. */
export type ApiFrame = {
  event: "tool_call_start";
  response_id: string;
  call_id: CallId;
  tool_name: string;
  arguments?: unknown;
} | {
  event: "tool_call_result";
  response_id: string;
  call_id: CallId;
  tool_name: string;
  output: ApiOutput;
} | {
  event: "exec_approval_request";
  request: ExecApprovalRequest;
} | {
  event: "error";
  response_id: string;
  code?: ErrorCode;
  message: string;
};

/** The output of a tool. */
export type ApiOutput = {
  type: "function";
  body?: string | null;
  success: boolean;
  /** Blob with the full output if `body` is truncated; see `read_blob`. */
  blob?: string | null;
} | {
  type: "mcp";
  result: unknown;
};

/** `approval/answer`: answers an approval request. */
export type ApprovalAnswer = {
  approval_id: string;
  decision: LegacyDecision;
  note?: string | null;
};

export type ApprovalPhase = "requested" | "approved" | "denied" | (string & {});

/** The requirement for the call to run. */
export type ApprovalRequirement = {
  type: "skip";
  bypass_sandbox: boolean;
  reason: string;
  proposed_execpolicy_amendment?: Array<string>;
} | {
  type: "needs_approval";
  reason: string;
  proposed_execpolicy_amendment?: Array<string>;
  proposed_network_policy_amendments?: Array<NetworkAmendment>;
} | {
  type: "forbidden";
  reason: string;
};

export type Archived = {
  by: Actor;
};

/** A durable question. */
export type Ask = {
  id: AskId;
  ask: AskKind;
  subject: AskSubject;
  options: Array<string>;
  expires?: number | null;
};

export type AskEvent = {
  ask: Ask;
};

/** An ask. */
export type AskId = string;

export type AskKind = "approval" | "question" | "elicitation" | (string & {});

export type AskSubject = {
  call_id?: CallId | null;
  /** Binds the answer to this call: tool, final arguments, cwd, and the preview's hash before. */
  digest: string;
  /** The exact question, command or diff, for the user. */
  text?: string | null;
  /** The tool that would be called, and its directory. */
  tool?: string | null;
  cwd?: string | null;
  action?: Action | null;
  diff?: string | null;
  /** The reason of the ask: the rule, its layer, the sandbox. */
  verdict?: PolicyVerdict | null;
  /** The exact rule that `approved_rule` would write; absent if it would have no effect. */
  always?: string | null;
};

/** A complete block of the reply joins the history, in stream order. */
export type AssistantItem = {
  call: number;
  item: Item;
};

export type BeforeAfter = {
  before: number;
  after: number;
};

/** A blob's name: the SHA-256 of its content, as 64 hex characters, and its length. */
export type BlobRef = {
  blob: string;
  bytes: number;
};

/** The spending limits of a pod over its whole session; absent fields are unlimited. */
export type Budget = {
  usd?: number | null;
  /** Input and output together. */
  tokens?: number | null;
  /** Requests; every pod counts its own. */
  turns?: number | null;
  /** Seconds since the session started. */
  wall_s?: number | null;
  /** The number of spawns. */
  children?: number | null;
};

/** A call id, assigned by the model or the client. */
export type CallId = string;

/** Reply to `call_tool` and `undo`: the call whose `tool_result` follows. */
export type CallReply = {
  call_id: CallId;
};

/** The progress of an open call. */
export type CallStage = "wished" | {
  asked: AskId;
} | {
  answered: {
    digest: string;
    decision: Decision;
    note?: string | null;
    /** The rule to append to the user's policy, if that was the answer. */
    rule?: string | null;
    /** The scripts shown in the ask. */
    scripts?: Array<ExecutedScript>;
  };
} | {
  dispatched: Dispatched;
};

/** Makes one call for a client under the same policy. `arguments` is an object or its JSON text. */
export type CallTool = {
  name: string;
  arguments: unknown;
  call_id?: CallId | null;
  cwd?: string | null;
};

/** Repeats the current facts inside a segment. */
export type Carry = {
  segment: number;
  /** seq of its `segment_start`. */
  start: number;
  history: History;
  /** A value, stored inline or, if it is too large, in a blob. `apply` always gets it inline: a reader loads
   * the blob first, and a writer spills it last. */
  carry: BlobRef | SessionFacts;
};

export type Chain = string;

/** A named checkpoint of an API client. */
export type Checkpoint = {
  id: string;
  state: unknown;
};

export type CheckpointParams = {
  id: string;
  state: unknown;
};

/** A child starts and holds a loan, or another pod's child is adopted. */
export type Child = {
  session: SessionId;
  name: PodName;
  call_id: CallId;
  scope: Scope;
  /** The total spending limit of it and its descendants until this process of it ends. */
  budget?: Budget | null;
  /** If adopted: the pod that had lent its scope. */
  adopted_from?: SessionId | null;
  /** If adopted: the pods between it and this pod, nearest to it first. */
  line?: Array<SessionId>;
  /** Its own clone of the workspace, if any. */
  clone?: CloneOrigin | null;
};

export type ChildEnd = {
  session: SessionId;
  name: PodName;
  outcome: ChildOutcome;
  exit?: number | null;
  /** The spending of it and its descendants in this process. */
  spent?: Spend | null;
};

export type ChildEnded = {
  session: SessionId;
  name: PodName;
  outcome: ChildOutcome;
  exit?: number | null;
  spent?: Spend | null;
};

export type ChildOutcome = "failed_to_start" | "slept" | "stopped" | "crashed" | "returned" | (string & {});

export type ChildRow = {
  session: SessionId;
  name: PodName;
};

/** The spending of descendants, read from their logs. The newest value of each counts, so the order of
 * reads by several parents does not matter. */
export type ChildSpent = {
  paid: Array<PodSpend>;
};

export type ChildStarted = {
  session: SessionId;
  name: PodName;
  call_id: CallId;
  scope: Scope;
  budget?: Budget | null;
};

export type Class = "pure" | "verifiable" | "once" | (string & {});

export type ClientInfo = {
  name?: string;
  version?: string;
  /** The session of a pod that connects. */
  session?: SessionId | null;
};

/** A clone of the workspace that a child works in. */
export type CloneOrigin = {
  /** The directory of the clone. */
  path: string;
  /** Its own branch. */
  branch: string;
};

/** An update of a running command. */
export type CommandEvent = ({
  started: {
    command: Text;
    cwd: string;
  };
} | {
  output: CommandOutput;
} | {
  ended: {
    status: CommandStatus;
    exit_code?: number | null;
  };
}) & {
  command_id: string;
  call_id: CallId;
};

/** A piece of a command's output. `start` and `end` are byte offsets in its stream, for joining pieces. */
export type CommandOutput = {
  stream: OutputStream;
  start: number;
  end: number;
  text: string;
};

export type CommandStatus = "completed" | "failed" | "timed_out" | "cancelled" | (string & {});

export type Compact = {
  instructions?: string | null;
};

/** Context tokens before and after, if counted. */
export type CompactDone = {
  segment?: number;
  before?: number | null;
  after?: number | null;
};

export type CompactFailed = {
  error: string;
};

export type CompactStart = {
  reason?: string;
};

export type Completion = {
  value: string;
  is_dir?: boolean;
};

/** The kind of completion. */
export type CompletionKind = "file" | "knowledge" | "workflow" | "skill" | "command";

export type Completions = {
  kind: CompletionKind;
  entries: Array<Completion>;
};

export type ConfigChanged = {
  key: string;
  value: unknown;
  by: Actor;
};

/** A part of a message. */
export type Content = {
  kind: "text";
  text: Text;
} | {
  kind: "image";
  blob: string;
  media_type: string;
} | {
  kind: "refusal";
  text: Text;
} | {
  kind: "unknown";
};

/** The same turn continues: broken stream, fallback, compaction. */
export type Continues = {
  call: number;
  attempt: number;
  reason: string;
};

export type Decision = "approved" | "approved_for_session" | "approved_rule" | "answered" | "denied" | "abort" | (string & {});

/** A piece of a streaming block. */
export type Delta = {
  text: string;
};

/** Removes a waiting input from the queue. */
export type Dequeue = {
  id: QueueId;
};

export type DequeueReason = "run" | "steered" | "removed" | (string & {});

/** Reply to `dequeue`: the removed input. */
export type DequeueReply = {
  segments: Array<InputSegment>;
};

export type Dequeued = {
  id: QueueId;
  why: DequeueReason;
};

/** Params of `resume`, `pause` and `cancel`: the logged reason. */
export type Detail = {
  detail?: string | null;
};

export type Dispatched = {
  class: Class;
  action: Action;
  preview?: Preview | null;
  /** The time of the dispatch. */
  at?: number;
  /** The pod executes it itself. */
  own?: boolean;
};

/** A complete block. A very long one is only named by its blob. */
export type Done = {
  text: Text;
};

/** How the last run ended. */
export type EndResult = {
  completed: RunResult;
} | {
  errored: ErrorCode;
};

export type EndedRun = {
  id: RunId;
  trigger: Trigger;
  by: Actor;
  attempt: number;
  turn: number;
  result: EndResult;
  /** A paused or interrupted run was abandoned. */
  abandoned?: boolean;
  /** It was interrupted while waiting for this time; it then resumes automatically. */
  waits_until?: number | null;
};

export type Entry = {
  seq: number;
  ts: number;
  run?: RunId;
  more?: boolean;
  h: Chain;
} & Kind;

/** Data of `entry` and `segment_rotated`: the typed entry as in the log. */
export type EntryEvent = {
  entry: Entry;
};

export type ErrorCode = "already_running" | "not_running" | "not_paused" | "invalid_request" | "not_found" | "conflict" | "denied" | "too_many" | "provider_error" | "refused" | "tool_error" | "budget_exceeded" | "storage_failed" | "internal" | (string & {});

/** A message of a pod to its clients. */
export type Event = {
  event: "hello";
  data: ServerHello;
} | {
  event: "snapshot";
  data: SnapshotEvent;
} | {
  event: "in_flight";
  data?: InFlight | null;
} | {
  event: "lag";
  data: Lag;
} | {
  event: "reply";
  data: ReplyData;
} | {
  event: "error";
  data: Refusal;
} | {
  event: "completions";
  data: Completions;
} | {
  event: "rewind_targets";
  data: RewindTargets;
} | {
  event: "history";
  data: HistoryEvent;
} | {
  event: "entry";
  data: EntryEvent;
} | {
  event: "status";
  data: StatusEvent;
} | {
  event: "invoke_start";
  data: InvokeStart;
} | {
  event: "user_message";
  data: UserMessage;
} | {
  event: "system_item";
  data: SystemItemEvent;
} | {
  event: "turn_start";
  data: TurnStart;
} | {
  event: "turn_end";
  data: TurnEndEvent;
} | {
  event: "run_end";
  data: RunEnd;
} | {
  event: "segment_rotated";
  data: EntryEvent;
} | {
  event: "llm_call_start";
  data: LlmCallStart;
} | {
  event: "llm_continuation";
  data: LlmContinuation;
} | {
  event: "llm_retry";
  data: LlmRetry;
} | {
  event: "llm_call_end";
  data: LlmCallEnd;
} | {
  event: "text_delta";
  data: Delta;
} | {
  event: "text_done";
  data: Done;
} | {
  event: "thinking_start";
} | {
  event: "thinking_delta";
  data: Delta;
} | {
  event: "thinking_done";
  data: Done;
} | {
  event: "tool_call_start";
  data: ToolCallStart;
} | {
  event: "tool_call_args_delta";
  data: ToolCallArgsDelta;
} | {
  event: "tool_call_done";
  data: ToolCallDone;
} | {
  event: "usage";
  data?: UsageEvent | null;
} | {
  event: "command";
  data: CommandEvent;
} | {
  event: "tool_result";
  data: ToolResultEvent;
} | {
  event: "ask";
  data: AskEvent;
} | {
  event: "answered";
  data: Answered;
} | {
  event: "child_started";
  data: ChildStarted;
} | {
  event: "child_ended";
  data: ChildEnded;
} | {
  event: "compact_start";
  data?: CompactStart | null;
} | {
  event: "compact_failed";
  data: CompactFailed;
} | {
  event: "compact_done";
  data?: CompactDone | null;
} | {
  event: "memory_worker";
  data: MemoryWorker;
} | {
  event: "mcp_server";
  data: McpServer;
} | {
  event: "alert";
  data: AlertEvent;
} | {
  event: "shutdown";
};

/** A request for approval. */
export type ExecApprovalRequest = {
  call_id: CallId;
  approval_id: string;
  turn_id: string;
  command: string;
  cwd: string;
  reason: string;
  /** Always absent: connections have no approvals of their own. */
  network_approval_context?: unknown;
  proposed_execpolicy_amendment?: Array<string>;
  proposed_network_policy_amendments?: Array<NetworkAmendment>;
  /** Always empty: calls cannot request additional permissions. */
  additional_permissions?: Array<unknown>;
  available_decisions: Array<LegacyDecision>;
};

/** A file of the scope that a shell line would run: a program, or the script of an interpreter. */
export type ExecutedScript = {
  path: string;
  /** SHA-256 of its content; absent if it could not be read completely, and then `problem` contains the
   * reason. */
  hash?: string | null;
  /** The target, if the path is a symbolic link. */
  leads_to?: string | null;
  problem?: string | null;
  /** The content of a short text file: stored in asks and grants, so that a later ask can show the changes. */
  text?: string | null;
  /** In an ask: the changes since the user approved it. */
  change?: string | null;
};

export type ExecutionKind = "shell" | "tool" | "mcp" | (string & {});

/** Ignored by the fold. */
export type Extension = {
  domain: string;
  payload: unknown;
};

export type Fork = {
  at_seq?: number | null;
  name?: PodName | null;
};

/** The origin of a fork. */
export type ForkOrigin = {
  session: SessionId;
  seq: number;
  h: Chain;
};

/** Reply to `fork`. */
export type ForkReply = {
  session: SessionId;
  name?: PodName | null;
};

/** One line from a pod. */
export type Frame = {
  /** Made from the entry with this number. */
  seq?: number;
  /** Live, after this entry and before the next. */
  after_seq?: number;
  run?: RunId;
  id?: Id;
} & Event;

/** The state of a git working tree when the session started. */
export type GitState = {
  sha: string;
  branch?: string | null;
  origin_url?: string | null;
};

export type Goal = {
  change: GoalChange;
  text: string;
  used: number;
  evidence?: string | null;
};

export type GoalChange = "set" | "advance" | "done" | "clear" | (string & {});

export type GoalFact = {
  change: GoalChange;
  text: string;
  used: number;
};

/** A stored approval; a pod uses only those in its own log. */
export type Grant = {
  rule: string;
  reach: string;
  by: Actor;
  /** The scripts shown to the user: the grant covers them with this content only. */
  scripts?: Array<ExecutedScript>;
};

export type Granted = {
  /** `call DIGEST`, or a rule as one line of TOML. */
  rule: string;
  reach: string;
  scripts?: Array<ExecutedScript>;
};

/** Describes the pod to a client. Older pods may omit everything but the name. */
export type Greeting = {
  pod_name: string;
  session?: SessionId | null;
  cwd?: string;
  /** Catalog id of the provider. */
  provider?: string;
  scheme?: string;
  model?: string;
  scope_summary?: string;
  /** The sandbox backend of commands: `namespaces`, `bubblewrap`, `landlock`, `seatbelt`, `none` or `off`. */
  sandbox?: string;
  /** The offered tools, sorted. */
  tools?: Array<string>;
  context_window?: number;
  context_tokens?: number;
  posture?: string;
  parent?: PodName | null;
  /** Restrictions: untrusted workspace, weaker sandbox, missing key. */
  notices?: Array<string>;
};

/** The optional first line of a client. */
export type Hello = {
  protocol?: number;
  subscribe?: Subscribe;
  /** The last entry that the client has; it gets only later ones. */
  since?: Position | null;
  client?: ClientInfo | null;
};

/** `[Item]`, or the context after an entry, or a blob that contains the items. */
export type History = {
  same_as: number;
} | BlobRef | Array<Item>;

/** The answer to `get_history`, an older form. */
export type HistoryEvent = {
  items: Array<HistoryItem>;
  greeting: Greeting;
};

export type HistoryItem = {
  type: string;
};

export type Holder = "pod" | "visit" | (string & {});

export type HowEnded = {
  outcome: ChildOutcome;
  exit?: number | null;
};

export type Id = string | number;

/** An image in a blob. */
export type ImageBlob = {
  blob: string;
  media_type: string;
};

/** All open items, so that a client that joins in the middle of a turn shows the same as the others. */
export type InFlight = {
  blocks?: Array<StreamingBlock>;
  commands?: Array<OpenCommand>;
};

/** A message has arrived; duplicates are dropped by `(from, from_seq)`. */
export type Inbox = {
  from: Actor;
  from_seq?: number | null;
  event?: PodEvent | null;
  message?: Text | null;
  wake: boolean;
};

/** The schema of `input`: input segments, or one string in the older form. */
export type InputOrText = string | Array<InputSegment>;

/** The serialized form of the known kinds; `InputSegment` adds the unknown ones. */
export type InputSegment = {
  kind: "text";
  content: Text;
} | {
  kind: "paste";
  id?: number;
  chars?: number;
  lines?: number;
  content: Text;
} | {
  kind: "file_ref";
  path: string;
} | ({
  path: string;
} | {
  data: string;
} | {
  blob: string;
}) & {
  kind: "image";
  media_type: string;
} | {
  kind: "knowledge_ref";
  slug: string;
} | {
  kind: "workflow_invoke";
  slug: string;
} | {
  kind: "skill_ref";
  name: string;
};

/** An instruction file that the model has received. */
export type Instructed = {
  path: string;
  /** The length of the received part. */
  bytes: number;
};

/** A run opens. */
export type Invoke = {
  trigger: Trigger;
  by: Actor;
  attempt: number;
  continues?: RunId | null;
};

/** The result of `tool/invoke`. After `approval_required` another result follows when the call has ended. */
export type InvokeResult = {
  ok: boolean;
  status: InvokeStatus;
  execution_kind: ExecutionKind;
  response_id: string;
  /** Absent if the call ended before the policy check. */
  precheck?: Precheck | null;
  output?: ApiOutput | null;
  error?: string | null;
  approval_id?: string | null;
  events?: Array<ApiFrame>;
};

export type InvokeStart = {
  kind: Trigger;
};

export type InvokeStatus = "completed" | "failed" | "denied" | "approval_required" | "timeout" | "cancelled" | (string & {});

/** One piece of model-visible history. */
export type Item = {
  kind: "message";
  role: Role;
  content: Array<Content>;
} | {
  kind: "reasoning";
  text: Text;
  summary?: Array<string>;
  signature?: Text | null;
  encrypted?: Text | null;
  /** The `provider/model` that signed or encrypted it: other models cannot read it and do not get it. */
  by?: string | null;
} | {
  kind: "tool_call";
  call_id: CallId;
  name: string;
  arguments: Text;
} | {
  kind: "tool_result";
  call_id: CallId;
  summary: string;
  content?: Text | null;
  is_error?: boolean;
  /** The full output, if `content` is only a part. */
  blob?: string | null;
  /** Images in the output. */
  images?: Array<ImageBlob>;
} | {
  kind: "unknown";
};

/** The folded state of a job. */
export type JobFacts = {
  state: JobState;
  /** The maximum number of retries. */
  max: number;
  /** The mandate has an acceptance command. */
  accepts?: boolean;
  /** Retries so far. */
  retries?: number;
  /** The time of the next attempt. */
  until?: number | null;
  /** The provider requests a delay until then. */
  not_before?: number | null;
  /** The last attempt failed: the next one is a retry. */
  failed?: boolean;
  /** A run has finished, and the acceptance command has not decided yet. */
  accepting?: boolean;
  /** The number of started acceptances, used in their unique names. */
  acceptances?: number;
  /** Why the acceptance command rejected the last attempt; not yet passed to the next attempt. */
  rejected?: RejectedAttempt | null;
  /** 0 to 100. */
  percent?: number;
  detail?: string | null;
  /** Only for a job that creates others. */
  makes?: JobTrigger | null;
  /** Oldest first; the log has the rest. */
  history?: Array<JobItem>;
};

/** A time at which another job should be created. */
export type JobFiring = {
  due: number;
  /** The session id of the new job, logged before the job is created with exactly this id. Absent: no job
   * is created this time. */
  session?: SessionId | null;
  /** The session exists. */
  made?: boolean;
  /** Earlier times that were missed, because no host was running. */
  missed?: MissedFirings | null;
};

/** An event of a job. */
export type JobItem = {
  /** Its entry. */
  seq: number;
  at: number;
  phase: JobPhase;
  state: JobState;
  percent: number;
  detail?: string | null;
  retries: number;
  until?: number | null;
};

/** The kind of a job event. */
export type JobPhase = "created" | "running" | "progress_updated" | "completed" | "cancelled" | "paused" | "resumed" | "queued_after_resume" | "unknown" | "failed";

/** The state of a job. */
export type JobState = "queued" | "running" | "waiting" | "paused" | "interrupted" | "completed" | "failed" | "cancelled" | "unknown";

/** The jobs created from a job. */
export type JobTrigger = {
  when: TriggerCondition;
  /** The number of jobs created so far. */
  count?: number;
  /** The newest job that was or will be created. */
  last?: JobFiring | null;
};

export type Judgement = "allow" | "ask" | "deny" | (string & {});

/** The data of an entry by kind. */
export type Kind = SessionStart & {
  kind: "session_start";
} | Opened & {
  kind: "opened";
} | SegmentStart & {
  kind: "segment_start";
} | Carry & {
  kind: "carry";
} | Invoke & {
  kind: "invoke";
} | UserInput & {
  kind: "user_input";
} | QueuedInput & {
  kind: "queued_input";
} | Dequeued & {
  kind: "dequeued";
} | Inbox & {
  kind: "inbox";
} | SystemEntry & {
  kind: "system_item";
} | Pruned & {
  kind: "pruned";
} | LlmCall & {
  kind: "llm_call";
} | AssistantItem & {
  kind: "assistant_item";
} | LlmUsage & {
  kind: "llm_usage";
} | LlmEnd & {
  kind: "llm_end";
} | ToolDispatch & {
  kind: "tool_dispatch";
} | ToolResult & {
  kind: "tool_result";
} | TurnEnd & {
  kind: "turn_end";
} | RunCompleted & {
  kind: "run_completed";
} | RunErrored & {
  kind: "run_errored";
} | Ask & {
  kind: "ask";
} | Answer & {
  kind: "answer";
} | Grant & {
  kind: "grant";
} | Child & {
  kind: "child";
} | ChildEnd & {
  kind: "child_end";
} | ChildSpent & {
  kind: "child_spent";
} | Outbox & {
  kind: "outbox";
} | OutboxAck & {
  kind: "outbox_ack";
} | StateChange & {
  kind: "state";
} | Progress & {
  kind: "progress";
} | Goal & {
  kind: "goal";
} | Task & {
  kind: "task";
} | ReadTo & {
  kind: "read_to";
} | Snapshot & {
  kind: "snapshot";
} | Checkpoint & {
  kind: "checkpoint";
} | Rewound & {
  kind: "rewound";
} | ConfigChanged & {
  kind: "config_changed";
} | Renamed & {
  kind: "renamed";
} | Archived & {
  kind: "archived";
} | Unarchived & {
  kind: "unarchived";
} | Alert & {
  kind: "alert";
} | Extension & {
  kind: "extension";
} | UnknownEntry;

/** The client was too slow. The following events continue from the log at this entry. */
export type Lag = {
  from_seq: number;
};

/** A decision: a string, or an object with the string as its `type`. */
export type LegacyDecision = {
  type: "approved";
} | {
  type: "approved_for_session";
} | {
  type: "approved_rule";
} | {
  type: "denied";
} | {
  type: "abort";
} | {
  type: "approved_execpolicy_amendment";
  proposed_execpolicy_amendment?: Array<string>;
} | {
  type: "network_policy_amendment";
  host: string;
  action: string;
};

/** Limits that a client must respect. */
export type Limits = {
  frame_bytes: number;
  page_entries: number;
  blob_piece_bytes: number;
};

export type ListCompletions = {
  kind: CompletionKind;
  prefix?: string;
};

/** Reply to `list_pods`: the pods that this pod can see. */
export type ListPodsReply = {
  pods: Array<PodRow>;
};

/** A request is about to be sent; without its `llm_end` the reservation counts as spent. */
export type LlmCall = {
  call: number;
  turn: number;
  purpose: Purpose;
  route: Route;
  request_hash: string;
  builder: number;
  reserved: Reserved;
  continues?: Continues | null;
};

export type LlmCallEnd = {
  llm_call: number;
  outcome?: LlmOutcome | null;
};

export type LlmCallStart = {
  llm_call: number;
  route?: Route | null;
  purpose?: Purpose | null;
};

/** The stream broke off, and a new request continues the reply. */
export type LlmContinuation = {
  llm_call: number;
  attempt: number;
  max_attempts: number;
  reason: string;
};

export type LlmEnd = {
  call: number;
  outcome: LlmOutcome;
  attempts: number;
  /** The recording of the response with all attempts, and the length of that blob. */
  stream_blob?: string | null;
  stream_bytes?: number | null;
};

export type LlmOutcome = "done" | "broken" | "failed" | "cancelled" | (string & {});

export type LlmRetry = {
  llm_call: number;
  /** Counted from 1. */
  failed_attempt: number;
  max_attempts: number;
  wait_ms: number;
  /** HTTP status of the provider. */
  status?: number | null;
  error: string;
};

export type LlmUsage = {
  call: number;
  input: number;
  output: number;
  cache_read?: number;
  cache_write?: number;
  /** `null` = unknown, never 0. */
  cost_usd?: number | null;
  cache_drop?: string | null;
};

/** A shell command. */
export type LocalShell = {
  command: string;
  cwd?: string | null;
  timeout_ms?: number | null;
};

export type McpServer = {
  server: string;
  status: McpStatus;
  error?: string | null;
};

export type McpStatus = "starting" | "ready" | "failed" | "cancelled" | (string & {});

export type MemoryWorker = {
  worker: string;
  session?: SessionId | null;
  status: string;
  reason?: string | null;
};

/** A request of a client to a pod. */
export type Method = {
  method: "hello";
  params?: Hello | null;
} | {
  method: "run";
  params: Run;
} | {
  method: "dequeue";
  params: Dequeue;
} | {
  method: "notify";
  params: Notify;
} | {
  method: "pod_event";
  params: ReportParams;
} | {
  method: "resume";
  params?: Detail | null;
} | {
  method: "pause";
  params?: Detail | null;
} | {
  method: "cancel";
  params?: Detail | null;
} | {
  method: "answer";
  params: AnswerParams;
} | {
  method: "compact";
  params?: Compact | null;
} | {
  method: "rewind_targets";
} | {
  method: "rewind";
  params: Rewind;
} | {
  method: "undo";
  params?: Undo | null;
} | {
  method: "fork";
  params?: Fork | null;
} | {
  method: "call_tool";
  params: CallTool;
} | {
  method: "checkpoint";
  params: CheckpointParams;
} | {
  method: "set";
  params?: Set | null;
} | {
  method: "yield";
} | {
  method: "restart_mcp";
  params: RestartMcp;
} | {
  method: "status";
} | {
  method: "read";
  params: Read;
} | {
  method: "read_blob";
  params: ReadBlob;
} | {
  method: "wait";
  params: Wait;
} | {
  method: "list_completions";
  params: ListCompletions;
} | {
  method: "list_pods";
} | {
  method: "restore_pod";
  params: RestorePod;
} | {
  method: "shutdown";
  params?: Shutdown | null;
} | {
  method: "get_history";
};

export type MissedFirings = {
  /** At most the counting limit. */
  count: number;
  first: number;
  last: number;
};

/** A proposed rule for a host. */
export type NetworkAmendment = {
  host: string;
  action: string;
};

/** A notification or report that is not in the context yet. */
export type Note = {
  seq: number;
  from: Actor;
  event?: PodEvent | null;
  message?: Text | null;
  wake: boolean;
};

/** An empty result. */
export type Nothing = { [name: string]: unknown };

/** Sends a note to the agent. */
export type Notify = {
  message: string;
  auto_run?: boolean;
};

/** A completed operation: a repeated `op_id` gets the same reply. */
export type OpDone = {
  op_id: string;
  gave: OpOutcome;
};

export type OpOutcome = {
  run: RunId;
} | {
  queued: QueueId;
};

/** An ask without an answer. */
export type OpenAsk = {
  id: AskId;
  ask: AskKind;
  subject: AskSubject;
  options: Array<string>;
  expires?: number | null;
};

/** A call without a result. */
export type OpenCall = {
  call_id: CallId;
  tool: string;
  arguments: Text;
  stage: CallStage;
  /** The client that made this call: it belongs to no run and its result is not history. */
  by?: Actor | null;
};

/** A known child; its name stays reserved. */
export type OpenChild = {
  session: SessionId;
  name: PodName;
  call_id: CallId;
  scope: Scope;
  /** The total spending limit of it and its descendants until this process of it ends. */
  budget?: Budget | null;
  adopted_from?: SessionId | null;
  /** If adopted: the pods between it and this pod, nearest to it first. */
  line?: Array<SessionId>;
  clone?: CloneOrigin | null;
  /** Its current process has reported `ready`. */
  ready?: boolean;
  /** How its current process ended; while absent, the loan is active. */
  ended?: HowEnded | null;
  /** It had an earlier process. */
  lived?: boolean;
  /** The spending of it and its descendants when its current process started. */
  before?: Spend;
  /** Its open asks, as far as known. */
  asks?: Array<OpenAsk>;
  /** Its newest report that WaitPods may return, by the `seq` of its `inbox` entry. */
  reported?: number | null;
};

/** A running command with its last output. */
export type OpenCommand = {
  command_id: string;
  call_id: CallId;
  command: Text;
  cwd: string;
  output?: Array<CommandOutput>;
};

export type OpenLlm = {
  call: number;
  reserved: Reserved;
  /** Its usage is known and counted. */
  counted?: boolean;
};

export type OpenRun = {
  id: RunId;
  trigger: Trigger;
  by: Actor;
  attempt: number;
  continues?: RunId | null;
  /** The current or next turn: counts requests of this run without continuations. */
  turn: number;
  /** How often the reply of this turn was continued after a broken stream. */
  continued?: number;
  /** A turn has started and not ended. */
  in_turn?: boolean;
  /** Length of the context before the input: the target of a rollback. Absent without an input. */
  input_at?: number | null;
  /** The write scope was captured, so that changes by commands of this run can be undone. */
  captured?: boolean;
  /** The model has produced output in this run. */
  produced?: boolean;
  /** The run waits until this time before the next request. */
  waits_until?: number | null;
  /** Inbox messages used in this run; a rollback makes them pending again. */
  drained?: Array<Note>;
  /** Steering used in this run; a rollback returns it to the queue. */
  steered?: Array<Queued>;
};

/** First entry of every later holder of the lease. */
export type Opened = {
  epoch: number;
  pid: number;
  boot_id: string;
  host: string;
  version: string;
  as: Holder;
  /** The sandbox backend: `namespaces`, `bubblewrap`, `landlock`, `seatbelt`, `none` or `off`. Logs of 0.1.0 have a letter in `fence` instead. */
  sandbox?: string | null;
  /** The pod's own directories in this process, in addition to its scope. */
  own?: Scope | null;
};

/** A report to the parent, identified by the `seq` of this entry. */
export type Outbox = {
  to: SessionId;
  event: PodEvent;
};

/** The report with this number was delivered. Serialized as `outbox_seq`, because `seq` is the line's own
 * number. */
export type OutboxAck = {
  outbox_seq: number;
};

export type Outcome = "done" | "failed" | "refused" | "invalid" | "cancelled" | "timed_out" | "lost" | (string & {});

export type OutputStream = "stdout" | "stderr" | "both" | (string & {});

/** The parent pod's session and the call that spawned this one. */
export type ParentCall = {
  session: SessionId;
  call_id: CallId;
};

export type Permission = "read" | "write" | (string & {});

export type Phase = "allowed" | "needs_approval" | "forbidden" | (string & {});

/** An event that a child reports to its parent. */
export type PodEvent = {
  kind: "turn_ended";
  pod_name: string;
  result?: string | null;
  wake?: boolean | null;
} | {
  kind: "errored";
  pod_name: string;
  message: string;
  wake?: boolean | null;
} | {
  kind: "shut_down";
  pod_name: string;
  outcome?: ChildOutcome | null;
  result?: string | null;
  wake?: boolean | null;
} | {
  kind: "asked";
  pod_name: string;
  ask: unknown;
  socket: string;
  wake?: boolean | null;
} | {
  kind: "scope_sub_delegated";
  parent_pod: string;
  sub_pod: string;
  sub_socket: string;
  scope: Array<ScopeRule>;
} | {
  kind: "unknown";
};

/** A pod's name, which is its thread's name: 1 to 40 letters and digits of any script, spaces and hyphens;
 * the first character is a letter or digit, the last one is not a space. Validated on construction: control,
 * bidirectional and invisible characters are rejected. */
export type PodName = string;

export type PodRow = {
  name: PodName;
  session: SessionId;
  /** Whether a process runs the pod. */
  live: boolean;
  socket?: string | null;
};

/** The spending of one pod over its whole session, without its descendants, according to its log at an entry. */
export type PodSpend = {
  session: SessionId;
  /** The pod that spawned it. */
  under: SessionId;
  /** The last entry of its log that was read. */
  read_to: number;
  spent: Spend;
};

/** The decision of the policy with its reason. Later steps may tighten it, never loosen it. */
export type PolicyVerdict = {
  outcome: Judgement;
  rule?: string | null;
  layer?: string | null;
  reason: string;
  /** The sandbox backend: `namespaces`, `bubblewrap`, `landlock`, `seatbelt`, `none` or `off`. Logs of 0.1.0 have a letter in `fence` instead. */
  sandbox?: string | null;
};

/** A position in a session. A reconnecting client sends both fields, because after a power cut the number of
 * an unsynced entry is used again. */
export type Position = {
  seq: number;
  h: Chain;
};

/** The policy verdict on a call before it runs. */
export type Precheck = {
  /** The shell command, or the name of another tool. */
  command: string;
  cwd: string;
  execution_kind: ExecutionKind;
  /** Whether the call is not forbidden. */
  allow: boolean;
  requires_approval: boolean;
  matched_rule?: string | null;
  phase: Phase;
  reason: string;
  requirement: ApprovalRequirement;
};

/** The changes of a call, computed without side effects. */
export type Preview = {
  path: string;
  /** Hash of the file before; absent if it does not exist. */
  before?: string | null;
  after: string;
  diff?: string | null;
};

export type Progress = {
  percent?: number | null;
  note: string;
};

/** Tool results up to this entry show only their summary. */
export type Pruned = {
  to_seq: number;
  saved: number;
};

export type Purpose = "turn" | "compaction" | "title" | (string & {});

/** A queued input, or pending steering. */
export type QueueId = string;

export type QueueMode = "queue" | "steer" | (string & {});

export type QueueState = {
  length: number;
  /** Waits for the next `run` or `resume`. */
  held?: boolean;
};

export type Queued = {
  id: QueueId;
  segments: Array<InputSegment>;
  op_id?: string | null;
  from: Actor;
  mode: QueueMode;
  /** The references of the input, as read when it was accepted. */
  attached?: Array<SystemItem>;
};

/** A queued input, or steering that is not in the context yet. */
export type QueuedInput = {
  id: QueueId;
  segments: Array<InputSegment>;
  op_id?: string | null;
  from: Actor;
  mode: QueueMode;
  /** The references of the input, as read when it was accepted. An input queued without a pod has none. */
  attached?: Array<SystemItem>;
};

/** Reads a page of entries. */
export type Read = {
  from_seq: number;
  limit?: number;
  /** Only entries of these kinds. */
  kinds?: Array<string> | null;
};

/** Reads a piece of a blob of this session. */
export type ReadBlob = {
  blob: string;
  offset?: number;
  limit?: number;
};

/** Reply to `read_blob`: a piece in base64. */
export type ReadBlobReply = {
  data: string;
  offset: number;
  /** Length of the whole blob. */
  bytes: number;
  /** Start of the next piece, if there is one. */
  next_offset?: number | null;
};

/** Reply to `read`: a page of entries, at most one frame. */
export type ReadReply = {
  entries: Array<Entry>;
  /** Start of the next page, if there is one. */
  next_seq?: number | null;
};

/** The position to which this pod has read a child's output. Serialized as `to_seq`, because `seq` is the
 * line's own number. */
export type ReadTo = {
  session: SessionId;
  to_seq: number;
};

/** Why a method was refused, or why a run failed. */
export type Refusal = {
  code: ErrorCode;
  message: string;
};

/** Why an attempt was rejected. */
export type RejectedAttempt = {
  summary: string;
  content?: Text | null;
};

export type Renamed = {
  name: PodName;
  by: Actor;
};

/** Both variants on the wire. */
export type ReplyData = {
  ok: boolean;
  result?: unknown;
  error?: Refusal | null;
};

export type Report = {
  seq: number;
  to: SessionId;
  event: PodEvent;
};

/** Sent by a child; acknowledged after it is logged. Older children send neither `from` nor `from_seq`. */
export type ReportParams = ({
  kind: "turn_ended";
  pod_name: string;
  result?: string | null;
  wake?: boolean | null;
} | {
  kind: "errored";
  pod_name: string;
  message: string;
  wake?: boolean | null;
} | {
  kind: "shut_down";
  pod_name: string;
  outcome?: ChildOutcome | null;
  result?: string | null;
  wake?: boolean | null;
} | {
  kind: "asked";
  pod_name: string;
  ask: unknown;
  socket: string;
  wake?: boolean | null;
} | {
  kind: "scope_sub_delegated";
  parent_pod: string;
  sub_pod: string;
  sub_socket: string;
  scope: Array<ScopeRule>;
} | {
  kind: "unknown";
}) & {
  from?: SessionId | null;
  from_seq?: number | null;
};

/** One line from a client. */
export type Request = {
  id?: Id;
} & Method;

export type Reserved = {
  input: number;
  output: number;
  usd?: number | null;
};

export type RestartMcp = {
  server: string;
};

/** Restarts a descendant pod. The session distinguishes it from earlier pods with the same name, and is
 * required for a pod that this pod has not spawned itself. */
export type RestorePod = {
  name: PodName;
  session?: SessionId | null;
};

/** Reply to `restore_pod`. */
export type RestorePodReply = {
  name: PodName;
  session: SessionId;
  socket?: string | null;
};

/** The `result` of each method's reply. */
export type Results = {
  hello: Nothing;
  run: RunReply;
  dequeue: DequeueReply;
  notify: Nothing;
  pod_event: Nothing;
  resume: ResumeReply;
  pause: Nothing;
  cancel: Nothing;
  answer: Nothing;
  compact: Nothing;
  rewind_targets: RewindTargets;
  rewind: RewindReply;
  undo: CallReply;
  fork: ForkReply;
  call_tool: CallReply;
  checkpoint: Nothing;
  set: Nothing;
  yield: Nothing;
  restart_mcp: Nothing;
  status: StatusReply;
  read: ReadReply;
  read_blob: ReadBlobReply;
  wait: WaitReply;
  list_completions: Completions;
  list_pods: ListPodsReply;
  restore_pod: RestorePodReply;
  shutdown: Nothing;
  get_history: Nothing;
};

/** Reply to `resume`: the resumed run. */
export type ResumeReply = {
  run: RunId;
};

export type Rewind = {
  to_seq: number;
  expected_head: Position;
};

/** Reply to `rewind`: the input for the composer. */
export type RewindReply = {
  input: Array<InputSegment>;
};

/** An input that a rewind can return to. */
export type RewindTarget = {
  seq: number;
  ts: number;
  turn: number;
  preview: string;
  warning?: string | null;
};

export type RewindTargets = {
  head: Position;
  targets: Array<RewindTarget>;
};

/** Later entries leave the context, but stay in the log. */
export type Rewound = {
  to_seq: number;
};

export type Role = "user" | "assistant" | "system" | (string & {});

/** The model and its connection. */
export type Route = {
  provider: string;
  model: string;
  scheme: string;
};

/** Sends an input. */
export type Run = {
  input: InputOrText;
  mode?: RunMode;
  /** A repeated `op_id` returns the first result. */
  op_id?: string | null;
};

export type RunCompleted = {
  result: RunResult;
  reason?: string | null;
};

/** Every accepted run ends with exactly one of these events. */
export type RunEnd = {
  result: RunEndResult;
  reason?: string | null;
  /** Set with `result: error`. */
  error?: Refusal | null;
};

export type RunEndResult = "finished" | "paused" | "limit_reached" | "cancelled" | "rolled_back" | "interrupted" | "error" | (string & {});

export type RunErrored = {
  code: ErrorCode;
  message: string;
  retryable: boolean;
  /** The delay that the provider requests. */
  retry_after_ms?: number | null;
};

/** A run: from one accepted trigger to exactly one terminal entry. */
export type RunId = string;

/** How an input is handled while a run is active. */
export type RunMode = "reject" | "queue" | "steer" | "interrupt";

/** Reply to `run`: the opened run, or the id of the waiting input (in the queue, or as steering). */
export type RunReply = {
  run: RunId;
} | {
  queued: QueueId;
};

export type RunResult = "finished" | "paused" | "limit_reached" | "cancelled" | "rolled_back" | "interrupted" | (string & {});

/** The paths that a pod may read or write. */
export type Scope = {
  allow?: Array<ScopeRule>;
  deny?: Array<ScopeRule>;
};

/** One rule of a scope. */
export type ScopeRule = {
  target: string;
  permission: Permission;
  recursive?: boolean;
};

export type SegmentReason = "initial" | "compaction" | "rewind" | "config" | "import" | "fork" | (string & {});

/** Resets the context to `history`. */
export type SegmentStart = {
  segment: number;
  reason: SegmentReason;
  system_prompt: Text;
  /** A value, stored inline or, if it is too large, in a blob. `apply` always gets it inline: a reader loads
   * the blob first, and a writer spills it last. */
  tools: BlobRef | Array<ToolSpec>;
  config: unknown;
  history: History;
  /** A value, stored inline or, if it is too large, in a blob. `apply` always gets it inline: a reader loads
   * the blob first, and a writer spills it last. */
  carry: BlobRef | SessionFacts;
  compacted_to_seq?: number | null;
  tokens?: BeforeAfter | null;
};

/** The answer to `hello`. */
export type ServerHello = {
  protocol: number;
  server?: string;
  limits?: Limits;
};

/** The folded state that outlives a segment. */
export type SessionFacts = {
  /** From `session_start`; absent only in a log without one. */
  about?: About | null;
  name?: PodName | null;
  archived?: boolean;
  epoch?: number;
  /** An offline edit or the creator has left work (an input, an answer) for the next pod. */
  woken?: boolean;
  /** The lease is held for an offline edit, not by a pod. */
  visiting?: boolean;
  run?: OpenRun | null;
  /** The last run that ended. */
  last?: EndedRun | null;
  calls?: Array<OpenCall>;
  asks?: Array<OpenAsk>;
  /** The last answered asks, oldest first: a second answer is refused as too late. */
  answered?: Array<AnsweredAsk>;
  queue?: Array<Queued>;
  /** The queue waits for the next `run` or `resume`. */
  held?: boolean;
  notes?: Array<Note>;
  children?: Array<OpenChild>;
  outbox?: Array<Report>;
  /** The newest `from_seq` of each sender. */
  heard?: { [name: string]: number };
  grants?: Array<Granted>;
  usage?: SessionUsage;
  /** How many requests this session has made; the number of the next one. */
  llm_calls?: number;
  /** The number of finished requests. */
  llm_ended?: number;
  /** Bytes of recordings that the log names. */
  recorded?: number;
  /** A request without its end: the reservation counts as spent. */
  open_llm?: OpenLlm | null;
  /** The reservations of requests with unknown usage: the process died, or the stream broke first. */
  unended?: Spend;
  /** The number of requests of this session; a fork does not count its parent's. */
  requests?: number;
  /** The budget set by `set{budget}`; overrides manifest and mandate. */
  budget?: Budget | null;
  /** The known spending of all descendants, and the number of spawns: the sum of `paid`. */
  children_spent?: Spend;
  /** The newest spending of each descendant. */
  paid?: { [name: string]: PodSpend };
  tasks?: Array<TaskFact>;
  /** The highest task id so far: ids are not reused. */
  task_ids?: number;
  /** Requests since the last change of a task or reminder of the model. */
  since_task?: number;
  goal?: GoalFact | null;
  /** Only with a mandate that names an objective. */
  job?: JobFacts | null;
  read_to?: { [name: string]: number };
  /** Nested instructions that the model has received and still sees. */
  instructed?: Array<Instructed>;
  op_ids?: Array<OpDone>;
  /** Configuration changes since the session started, by key. */
  config?: { [name: string]: unknown };
  /** The times of automatic resumes, newest last, at most three. */
  resumes?: Array<number>;
  segment?: number;
  pruned_to?: number | null;
  last_ts?: number;
};

/** A session: one log. */
export type SessionId = string;

/** seq 0 only: identity, configuration, lineage; opens epoch 0. */
export type SessionStart = {
  session: SessionId;
  format: number;
  version: string;
  name: PodName;
  created_by: Actor;
  cwd: string;
  workspace: string;
  git?: GitState | null;
  /** The resolved configuration; `manifest` reads it. */
  manifest: unknown;
  scope: Scope;
  mandate?: unknown;
  metadata?: unknown;
  parent?: ParentCall | null;
  from?: ForkOrigin | null;
};

/** Tokens and money of a session. `cost_usd` is the known part; `unknown_cost` counts calls without a price. */
export type SessionUsage = {
  input?: number;
  output?: number;
  cache_read?: number;
  cache_write?: number;
  cost_usd?: number;
  unknown_cost?: number;
  calls?: number;
};

/** Changes settings; the change is logged. */
export type Set = {
  model?: string | null;
  name?: PodName | null;
  posture?: string | null;
  budget?: unknown;
  grant?: SetGrant | null;
  /** `null` clears the goal, absent keeps it. */
  goal?: string | null;
  progress?: SetProgress | null;
  archived?: boolean | null;
};

export type SetGrant = {
  rule: string;
  reach: string;
};

export type SetProgress = {
  percent?: number | null;
  note: string;
};

export type Shutdown = {
  mode?: ShutdownMode;
};

export type ShutdownMode = "after_run" | "now";

/** File state for undo. */
export type Snapshot = {
  /** The call whose file it is; absent for changes in the write scope since the previous snapshot. */
  call_id?: CallId | null;
  /** The run before or after which it was captured, if that is not the run of the entry. */
  of_run?: RunId | null;
  when: SnapshotWhen;
  /** A value, stored inline or, if it is too large, in a blob. `apply` always gets it inline: a reader loads
   * the blob first, and a writer spills it last. */
  files: BlobRef | Array<SnapshotFile>;
};

/** The state of the pod at the time of the subscription. */
export type SnapshotEvent = {
  entries: Array<Entry>;
  greeting: Greeting;
  status: Status;
  activity?: Activity | null;
  waiting?: WaitState | null;
  head: Position;
  in_flight?: InFlight;
  /** `read` returns older entries. */
  older?: boolean;
};

export type SnapshotFile = {
  path: string;
  mode: number;
  /** Empty if the file did not exist. */
  hash: string;
  blob?: string | null;
  /** The offset of the content, if several files share the blob. */
  at?: number | null;
  /** The length of the content, if several files share the blob. */
  bytes?: number | null;
};

export type SnapshotWhen = "before" | "after" | (string & {});

/** The spending of a pod and its descendants. */
export type Spend = {
  usd?: number;
  tokens?: number;
  /** Requests. */
  turns?: number;
  /** Spawns. */
  children?: number;
  /** Requests with an unknown price. */
  unknown_cost?: number;
};

/** The state of a run or job that no other entry shows. */
export type StateChange = {
  state: StateWord;
  on?: WaitingOn | null;
  until?: number | null;
  reason?: string | null;
  by?: Actor | null;
  /** Another job is created from this one. */
  firing?: JobFiring | null;
};

export type StateWord = "paused" | "queued" | "waiting" | "working" | "abandoned" | "stopping" | (string & {});

export type Status = "idle" | "running" | "paused" | (string & {});

export type StatusEvent = {
  status: Status;
  activity?: Activity | null;
  /** The activity as a text for people: `Bash cargo test`. */
  detail?: string | null;
  waiting?: WaitState | null;
};

/** Reply to `status`. */
export type StatusReply = {
  status: Status;
  activity?: Activity | null;
  detail?: string | null;
  waiting?: WaitState | null;
  run?: RunId | null;
  usage?: SessionUsage;
  head: Position;
  children?: Array<ChildRow>;
  asks?: Array<AskId>;
  queue?: QueueState;
  mcp_servers?: Array<McpServer>;
};

/** A streaming block of the reply. */
export type StreamingBlock = {
  kind: "text";
  text: string;
} | {
  kind: "thinking";
  text: string;
} | {
  kind: "tool_call";
  id: CallId;
  name: string;
  arguments: string;
} | {
  kind: "unknown";
};

/** The events that a client subscribes to. */
export type Subscribe = "full" | "tail" | "none";

/** The typed cause and the exact text for the model; messages named here are no longer pending. */
export type SystemEntry = {
  item: SystemItem;
  note?: number | null;
};

/** The typed cause and the exact text that the model gets. */
export type SystemItem = {
  kind: SystemKind;
  /** The event behind a `pod_event`, the path behind a `file_attachment` … */
  cause?: unknown;
  body: Text;
};

export type SystemItemEvent = {
  item: SystemItem;
};

export type SystemKind = "notification" | "pod_event" | "file_attachment" | "knowledge" | "workflow" | "skill" | "task_reminder" | "interrupt" | "continue" | (string & {});

export type Task = {
  id: number;
  subject: string;
  description?: string | null;
  status: TaskStatus;
};

export type TaskFact = {
  id: number;
  subject: string;
  description?: string | null;
  status: TaskStatus;
};

export type TaskStatus = "pending" | "in_progress" | "completed" | "deleted" | (string & {});

export type Text = string | BlobRef;

export type ToolCallArgsDelta = {
  id: CallId;
  json: string;
};

/** `arguments` is the JSON text that the model wrote. */
export type ToolCallDone = {
  id: CallId;
  name: string;
  arguments: Text;
};

export type ToolCallStart = {
  id: CallId;
  name: string;
};

/** Written before the tool starts. */
export type ToolDispatch = {
  call_id: CallId;
  tool: string;
  class: Class;
  action: Action;
  preview?: Preview | null;
  verdict: PolicyVerdict;
  /** The client that made this call; absent for the model. */
  by?: Actor | null;
  /** The rewritten arguments, if they differ from the model's. */
  arguments?: Text | null;
  /** The pod executes the call itself and may have to wait for the result (calls about other pods). */
  own?: boolean;
};

/** `tool/invoke`: the thread's pod makes the call under its policy. */
export type ToolInvoke = {
  /** Older clients omit it in the body; then the URL must contain it. */
  thread_id?: string | null;
  call: ApiCall;
  cwd?: string | null;
};

/** The tool and its arguments. */
export type ToolPayload = {
  type: "function";
  arguments: string;
} | {
  type: "custom";
  input: string;
} | {
  type: "local_shell";
  params: LocalShell;
} | {
  type: "mcp";
  server: string;
  tool: string;
  /** JSON text, or the JSON itself. */
  raw_arguments?: unknown;
  raw_tool_call_id?: string | null;
};

export type ToolPhase = "precheck" | "dispatching" | "completed" | "failed" | (string & {});

/** At most one for each call; with `by` of a client it is not part of the history. */
export type ToolResult = {
  item: Item;
  outcome: Outcome;
  verdict?: PolicyVerdict | null;
  by?: Actor | null;
  notes?: Array<number>;
};

export type ToolResultEvent = {
  id: CallId;
  summary?: string;
  output?: Text | null;
  is_error?: boolean;
  outcome?: Outcome | null;
  /** The client that made the call. */
  by?: Actor | null;
};

/** The definition of an offered tool for the model. */
export type ToolSpec = {
  name: string;
  description: string;
  schema: unknown;
};

export type Trigger = "user_send" | "notify" | "pod_event" | "resume" | "job" | "wakeup" | (string & {});

/** When another job is created. */
export type TriggerCondition = "on_schedule" | "after_end" | "unknown";

export type TurnEnd = {
  turn: number;
  result: TurnResult;
  stop_reason: string;
};

export type TurnEndEvent = {
  turn: number;
  result: TurnResult;
};

export type TurnResult = "finished" | "paused" | "cancelled" | "error" | (string & {});

export type TurnStart = {
  turn: number;
};

export type Unarchived = {
  by: Actor;
};

/** Restores files, of the last run by default. */
export type Undo = {
  run?: RunId | null;
};

/** An entry of a kind unknown to this version: the original object. */
export type UnknownEntry = { [name: string]: unknown };

/** The condition of a `wait`. */
export type Until = "idle" | "ask" | {
  seq: number;
};

/** `null` means unknown, never 0. */
export type UsageEvent = {
  input_tokens?: number | null;
  output_tokens?: number | null;
  cache_read_input_tokens?: number | null;
  cache_write_input_tokens?: number | null;
  cost_usd?: number | null;
};

/** A user message. */
export type UserInput = {
  segments: Array<InputSegment>;
  op_id?: string | null;
  from: Actor;
  queued?: QueueId | null;
};

export type UserMessage = {
  segments: Array<InputSegment>;
  run?: RunId | null;
};

export type Wait = {
  until: Until;
  timeout_ms: number;
};

/** Reply to `wait`: whether the condition holds, or the time has run out. */
export type WaitReply = {
  holds: boolean;
  status: Status;
  head: Position;
};

/** The pod only waits for asks, children or a time. */
export type WaitState = {
  on: WaitingOn;
  until?: number | null;
};

export type WaitingOn = "ask" | "child" | "time" | (string & {});
