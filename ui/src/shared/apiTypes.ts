/** Written by scripts/api_types.py from the server's OpenAPI document. Do not edit. */

import type { Json, JsonObject, Schema, Scope } from "./types";

/** A tool of an agent. */
export interface AgentTool {
  name: string;
  description: string;
  /** of the arguments */
  schema: Schema;
  needs_approval: "always" | "sometimes" | "never";
  allowed: ("approve" | "edit" | "reject" | "respond")[];
}

/** An agent of this server. */
export interface Agent {
  name: string;
  /** whether a chat that names no agent is with this one */
  default: boolean;
  /** whether people can chat with it here */
  chat: boolean;
  tools: AgentTool[];
}

/** What one argument was in all of the approved calls. */
export interface ArgumentPattern {
  argument: string;
  kind: "same" | "one_of" | "at_most" | "folder";
  /** the value, the values, the largest number, or the folder */
  value: Json;
  /** the same as a sentence */
  shown: string;
}

/** One bar of a histogram. */
export interface Bar {
  label: string;
  count: number;
}

/** A limit, and how much of it is used. */
export interface Budget {
  limit: string;
  used: number;
  most: number;
  /** when the oldest part stops counting */
  frees_at: string | null;
}

/** A value that an edit changes; null where there is none. */
export interface Change {
  path: string;
  before: string | null;
  after: string | null;
}

/** A channel of this server, and how it is doing. No secret is in it. */
export interface ChannelHealth {
  name: string;
  /** `failing` if the last message failed, `down` if the platform does not answer */
  state: "ok" | "failing" | "down";
  /** who the bot is, as the platform says; null if `down` */
  bot: string | null;
  /** why the last message failed, or the platform's answer */
  error: string | null;
  /** when a message last failed */
  failed_at: string | null;
  /** when a message was last sent */
  sent_at: string | null;
  /** messages that wait to be sent or updated */
  waiting: number;
  /** messages that were given up */
  dead: number;
}

/** A chat that you started. */
export interface Chat {
  id: string;
  agent: string;
  /** the beginning of its first message */
  title: string;
  updated_at: string;
  status: RunStatus;
}

/** What an edit would change, and, if it is valid, under which terms it would be decided. */
export interface Check {
  ok: boolean;
  errors: FieldError[];
  shown: Lines;
  diff: Change[];
  /** what the tool's validators make of the edit; null if they are not known here, or change nothing */
  validated: JsonObject | null;
  verdict?: "allow" | "ask" | "deny" | null;
  risk?: Risk | null;
  quorum?: number | null;
  rule?: string | null;
}

/** The approved arguments, and the token that proves your claim. */
export interface Claim {
  request: string;
  tool: string | null;
  args: JsonObject;
  token: number;
  attempt: number;
  /** an idempotency key, the same for every attempt */
  key: string;
  lease: number;
}

/** A request that a grant would cover. */
export interface Covered {
  id: string;
  status: "pending" | "approved" | "edited" | "rejected" | "responded" | "expired" | "cancelled" | "superseded";
  by: string | null;
  at: string;
  summary: string;
}

/** A token, a sign-in link, a session or a passkey. The secret is not stored. */
export interface Credential {
  id: string;
  person: string;
  kind: "token" | "link" | "session" | "passkey" | "chat" | "code" | "push";
  /** the most that it allows */
  role: "agent" | "chat" | "reviewer" | "admin";
  assurance: "code" | "os-user" | "chat" | "token" | "session" | "passkey";
  /** the token or link that opened a session */
  opened_by: string | null;
  /** the browser of a session; the name of a passkey, an account or a subscription */
  device: string;
  /** the address from which a session was opened */
  place: string;
  created_at: string;
  /** when the person proved who they are */
  signed_in_at: string | null;
  last_used_at: string;
  /** when it ends if it is not used again */
  ends_at: string | null;
  revoked_at: string | null;
  /** whether this request was sent with it */
  current: boolean;
}

/** The requests of one day. */
export interface DayStats {
  day: string;
  asked: number;
  decided: number;
  expired: number;
}

/** How long people took to decide. */
export interface DecidedStats {
  count: number;
  median_seconds: number | null;
  p95_seconds: number | null;
  /** approvals in less than three seconds */
  under_three_seconds: number;
  expired: number;
}

