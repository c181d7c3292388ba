/** The list of requests, virtualized: only the lines on the screen are in the DOM. */

import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, useState, type KeyboardEvent, type ReactElement } from "react";
import { Button } from "../shared/components/Button";
import { Icon } from "../shared/components/Icon";
import { KindMark, RiskBadge } from "../shared/components/Badge";
import { thousands } from "../shared/format";
import { visible } from "../shared/visible";
import type { RequestGroup } from "../shared/types";
import { canBulk, keyOf, OPEN, type Entry } from "./order";
import { Row } from "./Row";

const ROW = 62;
const HEAD = 41;

/** A row to scroll to and focus. `turn` makes a repeated request for the same row a new one. */
export interface Wish {
  id: string;
  turn: number;
}

interface Props {
  entries: Entry[];
  current: string | undefined;
  wish: Wish | null;
  search: string;
  onFold: (key: string, folded: boolean) => void;
  onBulk: (group: RequestGroup) => void;
  onMore: (group: RequestGroup) => void;
  onKeyDown: (event: KeyboardEvent) => void;
}

/** Which groups are folded: as the user left them, else by size. */
export function useFolding(): [(key: string, count: number) => boolean, Props["onFold"]] {
  const [chosen, setChosen] = useState<Record<string, boolean>>({});
  return [
    (key, count) => chosen[key] ?? count > OPEN,
    (key, folded) => setChosen((old) => ({ ...old, [key]: folded })),
  ];
}

export function List({ entries, current, wish, search, onFold, onBulk, onMore, onKeyDown }: Props): ReactElement {
  const [focused, setFocused] = useState<string | undefined>(undefined);
  const box = useRef<HTMLDivElement>(null);
  const list = useVirtualizer({
    count: entries.length,
    getScrollElement: () => box.current,
    estimateSize: (index) => (entries[index]!.type === "group" ? HEAD : ROW),
    getItemKey: (index) => entries[index]!.key,
    overscan: 8,
  });
  const ids = new Set(entries.map((entry) => entry.key));
  const first = entries.find((entry) => entry.type === "row" || entry.type === "group");
  const reachable = [focused, current].find((id) => id !== undefined && ids.has(id)) ?? first?.key;

  useEffect(() => {
    const index = wish ? entries.findIndex((entry) => entry.key === wish.id) : -1;
    if (index < 0) return;
    list.scrollToIndex(index, { align: "auto" });
    let tries = 0;
    const focus = () => {
      const row = box.current?.querySelector<HTMLElement>(`[data-row="${CSS.escape(wish!.id)}"]`);
      if (row) row.focus({ preventScroll: true });
      else if (tries++ < 20) frame = requestAnimationFrame(focus);
    };
    let frame = requestAnimationFrame(focus);
    return () => cancelAnimationFrame(frame);
  }, [wish]);

  return (
    <div className="inbox-rows" ref={box}>
      <ul className="rows" aria-label="Requests" style={{ height: list.getTotalSize() }} onKeyDown={onKeyDown}>
        {list.getVirtualItems().map((item) => {
          const entry = entries[item.index]!;
          return (
            <li
              key={item.key}
              ref={list.measureElement}
              data-index={item.index}
              className={`line${entry.type === "row" && entry.inside ? " line-inside" : ""}`}
              style={{ transform: `translateY(${item.start}px)` }}
              aria-setsize={entries.length}
              aria-posinset={item.index + 1}
            >
              {entry.type === "row" ? (
                <Row
                  request={entry.request}
                  to={`/inbox/${entry.request.id}${search}`}
                  current={entry.request.id === current}
                  reachable={entry.key === reachable}
                  onFocus={() => setFocused(entry.key)}
                />
              ) : entry.type === "group" ? (
                <GroupHead
                  group={entry.group}
                  folded={entry.folded}
                  reachable={entry.key === reachable}
                  onFocus={() => setFocused(entry.key)}
                  onFold={onFold}
                  onBulk={onBulk}
                />
              ) : (
                <More group={entry.group} onMore={onMore} />
              )}
            </li>
          );
        })}
      </ul>
    </div>
  );
}

/** Placeholder for rows that are not loaded. Loads them when it is rendered, near the screen. */
function More({ group, onMore }: { group: RequestGroup; onMore: Props["onMore"] }): ReactElement {
  useEffect(() => onMore(group));
  return (
    <p className="line-more muted" role="status">
      Loading…
    </p>
  );
}

function GroupHead(props: {
  group: RequestGroup;
  folded: boolean;
  reachable: boolean;
  onFocus: () => void;
  onFold: Props["onFold"];
  onBulk: Props["onBulk"];
}): ReactElement {
  const { group, folded } = props;
  const name = group.kind === "question" ? "Questions" : group.tool ? visible(group.tool) : "Approvals";
  return (
    <div className="group-head" data-testid="group">
      <button
        type="button"
        className="disclosure group-toggle"
        aria-expanded={!folded}
        tabIndex={props.reachable ? 0 : -1}
        data-row={`group ${keyOf(group)}`}
        onFocus={props.onFocus}
        onClick={() => props.onFold(keyOf(group), !folded)}
      >
        <Icon name={folded ? "chevronRight" : "chevronDown"} size={14} />
        <span className="group-count">×{thousands(group.count)}</span>
        <span className={group.tool && group.kind !== "question" ? "mono row-tool" : "row-tool"}>{name}</span>
        {group.kind === "in_doubt" && <KindMark kind="in_doubt" />}
        {folded && group.kind !== "question" && <RiskBadge level={group.risk} />}
      </button>
      {canBulk(group) && (
        <Button small tone="ghost" tabIndex={props.reachable ? 0 : -1} onClick={() => props.onBulk(group)}>
          Decide together…
        </Button>
      )}
    </div>
  );
}
