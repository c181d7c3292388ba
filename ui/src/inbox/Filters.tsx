import type { ReactElement } from "react";
import { api } from "../shared/api";
import { Icon } from "../shared/components/Icon";
import { useResource } from "../shared/resource";
import { setQuery } from "../shared/router";
import { visible } from "../shared/visible";
import { SORTS, type Sort } from "./order";

const RISKS = [
  ["low", "Low"],
  ["medium", "Medium"],
  ["high", "High"],
  ["critical", "Critical"],
] as const;
const KINDS = [
  ["approval", "Approval"],
  ["question", "Question"],
  ["in_doubt", "In doubt"],
] as const;

export const FILTERS = ["q", "mine", "risk", "agent", "tool", "kind", "expiring"] as const;

function Toggle({ name, label, on }: { name: string; label: string; on: boolean }): ReactElement {
  return (
    <button
      type="button"
      className="filter-chip"
      aria-pressed={on}
      onClick={() => setQuery({ [name]: on ? null : "1" })}
    >
      {label}
    </button>
  );
}

function Choice(props: {
  name: string;
  label: string;
  value: string;
  options: readonly (readonly [string, string])[];
}): ReactElement {
  const { name, label, value, options } = props;
  const known = options.some(([key]) => key === value);
  const word = options.find(([key]) => key === value)?.[1] ?? visible(value);
  return (
    <span className={`filter-chip filter-select${value ? " filter-on" : ""}`}>
      <span aria-hidden="true">{value ? word : label}</span>
      <Icon name="chevronDown" size={12} />
      <select aria-label={label} value={value} onChange={(event) => setQuery({ [name]: event.target.value || null })}>
        <option value="">{`${label}: any`}</option>
        {!known && value && <option value={value}>{visible(value)}</option>}
        {options.map(([key, text]) => (
          <option key={key} value={key}>
            {text}
          </option>
        ))}
      </select>
    </span>
  );
}

interface Props {
  query: URLSearchParams;
  sort: Sort;
  /** Agents and tools of the rows: remote agents are not in the server's own list. */
  seen: { agents: string[]; tools: string[] };
}

export function Filters({ query, sort, seen }: Props): ReactElement {
  const agents = useResource("agents", api.agents);
  const names = (all: string[]): [string, string][] => [...new Set(all)].sort().map((name) => [name, visible(name)]);
  const known = agents.data?.items ?? [];
  const agentNames = names([...known.map((agent) => agent.name), ...seen.agents]);
  const toolNames = names([
    ...known.flatMap((agent) => agent.tools.filter((tool) => tool.needs_approval !== "never").map((tool) => tool.name)),
    ...seen.tools,
  ]);
  const value = (name: string) => query.get(name) ?? "";
  const active = FILTERS.some((name) => value(name) !== "");
  return (
    <div className="inbox-filters" role="group" aria-label="Filters">
      <Toggle name="mine" label="Mine" on={value("mine") !== ""} />
      <Choice name="risk" label="Risk" value={value("risk")} options={RISKS} />
      <Choice name="agent" label="Agent" value={value("agent")} options={agentNames} />
      <Choice name="tool" label="Tool" value={value("tool")} options={toolNames} />
      <Choice name="kind" label="Kind" value={value("kind")} options={KINDS} />
      <Toggle name="expiring" label="Expiring" on={value("expiring") !== ""} />
      {active && (
        <button type="button" className="link" onClick={clearFilters}>
          Clear
        </button>
      )}
      <span className="filter-select sort-select">
        <Icon name="filter" size={14} />
        <span aria-hidden="true">{SORTS.find(({ key }) => key === sort)!.label}</span>
        <select
          aria-label="Sort"
          value={sort}
          onChange={(event) => setQuery({ sort: event.target.value === "expiring" ? null : event.target.value })}
        >
          {SORTS.map(({ key, label }) => (
            <option key={key} value={key}>
              {label}
            </option>
          ))}
        </select>
      </span>
    </div>
  );
}

export function clearFilters(): void {
  setQuery(Object.fromEntries(FILTERS.map((name) => [name, null])));
}
