// Generated from the JSON Schema of the pod protocol. Do not edit.

/** Who this session is. Never changes, except for the name (`Facts::name`). */
export type About = {
  session: SessionId;
  created: number;
  created_by: Actor;
  cwd: string;
  workspace: string;
  manifest: unknown;
  scope: Scope;
  mandate?: unknown;
  parent?: Parent | null;
  from?: ForkedFrom | null;
};

/** What a call would touch. Paths are absolute. */
export type Action = {
  reads?: Array<string>;
  writes?: Array<string>;
  hosts?: Array<string>;
  /** A shell line, as it is given to the shell. */
  command?: string | null;
  /** The commands that the line would really run, in words for a person; policy reads the line itself. */
  commands?: Array<string>;
  /** Files of the scope that the line would run, as they were when the call was looked at. */
  scripts?: Array<Script>;
  /** A tool of an MCP server, `mcp__server__tool`. */
  mcp?: string | null;
  /** Another pod that would be told or started. */
  pod?: string | null;
  side_effects?: boolean;
};

export type Activity = "model" | "tool" | "ask" | "child" | "time" | "hook" | "compacting" | "stopping" | (string & {});

/** Who did or said something. */
export type Actor = {
  actor: ActorKind;
  session?: SessionId | null;
  surface?: string | null;
};

export type ActorKind = "person" | "pod" | "job" | "hook" | "minke" | (string & {});

/** For the person, not the model. */
export type Alert = {
  level: AlertLevel;
  source: AlertSource;
  message: string;
};

/** For the person, not the model. */
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

/** A question that has its answer. */
export type AnsweredAsk = {
  id: AskId;
  decision: Decision;
};

/** A call as a client writes it. */
export type ApiCall = {
  name: string;
  payload: ToolPayload;
  raw_tool_call_id?: string | null;
};

/** What happens to a call, in order: the lines that event hooks get. */
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

/** A frame of a call. */
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

/** What a tool said. */
export type ApiOutput = {
  type: "function";
  body?: string | null;
  success: boolean;
  /** The whole of it, where `body` is only a part: `read_blob` gives it. */
  blob?: string | null;
} | {
  type: "mcp";
  result: unknown;
};

/** `approval/answer`: goes on with a call that waits. */
export type ApprovalAnswer = {
  approval_id: string;
  decision: OlderDecision;
  note?: string | null;
};

export type ApprovalPhase = "requested" | "approved" | "denied" | (string & {});

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

/** A durable question. */
export type AskId = string;

export type AskKind = "approval" | "question" | "elicitation" | (string & {});

export type AskSubject = {
  call_id?: CallId | null;
  /** Binds the answer to this call: tool, final arguments, cwd, and the preview's hash before. */
  digest: string;
  /** The exact question, command or diff, for the person. */
  text?: string | null;
  /** The tool that would be called, and where. */
  tool?: string | null;
  cwd?: string | null;
  action?: Action | null;
  diff?: string | null;
  /** Why it is asked: the rule, its layer, the fence it would run in. */
  verdict?: Verdict | null;
  /** The exact rule that `approved_rule` would write; absent where it would change nothing. */
  always?: string | null;
};

/** A block of the reply joins history when it is complete, in stream order. */
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

