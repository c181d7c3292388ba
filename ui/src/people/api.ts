/** People, agents, groups, tokens and sessions: the API for admins, and for your own sessions. */

import { call, withQuery, type Query } from "../shared/api";
import type * as api from "../shared/apiTypes";
import type { Page } from "../shared/types";

export type { ListedPerson, Person } from "../shared/apiTypes";
export type Role = api.Person["role"];
export type Group = api.PeopleGroup;

export type Credential = api.Credential;
export type PersonDetails = Omit<api.PersonDetails, "credentials"> & { credentials: Credential[] };

/** What ended with a right: credentials, and the ids of grants, pending requests and approved ones. */
export type Ended = Pick<api.TakenAway, "grants" | "votes" | "approved"> & { credentials: Credential[] };

export interface Change {
  add_groups?: string[];
  remove_groups?: string[];
  role?: Role;
  mail?: string;
  away?: { stand_in: string; until: string | null };
  account?: { issuer: string; subject: string };
}

export interface NewPerson {
  name: string;
  role: Role;
  groups: string[];
  mail: string;
  /** Bring back the same person, who was removed. */
  restore?: boolean;
}

const personAt = (name: string) => `/api/people/${encodeURIComponent(name)}`;
const post = <T>(path: string, body: unknown) => call<T>(path, { method: "POST", body });
const remove = <T>(path: string) => call<T>(path, { method: "DELETE" });

async function endedCredentials(path: string): Promise<Ended> {
  const { items } = await remove<{ items: Credential[] }>(path);
  return { credentials: items, grants: [], votes: [], approved: [] };
}

export const people = {
  list: (query: Query, signal?: AbortSignal) => call<Page<api.ListedPerson>>(withQuery("/api/people", query), { signal }),
  groups: (query: Query, signal?: AbortSignal) => call<Page<Group>>(withQuery("/api/groups", query), { signal }),
  tokens: (query: Query, signal?: AbortSignal) => call<Page<Credential>>(withQuery("/api/tokens", query), { signal }),
  sessions: (query: Query, signal?: AbortSignal) => call<Page<Credential>>(withQuery("/api/sessions", query), { signal }),
  get: (name: string, signal?: AbortSignal) => call<PersonDetails>(personAt(name), { signal }),
  add: (person: NewPerson) => post<api.Person>("/api/people", person),
  change: (name: string, change: Change) => post<Ended>(personAt(name), change),
  remove: (name: string, askAgain: boolean) => remove<Ended>(withQuery(personAt(name), { ask_again: askAgain })),
  /** Create a token that ends after these seconds, or never. The answer is the only place of its secret. */
  createToken: (name: string, endsIn: number | null) =>
    post<Credential & { token: string }>("/api/tokens", { name, ends_in: endsIn }),
  /** End a token, session or passkey, and the sessions that it opened. */
  revoke: (id: string) => endedCredentials(`/api/tokens/${encodeURIComponent(id)}`),
  signOut: (name: string) => endedCredentials(withQuery("/api/sessions", { person: name })),
};

export const ownSessions = {
  list: (signal?: AbortSignal) => call<{ items: Credential[] }>("/api/me/sessions", { signal }),
  end: async (session: Credential): Promise<Ended> => {
    await remove<void>(`/api/me/sessions/${encodeURIComponent(session.id)}`);
    return { credentials: [session], grants: [], votes: [], approved: [] };
  },
  endAll: () => endedCredentials("/api/me/sessions"),
};
