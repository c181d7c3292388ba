/** The dialogs that give a person something: an account, a role, groups, a stand-in, a token. */

import { cloneElement, useId, useState, type ReactElement } from "react";
import { Button } from "../shared/components/Button";
import { CopyButton } from "../shared/components/CopyButton";
import { Dialog } from "../shared/components/Dialog";
import { Notice } from "../shared/components/States";
import { toast } from "../shared/components/Toasts";
import { navigate } from "../shared/router";
import { useResource } from "../shared/useResource";
import { visible } from "../shared/visible";
import { people, type Person, type Role } from "./api";
import { FormDialog } from "./FormDialog";
import { shortTime } from "./PersonStatus";
import { ROLES, accountOf, commaSeparated } from "./words";

interface DialogProps {
  person: Person;
  onDone: () => void;
  onClose: () => void;
}

/** A labelled control with a hint below it. */
function Field({ label, hint, children }: { label: string; hint?: string; children: ReactElement<object> }): ReactElement {
  const id = useId();
  return (
    <div className="field">
      <label className="field">
        <span className="field-label">{label}</span>
        {hint ? cloneElement(children, { "aria-describedby": id } as object) : children}
      </label>
      {hint && (
        <span id={id} className="field-hint">
          {hint}
        </span>
      )}
    </div>
  );
}

/** The roles that a person can change between; an agent is an agent for good. */
const PERSON_ROLES: Role[] = ["reviewer", "admin", "chat"];

export function RoleChoice({ value, onChange }: { value: Role; onChange: (role: Role) => void }): ReactElement {
  return (
    <div role="radiogroup" aria-label="Role">
      {PERSON_ROLES.map((role) => (
        <label className="option" key={role}>
          <input type="radio" name="role" checked={role === value} onChange={() => onChange(role)} />
          <span>
            <span className="option-label">{ROLES[role].name}</span>
            <span className="option-text">{ROLES[role].text}</span>
          </span>
        </label>
      ))}
    </div>
  );
}

/** Adds a person or an agent, or with `removed` brings one back. */
export function AddDialog({ role: first, removed, onClose }: { role: Role; removed?: Person; onClose: () => void }): ReactElement {
  const [name, setName] = useState(removed?.name ?? "");
  const [role, setRole] = useState<Role>(first);
  const [groups, setGroups] = useState("");
  const [mail, setMail] = useState(removed?.mail ?? "");
  const agent = role === "agent";
  const add = async () => {
    const fields = { name: name.trim(), role, groups: commaSeparated(groups), mail: mail.trim() };
    const added = await people.add({ ...fields, restore: removed !== undefined });
    toast(`${removed ? "Brought back" : "Added"} ${added.name}`, "good");
    onClose();
    navigate(`/people/${encodeURIComponent(added.name)}`);
  };
  return (
    <FormDialog
      title={removed ? `Bring back ${visible(removed.name)}` : agent ? "Add an agent" : "Add a person"}
      verb={removed ? "Bring back" : "Add"}
      ready={name.trim() !== ""}
      send={add}
      onClose={onClose}
    >
      {removed ? (
        <p>Only bring back the same person: the record names them. Their old tokens, votes and grants stay ended.</p>
      ) : (
        <Field label="Name" hint="It identifies them for good: nobody else can have it later.">
          <input data-autofocus autoComplete="off" spellCheck={false} maxLength={200} value={name} onChange={(event) => setName(event.target.value)} />
        </Field>
      )}
      {!agent && <RoleChoice value={role} onChange={setRole} />}
      <Field label="Groups" hint="Separated by commas. Policies name them as group:finance.">
        <input autoComplete="off" placeholder="finance, ops" value={groups} onChange={(event) => setGroups(event.target.value)} />
      </Field>
      {!agent && (
        <Field label="Mail address">
          <input type="email" autoComplete="off" maxLength={300} value={mail} onChange={(event) => setMail(event.target.value)} />
        </Field>
      )}
    </FormDialog>
  );
}

export function GroupDialog({ person, onDone, onClose }: DialogProps): ReactElement {
  const [groups, setGroups] = useState("");
  const last = groups.split(",").at(-1)!.trim();
  const known = useResource(`groups ${last}`, (signal) => people.groups({ q: last, limit: 20 }, signal));
  const added = commaSeparated(groups);
  return (
    <FormDialog
      title={`Add ${visible(person.name)} to groups`}
      verb="Add"
      ready={added.length > 0}
      send={async () => {
        await people.change(person.name, { add_groups: added });
        toast(`Added to ${added.join(", ")}`, "good");
        onDone();
        onClose();
      }}
      onClose={onClose}
    >
      <Field label="Groups" hint="Separated by commas. A new name makes a new group.">
        <input data-autofocus autoComplete="off" list="known-groups" value={groups} onChange={(event) => setGroups(event.target.value)} />
      </Field>
      <datalist id="known-groups">
        {known.data?.items.map((group) => (
          <option key={group.name} value={group.name} />
        ))}
      </datalist>
      <p className="muted">It counts at once, in every session and on every server.</p>
    </FormDialog>
  );
}

