/** Types of the HTTP API. Text from agents must be rendered from `shown` only. */

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

export type RiskLevel = "low" | "medium" | "high" | "critical";
export type Kind = "approval" | "question" | "in_doubt";
export type DecisionType = "approve" | "edit" | "reject" | "respond";
export type Status =
  "pending" | "approved" | "edited" | "rejected" | "responded" | "expired" | "cancelled" | "superseded";

export interface Option {
  label: string;
  value: Json;
  description: string;
}

export interface Question {
  text: string;
  options: Option[];
  multiple: boolean;
  free_text: boolean;
  schema: Schema | null;
}

/** The part of JSON Schema that forms use; other keywords are passed through. */
export interface Schema {
  type?: string | string[];
  title?: string;
  description?: string;
  default?: Json;
  enum?: Json[];
  const?: Json;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: boolean | Schema;
  items?: Schema;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  $ref?: string;
  $defs?: Record<string, Schema>;
  definitions?: Record<string, Schema>;
  format?: string;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
  pattern?: string;
  writeOnly?: boolean;
  [key: string]: unknown;
}

export interface Decision {
  type: DecisionType;
  by: string;
  at: string;
  channel: string;
  assurance: string;
  message?: string;
  args?: JsonObject;
  value?: Json;
  /** A rejection that also stopped the run. */
  stop?: boolean;
}

/** An earlier rejection of an equal call. All but the id is null if you may not see that request. */
export interface EarlierRejection {
  id: string;
  request: string | null;
  by: string | null;
  at: string | null;
  message: string | null;
}

/** What the other system said about a call in doubt (the tool's `settle=`). */
export interface Evidence {
  answer: "ran" | "did_not_run" | "unknown";
  text: string;
  at: string;
}

export interface Shown {
  args: Json;
  lines: string[];
  /** The tool's title, or one that the server makes from the name and arguments. */
  title: string;
  description: string;
  note: string;
  warnings: string[];
  hidden: number;
  question: Question | null;
  original: Json | null;
  written: Json | null;
  summary: string;
  preview?: Json;
  evidence?: Evidence | null;
  schema?: Schema | null;
  tool?: string;
  agent?: string;
  requester?: string;
}

export interface Request {
  id: string;
  kind: Kind;
  status: Status;
  agent: string;
  run: string;
  thread: string;
  tool: string | null;
  args: JsonObject;
  schema: Schema | null;
  question: Question | null;
  description: string;
  note: string;
  preview: Json;
  digest: string | null;
  revision: number;
  allowed: DecisionType[];
  reviewers: string[];
  quorum: number;
  votes: { by: string; at: string; assurance: string }[];
  risk: { level: RiskLevel; reasons: string[] };
  rule: string;
  requester: string;
  created_at: string;
  expires_at: string | null;
  decision: Decision | null;
  /** `attempt_running`: for a call in doubt, whether its attempt still runs. */
  execution: { status: string; attempts: number; result: Json; attempt_running?: boolean | null };
  original: JsonObject | null;
  /** What the model or an edit wrote, if validators make `args` of it. An edit changes these. */
  written: JsonObject | null;
  /** Earlier rejections of an equal call, newest first. */
  refusals: EarlierRejection[];
  masked: boolean;
  shown: Shown;
  size: number;
  can: DecisionType[];
  why_not?: string;
  /** What each decision has to be confirmed with. */
  confirm_with?: "passkey" | null;
}

export interface Turn {
  seq: number;
  role: "user" | "assistant" | "tool" | "approval";
  text: string;
  calls?: { id: string; name: string; shown_args: Json }[];
  name?: string;
  current: boolean;
}

export interface RequestEvent {
  at: string;
  type: string;
  actor: string;
  body: Json;
}

export interface SimilarCalls {
  approved: number;
  edited: number;
  rejected: number;
  responded: number;
  expired?: number;
  recent: SimilarCall[];
}

export interface SimilarCall {
  id: string;
  status: Status;
  by: string | null;
  at: string;
  summary: string;
}

/** What a grant would cover, among the latest requests of its agent and tool. */
export interface GrantPreview {
  ok: true;
  /** The scopes to choose from, the narrowest first. Empty for tools that take a schema. */
  scopes: { scope: Scope; shown: string[] }[];
  past: SimilarCall[];
  /** The digest is null if a part of the request is masked. */
  pending: (SimilarCall & { digest: string | null })[];
}

/** Why a grant could not be given. */
export interface NoGrant {
  ok: false;
  message: string;
}

export interface RequestDetail extends Request {
  conversation?: Turn[];
  events?: RequestEvent[];
  like?: SimilarCalls;
  policy?: {
    rule: string;
    description: string;
    digest: string;
    requester_decides?: boolean;
    assurance?: string;
    on_expiry?: string;
  };
  run_status?: string;
}

export interface Page<T> {
  items: T[];
  next: string | null;
}

