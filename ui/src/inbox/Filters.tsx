import type { ReactElement } from "react";
import { IconButton } from "../shared/components/Button";
import { Icon } from "../shared/components/Icon";
import { thousands } from "../shared/format";
import { setQuery } from "../shared/router";
import type { FilterValues } from "../shared/types";
import { FILTERS } from "../shared/views";
import { visible } from "../shared/visible";
import { SORTS, type Sort } from "./order";

const RISKS = { low: "Low", medium: "Medium", high: "High", critical: "Critical" };
const KINDS = { approval: "Approval", question: "Question", in_doubt: "In doubt" };

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

interface FilterOption {
  value: string;
  label: string;
  count: number;
}

function Choice({ name, label, value, options }: {
  name: string;
  label: string;
  value: string;
  options: FilterOption[];
}): ReactElement {
  const chosen = options.find((option) => option.value === value);
  return (
    <span className={`filter-chip filter-select${value ? " filter-on" : ""}`}>
      <span aria-hidden="true">{value ? (chosen?.label ?? visible(value)) : label}</span>
      <Icon name="chevronDown" size={12} />
      <select aria-label={label} value={value} onChange={(event) => setQuery({ [name]: event.target.value || null })}>
        <option value="">{`${label}: any`}</option>
        {!chosen && value && <option value={value}>{visible(value)}</option>}
        {options.map((option) => (
          <option key={option.value} value={option.value}>
            {`${option.label} (${thousands(option.count)})`}
          </option>
        ))}
      </select>
    </span>
  );
}

interface Props {
  query: URLSearchParams;
  sort: Sort;
  /** The available values with their counts, from the server. */
  values: FilterValues | undefined;
}

export function Filters({ query, sort, values }: Props): ReactElement {
  const counted = (name: keyof FilterValues, labels: Record<string, string> = {}): FilterOption[] =>
    (values?.[name] ?? []).map(({ value, count }) => ({ value, label: labels[value] ?? visible(value), count }));
  // A filter with a single value is hidden unless it is set.
  const several = (name: keyof FilterValues) => value(name) !== "" || (values?.[name].length ?? 2) > 1;
  const value = (name: string) => query.get(name) ?? "";
  const active = FILTERS.some((name) => value(name) !== "");
  return (
    <div className="inbox-filters">
      <div className="filter-chips" role="group" aria-label="Filters">
      <Toggle name="mine" label="Mine" on={value("mine") !== ""} />
      <Choice name="risk" label="Risk" value={value("risk")} options={counted("risk", RISKS)} />
      {several("agent") && (
        <Choice name="agent" label="Agent" value={value("agent")} options={counted("agent")} />
      )}
      <Choice name="tool" label="Tool" value={value("tool")} options={counted("tool")} />
      <Choice name="kind" label="Kind" value={value("kind")} options={counted("kind", KINDS)} />
      <Toggle name="expiring" label="Soon" on={value("expiring") !== ""} />
      </div>
      {active && <IconButton icon="cross" label="Clear filters" onClick={clearFilters} />}
      <span className="filter-select sort-select" title={SORTS.find(({ key }) => key === sort)!.label}>
        <Icon name="filter" size={16} />
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
