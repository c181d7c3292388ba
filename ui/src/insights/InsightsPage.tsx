import type { ReactElement, ReactNode } from "react";
import { api } from "../shared/api";
import { EmptyState, LoadError, Notice, Skeleton } from "../shared/components/States";
import { Age } from "../shared/components/Time";
import { useChanges } from "../shared/live";
import { useResource } from "../shared/useResource";
import { Link, useQuery } from "../shared/router";
import { thousands } from "../shared/format";
import type { Stats } from "../shared/types";
import { visible } from "../shared/visible";
import { formatDuration, percent } from "./figures";
import { BarPlot, DailyPlot, HatchPatterns, ToolsPlot } from "./plots";
import "./insights.css";

const RANGES = [7, 30, 90];
/** If a larger share of approvals takes less than three seconds, reviewers are probably not reading. */
const TOO_FAST = 0.25;
const MIN_APPROVALS = 8;

export default function InsightsPage(): ReactElement {
  const [query, setQuery] = useQuery();
  const wanted = Number(query.get("days"));
  const days = RANGES.includes(wanted) ? wanted : RANGES[0]!;
  const stats = useResource(`stats ${days}`, (signal) => api.stats(days, signal));
  useChanges(stats.reload, 2_000);
  return (
    <main className="page insights">
      <div className="page-head">
        <h1>Insights</h1>
        <div className="ranges" role="group" aria-label="Time range">
          {RANGES.map((range) => (
            <button
              key={range}
              type="button"
              aria-pressed={range === days}
              onClick={() => setQuery({ days: range === RANGES[0] ? null : String(range) })}
            >
              {range} days
            </button>
          ))}
        </div>
      </div>
      {stats.error && !stats.data ? (
        <LoadError what="statistics" error={stats.error} retry={stats.reload} />
      ) : stats.data ? (
        <Figures stats={stats.data} days={days} />
      ) : (
        <Skeleton rows={8} label="Loading statistics" />
      )}
    </main>
  );
}

function Figures({ stats, days }: { stats: Stats; days: number }): ReactElement {
  const { open, decided } = stats;
  const asked = stats.per_day.reduce((sum, day) => sum + day.asked, 0);
  if (asked === 0 && open.count === 0 && decided.count === 0) {
    return (
      <EmptyState icon="clock" title={`No requests in the last ${days} days`}>
        <p className="muted">Statistics appear here once there are requests.</p>
      </EmptyState>
    );
  }
  const approvals = stats.tools.reduce((sum, tool) => sum + tool.approved + tool.edited, 0);
  const fastShare = approvals ? decided.under_three_seconds / approvals : 0;
  return (
    <>
      {fastShare > TOO_FAST && approvals >= MIN_APPROVALS && (
        <Notice tone="warn" title={`${percent(fastShare, 1)} of approvals took less than 3 seconds`}>
          <p>Reviewers may not be reading the requests. Consider allowing calls that are always approved, or requiring more than one approval.</p>
        </Notice>
      )}
      <dl className="tiles">
        <Tile name="Open now" value={thousands(open.count)}>
          {open.oldest_at ? (
            <>
              oldest <Age at={open.oldest_at} />
            </>
          ) : (
            "no open requests"
          )}
        </Tile>
        <Tile name="Decided" value={decided.count}>
          of {asked} asked
        </Tile>
        <Tile name="Median time" value={formatDuration(decided.median_seconds)}>
          from opening to a decision
        </Tile>
        <Tile name="95th percentile" value={formatDuration(decided.p95_seconds)}>
          1 in 20 took longer
        </Tile>
        <Tile name="Approved in under 3 s" value={decided.under_three_seconds} tone={fastShare > TOO_FAST && approvals >= MIN_APPROVALS ? "warn" : undefined}>
          of opening, {percent(decided.under_three_seconds, approvals)} of approvals
        </Tile>
        <Tile name="Expired" value={decided.expired} tone={decided.expired > 0 ? "warn" : undefined}>
          without a decision
        </Tile>
      </dl>
      <HatchPatterns />
      <div className="plots">
        <BarPlot title="Time to decision" unit="decisions" data={stats.histogram} />
        <DailyPlot days={stats.per_day} />
        {stats.tools.length > 0 && <ToolsPlot tools={stats.tools} />}
        <div className="plots-column">
          <BarPlot title="Open by age" unit="requests" data={open.by_age} mark="bar-open" />
          <Reviewers rows={stats.reviewers} />
        </div>
      </div>
    </>
  );
}

function Tile({ name, value, tone, children }: { name: string; value: ReactNode; tone?: "warn"; children: ReactNode }): ReactElement {
  return (
    <div className="card tile" data-tone={tone}>
      <dt>{name}</dt>
      <dd>
        <span className="tile-value">{value}</span>
        <span className="tile-note">{children}</span>
      </dd>
    </div>
  );
}

function Reviewers({ rows }: { rows: Stats["reviewers"] }): ReactElement {
  return (
    <section className="card plot">
      <div className="plot-head">
        <h2 id="reviewers">Reviewers</h2>
        <Link to="/history" className="small">
          All decisions
        </Link>
      </div>
      {rows.length === 0 ? (
        <p className="muted plot-note">No decisions in this period.</p>
      ) : (
        <div className="plot-table" role="region" aria-labelledby="reviewers" tabIndex={0}>
          <table className="table">
            <thead>
              <tr>
                <th scope="col">Reviewer</th>
                <th scope="col" className="number">
                  Decisions
                </th>
                <th scope="col" className="number">
                  Median
                </th>
                <th scope="col" className="number">
                  Approved in &lt; 3 s
                </th>
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <tr key={row.name}>
                  <th scope="row" className="cell-head">
                    {visible(row.name)}
                  </th>
                  <td className="number">{row.count}</td>
                  <td className="number">{formatDuration(row.median_seconds)}</td>
                  <td className="number">{row.under_three}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
