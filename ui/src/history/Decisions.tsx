import type { ReactElement } from "react";
import { api, withQuery } from "../shared/api";
import { StatusBadge, Tag } from "../shared/components/Badge";
import { Button } from "../shared/components/Button";
import { PagedTable } from "../shared/components/PagedTable";
import { EmptyState } from "../shared/components/States";
import { Age } from "../shared/components/Time";
import { useChanges } from "../shared/live";
import { usePagedList } from "../shared/usePagedList";
import { Link, useQuery } from "../shared/router";
import type { Request } from "../shared/types";
import { visible } from "../shared/visible";
import { FILTERS, Filters, OUTCOMES } from "./Filters";

/** Closed requests, newest first. */
export function Decisions(): ReactElement {
  const [query, setQuery] = useQuery();
  const filters = Object.fromEntries(FILTERS.map((name) => [name, query.get(name)]));
  const status = OUTCOMES.some(({ value }) => value === filters.status) ? filters.status : "closed";
  const wanted = { ...filters, status, sort: "newest", limit: 50 };
  const pages = usePagedList<Request>(
    withQuery("", wanted),
    (request) => request.id,
    (after, signal) => api.requests({ ...wanted, after }, signal),
  );
  useChanges(pages.reload, 800);
  const filtered = FILTERS.some((name) => query.get(name));
  const clear = () => setQuery(Object.fromEntries(FILTERS.map((name) => [name, null])));
  return (
    <>
      <Filters />
      <PagedTable
        what="history"
        pages={pages}
        heads={["Request", "Outcome", "By", "Channel", "Assurance", "Asked"]}
        testid="history"
        empty={
          filtered ? (
            <EmptyState icon="filter" title="No requests match these filters">
              <Button onClick={clear}>Clear filters</Button>
            </EmptyState>
          ) : (
            <EmptyState icon="inbox" title="No decisions yet">
              <p className="muted">
                Pending requests are in the <Link to="/inbox">inbox</Link>.
              </p>
            </EmptyState>
          )
        }
        row={(request) => <Row key={request.id} request={request} />}
      />
    </>
  );
}

function Row({ request }: { request: Request }): ReactElement {
  const { decision } = request;
  return (
    <tr data-testid="history-row">
      <td className="what">
        <Link to={`/inbox/${encodeURIComponent(request.id)}`} className="what-link">
          {request.shown.title}
        </Link>
        <span className="muted small what-agent">
          {request.tool && request.kind !== "question" && <code>{visible(request.tool)}</code>} {visible(request.agent)}
        </span>
      </td>
      <td>
        <StatusBadge status={request.status} />
        {decision?.message && <p className="message-line wrap">{visible(decision.message)}</p>}
      </td>
      <td className="wrap who" data-label="By">
        {decision ? visible(decision.by) : <span className="muted">–</span>}
      </td>
      <td data-label="Channel">{decision ? visible(decision.channel) : <span className="muted">–</span>}</td>
      <td data-label="Assurance">{decision ? <Tag>{visible(decision.assurance)}</Tag> : <span className="muted">–</span>}</td>
      <td className="nowrap muted" data-label="Asked">
        <Age at={request.created_at} />
      </td>
    </tr>
  );
}
