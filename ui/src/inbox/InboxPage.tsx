/** The inbox: the list on the left, one request in the middle, its context on the right. */

import { useEffect, useRef, useState, type KeyboardEvent, type ReactElement } from "react";
import { Button } from "../shared/components/Button";
import { Effects } from "../shared/components/Effects";
import { LoadError, Skeleton } from "../shared/components/States";
import { toast } from "../shared/components/Toasts";
import { Suggestions } from "../shared/decision/Suggestions";
import { thousands } from "../shared/format";
import { named, useShortcuts } from "../shared/shortcuts";
import { navigate, useQuery } from "../shared/router";
import type { Request, RequestGroup } from "../shared/types";
import { BulkDialog } from "./BulkDialog";
import { Detail } from "./Detail";
import { FILTERS, SOON } from "../shared/views";
import { Filters } from "./Filters";
import { RequestList, useFolding, type FocusTarget } from "./RequestList";
import { FilteredEmpty, NoPending, Overview } from "./Overview";
import { entriesOf, groupKey, nextAfter, nextEntry, requestGroupKey, serverSort, whyNotTogether, type Sort } from "./order";
import { useInbox } from "./useInbox";
import { Views } from "./Views";
import { useMediaQuery } from "./useMediaQuery";
import { useUndone } from "../shared/undo";

/** The most requests that are decided together. */
const MOST_TOGETHER = 10_000;
/** The most rows to load to find the request of a link. */
const MOST_LOADED = 2_000;

function sortOf(query: URLSearchParams): Sort {
  const wanted = query.get("sort");
  return wanted === "risk" || wanted === "age" ? wanted : "expiring";
}

function focusHeading(): void {
  document.querySelector<HTMLElement>(".detail-title h1")?.focus({ preventScroll: true });
}