/** A block of the reply that is still streaming. */
export type Block = {
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

/** What a pod may spend, over its whole session; what is absent is not limited. */
export type Budget = {
  usd?: number | null;
  /** Input and output together. */
  tokens?: number | null;
  /** Requests; every pod counts its own. */
  turns?: number | null;
  /** Seconds since the session began. */
  wall_s?: number | null;
  /** Spawns, counted down. */
  children?: number | null;
};

/** A call's name, as the model (or the client that made it) gave it. */
export type CallId = string;

/** Of `call_tool` and `undo`: the call whose `tool_result` follows. */
export type CallReply = {
  call_id: CallId;
};

/** How far an open call has come. */
export type CallStage = "wished" | {
  asked: AskId;
} | {
  answered: {
    digest: string;
    decision: Decision;
    note?: string | null;
    /** The rule that is to be appended to the person's policy, if that was the answer. */
    rule?: string | null;
    /** The scripts that the question showed. */
    scripts?: Array<Script>;
  };
} | {
  dispatched: Dispatched;
};

/** One call for a client, through the same gate. `arguments` is an object, or its JSON text. */
export type CallTool = {
  name: string;
  arguments: unknown;
  call_id?: CallId | null;
  cwd?: string | null;
};

/** The same facts again inside a segment. */
export type Carry = {
  segment: number;
  /** seq of its `segment_start`. */
  start: number;
  history: History;
  /** A value that is in the line, or in a blob if it was too large. `apply` always sees it here: a reader fetches
   * the blob first, and a writer spills it last. */
  carry: BlobRef | Facts;
};

export type Chain = string;

/** A named point of an API client. */
export type Checkpoint = {
  id: string;
  state: unknown;
};

export type CheckpointParams = {
  id: string;
  state: unknown;
};

/** A child that begins to live and to hold a loan, or one that was another pod's child and is this one's now. */
export type Child = {
  session: SessionId;
  name: PodName;
  call_id: CallId;
  scope: Scope;
  /** What it and everything below it may have spent in all when this life of it ends. */
  budget?: Budget | null;
  /** The pod that had lent it its scope, if it was adopted from there. */
  adopted_from?: SessionId | null;
  /** Who is between it and this pod, nearest to it first, if it was adopted. */
  line?: Array<SessionId>;
  /** Its own clone of the workspace, if it has one. */
  clone?: CloneOf | null;
};

export type ChildEnd = {
  session: SessionId;
  name: PodName;
  outcome: ChildOutcome;
  exit?: number | null;
  /** In this life of it, by it and everything below it. */
  spent?: Spent | null;
};

export type ChildEnded = {
  session: SessionId;
  name: PodName;
  outcome: ChildOutcome;
  exit?: number | null;
  spent?: Spent | null;
};

export type ChildOutcome = "failed_to_start" | "slept" | "stopped" | "crashed" | "returned" | (string & {});

export type ChildRow = {
  session: SessionId;
  name: PodName;
};

/** What pods below this one have spent, read from their logs. The newest reading of each counts: so it does not
 * matter who reads first when a pod had several parents one after the other. */
export type ChildSpent = {
  paid: Array<Paid>;
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
  /** A pod that speaks names its session. */
  session?: SessionId | null;
};

/** A clone of the workspace that a child works in. */
export type CloneOf = {
  /** Where it lies. */
  path: string;
  /** Its own branch. */
  branch: string;
};

/** News of a command that a call runs. */
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

/** A piece of a command's output; `start` and `end` are byte offsets in its stream, so that pieces can be joined. */
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

/** Tokens of the context before and after, if they were counted. */
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

/** What is completed. */
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

/** The same turn goes on: broken stream, fallback, compacted. */
export type Continues = {
  call: number;
  attempt: number;
  reason: string;
};

export type Decision = "approved" | "approved_for_session" | "approved_rule" | "answered" | "denied" | "abort" | (string & {});

/** A piece of a block, as it streams. */
export type Delta = {
  text: string;
};

/** Takes an input that waits out of the queue. */
export type Dequeue = {
  id: QueueId;
};

export type DequeueReason = "run" | "steered" | "removed" | (string & {});

/** Of `dequeue`: what was taken out. */
export type DequeueReply = {
  segments: Array<InputSegment>;
};

export type Dequeued = {
  id: QueueId;
  why: DequeueReason;
};

/** Params of `resume`, `pause` and `cancel`: why, kept in the log. */
export type Detail = {
  detail?: string | null;
};

export type Dispatched = {
  class: Class;
  action: Action;
  preview?: Preview | null;
  /** When. */
  at?: number;
  /** The mind carries it out itself. */
  own?: boolean;
};

/** A whole block; a very long one is the name of a blob. */
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
  /** A paused or interrupted run was given up. */
  abandoned?: boolean;
  /** It was interrupted while it waited for this time; then it goes on by itself. */
  waits_until?: number | null;
};

export type Entry = {
  seq: number;
  ts: number;
  run?: RunId;
  more?: boolean;
  h: Chain;
} & Kind;

/** Data of `entry` and `segment_rotated`: the typed entry, as it stands in the log. */
export type EntryEvent = {
  entry: Entry;
};

export type ErrorCode = "already_running" | "not_running" | "not_paused" | "invalid_request" | "not_found" | "conflict" | "denied" | "too_many" | "provider_error" | "refused" | "tool_error" | "budget_exceeded" | "storage_failed" | "internal" | (string & {});

/** What a pod tells its clients. */
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

/** Somebody is asked. */
export type ExecApprovalRequest = {
  call_id: CallId;
  approval_id: string;
  turn_id: string;
  command: string;
  cwd: string;
  reason: string;
  /** Nothing is asked about a connection itself. */
  network_approval_context?: unknown;
  proposed_execpolicy_amendment?: Array<string>;
  proposed_network_policy_amendments?: Array<NetworkAmendment>;
  /** No call asks for more than the pod has. */
  additional_permissions?: Array<unknown>;
  available_decisions: Array<OlderDecision>;
};

