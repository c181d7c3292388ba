/** One person or agent: what they may do, who decides for them, and how they prove who they are. */

import { useEffect, useState, type ReactElement, type ReactNode } from "react";
import { api } from "../shared/api";
import { Tag } from "../shared/components/Badge";
import { Button, IconButton } from "../shared/components/Button";
import { Icon } from "../shared/components/Icon";
import { LoadError, Skeleton } from "../shared/components/States";
import { Age } from "../shared/components/Time";
import { useNow } from "../shared/format";
import { useChanges } from "../shared/live";
import { Link } from "../shared/router";
import type { Grant } from "../shared/types";
import { useResource } from "../shared/useResource";
import { visible } from "../shared/visible";
import { people, type Credential, type PersonDetails, type Role } from "./api";
import { CredentialTable, SESSION_HEADS, TOKEN_HEADS } from "./Credentials";
import { AccountDialog, AddDialog, AwayDialog, GroupDialog, MailDialog, RoleChoice, TokenDialog } from "./PersonDialogs";
import { PersonStatus, isAway, shortTime } from "./PersonStatus";
import { RevokeDialog } from "./RevokeDialog";
import { EndedList, TakeAway, grantLine } from "./TakeAway";
import { ROLES, accountOf, count, countCredentials } from "./words";

/** The dialog that is open. */
type Asking =
  | { what: "role" | "groups" | "mail" | "account" | "away" | "back" | "token" | "signOut" | "remove" | "restore" }
  | { what: "leave"; group: string }
  | { what: "revoke"; credential: Credential };

export function PersonPage({ name }: { name: string }): ReactElement {
  const person = useResource(`person ${name}`, (signal) => people.get(name, signal));
  const [asking, setAsking] = useState<Asking | null>(null);
  useEffect(() => {
    document.title = `${visible(name)} · People · Sayso`;
  }, [name]);
  useChanges((events) => {
    if (events.some(({ type }) => /^(person|token)_|^resync$/.test(type))) person.reload();
  }, 800);
  return (
    <main className="page people">
      <Link to="/people" className="people-back">
        <Icon name="chevronLeft" size={14} /> People
      </Link>
      {person.error && <LoadError what={visible(name)} error={person.error} retry={person.reload} />}
      {person.loading && <Skeleton rows={6} />}
      {person.data && <Details person={person.data} ask={setAsking} />}
      {person.data && asking && (
        <AskingDialog person={person.data} asking={asking} onDone={person.reload} onClose={() => setAsking(null)} />
      )}
    </main>
  );
}

type Ask = (asking: Asking) => void;

function Details({ person, ask }: { person: PersonDetails; ask: Ask }): ReactElement {
  const active = person.status === "active";
  return (
    <>
      <div className="page-head">
        <div className="people-title">
          <h1>{visible(person.name)}</h1>
          <PersonStatus person={person} />
          <p className="muted">
            {ROLES[person.role].name}, added <Age at={person.created_at} />, changed <Age at={person.changed_at} />
            {person.signed_in_at && (
              <>
                , signed in <Age at={person.signed_in_at} />
              </>
            )}
          </p>
        </div>
        {active ? (
          <Button tone="danger" icon="trash" onClick={() => ask({ what: "remove" })}>
            Remove…
          </Button>
        ) : (
          <Button onClick={() => ask({ what: "restore" })}>Bring back…</Button>
        )}
      </div>
      <Rights person={person} ask={ask} />
      {active && <Access person={person} ask={ask} />}
    </>
  );
}

function Card({ title, action, children }: { title: string; action?: ReactNode; children: ReactNode }): ReactElement {
  return (
    <section className="card people-card" aria-label={title}>
      <header>
        <h2>{title}</h2>
        {action}
      </header>
      {children}
    </section>
  );
}

function Setting({ name, action, children }: { name: string; action?: ReactNode; children: ReactNode }): ReactElement {
  return (
    <div className="setting">
      <dt>{name}</dt>
      <dd className="wrap">{children}</dd>
      {action && <dd>{action}</dd>}
    </div>
  );
}

