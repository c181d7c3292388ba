/** Tables of what proves who a person is. */

import type { ReactElement, ReactNode } from "react";
import { Tag } from "../shared/components/Badge";
import { Button } from "../shared/components/Button";
import { Age } from "../shared/components/Time";
import { exact, long, useNow } from "../shared/format";
import { Link } from "../shared/router";
import { visible } from "../shared/visible";
import type { Credential } from "./api";
import { deviceName } from "./words";

/** When a credential ends, relative to now. */
function End({ at }: { at: string | null }): ReactElement {
  const now = useNow(30);
  if (!at) return <>never</>;
  const left = (Date.parse(at) - now) / 1_000;
  return (
    <time dateTime={at} title={exact(at)}>
      {left <= 0 ? "ended" : `in ${long(left)}`}
    </time>
  );
}

const NAMES: Record<Credential["kind"], string> = {
  session: "session",
  token: "token",
  passkey: "passkey",
  link: "sign-in link",
  chat: "chat account",
  code: "linking code",
  push: "push subscription",
};

interface RowProps {
  credential: Credential;
  /** Also name the person, in a list of everyone's. */
  withPerson?: boolean;
  onRevoke: (credential: Credential) => void;
}

export const SESSION_HEADS = ["Device", "Signed in", "Assurance", "Last used", "Ends", ""];
export const TOKEN_HEADS = ["Token", "Created", "Assurance", "Last used", "Ends", ""];

export function CredentialRow({ credential, withPerson, onRevoke }: RowProps): ReactElement {
  const { kind, device, place, id } = credential;
  const isSession = kind === "session";
  const name = isSession ? deviceName(device) : kind === "token" ? id : device || id;
  return (
    <tr data-testid={kind}>
      {withPerson && (
        <td className="what">
          <Link to={`/people/${encodeURIComponent(credential.person)}`} className="what-link">
            {visible(credential.person)}
          </Link>
        </td>
      )}
      <td className="what" title={isSession ? visible(device) : undefined}>
        <span className={kind === "token" ? "mono wrap" : "wrap"}>{visible(name)}</span>{" "}
        {credential.current && <Tag>this browser</Tag>}
        {place && <span className="what-summary">{visible(place)}</span>}
      </td>
      <td className="nowrap muted" data-label={isSession ? "Signed in" : "Created"}>
        <Age at={(isSession && credential.signed_in_at) || credential.created_at} />
      </td>
      <td data-label="Assurance">
        <Tag>{credential.assurance}</Tag>
      </td>
      <td className="nowrap muted" data-label="Last used">
        <Age at={credential.last_used_at} />
      </td>
      <td className="nowrap muted" data-label="Ends">
        <End at={credential.ends_at} />
      </td>
      <td className="people-act">
        <Button small tone="danger" aria-label={`${verbFor(kind)} ${NAMES[kind]} ${name}`} onClick={() => onRevoke(credential)}>
          {verbFor(kind)}
        </Button>
      </td>
    </tr>
  );
}

export function verbFor(kind: Credential["kind"]): string {
  return kind === "session" ? "Sign out" : kind === "token" ? "Revoke" : "Remove";
}

interface TableProps {
  label: string;
  heads: string[];
  items: Credential[];
  empty: string;
  onRevoke: (credential: Credential) => void;
}

export function CredentialTable({ label, heads, items, empty, onRevoke }: TableProps): ReactElement {
  if (items.length === 0) return <p className="muted people-empty">{empty}</p>;
  return (
    <Table label={label} heads={heads}>
      {items.map((credential) => (
        <CredentialRow key={credential.id} credential={credential} onRevoke={onRevoke} />
      ))}
    </Table>
  );
}

function Table({ label, heads, children }: { label: string; heads: string[]; children: ReactNode }): ReactElement {
  return (
    <table className="table stacked" aria-label={label}>
      <thead>
        <tr>
          {heads.map((head) => (
            <th scope="col" key={head}>
              {head || <span className="sr-only">Actions</span>}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>{children}</tbody>
    </table>
  );
}