/** Who decided what, when, and how surely we know them. */
export interface Decision {
  type: string;
  by: string;
  at: string;
  channel: string;
  assurance: "code" | "os-user" | "chat" | "token" | "session" | "passkey";
  /** who made it; a `rule` is the user's, a `preset` is not */
  source: "person" | "model" | "grant" | "window" | "plan" | "rule" | "preset";
  /** the grant, window or plan that allowed it */
  grant?: string;
  /** who is away and for whom `by` decided */
  on_behalf_of?: string;
  message?: string;
  /** for an edit: what is to run */
  args?: JsonObject | null;
  /** for an answer */
  value?: Json;
  /** for a rejection: it also cancelled the run */
  stop?: boolean;
  /** `by` can undo it until then, when it takes effect */
  undo_until?: string | null;
  /** how it was read, as the page said */
  shown?: Reading | null;
}

/** A rejection of an equal call. All but the id is null if you may not see that request. */
export interface EarlierRejection {
  id: string;
  request: string | null;
  by: string | null;
  at: string | null;
  message: string | null;
}

/** An event of the audit log. Names are empty if it is not for you. */
export interface Event {
  cursor: string;
  thread: string;
  seq: number;
  digest: string;
  hash: string;
  at: string;
  type: string;
  actor: string;
  run: string;
  request: string;
  tool: string | null;
  body: Json;
}

/** What the other side reported about a call in doubt. */
export interface Evidence {
  answer: "ran" | "did_not_run" | "unknown";
  text: string;
  at: string;
}

/** The execution of a call, as opposed to the status of its request. */
export interface Execution {
  status: string;
  attempts: number;
  result: Json;
  /** false if it ran and its result could not be stored */
  kept?: boolean;
  /** for a call in doubt: whether its attempt still runs; then it cannot be approved yet */
  attempt_running?: boolean | null;
}

/** Why a field is invalid. */
export interface FieldError {
  field: string;
  message: string;
}

/** The values that each filter finds something for, with the other filters on. */
export interface FilterValues {
  kind: ValueCount[];
  agent: ValueCount[];
  tool: ValueCount[];
  risk: ValueCount[];
}

/** The terms that the agent's code requires now. They can only tighten the stored ones. */
export interface FreshTerms {
  reviewers?: string[] | string | null;
  quorum?: number | null;
  requester_decides?: boolean | null;
  assurance?: "code" | "os-user" | "chat" | "token" | "session" | "passkey" | null;
}

/** What a grant would cover, among the latest requests of its agent and tool. */
export interface GrantPreview {
  ok: boolean;
  /** why the grant could not be given */
  message?: string;
  scope?: Scope;
  shown_scope?: string[];
  /** for a command or a file: the scopes to choose from, the narrowest first */
  scopes?: ScopeChoice[];
  past?: Covered[];
  pending?: Taken[];
  /** what it would have done with the newest calls that you may see */
  replay?: Replay | null;
}

/** A grant: what runs without asking, until when, and who granted it. */
export interface Grant {
  id: string;
  agent: string;
  tool: string;
  scope: Scope;
  shown_scope: string[];
  by: string;
  created_at: string;
  ends_at: string | null;
  uses_left: number | null;
  /** of a plan */
  steps_left: number | null;
  revoked_at: string | null;
  live: boolean;
  budgets: Budget[];
}

/** Requests with the same kind, agent, tool and risk, counted. */
export interface Group {
  kind: "approval" | "question" | "in_doubt";
  agent: string;
  tool: string | null;
  risk: "low" | "medium" | "high" | "critical";
  count: number;
  /** whether there may be more */
  at_least: boolean;
  /** when the first of them expires */
  expires_at: string | null;
  /** when the oldest of them was asked */
  oldest_at: string;
}

/** Counts of the requests that match: exact, unless `q` matches more than 5,000. */
export interface Groups {
  count: number;
  /** whether there may be more */
  at_least: boolean;
  /** how many of them wait for your decision; above 100 requests, how many are for everyone, for you or for your groups */
  yours: number;
  items: Group[];
  values: FilterValues;
}

/** Whether the server and its store work, and how many runs it advances now. */
export interface Health {
  status: string;
  store: string;
  version: string;
  busy: number;
}

/** The hook of a coding agent in one session, since this server started. */
export interface Hook {
  agent: string;
  session: string;
  /** when the hook last sent anything */
  last_at: string;
  /** how many tool uses ended that it had not asked about */
  unasked: number;
  /** the tool of the last of these; may be empty */
  unasked_tool: string;
}