function Rights({ person, ask }: { person: PersonDetails; ask: Ask }): ReactElement {
  const now = useNow(30);
  const active = person.status === "active";
  const agent = person.kind === "agent";
  const account = accountOf(person.origin);
  const away = isAway(person, now);
  const change = (what: "role" | "groups" | "mail" | "away" | "account", verb: string, label: string) =>
    active && (
      <Button aria-label={`${verb} ${label}`} onClick={() => ask({ what })}>
        {verb}
      </Button>
    );
  return (
    <Card title="Rights">
      <dl>
        <Setting name="Role" action={!agent && change("role", "Change", "role")}>
          {ROLES[person.role].name}
          <div className="muted small">{ROLES[person.role].text}</div>
        </Setting>
        <Setting name="Groups" action={change("groups", "Add", "groups")}>
          <span className="people-groups">
            {person.groups.length === 0 && <span className="muted">none</span>}
            {person.groups.map((group) => (
              <Group key={group} group={group} active={active} onLeave={() => ask({ what: "leave", group })} />
            ))}
          </span>
        </Setting>
        {!agent && (
          <Setting
            name="Stand-in"
            action={
              away ? (
                <Button onClick={() => ask({ what: "back" })}>End now</Button>
              ) : (
                change("away", "Set", "stand-in")
              )
            }
          >
            {away ? (
              <>
                <PersonLink name={person.stand_in!} /> decides until {shortTime(person.away_until!)}
              </>
            ) : (
              <span className="muted">none</span>
            )}
          </Setting>
        )}
        {active && person.stands_in_for.length > 0 && (
          <Setting name="Decides for">
            {person.stands_in_for.map((absent, index) => (
              <span key={absent}>
                {index > 0 && ", "}
                <PersonLink name={absent} />
              </span>
            ))}
          </Setting>
        )}
        {!agent && (
          <Setting name="Mail address" action={change("mail", "Change", "mail address")}>
            {person.mail ? visible(person.mail) : <span className="muted">none</span>}
          </Setting>
        )}
        {!agent && (
          <Setting name="Account" action={change("account", "Link", "account")}>
            {account ? visible(account.issuer) : <span className="muted">none</span>}
            {account && <div className="muted small mono">{visible(account.subject)}</div>}
          </Setting>
        )}
      </dl>
    </Card>
  );
}

function Group({ group, active, onLeave }: { group: string; active: boolean; onLeave: () => void }): ReactElement {
  if (!active) return <Tag>{visible(group)}</Tag>;
  return (
    <span className="people-group">
      {visible(group)}
      <IconButton icon="cross" label={`Remove from ${visible(group)}`} onClick={onLeave} />
    </span>
  );
}

function PersonLink({ name }: { name: string }): ReactElement {
  return <Link to={`/people/${encodeURIComponent(name)}`}>{visible(name)}</Link>;
}

function Access({ person, ask }: { person: PersonDetails; ask: Ask }): ReactElement {
  const of = (...kinds: Credential["kind"][]) => person.credentials.filter(({ kind }) => kinds.includes(kind));
  const onRevoke = (credential: Credential) => ask({ what: "revoke", credential });
  const sessions = of("session", "link");
  const others = of("passkey", "chat");
  const agent = person.kind === "agent";
  return (
    <>
      <Card title="Tokens" action={<Button onClick={() => ask({ what: "token" })}>Create a token…</Button>}>
        <CredentialTable
          label="Tokens"
          heads={TOKEN_HEADS}
          items={of("token")}
          empty={agent ? "An agent needs a token to open requests." : "No tokens. People with an account or a passkey need none."}
          onRevoke={onRevoke}
        />
      </Card>
      {!agent && (
        <Card
          title="Sessions"
          action={
            sessions.length > 0 && (
              <Button tone="danger" onClick={() => ask({ what: "signOut" })}>
                Sign out everywhere…
              </Button>
            )
          }
        >
          <CredentialTable label="Sessions" heads={SESSION_HEADS} items={sessions} empty="Not signed in." onRevoke={onRevoke} />
        </Card>
      )}
      {!agent && (
        <Card title="Passkeys and chat accounts">
          <CredentialTable
            label="Passkeys and chat accounts"
            heads={["Name", "Added", "Assurance", "Last used", "Ends", ""]}
            items={others}
            empty="None. People add passkeys themselves, on the page of their account."
            onRevoke={onRevoke}
          />
        </Card>
      )}
    </>
  );
}

interface AskingProps {
  person: PersonDetails;
  asking: Asking;
  onDone: () => void;
  onClose: () => void;
}

function AskingDialog({ person, asking, ...rest }: AskingProps): ReactElement | null {
  switch (asking.what) {
    case "groups":
      return <GroupDialog person={person} {...rest} />;
    case "mail":
      return <MailDialog person={person} {...rest} />;
    case "account":
      return <AccountDialog person={person} {...rest} />;
    case "away":
      return <AwayDialog person={person} {...rest} />;
    case "token":
      return <TokenDialog person={person} {...rest} />;
    case "restore":
      return <AddDialog role={person.role} removed={person} {...rest} />;
    case "revoke":
      return <RevokeDialog credential={asking.credential} {...rest} />;
    case "role":
      return <RoleDialog person={person} {...rest} />;
    case "leave":
      return <LeaveDialog person={person} group={asking.group} {...rest} />;
    case "back":
      return <BackDialog person={person} {...rest} />;
    case "signOut":
      return <SignOutDialog person={person} {...rest} />;
    case "remove":
      return <RemoveDialog person={person} {...rest} />;
  }
}