export type ExecutionKind = "shell" | "tool" | "mcp" | (string & {});

/** Ignored by the fold. */
export type Extension = {
  domain: string;
  payload: unknown;
};

/** Everything folded that outlives a segment. */
export type Facts = {
  /** From `session_start`; absent only in a log that has none. */
  about?: About | null;
  name?: PodName | null;
  archived?: boolean;
  epoch?: number;
  /** A visit or the creator has left work (an input, an answer) that no pod has seen yet. */
  woken?: boolean;
  /** The lease is held for a visit, not by a pod. */
  visiting?: boolean;
  run?: OpenRun | null;
  /** The last run that ended. */
  last?: EndedRun | null;
  calls?: Array<OpenCall>;
  asks?: Array<OpenAsk>;
  /** The questions that were answered last, oldest first: who answers one again is told that it is too late. */
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
  usage?: Usage;
  /** How many requests this session has made; the number of the next one. */
  llm_calls?: number;
  /** How many of them have ended, whichever way. */
  llm_ended?: number;
  /** Bytes of recordings that the log names. */
  recorded?: number;
  /** A request without its end: the reservation counts as spent. */
  open_llm?: OpenLlm | null;
  /** What requests had reserved whose use nobody knows: the process died, or the stream broke first. */
  unended?: Spent;
  /** How many requests this session has made itself, a fork without its parent's. */
  requests?: number;
  /** What `set{budget}` has set; over what manifest and mandate say. */
  budget?: Budget | null;
  /** What everybody below has spent, as far as it was read, and how many were spawned: the sum of `paid`. */
  children_spent?: Spent;
  /** The newest reading of what each pod below has spent itself. */
  paid?: { [name: string]: Paid };
  tasks?: Array<TaskFact>;
  /** The highest number that a task has had: numbers are not used again. */
  task_ids?: number;
  /** Requests since a task was last changed, or the model last reminded of them. */
  since_task?: number;
  goal?: GoalFact | null;
  /** Only with a mandate that names an objective. */
  job?: JobFacts | null;
  read_to?: { [name: string]: number };
  /** Instructions of subtrees that the model has been told and still sees. */
  instructed?: Array<Instructed>;
  op_ids?: Array<OpDone>;
  /** Changes of the configuration since the session began, by key. */
  config?: { [name: string]: unknown };
  /** When the pod last resumed by itself, newest last, at most three. */
  resumes?: Array<number>;
  segment?: number;
  pruned_to?: number | null;
  last_ts?: number;
};

/** A time at which another job was to come from one. */
export type Firing = {
  due: number;
  /** The session of the new job. It is written down before that is made, and made with this id and no other.
   * Absent: none is made this time. */
  session?: SessionId | null;
  /** The session stands. */
  made?: boolean;
  /** Times before it at which nobody was there to make one. */
  missed?: Missed | null;
};

export type Fork = {
  at_seq?: number | null;
  name?: PodName | null;
};

/** Of `fork`. */
export type ForkReply = {
  session: SessionId;
  name?: PodName | null;
};

/** Where a fork came from. */
export type ForkedFrom = {
  session: SessionId;
  seq: number;
  h: Chain;
};

/** One line of a pod. */
export type Frame = {
  /** Made from the entry of this number. */
  seq?: number;
  /** Live: it came after this entry and before the next. */
  after_seq?: number;
  run?: RunId;
  id?: Id;
} & Event;