/** The arguments before and after an edit, as lines of text. */
export interface Lines {
  before: string[];
  after: string[];
}

/** A code that links one account, once. */
export interface LinkCode {
  /** null if it was sent to your address */
  code: string | null;
  /** what to send to the bot */
  send: string | null;
  /** the URL that opens the bot with it, if there is one */
  open: string | null;
  ends_at: string;
}

/** An account that a person linked. */
export interface LinkedAccount {
  id: string;
  /** as the platform names it */
  account: string;
  linked_at: string;
}

/** A person or an agent, and when they were here. */
export interface ListedPerson {
  name: string;
  kind: "person" | "agent";
  role: "agent" | "chat" | "reviewer" | "admin";
  groups: string[];
  mail: string;
  /** `local`, or issuer and subject as a JSON array */
  origin: string;
  status: "active" | "removed";
  created_at: string;
  changed_at: string;
  /** who decides for them until `away_until` */
  stand_in: string | null;
  away_until: string | null;
  /** the latest sign-in that is still known */
  signed_in_at: string | null;
}

/** Your identity, and facts about the server. */
export interface Me {
  name: string;
  role: "agent" | "chat" | "reviewer" | "admin";
  groups: string[];
  assurance: "code" | "os-user" | "chat" | "token" | "session" | "passkey";
  auth: boolean;
  demo: boolean;
  environment: string;
  version: string;
  agents: number;
  /** its address, without a password; empty for chat users */
  store: string;
}

/** The messages of a chat. */
export interface Messages {
  messages: UiMessage[];
}

/** A new token with its secret, which is not shown again. */
export interface NewToken {
  id: string;
  person: string;
  kind: "token" | "link" | "session" | "passkey" | "chat" | "code" | "push";
  /** the most that it allows */
  role: "agent" | "chat" | "reviewer" | "admin";
  assurance: "code" | "os-user" | "chat" | "token" | "session" | "passkey";
  /** the token or link that opened a session */
  opened_by: string | null;
  /** the browser of a session; the name of a passkey, an account or a subscription */
  device: string;
  /** the address from which a session was opened */
  place: string;
  created_at: string;
  /** when the person proved who they are */
  signed_in_at: string | null;
  last_used_at: string;
  /** when it ends if it is not used again */
  ends_at: string | null;
  revoked_at: string | null;
  /** whether this request was sent with it */
  current: boolean;
  token: string;
}

/** When messages reach you. */
export interface Notices {
  /** when your quiet hours begin, such as 22:00; or empty */
  quiet_from: string;
  /** when they end; messages then are one digest */
  quiet_until: string;
  /** the time zone of both, such as Europe/Berlin */
  zone: string;
  /** whether messages wait while you use the web app */
  only_away: boolean;
  /** when the quiet hours end in which you are now */
  quiet_until_now: string | null;
}

/** The requests that wait for a person. */
export interface OpenStats {
  count: number;
  oldest_at: string | null;
  by_age: Bar[];
}

/** What a model says of a request that people decide. Nothing verifies it. */
export interface Opinion {
  model: string;
  answer: "allow" | "ask" | "reject";
  reason: string;
}

/** One option of a question. */
export interface Option {
  label: string;
  /** what the answer is; the label if null */
  value: Json;
  description: string;
}

/** What a browser needs to use a passkey. Send `statement` back with its answer. */
export interface Options {
  statement: string;
  /** for `navigator.credentials`, as JSON */
  options: JsonObject;
}

/** A channel of this server, and your accounts in it. */
export interface OwnChannel {
  name: string;
  /** how to link an account: send a code to the bot, confirm the code that is sent to your mail address, or subscribe a browser */
  link: "code" | "mail" | "push";
  /** the `applicationServerKey` with which browsers subscribe */
  key: string | null;
  accounts: LinkedAccount[];
}

/** A passkey. */
export interface Passkey {
  id: string;
  device: string;
  created_at: string;
  last_used_at: string;
  /** SHA-256 of the public key, as proofs name it */
  fingerprint: string;
  /** the COSE number: -7, -8 or -257 */
  algorithm: number;
}

/** A group, and how many people and agents are in it. */
export interface PeopleGroup {
  name: string;
  members: number;
}