/** The number of requests with the same kind, agent, tool and risk. */
export interface RequestGroup {
  kind: Kind;
  agent: string;
  tool: string | null;
  risk: RiskLevel;
  count: number;
  expires_at: string | null;
  oldest_at: string;
}

export type FilterValues = Record<"kind" | "agent" | "tool" | "risk", { value: string; count: number }[]>;

export interface Groups {
  count: number;
  items: RequestGroup[];
  values: FilterValues;
}

/** What the server needs a passkey to sign; `statement` goes back with the answer. */
export interface PasskeyOptions {
  statement: string;
  options: unknown;
}

export interface PasskeyAnswer {
  statement: string;
  answer: unknown;
}

export interface Passkey {
  id: string;
  device: string;
  created_at: string;
  last_used_at: string;
  fingerprint: string;
}

export interface Me {
  name: string;
  role: string;
  groups: string[];
  assurance: string;
  auth: boolean;
  demo: boolean;
  version: string;
  environment: string;
  agents: number;
}

export interface AgentTool {
  name: string;
  description: string;
  schema: Schema;
  needs_approval: "always" | "never" | "sometimes";
  allowed: DecisionType[];
}

export interface Agent {
  name: string;
  default: boolean;
  /** Whether you can chat with it here. Agents of other frameworks have their own runner. */
  chat: boolean;
  tools: AgentTool[];
}

/** What a grant covers: a JSON Schema of the arguments, or the parsed command or path of a coding agent's call. */
export type Scope = Schema | { command: string[]; arguments: "any" | "exact" } | { path: string };

export interface GrantInput {
  scope: "exact" | "any" | Scope;
  uses?: number;
  ends_in?: number;
}

/** What an edit changes, and the names of the arguments that it removes. All others stay as shown. */
export interface Edit {
  args: JsonObject;
  unset: string[];
}

export interface DecisionBody extends Partial<Edit> {
  type: DecisionType;
  message?: string;
  /** For a rejection: also stop the run. */
  stop?: boolean;
  value?: Json;
  seen_digest: string | null;
  grant?: GrantInput;
  passkey?: PasskeyAnswer;
}

export interface DiffLine {
  path: string;
  before: string | null;
  after: string | null;
}

export interface Check {
  ok: boolean;
  errors: { field: string; message: string }[];
  shown: { before: string[]; after: string[] };
  diff: DiffLine[];
  /** What the tool's validators make of the edit; null if they are not known to the server. */
  validated: JsonObject | null;
  verdict: string;
  risk: Request["risk"];
  quorum: number;
}

export interface Grant {
  id: string;
  agent: string;
  tool: string;
  scope: Schema;
  /** The scope as lines of text, with hidden characters made visible. */
  shown_scope: string | string[];
  by: string;
  created_at: string;
  ends_at: string | null;
  uses_left: number | null;
  revoked_at: string | null;
  live: boolean;
}

/** A rejection that also counts for equal calls of the agent. */
export interface Refusal {
  id: string;
  request: string;
  run: string;
  agent: string;
  tool: string;
  by: string;
  at: string;
  message: string;
  ends_at: string | null;
  overturn: "anyone" | "rejecter";
  lifted_at: string | null;
  lifted_by: string | null;
}

/** An event of the live feed. */
export interface Change {
  type: string;
  thread: string;
  run: string;
  request: string | null;
  at: string;
  actor: string;
}

export interface Run {
  id: string;
  thread: string;
  agent: string;
  status: string;
  stop: string | null;
  requester: string;
  created_at: string;
  output?: Json;
  open: number;
}

export interface RunDetail extends Run {
  timeline: { at: string; type: string; actor: string; request: string | null; tool: string | null; text: string }[];
  requests: Request[];
  conversation: Turn[];
}

export interface AuditRow {
  cursor: string;
  thread: string;
  seq: number;
  at: string;
  type: string;
  run: string | null;
  request: string | null;
  /** The tool of the call, if the user may see it. */
  tool: string | null;
  actor: string;
  body: Json;
  hash: string;
}

export interface Verification {
  ok: boolean;
  events: number;
  threads: number;
  seals: number;
  problems: string[];
}

export interface Stats {
  /** Start of the first day. */
  since: string;
  open: { count: number; oldest_at: string | null; by_age: { label: string; count: number }[] };
  decided: {
    count: number;
    median_seconds: number | null;
    p95_seconds: number | null;
    under_three_seconds: number;
    expired: number;
  };
  per_day: { day: string; asked: number; decided: number; expired: number }[];
  tools: {
    tool: string;
    asked: number;
    approved: number;
    edited: number;
    rejected: number;
    responded: number;
    expired: number;
    rate: number | null;
  }[];
  reviewers: { name: string; count: number; median_seconds: number | null; under_three: number }[];
  histogram: { label: string; count: number }[];
}

export interface Effect {
  tool: string;
  args: JsonObject;
  at: string;
}

export interface Chat {
  id: string;
  agent: string;
  title: string;
  updated_at: string;
  status: string;
}