/** Where a git working tree stood when the session began. */
export type Git = {
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

/** A remembered approval; a pod uses only those in its own log. */
export type Grant = {
  rule: string;
  reach: string;
  by: Actor;
  /** The scripts that the person saw with it: it covers these with this content, and no others. */
  scripts?: Array<Script>;
};

export type Granted = {
  /** `call DIGEST`, or a rule as one line of TOML. */
  rule: string;
  reach: string;
  scripts?: Array<Script>;
};

/** Who a client is talking to. Everything but the name may be missing in an older pod's. */
export type Greeting = {
  pod_name: string;
  session?: SessionId | null;
  cwd?: string;
  /** The catalog's id of the provider. */
  provider?: string;
  scheme?: string;
  model?: string;
  scope_summary?: string;
  fence?: string;
  /** Exactly those offered, sorted. */
  tools?: Array<string>;
  context_window?: number;
  context_tokens?: number;
  posture?: string;
  parent?: PodName | null;
  /** What is ignored or missing here: untrusted workspace, weaker fence, no key. */
  notices?: Array<string>;
};

/** The optional first line. */
export type Hello = {
  protocol?: number;
  subscribe?: Subscribe;
  /** The last entry that the client has: it wants only what came after. */
  since?: Position | null;
  client?: ClientInfo | null;
};

/** `[Item]`, or the context as it was after an entry, or a blob that holds the items. */
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

/** An image that lies in a blob. */
export type ImageBlob = {
  blob: string;
  media_type: string;
};

/** What is open right now, so that a client that joins in the middle of a turn shows what the others show. */
export type InFlight = {
  blocks?: Array<Block>;
  commands?: Array<OpenCommand>;
};

/** A note has come; duplicates are dropped by `(from, from_seq)`. */
export type Inbox = {
  from: Actor;
  from_seq?: number | null;
  event?: PodEvent | null;
  message?: Text | null;
  wake: boolean;
};

/** What the schema says of `input`: input segments, or the older form: one text. */
export type InputOrText = string | Array<InputSegment>;

/** The written form of the known kinds; `InputSegment` adds the unknown ones. */
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

/** A file of instructions that was told. */
export type Instructed = {
  path: string;
  /** How much of it was told. */
  bytes: number;
};

/** A run opens. */
export type Invoke = {
  trigger: Trigger;
  by: Actor;
  attempt: number;
  continues?: RunId | null;
};

/** The result of `tool/invoke`. One that says `approval_required` is followed by another when the call has ended. */
export type InvokeResult = {
  ok: boolean;
  status: InvokeStatus;
  execution_kind: ExecutionKind;
  response_id: string;
  /** Absent if the call never came so far. */
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
  /** `provider/model` that signed or encrypted it: nobody else can read it, so nobody else is sent it. */
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
  /** The whole of what it said, where `content` is only a part. */
  blob?: string | null;
  /** What it showed. */
  images?: Array<ImageBlob>;
} | {
  kind: "unknown";
};

/** Everything folded of a job. */
export type JobFacts = {
  state: JobState;
  /** Retries that the mandate allows. */
  max: number;
  /** The mandate has an acceptance command. */
  accepts?: boolean;
  /** Retries so far. */
  retries?: number;
  /** When it is tried again. */
  until?: number | null;
  /** The provider wants to be left alone until then. */
  not_before?: number | null;
  /** The last attempt failed: the next one is a retry. */
  failed?: boolean;
  /** A run has finished, and the acceptance command has not spoken. */
  accepting?: boolean;
  /** How often it was begun: no two acceptances have the same name. */
  acceptances?: number;
  /** What the acceptance command said against the last attempt; the next one has not heard it. */
  rejected?: Rejected | null;
  /** 0 to 100. */
  percent?: number;
  detail?: string | null;
  /** Only of a job that others come from. */
  makes?: Makes | null;
  /** Oldest first; the log has the rest. */
  history?: Array<JobItem>;
};

/** One thing that happened to a job. */
export type JobItem = {
  /** The entry that says so. */
  seq: number;
  at: number;
  phase: JobPhase;
  state: JobState;
  percent: number;
  detail?: string | null;
  retries: number;
  until?: number | null;
};

/** What happened to a job, in one word. */
export type JobPhase = "created" | "running" | "progress_updated" | "completed" | "cancelled" | "paused" | "resumed" | "queued_after_resume" | "unknown" | "failed";

/** Where a job stands. */
export type JobState = "queued" | "running" | "waiting" | "paused" | "interrupted" | "completed" | "failed" | "cancelled" | "unknown";

export type Judgement = "allow" | "ask" | "deny" | (string & {});

/** What happened. */
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
} | Unknown;

/** The client fell behind: what follows continues from the log at this entry. */
export type Lag = {
  from_seq: number;
};

/** What a client must know before it sends or asks for much. */
export type Limits = {
  frame_bytes: number;
  page_entries: number;
  blob_piece_bytes: number;
};

export type ListCompletions = {
  kind: CompletionKind;
  prefix?: string;
};

/** Of `list_pods`: the pod's own visible set. */
export type ListPodsReply = {
  pods: Array<PodRow>;
};

/** A request is about to be made; without its `llm_end` the reservation counts as spent. */
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

/** The stream broke after it had begun, and the reply goes on in a new request. */
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
  /** The recording of the response, all attempts; and how long that blob is. */
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
  /** The provider's HTTP status. */
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

/** A shell line. */
export type LocalShell = {
  command: string;
  cwd?: string | null;
  timeout_ms?: number | null;
};

/** Others that come from a job. */
export type Makes = {
  when: MakesWhen;
  /** How many there are so far. */
  count?: number;
  /** The newest one that was made, or is to be. */
  last?: Firing | null;
};

