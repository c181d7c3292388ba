import type { ReactElement } from "react";
import { api } from "../shared/api";
import { SearchField } from "../shared/components/SearchField";
import { Select } from "../shared/components/Select";
import { useResource } from "../shared/useResource";
import { useQuery } from "../shared/router";

export const FILTERS = ["status", "kind", "agent", "tool", "q"] as const;

export const OUTCOMES = [
  { value: "approved", label: "Approved" },
  { value: "edited", label: "Edited and approved" },
  { value: "rejected", label: "Rejected" },
  { value: "responded", label: "Answered" },
  { value: "expired", label: "Expired" },
  { value: "cancelled", label: "Cancelled" },
  { value: "superseded", label: "Superseded" },
];

const KINDS = [
  { value: "approval", label: "Approvals" },
  { value: "question", label: "Questions" },
];

/** The filters are kept in the URL, so that a view can be shared as a link. */
export function Filters(): ReactElement {
  const [query, setQuery] = useQuery();
  const agents = useResource("agents", api.agents).data?.items ?? [];
  const tools = [...new Set(agents.flatMap((agent) => agent.tools.map((tool) => tool.name)))].sort();
  const set = (name: string) => (value: string) => setQuery({ [name]: value || null });
  const named = (values: string[]) => values.map((value) => ({ value, label: value }));
  return (
    <div className="filters" role="group" aria-label="Filters">
      <SearchField label="Search tool, agent, description or ID" placeholder="Search text or ID" />
      <Select label="Outcome" all="Any outcome" value={query.get("status")} options={OUTCOMES} onChange={set("status")} />
      <Select label="Kind" all="Any kind" value={query.get("kind")} options={KINDS} onChange={set("kind")} />
      {agents.length > 1 && (
        <Select label="Agent" all="Any agent" value={query.get("agent")} options={named(agents.map(({ name }) => name))} onChange={set("agent")} />
      )}
      <Select label="Tool" all="Any tool" value={query.get("tool")} options={named(tools)} onChange={set("tool")} />
    </div>
  );
}
