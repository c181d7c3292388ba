/** Lists refusals, and lifts them. */

import { useState, type ReactElement } from "react";
import { ApiError, api } from "../shared/api";
import { Button } from "../shared/components/Button";
import { Dialog } from "../shared/components/Dialog";
import { EmptyState, LoadError, Skeleton } from "../shared/components/States";
import { Age } from "../shared/components/Time";
import { toast } from "../shared/components/Toasts";
import { humanName } from "../shared/decision/values";
import { useChanges, useOffline } from "../shared/live";
import { Link } from "../shared/router";
import { useResource } from "../shared/useResource";
import type { Refusal } from "../shared/types";
import { visible } from "../shared/visible";

function Row({ refusal, onLift }: { refusal: Refusal; onLift: () => void }): ReactElement {
  const offline = useOffline();
  return (
    <tr className={refusal.lifted_at ? "muted" : undefined} data-testid="refusal">
      <td className="what">
        <Link to={`/inbox/${refusal.request}`}>
          {humanName(refusal.tool)} <code className="small">{visible(refusal.tool)}</code>
        </Link>
        <div className="muted small">{visible(refusal.agent)}</div>
      </td>
      <td className="wrap" data-label="Reason">
        {refusal.message ? visible(refusal.message) : <span className="muted">none</span>}
      </td>
      <td data-label="Rejected by">
        {visible(refusal.by)}
        <div className="muted small">
          <Age at={refusal.at} />
        </div>
      </td>
      <td>
        {refusal.lifted_at ? (
          <span className="small">
            lifted by {visible(refusal.lifted_by ?? "")} <Age at={refusal.lifted_at} />
          </span>
        ) : (
          <Button small disabled={offline !== ""} aria-label={`Lift ${refusal.tool} ${refusal.id}`} onClick={onLift}>
            Lift
          </Button>
        )}
      </td>
    </tr>
  );
}

export function Refusals({ all }: { all: boolean }): ReactElement {
  const refusals = useResource(`refusals ${all}`, (signal) => api.refusals(all, signal));
  const [asking, setAsking] = useState<Refusal | null>(null);
  useChanges(() => refusals.reload(), 400);
  const lift = async (refusal: Refusal) => {
    setAsking(null);
    try {
      await api.lift(refusal.id);
      toast(`Lifted: people are asked about ${refusal.tool} again`, "good");
    } catch (error) {
      toast(error instanceof ApiError ? error.message : String(error), "bad");
    }
    refusals.reload();
  };
  const items = refusals.data?.items;
  return (
    <section aria-label="Refusals">
      <div className="page-head">
        <div>
          <h2>Refusals</h2>
          <p className="muted">Equal calls are rejected again, without asking, until the user writes something new. After that, people see
            the rejection before they decide.</p>
        </div>
      </div>
      {refusals.error && <LoadError what="refusals" error={refusals.error} retry={refusals.reload} />}
      {refusals.loading && <Skeleton />}
      {items && items.length === 0 && (
        <EmptyState icon="cross" title="No refusals">
          <p className="muted">A rejected call is listed here.</p>
        </EmptyState>
      )}
      {items && items.length > 0 && (
        <div className="card scroll-x" role="region" aria-label="Refusals" tabIndex={0}>
          <table className="table stacked">
            <thead>
              <tr>
                <th scope="col">Tool and agent</th>
                <th scope="col">Reason</th>
                <th scope="col">Rejected by</th>
                <th scope="col">
                  <span className="sr-only">Lift</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {items.map((refusal) => (
                <Row key={refusal.id} refusal={refusal} onLift={() => setAsking(refusal)} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {asking && (
        <Dialog title="Lift this refusal?" onClose={() => setAsking(null)}>
          <p>
            The next equal call of <span className="mono">{visible(asking.tool)}</span> by {visible(asking.agent)} is
            decided by the policy and by people again. Nothing runs now.
          </p>
          <div className="dialog-actions">
            <Button onClick={() => setAsking(null)}>Keep refusal</Button>
            <Button tone="primary" onClick={() => void lift(asking)}>
              Lift refusal
            </Button>
          </div>
        </Dialog>
      )}
    </section>
  );
}
