import type { ReactElement } from "react";
import { api, withQuery } from "../shared/api";
import { Button } from "../shared/components/Button";
import { PagedTable } from "../shared/components/PagedTable";
import { Select } from "../shared/components/Select";
import { EmptyState } from "../shared/components/States";
import { Age } from "../shared/components/Time";
import { useChanges } from "../shared/live";
import { usePagedList } from "../shared/usePagedList";
import { useResource } from "../shared/useResource";
import { Link, useQuery } from "../shared/router";
import type { Run } from "../shared/types";
import { visible } from "../shared/visible";
import { outputText } from "./output";
import { titleOf } from "./RunDetail";
import { RunStatus, STATUSES } from "./RunStatus";

/** All runs, newest first. */
export function RunList(): ReactElement {
  const [query, setQuery] = useQuery();
  const status = STATUSES.some(({ value }) => value === query.get("status")) ? query.get("status") : null;
  const wanted = { status, agent: query.get("agent"), thread: query.get("thread"), limit: 50 };
  const pages = usePagedList<Run>(
    withQuery("", wanted),
    (run) => run.id,
    (after, signal) => api.runs({ ...wanted, after }, signal),
  );
  useChanges(pages.reload, 800);
  const agents = useResource("agents", api.agents).data?.items ?? [];
  const clear = () => setQuery({ status: null, agent: null, thread: null });
  return (
    <main className="page runs">
      <div className="page-head">
        <h1>Runs</h1>
        <div className="filters runs-filters" role="group" aria-label="Filters">
          <Select label="Status" all="Any status" value={status} options={STATUSES} onChange={(value) => setQuery({ status: value || null })} />
          {agents.length > 1 && (
            <Select
              label="Agent"
              all="Any agent"
              value={wanted.agent}
              options={agents.map(({ name }) => ({ value: name, label: name }))}
              onChange={(value) => setQuery({ agent: value || null })}
            />
          )}
          {wanted.thread && (
            <Button small icon="cross" onClick={() => setQuery({ thread: null })}>
              One thread only
            </Button>
          )}
        </div>
      </div>
      <PagedTable
        what="runs"
        pages={pages}
        heads={["Run", "Status", "Agent", "Requester", "Started"]}
        testid="runs"
        empty={
          wanted.status || wanted.agent || wanted.thread ? (
            <EmptyState icon="filter" title="No runs match these filters">
              <Button onClick={clear}>Clear filters</Button>
            </EmptyState>
          ) : (
            <EmptyState icon="play" title="No runs yet">
              <p className="muted">
                A run starts when an agent gets a task, for example in the <Link to="/chat">chat</Link>.
              </p>
            </EmptyState>
          )
        }
        row={(run) => <Row key={run.id} run={run} />}
      />
    </main>
  );
}

function Row({ run }: { run: Run }): ReactElement {
  return (
    <tr data-testid="run-row">
      <td className="what">
        <Link to={`/runs/${encodeURIComponent(run.id)}`} className="what-link">
          {titleOf(run)}
        </Link>
        <span className="what-summary">{summaryOf(run)}</span>
      </td>
      <td>
        <span className="through">
          <RunStatus run={run} />
          {run.open > 0 && <span className="badge tone-wait">{run.open === 1 ? "1 open" : `${run.open} open`}</span>}
        </span>
      </td>
      <td className="wrap" data-label="Agent">
        {visible(run.agent)}
      </td>
      <td className="wrap" data-label="Requester">
        {run.requester ? visible(run.requester) : <span className="muted">–</span>}
      </td>
      <td className="nowrap muted" data-label="Started">
        <Age at={run.created_at} />
      </td>
    </tr>
  );
}

/** The output or stop reason of a run. */
function summaryOf(run: Run): string {
  return outputText(run.output) || visible(run.stop ?? "");
}