/** A person or an agent with what proves who they are. */
export interface PersonDetails {
  name: string;
  kind: "person" | "agent";
  role: "agent" | "chat" | "reviewer" | "admin";
  groups: string[];
  mail: string;
  /** `local`, or issuer and subject as a JSON array */
  origin: string;
  status: "active" | "removed";
  created_at: string;
  changed_at: string;
  /** who decides for them until `away_until` */
  stand_in: string | null;
  away_until: string | null;
  /** the latest sign-in that is still known */
  signed_in_at: string | null;
  /** those that are valid now */
  credentials: Credential[];
  /** people for whom this one decides now */
  stands_in_for: string[];
}

/** A person or an agent, and what they may do. */
export interface Person {
  name: string;
  kind: "person" | "agent";
  role: "agent" | "chat" | "reviewer" | "admin";
  groups: string[];
  mail: string;
  /** `local`, or issuer and subject as a JSON array */
  origin: string;
  status: "active" | "removed";
  created_at: string;
  changed_at: string;
  /** who decides for them until `away_until` */
  stand_in: string | null;
  away_until: string | null;
}

/** Whether there was anything to end. */
export interface Prompt {
  noted: boolean;
}

/** A question that an agent asked. */
export interface Question {
  text: string;
  options: Option[];
  multiple: boolean;
  free_text: boolean;
  /** of the answer */
  schema: Schema | null;
}

/** How a person read a request, as their page says. */
export interface Reading {
  seconds: number;
  /** whether all of it was on the screen */
  complete: boolean;
}

/** A rejection that also counts for equal calls of the agent. */
export interface Refusal {
  id: string;
  /** the request that was rejected */
  request: string;
  run: string;
  agent: string;
  tool: string;
  by: string;
  at: string;
  message: string;
  /** when people are asked about an equal call again, at the latest */
  ends_at: string | null;
  overturn: "anyone" | "rejecter";
  lifted_at: string | null;
  lifted_by: string | null;
}

/** Whether a claim is still valid. */
export interface Renew {
  ours: boolean;
}

/** How many calls would have been treated differently in one way. */
export interface ReplayChange {
  before: "asked" | "allowed" | "denied" | "refused";
  after: "asked" | "allowed" | "denied" | "refused";
  /** how the request ended, if people were asked */
  outcome: "pending" | "approved" | "edited" | "rejected" | "responded" | "expired" | "cancelled" | "superseded" | null;
  count: number;
}

/** What a policy would have done with the calls in the store. */
export interface Replay {
  calls: number;
  changes: ReplayChange[];
  rules: ReplayedRule[];
  /** calls that people rejected, and that would have run */
  overruled: number;
  /** calls that would have been different and that you may see: those first that people rejected, then the newest */
  differences: ReplayedCall[];
  /** what models said of calls that they reviewed first, and people decided */
  answers: ReplayedAnswer[];
  /** calls that you may see and about which they said the opposite */
  disagreements: ReplayedDisagreement[];
  /** what the replay had to do without */
  not_stored: string[];
}

/** How often a model gave an answer and people decided in this way. */
export interface ReplayedAnswer {
  model: string;
  answer: "allow" | "ask" | "reject";
  outcome: "pending" | "approved" | "edited" | "rejected" | "responded" | "expired" | "cancelled" | "superseded";
  count: number;
}

/** A call that would have been treated differently. */
export interface ReplayedCall {
  id: string;
  tool: string;
  agent: string;
  /** who decided it */
  by: string | null;
  before: "asked" | "allowed" | "denied" | "refused";
  after: "asked" | "allowed" | "denied" | "refused";
  rule: string;
  outcome: "pending" | "approved" | "edited" | "rejected" | "responded" | "expired" | "cancelled" | "superseded" | null;
  created_at: string;
}

/** A call about which a model said the opposite of what people decided. */
export interface ReplayedDisagreement {
  id: string;
  tool: string;
  agent: string;
  model: string;
  answer: "allow" | "ask" | "reject";
  outcome: "pending" | "approved" | "edited" | "rejected" | "responded" | "expired" | "cancelled" | "superseded";
  created_at: string;
}

/** The calls that one rule would have decided. */
export interface ReplayedRule {
  rule: string;
  calls: number;
  /** how many of them were asked, allowed or denied */
  before: JsonObject;
  /** how many would have been */
  after: JsonObject;
}

