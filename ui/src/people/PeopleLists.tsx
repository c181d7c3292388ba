/** People, agents, groups, tokens and sessions: each searched and paged on the server. */

import { useEffect, useState, type ReactElement } from "react";
import { withQuery } from "../shared/api";
import { Button } from "../shared/components/Button";
import { PagedTable } from "../shared/components/PagedTable";
import { SearchField } from "../shared/components/SearchField";
import { EmptyState } from "../shared/components/States";
import { Tabs } from "../shared/components/Tabs";
import { Age } from "../shared/components/Time";
import { useChanges } from "../shared/live";
import { Link, setQuery, useQuery } from "../shared/router";
import { usePagedList } from "../shared/usePagedList";
import { visible } from "../shared/visible";
import { people, type Credential, type Group, type ListedPerson, type Person } from "./api";
import { CredentialRow, SESSION_HEADS, TOKEN_HEADS } from "./Credentials";
import { AddDialog } from "./PersonDialogs";
import { PersonStatus } from "./PersonStatus";
import { RevokeDialog } from "./RevokeDialog";
import { ROLES, accountOf, count, issuerHost } from "./words";

const TABS = [
  { key: "people", label: "People" },
  { key: "agents", label: "Agents" },
  { key: "groups", label: "Groups" },
  { key: "tokens", label: "Tokens" },
  { key: "sessions", label: "Sessions" },
] as const;

type TabKey = (typeof TABS)[number]["key"];

const PAGE = 50;

export function PeopleLists(): ReactElement {
  const [query] = useQuery();
  const [adding, setAdding] = useState(false);
  const tab: TabKey = TABS.find(({ key }) => key === query.get("tab"))?.key ?? "people";
  useEffect(() => {
    document.title = "People · Sayso";
  }, []);
  const lists: Record<TabKey, ReactElement> = {
    people: <PersonList key="people" kind="person" />,
    agents: <PersonList key="agents" kind="agent" />,
    groups: <GroupList />,
    tokens: <CredentialList key="tokens" kind="token" />,
    sessions: <CredentialList key="sessions" kind="session" />,
  };
  return (
    <main className="page people">
      <div className="page-head">
        <h1>People</h1>
        <Button tone="primary" icon="plus" onClick={() => setAdding(true)}>
          {tab === "agents" ? "Add an agent" : "Add a person"}
        </Button>
      </div>
      <Tabs
        label="People"
        tabs={[...TABS]}
        current={tab}
        onChange={(key) => setQuery({ tab: key === "people" ? null : key, q: null, group: null, away: null, all: null })}
      >
        {lists[tab]}
      </Tabs>
      {adding && <AddDialog role={tab === "agents" ? "agent" : "reviewer"} onClose={() => setAdding(false)} />}
    </main>
  );
}

/** Reload when somebody was added, changed or removed, or signed in or out. */
function useReload(reload: () => void): void {
  useChanges((events) => {
    if (events.some(({ type }) => /^(person|token)_|^resync$/.test(type))) reload();
  }, 800);
}

function NoMatch({ what }: { what: string }): ReactElement {
  return (
    <EmptyState icon="filter" title={`No ${what} match this search`}>
      <Button onClick={() => setQuery({ q: null, group: null, away: null })}>Clear the search</Button>
    </EmptyState>
  );
}

function PersonList({ kind }: { kind: Person["kind"] }): ReactElement {
  const [query] = useQuery();
  const group = query.get("group");
  const filters = { q: query.get("q"), group, away: query.get("away") !== null };
  const wanted = { ...filters, kind, all: query.get("all") !== null, limit: PAGE };
  const pages = usePagedList<ListedPerson>(
    withQuery("people", wanted),
    (person) => person.name,
    (after, signal) => people.list({ ...wanted, after }, signal),
  );
  useReload(pages.reload);
  const what = kind === "agent" ? "agents" : "people";
  const filtered = Object.values(filters).some(Boolean);
  return (
    <>
      <div className="filters" role="group" aria-label="Filters">
        <SearchField label="Search name, mail address or group" placeholder="Search name, mail or group" />
        {group !== null && (
          <Button icon="cross" onClick={() => setQuery({ group: null })}>
            Group {visible(group)}
          </Button>
        )}
        {kind === "person" && <Check name="away" label="Away now" />}
        <Check name="all" label="Show removed ones" />
      </div>
      <PagedTable
        what={what}
        more="Show more"
        pages={pages}
        heads={["Name", "Role", "Groups", "Status", "Last sign-in", "Account"]}
        testid="people"
        empty={
          filtered ? (
            <NoMatch what={what} />
          ) : (
            <EmptyState icon="user" title={`No ${what} yet`}>
              <p className="muted">
                Add {kind === "agent" ? "an agent" : "a person"} here, or with <code>sayso people add NAME</code>.
              </p>
            </EmptyState>
          )
        }
        row={(person) => <PersonRow key={person.name} person={person} />}
      />
    </>
  );
}

