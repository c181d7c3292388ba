/** Lists grants and refusals; revokes the former and lifts the latter. */

import { useEffect, useState, type ReactElement } from "react";
import { ApiError, api } from "../shared/api";
import { Button } from "../shared/components/Button";
import { Dialog } from "../shared/components/Dialog";
import { EmptyState, LoadError, Skeleton } from "../shared/components/States";
import { Age } from "../shared/components/Time";
import { toast } from "../shared/components/Toasts";
import { scopeLines } from "../shared/decision/grant";
import { humanName } from "../shared/decision/values";
import { useChanges, useOffline } from "../shared/live";
import { useMe } from "../shared/session";
import { useResource } from "../shared/useResource";
import { setQuery, useQuery } from "../shared/router";
import { exact, long, useNow } from "../shared/format";
import type { Budget, Grant } from "../shared/types";
import { visible } from "../shared/visible";
import { PolicyReplay } from "./PolicyReplay";
import { Refusals } from "./Refusals";

function endOf(grant: Grant, now: number): string {
  if (grant.revoked_at) return "revoked";
  if (grant.uses_left === 0) return "used up";
  if (!grant.ends_at) return "never";
  const left = (Date.parse(grant.ends_at) - now) / 1_000;
  return left <= 0 ? "ended" : `in ${long(left)}`;
}

/** A limit, and how much of it is used. */
function Meter({ budget }: { budget: Budget }): ReactElement {
  return (
    <div className="budget" data-testid="budget">
      <meter
        aria-label={visible(budget.limit)}
        min={0}
        max={budget.most}
        high={budget.most * 0.8}
        optimum={0}
        value={budget.used}
      />
      <span className="muted small">
        {budget.used} of {visible(budget.limit)}
        {budget.frees_at && budget.used >= budget.most ? `; frees from ${exact(budget.frees_at)}` : ""}
      </span>
    </div>
  );
}

function Row({ grant, onRevoke }: { grant: Grant; onRevoke: () => void }): ReactElement {
  const now = useNow(10);
  const offline = useOffline();
  return (
    <tr className={grant.live ? undefined : "muted"} data-testid="grant">
      <td className="what">
        {humanName(grant.tool)} <code className="muted small">{visible(grant.tool)}</code>
        <div className="muted small">{visible(grant.agent)}</div>
      </td>
      <td className="mono small wrap what">
        {scopeLines(grant).join("\n")}
        {grant.budgets.map((budget) => (
          <Meter key={budget.limit} budget={budget} />
        ))}
      </td>
      <td className="nowrap" data-label="Uses left">
        {grant.uses_left === null ? "unlimited" : grant.uses_left}
      </td>
      <td className="nowrap" data-label="Ends">
        {grant.ends_at ? (
          <time dateTime={grant.ends_at} title={exact(grant.ends_at)}>
            {endOf(grant, now)}
          </time>
        ) : (
          endOf(grant, now)
        )}
      </td>
      <td data-label="Granted by">
        {visible(grant.by)}
        <div className="muted small">
          <Age at={grant.created_at} />
        </div>
      </td>
      <td>
        {grant.live && (
          <Button
            small
            tone="danger"
            disabled={offline !== ""}
            aria-label={`Revoke ${grant.tool} ${grant.id}`}
            onClick={onRevoke}
          >
            Revoke
          </Button>
        )}
      </td>
    </tr>
  );
}

export default function GrantsPage(): ReactElement {
  const [query] = useQuery();
  const me = useMe();
  const all = query.get("all") !== null;
  const grants = useResource(`grants ${all}`, (signal) => api.grants(all, signal));
  const [asking, setAsking] = useState<Grant | null>(null);
  useChanges(() => grants.reload(), 400);
  useEffect(() => {
    document.title = "Grants and refusals · Sayso";
  }, []);
  const revoke = async (grant: Grant) => {
    setAsking(null);
    try {
      await api.revoke(grant.id);
      toast(`Revoked: ${grant.tool} now needs approval again`, "good");
    } catch (error) {
      toast(error instanceof ApiError ? error.message : String(error), "bad");
    }
    grants.reload();
  };
  const items = grants.data?.items;
  return (
    <main className="page">
      <div className="page-head">
        <div>
          <h1>Grants</h1>
          <p className="muted">
            Calls within these scopes run without approval until the grant ends or is revoked.
          </p>
        </div>
        <label className="check">
          <input
            type="checkbox"
            checked={all}
            onChange={(event) => setQuery({ all: event.target.checked ? "1" : null })}
          />
          Show ended ones
        </label>
      </div>
      {grants.error && <LoadError what="grants" error={grants.error} retry={grants.reload} />}
      {grants.loading && <Skeleton />}
      {items && items.length === 0 && (
        <EmptyState icon="key" title="No grants">
          <p className="muted">To create one, choose “Always allow…” next to Approve on a request.</p>
        </EmptyState>
      )}
      {items && items.length > 0 && (
        <div className="card scroll-x" role="region" aria-label="Grants" tabIndex={0}>
          <table className="table stacked">
            <thead>
              <tr>
                <th scope="col">Tool and agent</th>
                <th scope="col">Scope</th>
                <th scope="col">Uses left</th>
                <th scope="col">Ends</th>
                <th scope="col">Granted by</th>
                <th scope="col">
                  <span className="sr-only">Revoke</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {items.map((grant) => (
                <Row key={grant.id} grant={grant} onRevoke={() => setAsking(grant)} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {grants.data && grants.data.budgets.length > 0 && (
        <section className="card budgets" aria-label="Limits of rules">
          <h2>Limits of rules</h2>
          {grants.data.budgets.map((budget) => (
            <div key={`${budget.tools} ${budget.limit}`}>
              <span className="mono small">{visible(budget.tools)}</span>
              <Meter budget={budget} />
            </div>
          ))}
        </section>
      )}
      <Refusals all={all} />
      {me.role === "admin" && <PolicyReplay />}
      {asking && (
        <Dialog title="Revoke this grant?" onClose={() => setAsking(null)}>
          <p>
            The next call of <span className="mono">{visible(asking.tool)}</span> by {visible(asking.agent)} will need
            approval again.
          </p>
          <div className="dialog-actions">
            <Button onClick={() => setAsking(null)}>Keep grant</Button>
            <Button tone="danger" onClick={() => void revoke(asking)}>
              Revoke grant
            </Button>
          </div>
        </Dialog>
      )}
    </main>
  );
}