/** When another job comes from one. */
export type MakesWhen = "on_schedule" | "after_end" | "unknown";

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

/** What a client asks of a pod. */
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

export type Missed = {
  /** No more than are counted. */
  count: number;
  first: number;
  last: number;
};

/** A proposed rule for a host. */
export type NetworkAmendment = {
  host: string;
  action: string;
};

/** A notification or a report on its way into the context. */
export type Note = {
  seq: number;
  from: Actor;
  event?: PodEvent | null;
  message?: Text | null;
  wake: boolean;
};

/** The method was accepted and there is nothing to say. */
export type Nothing = { [name: string]: unknown };

/** A note for the agent. */
export type Notify = {
  message: string;
  auto_run?: boolean;
};

/** A decision: a word, or an object with the word as its `type`. */
export type OlderDecision = {
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

/** An operation that was accepted: the same `op_id` again gets the same answer. */
export type OpDone = {
  op_id: string;
  gave: OpGave;
};

export type OpGave = {
  run: RunId;
} | {
  queued: QueueId;
};

/** A question without an answer. */
export type OpenAsk = {
  id: AskId;
  ask: AskKind;
  subject: AskSubject;
  options: Array<string>;
  expires?: number | null;
};

/** A call that has no result yet. */
export type OpenCall = {
  call_id: CallId;
  tool: string;
  arguments: Text;
  stage: CallStage;
  /** A client made this call: it belongs to no run and its result is not history. */
  by?: Actor | null;
};

/** A child that this pod remembers: its name stays taken as long. */
export type OpenChild = {
  session: SessionId;
  name: PodName;
  call_id: CallId;
  scope: Scope;
  /** What it and everything below it may have spent in all when this life of it ends. */
  budget?: Budget | null;
  adopted_from?: SessionId | null;
  /** Who is between it and this pod, nearest to it first, if it was adopted. */
  line?: Array<SessionId>;
  clone?: CloneOf | null;
  /** Its process is known to have been ready in this life of it. */
  ready?: boolean;
  /** How this life of it ended; while it is absent the loan is out. */
  ended?: HowEnded | null;
  /** It has lived before this life of it. */
  lived?: boolean;
  /** What it and everything below it had spent when this life of it began. */
  before?: Spent;
  /** What it has asked and, as far as is known, not been answered. */
  asks?: Array<OpenAsk>;
  /** The newest report of it that a WaitPods may return, by the `seq` of its `inbox` entry. */
  reported?: number | null;
};

/** A command that runs, with its last output. */
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
  /** What it used is known and counted. */
  counted?: boolean;
};

export type OpenRun = {
  id: RunId;
  trigger: Trigger;
  by: Actor;
  attempt: number;
  continues?: RunId | null;
  /** The turn that is going on, or the next one: counts requests of this run, continuations apart. */
  turn: number;
  /** How often the reply of this turn was continued after its stream broke. */
  continued?: number;
  /** A turn has begun and not ended. */
  in_turn?: boolean;
  /** Length of the context when the input came: where a rollback goes back to. Absent without an input. */
  input_at?: number | null;
  /** The write scope was captured, so that what commands of this run change can be undone. */
  captured?: boolean;
  /** The model has said something in this run. */
  produced?: boolean;
  /** The run waits for this time before it asks the model again. */
  waits_until?: number | null;
  /** Notes drained in this run; a rollback makes them notes again. */
  drained?: Array<Note>;
  /** Steering drained in this run; a rollback puts it back into the queue. */
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
  /** The tier of the fence that this life's commands run in, as it was tried. */
  fence?: string | null;
  /** The pod's own directories in this life, which it may touch beside its scope. */
  own?: Scope | null;
};

/** A report on its way to the parent, numbered by the `seq` of this entry. */
export type Outbox = {
  to: SessionId;
  event: PodEvent;
};

/** The report of this number has arrived. Written `outbox_seq`: the line's own `seq` stands in the same object. */
export type OutboxAck = {
  outbox_seq: number;
};

export type Outcome = "done" | "failed" | "refused" | "invalid" | "cancelled" | "timed_out" | "lost" | (string & {});

export type OutputStream = "stdout" | "stderr" | "both" | (string & {});

/** What one pod has spent itself over its whole session, without those below it, as its log said at an entry. */
export type Paid = {
  session: SessionId;
  /** Who had spawned it. */
  under: SessionId;
  /** How far its log was read. */
  read_to: number;
  spent: Spent;
};