/** A request. ``shown`` holds the same fields made inert, for a page to display. */
export interface Request {
  id: string;
  kind: "approval" | "question" | "in_doubt";
  status: "pending" | "approved" | "edited" | "rejected" | "responded" | "expired" | "cancelled" | "superseded";
  agent: string;
  run: string;
  thread: string;
  tool: string | null;
  args: JsonObject;
  /** of the arguments */
  schema: Schema | null;
  question: Question | null;
  /** what people read first; empty if the tool has no title */
  title: string;
  description: string;
  /** the agent's own words, unverified */
  note: string;
  preview: Json;
  /** the arguments before an edit */
  original: JsonObject | null;
  /** what the model or an edit wrote, if validators make `args` of it; an edit changes these */
  written: JsonObject | null;
  /** null if something is masked: reveal it first */
  digest: string | null;
  revision: number;
  allowed: ("approve" | "edit" | "reject" | "respond")[];
  reviewers: string[];
  /** whom a remote agent suggests to notify */
  notify: string[];
  /** through which channels the rule notifies people, and whom */
  notify_via: string[];
  /** when the people in `escalate_to` may decide too */
  escalates_at: string | null;
  escalate_to: string[];
  /** whether they may decide now */
  escalated: boolean;
  quorum: number;
  votes: Vote[];
  risk: Risk;
  rule: string;
  /** for whom it was asked; a claim if `remote` */
  requester: string;
  requester_decides: boolean;
  /** whether an agent on another machine opened it */
  remote: boolean;
  /** the least assurance that a decision needs */
  assurance: "code" | "os-user" | "chat" | "token" | "session" | "passkey";
  /** what running it changes */
  effect: "once" | "idempotent" | "read";
  /** what makes the effect unique in the store; may be empty */
  effect_key: string;
  /** facts of the agent's environment, compared again at the start */
  binds: Json;
  /** for a call in doubt, what the other side reported */
  evidence: Evidence | null;
  /** whether it is a plan: its arguments list the steps */
  plan: boolean;
  /** what the model says that reviewed it first; nothing verifies it */
  opinion: Opinion | null;
  /** who may approve it although an equal call was rejected before */
  overturn: "anyone" | "rejecter";
  /** earlier rejections of an equal call, newest first */
  refusals: EarlierRejection[];
  created_at: string;
  expires_at: string | null;
  decision: Decision | null;
  execution: Execution;
  masked: boolean;
  /** bytes of the arguments as JSON */
  size: number;
  /** the decisions that you may make now */
  can: ("approve" | "edit" | "reject" | "respond")[];
  why_not: string;
  /** what each of your decisions has to be confirmed with */
  confirm_with?: "passkey" | null;
  shown: Shown;
  /** if you opened it with a `caller`, who waits for it: release it to them */
  caller?: string | null;
}

/** The decisions of one person. */
export interface ReviewerStats {
  name: string;
  count: number;
  median_seconds: number | null;
  under_three: number;
}

/** How risky a call is, and why. */
export interface Risk {
  level: "low" | "medium" | "high" | "critical";
  reasons: string[];
}

/** A limit of a rule of the policy. */
export interface RuleBudget {
  limit: string;
  used: number;
  most: number;
  /** when the oldest part stops counting */
  frees_at: string | null;
  /** the tools and the agents of the rule */
  tools: string;
}

export type RunStatus = "running" | "paused" | "done" | "failed" | "cancelled";

/** A run. */
export interface Run {
  id: string;
  thread: string;
  /** of its first request that you may see; may be empty */
  title: string;
  agent: string;
  status: RunStatus;
  /** whether a process works on it now */
  held: boolean;
  /** why it was cancelled; may be empty */
  stop: string;
  requester: string;
  created_at: string;
  /** how many of its requests wait for a person */
  open: number;
  output: Json;
}

/** Filters of pending requests, as `GET /api/requests` takes them. */
export interface SavedFilters {
  q?: string;
  mine?: boolean;
  kind?: "approval" | "question" | "in_doubt" | null;
  agent?: string | null;
  tool?: string | null;
  risk?: "low" | "medium" | "high" | "critical" | null;
  expires_within?: number | null;
}

