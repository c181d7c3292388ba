import { useState, type KeyboardEvent, type ReactElement } from "react";
import { Button } from "../shared/components/Button";
import { Icon } from "../shared/components/Icon";
import { RiskBadge } from "../shared/components/Badge";
import { title } from "../shared/decision/values";
import type { Request } from "../shared/types";
import { riskRank } from "../shared/decision/guard";
import type { Group } from "./order";
import { Row } from "./Row";

/** Up to this many like requests stand open; more are folded into one row. */
const OPEN = 4;

interface Props {
  groups: Group[];
  current: string | undefined;
  search: string;
  folded: (key: string, size: number) => boolean;
  onFold: (key: string, folded: boolean) => void;
  onBulk: (requests: Request[]) => void;
  onKeyDown: (event: KeyboardEvent) => void;
}

/** Which groups are folded: as people left them, else by their size. */
export function useFolding(): [Props["folded"], Props["onFold"]] {
  const [chosen, setChosen] = useState<Record<string, boolean>>({});
  return [(key, size) => chosen[key] ?? size > OPEN, (key, folded) => setChosen((old) => ({ ...old, [key]: folded }))];
}

export function List({ groups, current, search, folded, onFold, onBulk, onKeyDown }: Props): ReactElement {
  const [focused, setFocused] = useState<string | undefined>(undefined);
  const ids = groups.flatMap((group) =>
    group.requests.length > 1 && folded(group.key, group.requests.length)
      ? []
      : group.requests.map((request) => request.id),
  );
  const reachable = [focused, current].find((id) => id !== undefined && ids.includes(id)) ?? ids[0];
  const row = (request: Request) => (
    <Row
      key={request.id}
      request={request}
      to={`/inbox/${request.id}${search}`}
      current={request.id === current}
      reachable={request.id === reachable}
      onFocus={() => setFocused(request.id)}
    />
  );
  return (
    <ul className="rows" aria-label="Requests" onKeyDown={onKeyDown}>
      {groups.map((group) => {
        if (group.requests.length === 1) return row(group.requests[0]!);
        const shut = folded(group.key, group.requests.length);
        return (
          <li key={group.key} className="group-item">
            <GroupHead group={group} shut={shut} onFold={onFold} onBulk={onBulk} />
            {!shut && (
              <ul className="rows" aria-label={`${title(group.requests[0]!)} requests`}>
                {group.requests.map(row)}
              </ul>
            )}
          </li>
        );
      })}
    </ul>
  );
}

function GroupHead(props: {
  group: Group;
  shut: boolean;
  onFold: Props["onFold"];
  onBulk: Props["onBulk"];
}): ReactElement {
  const { group, shut } = props;
  const first = group.requests[0]!;
  const worst = group.requests.reduce((a, b) => (riskRank(b.risk.level) > riskRank(a.risk.level) ? b : a));
  return (
    <div className="group-head" data-testid="group">
      <button
        type="button"
        className="disclosure group-toggle"
        aria-expanded={!shut}
        onClick={() => props.onFold(group.key, !shut)}
      >
        <Icon name={shut ? "chevronRight" : "chevronDown"} size={14} />
        <span className="group-count">×{group.requests.length}</span>
        <span className="mono row-tool">{title(first)}</span>
        {shut && <RiskBadge level={worst.risk.level} />}
      </button>
      <Button small tone="ghost" onClick={() => props.onBulk(group.requests)}>
        Decide together…
      </Button>
    </div>
  );
}