/** The parent pod's session and the call that spawned this one. */
export type Parent = {
  session: SessionId;
  call_id: CallId;
};

export type Permission = "read" | "write" | (string & {});

export type Phase = "allowed" | "needs_approval" | "forbidden" | (string & {});

/** What a child tells its parent. */
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

/** A pod's name, which is its thread's name: 1 to 40 letters and digits of any script, spaces and hyphens; a letter or
 * digit first, no space last. Checked once, at the door: no control, bidirectional or invisible character gets in. */
export type PodName = string;

export type PodRow = {
  name: PodName;
  session: SessionId;
  /** Whether a process holds it now. */
  live: boolean;
  socket?: string | null;
};

/** A place in a session. Whoever comes back gives both, because after a power cut the number of an entry that was
 * seen and not yet synced is used again. */
export type Position = {
  seq: number;
  h: Chain;
};

/** What the gate says of a call before it runs. */
export type Precheck = {
  /** The shell line; of other calls the tool's name. */
  command: string;
  cwd: string;
  execution_kind: ExecutionKind;
  /** Not forbidden. */
  allow: boolean;
  requires_approval: boolean;
  matched_rule?: string | null;
  phase: Phase;
  reason: string;
  requirement: Requirement;
};

/** What a call would change, found by reading only. */
export type Preview = {
  path: string;
  /** Hash of the file before; absent if there is no file. */
  before?: string | null;
  after: string;
  diff?: string | null;
};

export type Progress = {
  percent?: number | null;
  note: string;
};

/** Tool results up to there show only their summary. */
export type Pruned = {
  to_seq: number;
  saved: number;
};

export type Purpose = "turn" | "compaction" | "title" | (string & {});

/** An input that waits in the queue, or steering on its way. */
export type QueueId = string;

export type QueueMode = "queue" | "steer" | (string & {});

export type QueueState = {
  length: number;
  /** It waits for the next `run` or `resume`. */
  held?: boolean;
};

export type Queued = {
  id: QueueId;
  segments: Array<InputSegment>;
  op_id?: string | null;
  from: Actor;
  mode: QueueMode;
  /** What it refers to, as it was read when it was accepted. */
  attached?: Array<SystemItem>;
};

/** An accepted input that waits, or steering on its way into the context. */
export type QueuedInput = {
  id: QueueId;
  segments: Array<InputSegment>;
  op_id?: string | null;
  from: Actor;
  mode: QueueMode;
  /** What it refers to, as it was read when the input was accepted. Whoever queues while no pod lives reads nothing. */
  attached?: Array<SystemItem>;
};

/** A page of entries. */
export type Read = {
  from_seq: number;
  limit?: number;
  /** Only entries of these kinds. */
  kinds?: Array<string> | null;
};

/** A piece of a blob of this session. */
export type ReadBlob = {
  blob: string;
  offset?: number;
  limit?: number;
};

/** Of `read_blob`: a piece, base64. */
export type ReadBlobReply = {
  data: string;
  offset: number;
  /** Length of the whole blob. */
  bytes: number;
  /** Where the next piece begins, if there is one. */
  next_offset?: number | null;
};

/** Of `read`: a page of entries, at most one frame. */
export type ReadReply = {
  entries: Array<Entry>;
  /** Where the next page begins, if there is one. */
  next_seq?: number | null;
};

/** How far this pod has read a child's output. Written `to_seq`: the line's own `seq` stands in the same object. */
export type ReadTo = {
  session: SessionId;
  to_seq: number;
};

/** Why something was refused, or why a run failed. */
export type Refusal = {
  code: ErrorCode;
  message: string;
};

/** Why an attempt was not accepted. */
export type Rejected = {
  summary: string;
  content?: Text | null;
};

export type Renamed = {
  name: PodName;
  by: Actor;
};

/** The written form of both. */
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

/** From a child; acknowledged after it is in the log. Older children give neither `from` nor `from_seq`. */
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

/** One line of a client. */
export type Request = {
  id?: Id;
} & Method;