/** A saved view, and how many requests are in it, as `GET /api/requests/groups` counts them. */
export interface SavedView {
  name: string;
  filters: SavedFilters;
  count: number;
  /** whether there may be more */
  at_least: boolean;
  yours: number;
}

/** A scope that a grant for a command or a file can have. */
export interface ScopeChoice {
  scope: Scope;
  shown: string[];
}

/** A request for a page to display: masked, and with hidden characters made visible. */
export interface Shown {
  args: JsonObject;
  /** the arguments as lines of text */
  lines: string[];
  original: JsonObject | null;
  written: JsonObject | null;
  title: string;
  description: string;
  note: string;
  preview: Json;
  binds: Json;
  evidence: Evidence | null;
  opinion: Opinion | null;
  question: Question | null;
  schema: Schema | null;
  tool: string;
  agent: string;
  requester: string;
  /** one line for lists */
  summary: string;
  /** what hidden or misleading characters were found */
  warnings: string[];
  /** how many hidden characters there are */
  hidden: number;
}

/** The ways to sign in, besides a token or a one-time link. */
export interface SignIn {
  oidc: boolean;
  passkeys: boolean;
}

/** Statistics over the requests that you may see. */
export interface Stats {
  days: number;
  /** when the first day begins */
  since: string;
  open: OpenStats;
  decided: DecidedStats;
  per_day: DayStats[];
  tools: ToolStats[];
  reviewers: ReviewerStats[];
  /** times to decision */
  histogram: Bar[];
}

/** The keys of a browser's subscription. */
export interface SubscriptionKeys {
  p256dh: string;
  auth: string;
}

/** A grant that equal decisions suggest. */
export interface Suggestion {
  /** changes when the pattern does */
  id: string;
  agent: string;
  tool: string;
  risk: "low" | "medium" | "high" | "critical";
  /** what the arguments have in common; empty for commands and files */
  pattern: ArgumentPattern[];
  shown_scope: string[];
  /** how many approvals suggest it */
  count: number;
  /** the newest of them */
  examples: Covered[];
  /** pending requests that it covers */
  pending: Taken[];
  /** for how many seconds the grant lasts */
  ends_in: number;
  replay: Replay;
  /** a rule for a policy file that allows the same; empty if none */
  rule: string;
  /** why there is no such rule */
  no_rule: string;
}

/** A person after a change, and the ids of what ended with it. */
export interface TakenAway {
  person: Person;
  credentials: Credential[];
  grants: string[];
  /** pending requests on which their vote counted */
  votes: string[];
  /** requests that they approved and that wait to run */
  approved: string[];
}

/** A pending request that a grant would cover. */
export interface Taken {
  id: string;
  status: "pending" | "approved" | "edited" | "rejected" | "responded" | "expired" | "cancelled" | "superseded";
  by: string | null;
  at: string;
  summary: string;
  /** to approve it too; null if a part of it is masked */
  digest: string | null;
}

/** What became of a test message. */
export interface TestMessage {
  /** to how many accounts it was sent */
  sent: number;
  /** why it was not sent to another one */
  error: string | null;
}

/** The requests of one tool. */
export interface ToolStats {
  tool: string;
  asked: number;
  approved: number;
  edited: number;
  rejected: number;
  responded: number;
  expired: number;
  /** approved and edited, of those that were decided */
  rate: number | null;
}

/** A message of a chat, as `useChat` reads it. */
export interface UiMessage {
  id: string;
  role: "user" | "assistant" | "system";
  parts: JsonObject[];
}

/** A value to filter by, and how many requests have it. */
export interface ValueCount {
  value: string;
  count: number;
}

/** What verifying the audit log found. */
export interface Verification {
  ok: boolean;
  events: number;
  threads: number;
  seals: number;
  unsealed: number;
  problems: string[];
}

/** One approval of a quorum. */
export interface Vote {
  type: "approve" | "edit" | "reject" | "respond";
  by: string;
  at: string;
  assurance: "code" | "os-user" | "chat" | "token" | "session" | "passkey";
  /** who is away and for whom `by` voted; may be empty */
  on_behalf_of: string;
}

/** Trust in a run, and what it let run. */
export interface Window {
  id: string;
  by: string;
  max_risk: "low" | "medium";
  created_at: string;
  ends_at: string;
  /** when it was stopped, or ended by a rejection */
  ended_at: string | null;
  live: boolean;
  /** the tools of the calls that it allowed, in order */
  calls: string[];
}
