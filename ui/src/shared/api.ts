/** The API client. Every failure is an `ApiError` whose message can be shown to the user. */

import type {
  Agent,
  AuditRow,
  Chat,
  Check,
  Decision,
  DecisionBody,
  Edit,
  Effect,
  Grant,
  GrantPage,
  GrantInput,
  GrantPreview,
  Suggestion,
  NoGrant,
  Groups,
  Me,
  Page,
  Passkey,
  PasskeyAnswer,
  PasskeyOptions,
  Refusal,
  Replay,
  Request,
  RequestDetail,
  Run,
  RunDetail,
  SavedView,
  Stats,
  Verification,
  TrustWindow,
} from "./types";

export class ApiError extends Error {
  constructor(
    /** 0 if there was no response; the server may or may not have handled the request. */
    readonly status: number,
    readonly kind: string,
    message: string,
    readonly field?: string,
    readonly decision?: Decision,
    readonly request?: string,
  ) {
    super(message);
  }
}

export type Query = Record<string, string | number | boolean | null | undefined>;

export function withQuery(path: string, query: Query = {}): string {
  const params = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "" && value !== false) params.set(key, String(value));
  }
  const text = params.toString();
  return text ? `${path}?${text}` : path;
}

interface Options {
  method?: string;
  body?: unknown;
  signal?: AbortSignal;
  /** Timeout in milliseconds. */
  limit?: number;
}

const READ_LIMIT = 30_000;
/** Shorter than a read, so that a decision cannot arrive after the person has moved on. */
const DECISION_LIMIT = 10_000;
const VERIFY_LIMIT = 600_000;

/** Server messages start in lower case because they also appear in logs. Field names keep their case. */
function sentence(text: string): string {
  return /^[a-z]+[ ,]/.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text;
}

async function failure(response: Response): Promise<ApiError> {
  const raw = await response.text().catch(() => "");
  try {
    const body = JSON.parse(raw) as Record<string, unknown>;
    return new ApiError(
      response.status,
      typeof body.error === "string" ? body.error : "Error",
      typeof body.message === "string" ? sentence(body.message) : `The server responded with status ${response.status}.`,
      body.field as string | undefined,
      body.decision as Decision | undefined,
      body.request as string | undefined,
    );
  } catch {
    // Chat routes return errors as plain text. Anything else, such as a proxy's HTML page, is not shown.
    const plain = response.headers.get("content-type")?.startsWith("text/plain") && raw.trim();
    return new ApiError(response.status, "Error", plain ? sentence(plain) : `The server responded with status ${response.status}. Try again.`);
  }
}

/** Fetch JSON. Ends with a response, the caller's signal, or the timeout. */
export async function call<T>(path: string, options: Options = {}): Promise<T> {
  const method = options.method ?? "GET";
  const headers: Record<string, string> = { Accept: "application/json" };
  if (method !== "GET") headers["X-Sayso"] = "1";
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  const limit = options.limit ?? READ_LIMIT;
  const late = AbortSignal.timeout(limit);
  try {
    const response = await fetch(path, {
      method,
      headers,
      body: options.body === undefined ? undefined : JSON.stringify(options.body),
      signal: options.signal ? AbortSignal.any([options.signal, late]) : late,
      credentials: "same-origin",
    });
    if (!response.ok) throw await failure(response);
    if (response.status === 204) return undefined as T;
    return (await response.json()) as T;
  } catch (error) {
    if (error instanceof ApiError || options.signal?.aborted) throw error;
    if (late.aborted) {
      throw new ApiError(0, "TimedOut", `The server did not respond within ${limit / 1_000} seconds. Try again.`);
    }
    throw new ApiError(0, "Unreachable", "The server could not be reached. Check the connection and try again.");
  }
}

const at = (id: string) => `/api/requests/${encodeURIComponent(id)}`;
const post = <T>(path: string, body?: unknown, options: Options = {}) =>
  call<T>(path, { method: "POST", body: body ?? {}, ...options });

export type OneOfMany = { id: string } & DecisionBody;

export interface Outcome {
  id: string;
  request?: Request;
  error?: { error: string; message: string } | string;
}