/** What it takes for the call to run. */
export type Requirement = {
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

export type Reserved = {
  input: number;
  output: number;
  usd?: number | null;
};

export type RestartMcp = {
  server: string;
};

/** Starts a pod below this one again. Its session tells it apart from others that had its name, and is needed for one
 * that this pod has not spawned itself. */
export type RestorePod = {
  name: PodName;
  session?: SessionId | null;
};

/** Of `restore_pod`. */
export type RestorePodReply = {
  name: PodName;
  session: SessionId;
  socket?: string | null;
};

/** What the `result` of each method's reply holds. */
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

/** Of `resume`: the run that goes on. */
export type ResumeReply = {
  run: RunId;
};

export type Rewind = {
  to_seq: number;
  expected_head: Position;
};

/** Of `rewind`: the input that came back to the composer. */
export type RewindReply = {
  input: Array<InputSegment>;
};

/** An input that a rewind can go back to. */
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

/** Later entries leave the context, stay in the log. */
export type Rewound = {
  to_seq: number;
};

export type Role = "user" | "assistant" | "system" | (string & {});

/** Which model, spoken to how. */
export type Route = {
  provider: string;
  model: string;
  scheme: string;
};

/** Somebody says something. */
export type Run = {
  input: InputOrText;
  mode?: RunMode;
  /** The same `op_id` twice returns the first result. */
  op_id?: string | null;
};

export type RunCompleted = {
  result: RunResult;
  reason?: string | null;
};

/** Every accepted run ends with exactly one of these. */
export type RunEnd = {
  result: RunEndResult;
  reason?: string | null;
  /** With `result: error`. */
  error?: Refusal | null;
};

export type RunEndResult = "finished" | "paused" | "limit_reached" | "cancelled" | "rolled_back" | "interrupted" | "error" | (string & {});

export type RunErrored = {
  code: ErrorCode;
  message: string;
  retryable: boolean;
  /** How long the provider wants to be left alone. */
  retry_after_ms?: number | null;
};

/** A run: from one accepted trigger to exactly one terminal entry. */
export type RunId = string;

/** What happens to an input when a run is already going on. */
export type RunMode = "reject" | "queue" | "steer" | "interrupt";

/** Of `run`: the run that it opened, or the id under which it waits (in the queue, or as steering). */
export type RunReply = {
  run: RunId;
} | {
  queued: QueueId;
};

export type RunResult = "finished" | "paused" | "limit_reached" | "cancelled" | "rolled_back" | "interrupted" | (string & {});

/** Which paths a pod may read or write. */
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

/** A file of the scope that a shell line would run: a program, or the script of an interpreter. */
export type Script = {
  path: string;
  /** SHA-256 of its content; absent if it could not be read whole, and then `problem` says why. */
  hash?: string | null;
  /** The file that it really is, if a link leads there. */
  leads_to?: string | null;
  problem?: string | null;
  /** Its content where it is a short text: in questions and grants, so that a later question can show what changed. */
  text?: string | null;
  /** In a question: what has changed since a person approved it. */
  change?: string | null;
};

export type SegmentReason = "initial" | "compaction" | "rewind" | "config" | "import" | "fork" | (string & {});

/** Resets the context to `history`. */
export type SegmentStart = {
  segment: number;
  reason: SegmentReason;
  system_prompt: Text;
  /** A value that is in the line, or in a blob if it was too large. `apply` always sees it here: a reader fetches
   * the blob first, and a writer spills it last. */
  tools: BlobRef | Array<ToolSpec>;
  config: unknown;
  history: History;
  /** A value that is in the line, or in a blob if it was too large. `apply` always sees it here: a reader fetches
   * the blob first, and a writer spills it last. */
  carry: BlobRef | Facts;
  compacted_to_seq?: number | null;
  tokens?: BeforeAfter | null;
};

/** The answer to `hello`. */
export type ServerHello = {
  protocol: number;
  server?: string;
  limits?: Limits;
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
  git?: Git | null;
  /** The resolved configuration; `manifest` reads it. */
  manifest: unknown;
  scope: Scope;
  mandate?: unknown;
  metadata?: unknown;
  parent?: Parent | null;
  from?: ForkedFrom | null;
};

/** A logged change of what it names. */
export type Set = {
  model?: string | null;
  name?: PodName | null;
  posture?: string | null;
  budget?: unknown;
  grant?: SetGrant | null;
  /** `null` clears it; absent leaves it. */
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
  /** Of one call's file; absent if it is what changed in the write scope since the snapshot before. */
  call_id?: CallId | null;
  /** The run that it was taken before or after, if that is not the one that the entry stands in. */
  of_run?: RunId | null;
  when: SnapshotWhen;
  /** A value that is in the line, or in a blob if it was too large. `apply` always sees it here: a reader fetches
   * the blob first, and a writer spills it last. */
  files: BlobRef | Array<SnapshotFile>;
};

/** Where the pod stands, taken together with the subscription. */
export type SnapshotEvent = {
  entries: Array<Entry>;
  greeting: Greeting;
  status: Status;
  activity?: Activity | null;
  waiting?: Waiting | null;
  head: Position;
  in_flight?: InFlight;
  /** Older entries are to be had with `read`. */
  older?: boolean;
};

export type SnapshotFile = {
  path: string;
  mode: number;
  /** Empty if there was no such file. */
  hash: string;
  blob?: string | null;
  /** Where in the blob the content begins, if many files share one. */
  at?: number | null;
  /** How long the content is, if many files share a blob. */
  bytes?: number | null;
};

export type SnapshotWhen = "before" | "after" | (string & {});

/** What was spent, by a pod and everything below it. */
export type Spent = {
  usd?: number;
  tokens?: number;
  /** Requests. */
  turns?: number;
  /** Spawns. */
  children?: number;
  /** Requests whose price nobody knows. */
  unknown_cost?: number;
};

/** What a run or a job is doing when no other entry says so. */
export type StateChange = {
  state: StateWord;
  on?: WaitingOn | null;
  until?: number | null;
  reason?: string | null;
  by?: Actor | null;
  /** Another job comes from this one. */
  firing?: Firing | null;
};

export type StateWord = "paused" | "queued" | "waiting" | "working" | "abandoned" | "stopping" | (string & {});

export type Status = "idle" | "running" | "paused" | (string & {});

export type StatusEvent = {
  status: Status;
  activity?: Activity | null;
  /** The activity for people: `Bash cargo test`. */
  detail?: string | null;
  waiting?: Waiting | null;
};

/** Of `status`: small, for those who only look. */
export type StatusReply = {
  status: Status;
  activity?: Activity | null;
  detail?: string | null;
  waiting?: Waiting | null;
  run?: RunId | null;
  usage?: Usage;
  head: Position;
  children?: Array<ChildRow>;
  asks?: Array<AskId>;
  queue?: QueueState;
  mcp_servers?: Array<McpServer>;
};

/** What a client wants to see. */
export type Subscribe = "full" | "tail" | "none";

/** Typed cause and the exact text the model gets; a note that is named here has been drained. */
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

/** `arguments` is the JSON text as the model wrote it. */
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
  verdict: Verdict;
  /** A client made this call, not the model. */
  by?: Actor | null;
  /** If they are not the model's own. */
  arguments?: Text | null;
  /** The mind carries it out itself and may have to wait for what comes of it (calls about other pods). */
  own?: boolean;
};

