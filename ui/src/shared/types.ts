/** Types of the HTTP API. Text from agents must be rendered from `shown` only. */

import type * as api from "./apiTypes";

export type {
  Agent,
  AgentTool,
  Budget,
  Chat,
  Decision,
  EarlierRejection,
  Evidence,
  Opinion,
  FilterValues,
  Grant,
  Groups,
  Me,
  Option,
  Passkey,
  Question,
  Refusal,
  Request,
  Run,
  Shown,
  Stats,
  Verification,
} from "./apiTypes";

export interface GrantPage {
  items: api.Grant[];
  budgets: (api.Budget & { tools: string })[];
}

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type SavedView = api.SavedView;
export type JsonObject = { [key: string]: Json };

export type RiskLevel = api.Risk["level"];
export type Kind = api.Request["kind"];
export type DecisionType = api.Request["allowed"][number];
export type Status = api.Request["status"];
export type RequestGroup = api.Group;
export type AuditRow = api.Event;
export type Check = api.Check;
export type DiffLine = api.Change;

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
  /** How the arguments differ from the last approved calls. */
  facts?: string[];
  recent: SimilarCall[];
}

export interface SimilarCall {
  id: string;
  status: Status;
  by: string | null;
  at: string;
  summary: string;
}

/** What a grant would cover, or why it could not be given. */
export type GrantPreview = Required<api.GrantPreview> & { ok: true };
export type Replay = api.Replay;
export type Suggestion = api.Suggestion;
export type NoGrant = { ok: false; message: string };

export interface RequestDetail extends api.Request {
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

/** What the server needs a passkey to sign; `statement` goes back with the answer. */
export interface PasskeyOptions {
  statement: string;
  options: unknown;
}

export interface PasskeyAnswer {
  statement: string;
  answer: unknown;
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
  undo_seconds?: number;
  /** How it was read. The server stores this as the page's claim. */
  shown?: { seconds: number; complete: boolean };
  passkey?: PasskeyAnswer;
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

export interface RunDetail extends api.Run {
  timeline: { at: string; type: string; actor: string; request: string | null; tool: string | null; text: string }[];
  requests: api.Request[];
  conversation: Turn[];
  windows: TrustWindow[];
}

/** Trust in a run, and the tools of the calls that it let run. */
export type TrustWindow = api.Window;

export interface Effect {
  tool: string;
  args: JsonObject;
  at: string;
}
