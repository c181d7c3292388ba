/** Says what a change ends before it is made, and lists what has ended afterwards. */

import { useState, type ReactElement, type ReactNode } from "react";
import { api } from "../shared/api";
import { Button } from "../shared/components/Button";
import { Dialog } from "../shared/components/Dialog";
import { scopeLines } from "../shared/decision/grant";
import { Link } from "../shared/router";
import type { Grant } from "../shared/types";
import { useResource } from "../shared/useResource";
import { visible } from "../shared/visible";
import type { Credential, Ended } from "./api";
import { FormDialog } from "./FormDialog";
import { count, countCredentials, deviceName } from "./words";

/** How many of each are listed by name. */
const MOST = 20;

interface Props {
  title: string;
  verb: string;
  keep: string;
  /** The title once it is done. */
  done: string;
  ready?: boolean;
  /** The grants that the person has given, to name the ones that end. */
  grants?: Grant[];
  /** What happens to calls that the person approved and that have not run. */
  approvedNote?: string;
  act: () => Promise<Ended>;
  /** Called as soon as it is done, while the list is still open. */
  onDone: () => void;
  onClose: () => void;
  children: ReactNode;
}

export function TakeAway(props: Props): ReactElement {
  const [ended, setEnded] = useState<Ended | null>(null);
  if (ended) return <EndedDialog {...props} ended={ended} />;
  return (
    <FormDialog
      title={props.title}
      verb={props.verb}
      danger
      keep={props.keep}
      ready={props.ready}
      send={async () => {
        setEnded(await props.act());
        props.onDone();
      }}
      onClose={props.onClose}
    >
      {props.children}
    </FormDialog>
  );
}

function EndedDialog({ done, ended, grants = [], approvedNote, onClose }: Props & { ended: Ended }): ReactElement {
  const signedOut = ended.credentials.some((credential) => credential.current);
  const close = () => (signedOut ? location.assign("/login") : onClose());
  const nothing = [ended.credentials, ended.grants, ended.votes, ended.approved].every((list) => list.length === 0);
  return (
    <Dialog title={done} onClose={close}>
      {nothing && <p>Nothing else ended with it.</p>}
      <EndedList title={`${countCredentials(ended.credentials)} ended`} items={ended.credentials.map(credentialLine)} />
      <EndedList title={`${count(ended.grants.length, "grant")} revoked`} items={ended.grants.map((id) => grantLine(id, grants))} />
      <EndedList
        title={`${count(ended.votes.length, "vote")} void`}
        items={ended.votes.map((id) => (
          <RequestLink key={id} id={id} />
        ))}
      />
      <EndedList
        title={`${count(ended.approved.length, "call")} approved that ${ended.approved.length === 1 ? "has" : "have"} not run`}
        note={approvedNote}
        items={ended.approved.map((id) => (
          <RequestLink key={id} id={id} />
        ))}
      />
      {signedOut && <p>Your own session has ended, too.</p>}
      <div className="dialog-actions">
        <Button tone="primary" onClick={close}>
          {signedOut ? "Sign in again" : "Done"}
        </Button>
      </div>
    </Dialog>
  );
}

export function EndedList({ title, note, items }: { title: string; note?: string; items: ReactNode[] }): ReactElement | null {
  if (items.length === 0) return null;
  return (
    <section className="people-ended">
      <h3>{title}</h3>
      {note && <p className="muted small">{note}</p>}
      <ul>
        {items.slice(0, MOST).map((item, index) => (
          <li key={index} className="wrap">
            {item}
          </li>
        ))}
        {items.length > MOST && <li className="muted">and {items.length - MOST} more</li>}
      </ul>
    </section>
  );
}

/** `Session: Firefox on Windows, 10.1.2.3` */
export function credentialLine(credential: Credential): string {
  const { kind, id, device, place } = credential;
  if (kind === "session") return ["Session", ": ", visible(deviceName(device)), place && `, ${visible(place)}`].join("");
  if (kind === "passkey") return `Passkey: ${visible(device)}`;
  if (kind === "push") return `Push messages: ${visible(device)}`;
  if (kind === "chat") return `Chat account: ${visible(device)}`;
  if (kind === "code") return `Linking code ${id}`;
  return `${kind === "link" ? "Sign-in link" : "Token"} ${id}`;
}

export function grantLine(id: string, grants: Grant[]): string {
  const grant = grants.find((one) => one.id === id);
  return grant ? `${visible(grant.tool)} by ${visible(grant.agent)}: ${scopeLines(grant).join(", ")}` : id;
}

function RequestLink({ id }: { id: string }): ReactElement {
  const request = useResource(`request ${id}`, (signal) => api.request(id, signal));
  return <Link to={`/inbox/${encodeURIComponent(id)}`}>{request.data?.shown.title ?? id}</Link>;
}
