/** Your account: where you are signed in, and your passkeys. */

import { useState, type ReactElement } from "react";
import { api } from "../shared/api";
import { FormDialog } from "../people/FormDialog";
import { OwnSessions } from "../people/OwnSessions";
import { useAction } from "../people/useAction";
import { Button } from "../shared/components/Button";
import { EmptyState, LoadError, Skeleton } from "../shared/components/States";
import { Age } from "../shared/components/Time";
import { toast } from "../shared/components/Toasts";
import { createPasskey } from "../shared/passkey";
import { useMe } from "../shared/session";
import type { Passkey } from "../shared/types";
import { useResource } from "../shared/useResource";
import { visible } from "../shared/visible";

function Row({ passkey, onRemove }: { passkey: Passkey; onRemove: () => void }): ReactElement {
  return (
    <tr data-testid="passkey">
      <td className="what">{visible(passkey.device)}</td>
      <td className="mono small wrap what" data-label="Fingerprint">
        {passkey.fingerprint}
      </td>
      <td data-label="Added">
        <Age at={passkey.created_at} />
      </td>
      <td data-label="Last used">
        <Age at={passkey.last_used_at} />
      </td>
      <td className="people-act">
        <Button small tone="danger" aria-label={`Remove passkey ${passkey.device}`} onClick={onRemove}>
          Remove
        </Button>
      </td>
    </tr>
  );
}

export default function AccountPage(): ReactElement {
  const me = useMe();
  const ways = useResource("sign-ins", api.signIns).data;
  const passkeys = useResource("passkeys", api.passkeys);
  const [name, setName] = useState("");
  const adding = useAction();
  const [removing, setRemoving] = useState<Passkey | null>(null);
  const add = async () => {
    await api.addPasskey(await createPasskey(await api.newPasskey()), name.trim());
    toast("Passkey added", "good");
    setName("");
    passkeys.reload();
  };
  const items = passkeys.data?.items ?? [];
  return (
    <main className="page people">
      <div className="page-head">
        <h1>Your account</h1>
      </div>
      <p className="muted account-who">
        Signed in as <strong>{me.name}</strong>, {me.role}
        {me.groups.length > 0 && `, in ${me.groups.join(", ")}`}.
      </p>
      <OwnSessions />
      <h2>Passkeys</h2>
      <p className="muted">
        Sign in without a token, and confirm decisions whose rule asks for a passkey. A proof of such a decision names
        the fingerprint.
      </p>
      {passkeys.error && <LoadError what="your passkeys" error={passkeys.error} retry={passkeys.reload} />}
      {!passkeys.data && !passkeys.error && <Skeleton rows={2} />}
      {passkeys.data && items.length === 0 && <EmptyState icon="key" title="You have no passkey yet" />}
      {items.length > 0 && (
        <div className="card scroll-x" role="region" aria-label="Passkeys" tabIndex={0}>
          <table className="table stacked">
            <thead>
              <tr>
                <th scope="col">Device</th>
                <th scope="col">Fingerprint</th>
                <th scope="col">Added</th>
                <th scope="col">Last used</th>
                <th scope="col">
                  <span className="sr-only">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {items.map((passkey) => (
                <Row
                  key={passkey.id}
                  passkey={passkey}
                  onRemove={() => setRemoving(passkey)}
                />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {ways && !ways.passkeys && (
        <p className="muted">
          This server takes no passkeys. Its operator installs <code>sayso[passkeys]</code> to change that.
        </p>
      )}
      {ways?.passkeys && (
        <form
          className="account-add"
          onSubmit={(event) => {
            event.preventDefault();
            void adding.run(add);
          }}
        >
          <label className="field">
            <span className="field-label">Name of this device</span>
            <input value={name} maxLength={100} placeholder="My phone" onChange={(event) => setName(event.target.value)} />
          </label>
          <Button type="submit" tone="primary" disabled={adding.busy}>
            Add a passkey
          </Button>
          {adding.error && (
            <p className="field-error" role="alert">
              {adding.error}
            </p>
          )}
        </form>
      )}
      {removing && (
        <FormDialog
          title="Remove this passkey?"
          verb="Remove passkey"
          danger
          keep="Keep"
          send={async () => {
            await api.removePasskey(removing.id);
            toast("Passkey removed", "good");
            passkeys.reload();
            setRemoving(null);
          }}
          onClose={() => setRemoving(null)}
        >
          <p className="wrap">
            You can no longer sign in or confirm decisions with <strong>{visible(removing.device)}</strong>, and the
            sessions that it opened end. Proofs of earlier decisions stay valid.
          </p>
        </FormDialog>
      )}
    </main>
  );
}