function Check({ name, label }: { name: string; label: string }): ReactElement {
  const [query] = useQuery();
  return (
    <label className="check">
      <input
        type="checkbox"
        checked={query.get(name) !== null}
        onChange={(event) => setQuery({ [name]: event.target.checked ? "1" : null })}
      />
      {label}
    </label>
  );
}

function PersonRow({ person }: { person: ListedPerson }): ReactElement {
  const account = accountOf(person.origin);
  return (
    <tr data-testid="person" className={person.status === "removed" ? "muted" : undefined}>
      <td className="what">
        <Link to={`/people/${encodeURIComponent(person.name)}`} className="what-link">
          {visible(person.name)}
        </Link>
        {person.mail && <span className="what-summary">{visible(person.mail)}</span>}
      </td>
      <td data-label="Role">{ROLES[person.role].name}</td>
      <td data-label="Groups">
        {person.groups.length === 0 && <span className="muted">none</span>}
        {person.groups.length > 0 && (
          <span className="people-groups">
            {person.groups.map((group) => (
              <Link key={group} to={withQuery("/people", { tab: person.kind === "agent" && "agents", group })} className="tag">
                {visible(group)}
              </Link>
            ))}
          </span>
        )}
      </td>
      <td>
        <PersonStatus person={person} />
      </td>
      <td className="nowrap muted" data-label="Last sign-in">
        {person.signed_in_at ? <Age at={person.signed_in_at} /> : "–"}
      </td>
      <td className="muted wrap" data-label={account ? "Account" : undefined}>
        {account ? visible(issuerHost(account.issuer)) : <span className="people-local">Sayso</span>}
      </td>
    </tr>
  );
}

function GroupList(): ReactElement {
  const [query] = useQuery();
  const wanted = { q: query.get("q"), limit: PAGE };
  const pages = usePagedList<Group>(
    withQuery("groups", wanted),
    (group) => group.name,
    (after, signal) => people.groups({ ...wanted, after }, signal),
  );
  useReload(pages.reload);
  return (
    <>
      <div className="filters">
        <SearchField label="Search groups" placeholder="Search groups" />
      </div>
      <PagedTable
        what="groups"
        more="Show more"
        pages={pages}
        heads={["Group", "Members"]}
        testid="groups"
        empty={
          wanted.q ? (
            <NoMatch what="groups" />
          ) : (
            <EmptyState icon="user" title="No groups yet">
              <p className="muted">A group begins with its first member: open a person to add them to one.</p>
            </EmptyState>
          )
        }
        row={(group) => (
          <tr key={group.name} data-testid="group">
            <td className="what">
              <Link to={withQuery("/people", { group: group.name })} className="what-link">
                {visible(group.name)}
              </Link>
            </td>
            <td data-label="Members">{count(group.members, "member")}</td>
          </tr>
        )}
      />
    </>
  );
}

function CredentialList({ kind }: { kind: "token" | "session" }): ReactElement {
  const [query] = useQuery();
  const [revoking, setRevoking] = useState<Credential | null>(null);
  const wanted = { q: query.get("q"), limit: PAGE };
  const read = kind === "token" ? people.tokens : people.sessions;
  const pages = usePagedList<Credential>(
    withQuery(kind, wanted),
    (credential) => credential.id,
    (after, signal) => read({ ...wanted, after }, signal),
  );
  useReload(pages.reload);
  const what = `${kind}s`;
  const label = kind === "token" ? "Search person or token" : "Search person, device or place";
  return (
    <>
      <div className="filters">
        <SearchField label={label} placeholder={label} />
      </div>
      <PagedTable
        what={what}
        more="Show more"
        pages={pages}
        heads={["Person", ...(kind === "token" ? TOKEN_HEADS : SESSION_HEADS)]}
        testid={what}
        empty={wanted.q ? <NoMatch what={what} /> : <EmptyState icon="key" title={`No ${what} yet`} />}
        row={(credential) => (
          <CredentialRow key={credential.id} credential={credential} withPerson onRevoke={setRevoking} />
        )}
      />
      {revoking && <RevokeDialog credential={revoking} onDone={pages.reload} onClose={() => setRevoking(null)} />}
    </>
  );
}