export const api = {
  me: (signal?: AbortSignal) => call<Me>("/api/me", { signal }),
  login: (token: string, switchUser = false) =>
    post<void>("/api/login", switchUser ? { token, switch: true } : { token }),
  logout: () => post<void>("/api/logout"),
  signIns: (signal?: AbortSignal) => call<{ oidc: boolean; passkeys: boolean }>("/api/login", { signal }),
  passkeySignIn: () => post<PasskeyOptions>("/api/login/passkey/options"),
  loginWithPasskey: (answer: PasskeyAnswer) => post<void>("/api/login/passkey", answer),
  passkeys: (signal?: AbortSignal) => call<{ items: Passkey[] }>("/api/passkeys", { signal }),
  newPasskey: () => post<PasskeyOptions>("/api/passkeys/registration/options"),
  addPasskey: (answer: PasskeyAnswer, name: string) => post<Passkey>("/api/passkeys", { ...answer, name }),
  removePasskey: (id: string) => call<void>(`/api/passkeys/${encodeURIComponent(id)}`, { method: "DELETE" }),
  agents: (signal?: AbortSignal) => call<{ items: Agent[] }>("/api/agents", { signal }),

  /** A page of requests. A search may find few of them, or none, although there is a next page. */
  requestPage: (query: Query, signal?: AbortSignal) => call<Page<Request>>(withQuery("/api/requests", query), { signal }),
  /** A page of requests. Searches on until it has found one, or there are no more. */
  requests: async (query: Query, signal?: AbortSignal): Promise<Page<Request>> => {
    let page = await api.requestPage(query, signal);
    while (page.items.length === 0 && page.next !== null) page = await api.requestPage({ ...query, after: page.next }, signal);
    return page;
  },
  groups: (query: Query, signal?: AbortSignal) => call<Groups>(withQuery("/api/requests/groups", query), { signal }),
  views: (signal?: AbortSignal) => call<Page<SavedView>>("/api/me/views", { signal }),
  saveView: (name: string, filters: Query) =>
    call<SavedView>(`/api/me/views/${encodeURIComponent(name)}`, { method: "PUT", body: filters }),
  removeView: (name: string) => call<void>(`/api/me/views/${encodeURIComponent(name)}`, { method: "DELETE" }),
  request: (id: string, signal?: AbortSignal) => call<RequestDetail>(at(id), { signal }),
  check: (id: string, edit: Edit, signal?: AbortSignal) => post<Check>(`${at(id)}/check`, edit, { signal }),
  suggestions: (signal?: AbortSignal) => call<{ items: Suggestion[] }>("/api/suggestions", { signal }),
  acceptSuggestion: (id: string) => post<Grant>(`/api/suggestions/${encodeURIComponent(id)}/grant`, {}),
  replayPolicy: (policy: string) => post<Replay>("/api/policy/replay", { policy }),
  previewGrant: (id: string, grant: GrantInput, signal?: AbortSignal) =>
    post<GrantPreview | NoGrant>(`${at(id)}/grant-preview`, grant, { signal }),
  decide: (id: string, body: DecisionBody) => post<Request>(`${at(id)}/decision`, body, { limit: DECISION_LIMIT }),
  undo: (id: string) => post<Request>(`${at(id)}/undo`, undefined, { limit: DECISION_LIMIT }),
  /** Begin to confirm a decision with a passkey. */
  confirmation: (id: string, body: DecisionBody) => post<PasskeyOptions>(`${at(id)}/confirmation`, body),
  decideAll: (items: OneOfMany[]) => post<{ items: Outcome[] }>("/api/decisions", items, { limit: READ_LIMIT }),
  /** Read a request after a decision got no response, to see whether it was recorded. */
  recorded: (id: string) => call<RequestDetail>(at(id), { limit: DECISION_LIMIT / 2 }),
  reveal: (id: string) => post<RequestDetail>(`${at(id)}/reveal`),

  grants: (all: boolean, signal?: AbortSignal) =>
    call<GrantPage>(withQuery("/api/grants", { all }), { signal }),
  revoke: (id: string) => call<Grant>(`/api/grants/${encodeURIComponent(id)}`, { method: "DELETE" }),
  refusals: (all: boolean, signal?: AbortSignal) => call<Page<Refusal>>(withQuery("/api/refusals", { all }), { signal }),
  lift: (id: string) => call<Refusal>(`/api/refusals/${encodeURIComponent(id)}`, { method: "DELETE" }),

  trust: (body: { run: string; max_risk: TrustWindow["max_risk"]; ends_in: number }) =>
    post<TrustWindow>("/api/windows", body),
  runs: (query: Query, signal?: AbortSignal) => call<Page<Run>>(withQuery("/api/runs", query), { signal }),
  run: (id: string, signal?: AbortSignal) => call<RunDetail>(`/api/runs/${encodeURIComponent(id)}`, { signal }),
  audit: (query: Query, signal?: AbortSignal) => call<Page<AuditRow>>(withQuery("/api/audit", query), { signal }),
  verify: () => post<Verification>("/api/audit/verify", {}, { limit: VERIFY_LIMIT }),
  stats: async (days: number, signal?: AbortSignal) => {
    const read = (zone?: string) => call<Stats>(withQuery("/api/stats", { days, zone }), { signal });
    // Days in the user's time zone; a server that does not know that zone falls back to its own.
    return read(Intl.DateTimeFormat().resolvedOptions().timeZone).catch((error: unknown) => {
      if (error instanceof ApiError && error.field === "zone") return read();
      throw error;
    });
  },
  chats: (signal?: AbortSignal) => call<{ items: Chat[] }>("/api/chats", { signal }),

  /** Send a message to the default agent in a new chat. Resolves when the agent pauses or has answered. */
  startChat: async (text: string) => {
    const parts = [{ type: "text", text }];
    const body = { id: crypto.randomUUID(), messages: [{ id: crypto.randomUUID(), role: "user", parts }] };
    const response = await fetch("/api/chat", {
      method: "POST",
      headers: { "X-Sayso": "1", "Content-Type": "application/json" },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(READ_LIMIT),
    });
    if (!response.ok) throw await failure(response);
    await response.text();
    return body.id;
  },

  effects: (signal?: AbortSignal) => call<Effect[]>("/demo/effects", { signal }),
  clearEffects: () => call<void>("/demo/effects", { method: "DELETE" }),
};