export default function InboxPage({ id }: { id?: string }): ReactElement {
  const [query] = useQuery();
  const sort = sortOf(query);
  const value = (name: string) => query.get(name) ?? undefined;
  const inbox = useInbox(
    {
      status: "pending",
      q: value("q"),
      mine: value("mine") !== undefined,
      risk: value("risk"),
      agent: value("agent"),
      tool: value("tool"),
      kind: value("kind"),
      run: value("run"),
      thread: value("thread"),
      expires_within: value("expiring") === undefined ? undefined : SOON,
      sort: serverSort(sort),
    },
    sort,
  );
  const phone = useMediaQuery("(max-width: 820px)");
  const [folded, fold] = useFolding();
  /** Set when a row is opened with Enter, which moves the focus to the request. A click, j and k leave it in the list. */
  const entering = useRef(false);
  const [bulk, setBulk] = useState<{ requests: Request[]; count: number; loaded?: number; picked?: string[] } | null>(null);
  const [selected, setSelected] = useState<string[]>([]);
  const [focusTarget, setFocusTarget] = useState<FocusTarget | null>(null);
  const text = query.toString();
  const search = text ? `?${text}` : "";
  useUndone((request) => {
    inbox.reload();
    go(request.id);
  });
  const cached = inbox.items.find((request) => request.id === id);
  const chosen = inbox.items.filter((request) => selected.includes(request.id) && request.status === "pending");
  const entries = entriesOf(inbox.groups, inbox.rowsOf, folded);
  const filtered = [...FILTERS, "run", "thread"].some((name) => query.has(name));
  const go = (to: string | null, replace = false) =>
    navigate(to ? `/inbox/${to}${search}` : `/inbox${search}`, { replace });
  const focusRow = (row: string) => setFocusTarget((old) => ({ id: row, turn: (old?.turn ?? 0) + 1 }));

  // On a phone, the list is the whole page until a request is opened.
  const alone = phone && !id;
  const ListTag = alone ? "main" : "section";
  useEffect(() => {
    document.title = inbox.yours ? `(${thousands(inbox.yours)}) Inbox · Sayso` : "Inbox · Sayso";
  }, [inbox.yours]);

  /** Go to the next or previous request. Unfolds a group and loads rows if needed. */
  const move = async (by: 1 | -1) => {
    const at = (document.activeElement as HTMLElement | null)?.dataset.row;
    const here = entries.some((entry) => entry.type === "row" && entry.key === at) ? at : id;
    const next = nextEntry(entries, here, by);
    if (!next) return;
    if (next.type === "row") return show(next.key);
    const key = groupKey(next.group);
    if (next.type === "group") fold(key, false);
    const { items, more } = inbox.rowsOf(key);
    const unread = more && (next.type === "more" || items.length === 0);
    const rows = unread ? await inbox.load(next.group) : items;
    const found = next.type === "more" ? rows[items.length] : by === 1 ? rows[0] : rows.at(-1);
    if (found) show(found.id);
  };
  const show = (to: string) => {
    if (!phone) go(to, id !== undefined);
    focusRow(to);
  };
  const back = () => {
    if (chosen.length > 0) return setSelected([]);
    if (!id) return;
    if (phone) go(null);
    focusRow(id);
  };
  /** The request of the row with the focus, else the open one. */
  const pointed = () => {
    const at = (document.activeElement as HTMLElement | null)?.dataset.row;
    return inbox.items.find((request) => request.id === at) ?? cached;
  };
  const select = () => {
    const request = pointed();
    if (!request) return;
    const others = chosen.filter((each) => each !== request);
    const why = others.length < chosen.length ? "" : whyNotTogether(request, chosen[0]);
    if (why) return toast(why, "info");
    setSelected([...others, ...(others.length < chosen.length ? [] : [request])].map((each) => each.id));
  };
  useShortcuts({
    j: () => void move(1),
    k: () => void move(-1),
    x: named(cached !== undefined && "Select this request", select),
    Escape: back,
  });

  // A link may lead to a request in a folded group, or on a page that is not loaded yet.
  const [opened, setOpened] = useState<Request>();
  const wanted = opened?.id === id && opened?.status === "pending" ? opened : undefined;
  const placed = useRef("");
  useEffect(() => {
    if (!wanted || placed.current === wanted.id || inbox.loading) return;
    const key = requestGroupKey(wanted);
    const group = inbox.groups.find((each) => groupKey(each) === key);
    if (!group) return;
    const { items, more } = inbox.rowsOf(key);
    if (items.some((each) => each.id === wanted.id)) {
      placed.current = wanted.id;
      fold(key, false);
    } else if (more && items.length < MOST_LOADED) void inbox.load(group);
  }, [wanted, inbox.groups, inbox.rowsOf(wanted ? requestGroupKey(wanted) : "").items.length, inbox.loading]);
  // The browser's Back from a request to the list returns to its row.
  const last = useRef(id);
  useEffect(() => {
    if (!id && last.current) focusRow(last.current);
    last.current = id;
  }, [id]);
  const arrows = (event: KeyboardEvent) => {
    const row = (event.target as HTMLElement).dataset.row;
    if (event.key === "Enter") entering.current = true;
    if (event.key === "Enter" && row === id) focusHeading();
    const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (!by || !row) return;
    event.preventDefault();
    const lines = entries.filter((entry) => entry.type !== "more");
    const next = lines[lines.findIndex((entry) => entry.key === row) + by];
    if (next) focusRow(next.key);
  };
  const decided = (request: Request) => {
    if (request.status === "pending") return inbox.update(request);
    const next = nextAfter(inbox.items, request.id);
    inbox.remove([request.id]);
    go(phone ? null : next, true);
  };
  const decideTogether = async (group: RequestGroup) => {
    const { items, more } = inbox.rowsOf(groupKey(group));
    const pending = (rows: Request[]) => rows.filter(({ status }) => status === "pending").slice(0, MOST_TOGETHER);
    let rows = more && items.length === 0 ? await inbox.load(group) : items;
    const requests = pending(rows);
    if (requests.length === 0) return;
    setBulk({ requests, count: group.count, loaded: rows.length });
    while (rows.length < Math.min(group.count, MOST_TOGETHER)) {
      const next = await inbox.load(group);
      if (next.length <= rows.length) break;
      rows = next;
      // The table shows the first page until all are here: to lay it out again for each page would take long.
      setBulk((old) => old && { ...old, loaded: next.length });
    }
    setBulk((old) => old && { requests: pending(rows), count: group.count });
  };
  const empty = inbox.groups.length === 0;
  const arrived = thousands(inbox.arrived);
  return (
    <div className={`inbox${id ? " has-detail" : ""}`}>
      <ListTag className="inbox-list" aria-label="Inbox">
        {alone && <h1 className="sr-only">Inbox</h1>}
        <div className="sr-only" aria-live="polite" data-testid="arrivals">
          {inbox.arrived > 0 ? `${arrived} new ${inbox.arrived === 1 ? "request" : "requests"}` : ""}
        </div>
        {inbox.arrived > 0 && (
          <button type="button" className="new-pill" onClick={inbox.reload}>
            {arrived} new
          </button>
        )}
        {inbox.error ? (
          <LoadError what="the inbox" error={inbox.error} retry={inbox.reload} />
        ) : inbox.loading && empty ? (
          <Skeleton rows={6} label="Loading requests" />
        ) : empty ? (
          filtered ? (
            <FilteredEmpty query={query} />
          ) : (
            <NoPending />
          )
        ) : (
          <RequestList
            entries={entries}
            current={id}
            selected={selected}
            focusTarget={focusTarget}
            search={search}
            onFold={fold}
            onBulk={(group) => void decideTogether(group)}
            onMore={(group) => void inbox.load(group)}
            onKeyDown={arrows}
          />
        )}
        {chosen.length > 0 && (
          <div className="selection">
            <span role="status">{chosen.length} selected</span>
            <Button small onClick={() => setSelected([])}>
              Clear
            </Button>
            <Button
              small
              tone="primary"
              onClick={() => setBulk({ requests: chosen, count: chosen.length, picked: selected })}
            >
              Decide together…
            </Button>
          </div>
        )}
        <Views query={query} />
        <Filters query={query} sort={sort} values={inbox.values} />
        {alone && <Suggestions />}
      </ListTag>
      {id ? (
        <Detail
          key={id}
          id={id}
          cached={cached}
          back={`/inbox${search}`}
          phone={phone}
          entering={entering}
          onDecided={decided}
          onRead={(request) => {
            inbox.update(request);
            setOpened(request);
          }}
        />
      ) : (
        !phone && (
          <main className="inbox-detail inbox-overview">
            <Overview pending={inbox.loading && empty ? null : inbox.count} yours={inbox.yours} atLeast={inbox.atLeast} filtered={filtered} />
          </main>
        )
      )}
      <div className="inbox-effects">
        <Effects />
      </div>
      {bulk && (
        <BulkDialog
          requests={bulk.requests}
          count={bulk.count}
          loaded={bulk.loaded}
          selected={bulk.picked}
          onClose={() => setBulk(null)}
          onDecided={(done) => {
            inbox.remove(done);
            if (id && done.includes(id)) go(null, true);
          }}
        />
      )}
    </div>
  );
}
