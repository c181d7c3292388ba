import { useState, type ReactElement } from "react";
import { api } from "../shared/api";
import { Button } from "../shared/components/Button";
import { Icon } from "../shared/components/Icon";
import { EmptyState, LoadError, Skeleton } from "../shared/components/States";
import { actorName, eventLabel, eventReason } from "../shared/eventLabels";
import { usePagedList } from "../shared/usePagedList";
import { Link } from "../shared/router";
import { exact } from "../shared/format";
import type { AuditRow } from "../shared/types";
import { visible } from "../shared/visible";

const PAGE = 100;

/** All events, newest first, each with the hash that chains it to the previous one. */
export function Events(): ReactElement {
  const pages = usePagedList<AuditRow>(
    "audit",
    (row) => row.cursor,
    (after, signal) => api.audit({ order: "newest", after, limit: PAGE }, signal),
  );
  if (pages.error && pages.items.length === 0) return <LoadError what="the audit log" error={pages.error} retry={pages.reload} />;
  if (pages.loading) return <Skeleton rows={8} label="Loading the audit log" />;
  if (pages.items.length === 0) return <EmptyState icon="shield" title="No events yet" />;
  return (
    <>
      <p className="muted small events-note">Newest first. Open an event to see its details.</p>
      <ol className="card events" data-testid="events">
        {pages.items.map((row) => (
          <EventRow key={row.cursor} row={row} />
        ))}
      </ol>
      <div className="more">
        {pages.more ? (
          <Button onClick={pages.loadMore} disabled={pages.busy}>
            {pages.busy ? "Loading…" : "Show older events"}
          </Button>
        ) : (
          <Button tone="ghost" onClick={pages.reload}>
            No more events. Refresh
          </Button>
        )}
      </div>
    </>
  );
}

function EventRow({ row }: { row: AuditRow }): ReactElement {
  const [open, setOpen] = useState(false);
  const label = eventLabel(row.type, row.body);
  const reason = eventReason(row.body);
  return (
    <li className="event">
      <button type="button" className="event-head" aria-expanded={open} onClick={() => setOpen(!open)}>
        <span className={`event-icon event-${label.tone}`}>
          <Icon name={label.icon} size={14} />
        </span>
        <span className="event-text">
          <strong>{actorName(row.actor)}</strong> {label.text}
          {row.tool && <code className="event-tool">{visible(row.tool)}</code>}
          {row.request && <code className="event-request">{visible(row.request)}</code>}
          {reason && <span className="muted">: {reason}</span>}
        </span>
        <time className="event-time" dateTime={row.at}>
          {exact(row.at)}
        </time>
        <code className="event-hash">{row.hash.split(".").at(-1)!.slice(0, 8)}</code>
      </button>
      {open && (
        <div className="event-body">
          <dl className="pairs">
            <dt>By</dt>
            <dd>
              <code className="wrap">{visible(row.actor)}</code>
            </dd>
            <dt>Thread</dt>
            <dd>
              <code className="wrap">{visible(row.thread)}</code> · event {row.seq}
            </dd>
            {row.run && (
              <>
                <dt>Run</dt>
                <dd>
                  <Link to={`/runs/${encodeURIComponent(row.run)}`}>
                    <code className="wrap">{visible(row.run)}</code>
                  </Link>
                </dd>
              </>
            )}
            {row.request && (
              <>
                <dt>Request</dt>
                <dd>
                  <Link to={`/inbox/${encodeURIComponent(row.request)}`}>
                    <code className="wrap">{visible(row.request)}</code>
                  </Link>
                </dd>
              </>
            )}
            <dt>Hash</dt>
            <dd>
              <code className="wrap">{row.hash}</code>
            </dd>
          </dl>
          {row.body === null ? (
            <p className="muted">This event's content has been pruned. Its hash remains.</p>
          ) : (
            <pre>{visible(JSON.stringify(row.body, null, 2))}</pre>
          )}
        </div>
      )}
    </li>
  );
}