/** `tool/invoke`: the thread's pod runs it, through its own gate. */
export type ToolInvoke = {
  /** Older clients name none in the body; then the address must. */
  thread_id?: string | null;
  call: ApiCall;
  cwd?: string | null;
};

/** What is called, and with what. */
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

/** At most one per call; with `by` of a client's call it is not history. */
export type ToolResult = {
  item: Item;
  outcome: Outcome;
  verdict?: Verdict | null;
  by?: Actor | null;
  notes?: Array<number>;
};

export type ToolResultEvent = {
  id: CallId;
  summary?: string;
  output?: Text | null;
  is_error?: boolean;
  outcome?: Outcome | null;
  /** A client made this call. */
  by?: Actor | null;
};

/** What a tool is to the model: exactly what is offered, sorted by name. */
export type ToolSpec = {
  name: string;
  description: string;
  schema: unknown;
};

export type Trigger = "user_send" | "notify" | "pod_event" | "resume" | "job" | "wakeup" | (string & {});

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

/** Restores files; the last run's, if none is named. */
export type Undo = {
  run?: RunId | null;
};

/** An entry of a kind that this version does not know: the whole object as it came. */
export type Unknown = { [name: string]: unknown };

/** What a `wait` waits for. */
export type Until = "idle" | "ask" | {
  seq: number;
};

/** Tokens and money of a session. `cost_usd` is the known part; `unknown_cost` counts calls without a price. */
export type Usage = {
  input?: number;
  output?: number;
  cache_read?: number;
  cache_write?: number;
  cost_usd?: number;
  unknown_cost?: number;
  calls?: number;
};

/** `null` = unknown, never 0. */
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

/** Policy's word on an action, with its reason. It may tighten on its way and never loosen. */
export type Verdict = {
  outcome: Judgement;
  rule?: string | null;
  layer?: string | null;
  reason: string;
  fence?: string | null;
};

export type Wait = {
  until: Until;
  timeout_ms: number;
};

/** Of `wait`: whether it holds now, or the time ran out first. */
export type WaitReply = {
  holds: boolean;
  status: Status;
  head: Position;
};

/** Nothing is left to do but wait for asks, children or a time. */
export type Waiting = {
  on: WaitingOn;
  until?: number | null;
};

export type WaitingOn = "ask" | "child" | "time" | (string & {});
