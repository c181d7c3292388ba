/** The list of requests, virtualized: only the lines on the screen are in the DOM. */

import { useVirtualizer } from "@tanstack/react-virtual";
import { startTransition, useEffect, useRef, useState, type KeyboardEvent, type ReactElement } from "react";
import { Button } from "../shared/components/Button";
import { Icon } from "../shared/components/Icon";
import { KindBadge, RiskBadge } from "../shared/components/Badge";
import { humanName } from "../shared/decision/values";
import { counted } from "../shared/format";
import { visible } from "../shared/visible";
import type { RequestGroup } from "../shared/types";
import { canDecideTogether, groupKey, MAX_UNFOLDED, type Entry } from "./order";
import { RequestRow } from "./RequestRow";

const ROW = 62;
const HEAD = 65;

/** A row to scroll to and focus. `turn` makes a repeated request for the same row a new one. */
export interface FocusTarget {
  id: string;
  turn: number;
}

interface Props {
  entries: Entry[];
  current: string | undefined;
  selected: string[];
  focusTarget: FocusTarget | null;
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
    (key, count) => chosen[key] ?? count > MAX_UNFOLDED,
    // A transition: the rows of a large group are rendered in slices, after the click.
    (key, folded) => startTransition(() => setChosen((old) => ({ ...old, [key]: folded }))),
  ];
}

export function RequestList({ entries, current, selected, focusTarget, search, onFold, onBulk, onMore, onKeyDown }: Props): ReactElement {
  const [focused, setFocused] = useState<string | undefined>(undefined);
  const box = useRef<HTMLDivElement>(null);
  const list = useVirtualizer({
    count: entries.length,
    getScrollElement: () => box.current,
    estimateSize: (index) => (entries[index]!.type === "group" ? HEAD : ROW),
    getItemKey: (index) => entries[index]!.key,
    overscan: 4,
    useFlushSync: false, // new rows are a task of their own, not a part of the scroll event
  });
  const ids = new Set(entries.map((entry) => entry.key));
  const first = entries.find((entry) => entry.type === "row" || entry.type === "group");
  const reachable = [focused, current].find((id) => id !== undefined && ids.has(id)) ?? first?.key;

  const index = focusTarget ? entries.findIndex((entry) => entry.key === focusTarget.id) : -1;
  const reached = useRef<FocusTarget | null>(null);
  useEffect(() => {
    // The rows of a group that was just unfolded are rendered later than the target is set.
    if (index < 0 || reached.current === focusTarget) return;
    let tries = 0;
    const focus = () => {
      // In a frame, which lays out the page anyway. In the effect, it would force a second layout.
      if (tries === 0) list.scrollToIndex(index, { align: "auto" });
      const row = box.current?.querySelector<HTMLElement>(`[data-row="${CSS.escape(focusTarget!.id)}"]`);
      if (row) {
        reached.current = focusTarget;
        row.focus({ preventScroll: true });
      } else if (tries++ < 20) frame = requestAnimationFrame(focus);
    };
    let frame = requestAnimationFrame(focus);
    return () => cancelAnimationFrame(frame);
  }, [focusTarget, index < 0]);

  // Once the row of the open request is in the list, show it.
  const open = entries.findIndex((entry) => entry.key === current);
  useEffect(() => {
    if (open >= 0) list.scrollToIndex(open, { align: "auto" });
  }, [current, open < 0]);

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
                <RequestRow
                  request={entry.request}
                  to={`/inbox/${entry.request.id}${search}`}
                  current={entry.request.id === current}
                  selected={selected.includes(entry.key)}
                  reachable={entry.key === reachable}
                  onFocus={setFocused}
                />
              ) : entry.type === "group" ? (
                <GroupHead
                  group={entry.group}
                  folded={entry.folded}
                  content={entry.content}
                  reachable={entry.key === reachable}
                  onFocus={() => setFocused(entry.key)}
                  onFold={onFold}
                  onBulk={onBulk}
                />
              ) : (
                <LoadMore group={entry.group} onMore={onMore} />
              )}
            </li>
          );
        })}
      </ul>
    </div>
  );
}

/** Placeholder for rows that are not loaded. Loads them when it is rendered, near the screen. */
function LoadMore({ group, onMore }: { group: RequestGroup; onMore: Props["onMore"] }): ReactElement {
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
  content: string;
  reachable: boolean;
  onFocus: () => void;
  onFold: Props["onFold"];
  onBulk: Props["onBulk"];
}): ReactElement {
  const { group, folded } = props;
  const tool = group.kind === "question" ? null : group.tool;
  const name = group.kind === "question" ? "Questions" : tool ? humanName(tool) : "Approvals";
  return (
    <div className="group-head" data-testid="group">
      <button
        type="button"
        className="disclosure group-toggle"
        aria-expanded={!folded}
        tabIndex={props.reachable ? 0 : -1}
        data-row={`group ${groupKey(group)}`}
        onFocus={props.onFocus}
        onClick={() => props.onFold(groupKey(group), !folded)}
      >
        <Icon name={folded ? "chevronRight" : "chevronDown"} size={14} />
        <span className="group-count">×{counted(group)}</span>
        <span className="row-tool">{name}</span>
        {group.kind === "in_doubt" && <KindBadge kind="in_doubt" />}
        {folded && group.kind !== "question" && <RiskBadge level={group.risk} />}
      </button>
      {canDecideTogether(group) && (
        <Button small tone="ghost" tabIndex={props.reachable ? 0 : -1} onClick={() => props.onBulk(group)}>
          Decide together…
        </Button>
      )}
      {(tool || props.content) && (
        <p className="group-content muted small" data-testid="group-content" title={props.content || undefined}>
          {tool && <code>{visible(tool)}</code>} {props.content}
        </p>
      )}
    </div>
  );
}