export function MailDialog({ person, onDone, onClose }: DialogProps): ReactElement {
  const [mail, setMail] = useState(person.mail);
  return (
    <FormDialog
      title={`Mail address of ${visible(person.name)}`}
      verb="Save"
      send={async () => {
        await people.change(person.name, { mail: mail.trim() });
        toast("Mail address saved", "good");
        onDone();
        onClose();
      }}
      onClose={onClose}
    >
      <Field label="Mail address" hint="An address never links two accounts.">
        <input data-autofocus type="email" autoComplete="off" maxLength={300} value={mail} onChange={(event) => setMail(event.target.value)} />
      </Field>
    </FormDialog>
  );
}

export function AccountDialog({ person, onDone, onClose }: DialogProps): ReactElement {
  const before = accountOf(person.origin);
  const [issuer, setIssuer] = useState(before?.issuer ?? "");
  const [subject, setSubject] = useState("");
  return (
    <FormDialog
      title={`Account of ${visible(person.name)}`}
      verb="Link account"
      ready={issuer.trim() !== "" && subject.trim() !== ""}
      send={async () => {
        await people.change(person.name, { account: { issuer: issuer.trim(), subject: subject.trim() } });
        toast("Account linked", "good");
        onDone();
        onClose();
      }}
      onClose={onClose}
    >
      <p>
        They sign in with this account of the OpenID provider from now on{before && ", and no longer with the one before"}.
      </p>
      <Field label="Issuer">
        <input data-autofocus type="url" autoComplete="off" placeholder="https://login.example.com" value={issuer} onChange={(event) => setIssuer(event.target.value)} />
      </Field>
      <Field label="Subject" hint="The provider's id of the person.">
        <input autoComplete="off" spellCheck={false} value={subject} onChange={(event) => setSubject(event.target.value)} />
      </Field>
    </FormDialog>
  );
}

const WEEK = 7 * 86_400_000;

/** A time as `datetime-local` fields write it. */
function localTime(time: number): string {
  const date = new Date(time - new Date(time).getTimezoneOffset() * 60_000);
  return date.toISOString().slice(0, 16);
}

export function AwayDialog({ person, onDone, onClose }: DialogProps): ReactElement {
  const [standIn, setStandIn] = useState(person.stand_in ?? "");
  const [until, setUntil] = useState(() => localTime(Date.now() + WEEK));
  const others = useResource(`people ${standIn}`, (signal) => people.list({ q: standIn, kind: "person", limit: 20 }, signal));
  return (
    <FormDialog
      title={`${visible(person.name)} is away`}
      verb="Set stand-in"
      ready={standIn.trim() !== "" && until !== ""}
      send={async () => {
        const end = new Date(until).toISOString();
        await people.change(person.name, { away: { stand_in: standIn.trim(), until: end } });
        toast(`${visible(standIn.trim())} decides for ${visible(person.name)} until ${shortTime(end)}`, "good");
        onDone();
        onClose();
      }}
      onClose={onClose}
    >
      <Field label="Stand-in" hint="Sees and decides what this person could decide. The record says for whom.">
        <input data-autofocus autoComplete="off" spellCheck={false} list="known-people" value={standIn} onChange={(event) => setStandIn(event.target.value)} />
      </Field>
      <datalist id="known-people">
        {others.data?.items
          .filter((other) => other.name !== person.name)
          .map((other) => (
            <option key={other.name} value={other.name} />
          ))}
      </datalist>
      <Field label="Until">
        <input type="datetime-local" required min={localTime(Date.now())} value={until} onChange={(event) => setUntil(event.target.value)} />
      </Field>
      <p className="muted">
        They cannot decide what they asked for themselves, vote for both, or approve what somebody has rejected. Nobody
        who stands in for them decides for {visible(person.name)}.
      </p>
    </FormDialog>
  );
}

const ENDS: [label: string, days: number | null][] = [
  ["7 days", 7],
  ["30 days", 30],
  ["90 days", 90],
  ["1 year", 365],
  ["Never", null],
];

export function TokenDialog({ person, onDone, onClose }: DialogProps): ReactElement {
  const [days, setDays] = useState<number | null>(90);
  const [secret, setSecret] = useState("");
  if (secret) {
    return (
      <Dialog key="secret" title="Copy the token now" onClose={onClose}>
        <Notice tone="warn" title="It is shown once">
          <p>Only a hash of it is stored. Whoever has it can act as {visible(person.name)}.</p>
        </Notice>
        <div className="people-secret">
          <code data-testid="secret">{secret}</code>
          <CopyButton text={secret} label="Copy the token" />
        </div>
        <div className="dialog-actions">
          <Button tone="primary" onClick={onClose}>
            I have copied it
          </Button>
        </div>
      </Dialog>
    );
  }
  return (
    <FormDialog
      title={`Create a token for ${visible(person.name)}`}
      verb="Create token"
      send={async () => {
        const created = await people.createToken(person.name, days && days * 86_400);
        setSecret(created.token);
        onDone();
      }}
      onClose={onClose}
    >
      <Field label="Ends" hint="It allows what they may do, and never more than their role now.">
        <select data-autofocus value={String(days)} onChange={(event) => setDays(event.target.value === "null" ? null : Number(event.target.value))}>
          {ENDS.map(([label, value]) => (
            <option key={label} value={String(value)}>
              {value === null ? label : `After ${label}`}
            </option>
          ))}
        </select>
      </Field>
    </FormDialog>
  );
}