type TakeAwayProps = Omit<AskingProps, "asking">;

/** The grants that a person has given, which may end with a right. */
function useGrants(name: string): Grant[] {
  const grants = useResource("grants", (signal) => api.grants(false, signal));
  return grants.data?.items.filter((grant) => grant.by === name && grant.live) ?? [];
}

const RESTING = "Votes on pending requests that rest on it become void, and grants that they could no longer give are revoked.";

function GrantNote({ grants }: { grants: Grant[] }): ReactElement {
  return (
    <EndedList title={`Grants that they have given: ${grants.length}`} items={grants.map(({ id }) => grantLine(id, grants))} />
  );
}

function RoleDialog({ person, ...rest }: TakeAwayProps): ReactElement {
  const [role, setRole] = useState<Role>(person.role);
  const grants = useGrants(person.name);
  return (
    <TakeAway
      title={`Role of ${visible(person.name)}`}
      verb="Change role"
      keep="Keep role"
      done={`${visible(person.name)}: ${ROLES[role].name}`}
      ready={role !== person.role}
      grants={grants}
      act={() => people.change(person.name, { role })}
      {...rest}
    >
      <RoleChoice value={role} onChange={setRole} />
      <p className="muted">It counts at once, in every session. {RESTING}</p>
      <GrantNote grants={grants} />
    </TakeAway>
  );
}

function LeaveDialog({ person, group, ...rest }: TakeAwayProps & { group: string }): ReactElement {
  const grants = useGrants(person.name);
  return (
    <TakeAway
      title={`Remove ${visible(person.name)} from ${visible(group)}?`}
      verb={`Remove from ${visible(group)}`}
      keep="Keep"
      done={`${visible(person.name)} is no longer in ${visible(group)}`}
      grants={grants}
      act={() => people.change(person.name, { remove_groups: [group] })}
      {...rest}
    >
      <p>{RESTING} Tokens and sessions stay valid, for what they may do then.</p>
      <GrantNote grants={grants} />
    </TakeAway>
  );
}

function BackDialog({ person, ...rest }: TakeAwayProps): ReactElement {
  const name = visible(person.name);
  const standIn = visible(person.stand_in ?? "");
  return (
    <TakeAway
      title={`Is ${name} back?`}
      verb="End stand-in"
      keep="Keep stand-in"
      done={`${standIn} no longer decides for ${name}`}
      act={() => people.change(person.name, { away: { stand_in: "", until: null } })}
      {...rest}
    >
      <p>
        {standIn} no longer sees and decides what only {name} may. What they have decided stays.
      </p>
    </TakeAway>
  );
}

function SignOutDialog({ person, ...rest }: TakeAwayProps): ReactElement {
  const sessions = person.credentials.filter(({ kind }) => kind === "session" || kind === "link");
  return (
    <TakeAway
      title={`Sign out ${visible(person.name)} everywhere?`}
      verb="Sign out everywhere"
      keep="Keep sessions"
      done={`${visible(person.name)} is signed out everywhere`}
      act={() => people.signOut(person.name)}
      {...rest}
    >
      <p>{countCredentials(sessions)} will end. Tokens and passkeys stay, and can open new ones.</p>
    </TakeAway>
  );
}

function RemoveDialog({ person, ...rest }: TakeAwayProps): ReactElement {
  const [askAgain, setAskAgain] = useState(false);
  const grants = useGrants(person.name);
  const credentials = countCredentials(person.credentials);
  const name = visible(person.name);
  return (
    <TakeAway
      title={`Remove ${name}?`}
      verb={`Remove ${name}`}
      keep="Keep"
      done={`${name} was removed`}
      grants={grants}
      approvedNote={askAgain ? "People are asked about them again." : "They still run: cancel one on its page if it should not."}
      act={() => people.remove(person.name, askAgain)}
      {...rest}
    >
      <ul>
        {credentials && <li>{credentials} will end.</li>}
        <li>Votes on pending requests are void.</li>
        <li>
          {grants.length > 0 ? `${count(grants.length, "grant")} that they gave will be revoked.` : "They have given no grants."}
        </li>
      </ul>
      <GrantNote grants={grants} />
      <label className="check">
        <input type="checkbox" checked={askAgain} onChange={(event) => setAskAgain(event.target.checked)} />
        Ask again about calls that they approved and that have not run
      </label>
      <p className="muted">The name stays theirs, since the record names them: nobody else can have it.</p>
    </TakeAway>
  );
}
