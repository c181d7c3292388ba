/** The inbox: what waits on the left, one request in the middle, what stands around it on the right. */

import { useEffect, useRef, useState, type KeyboardEvent, type ReactElement } from "react";
import { Effects } from "../shared/components/Effects";
import { Failed, Skeleton } from "../shared/components/States";
import { useShortcuts } from "../shared/keys";
import { navigate, useQuery } from "../shared/router";
import type { Request } from "../shared/types";
import { BulkDialog } from "./BulkDialog";
import { Detail } from "./Detail";
import { Filters, FILTERS } from "./Filters";
import { List, useFolding } from "./List";
import { FilteredEmpty, NothingWaits, Overview } from "./Overview";
import { expiresSoon, grouped, nextAfter, serverSort, step, type Sort } from "./order";
import { useInbox } from "./useInbox";
import { useMedia } from "./useMedia";

function sortOf(query: URLSearchParams): Sort {
  const wanted = query.get("sort");
  return wanted === "risk" || wanted === "age" ? wanted : "expiring";
}

function focusHeading(): void {
  document.querySelector<HTMLElement>(".detail-title h1")?.focus({ preventScroll: true });
}

function focusRow(id: string): void {
  requestAnimationFrame(() => document.querySelector<HTMLElement>(`[data-row="${CSS.escape(id)}"]`)?.focus());
}

export default function InboxPage({ id }: { id?: string }): ReactElement {
  const [query] = useQuery();
  const sort = sortOf(query);
  const value = (name: string) => query.get(name) ?? undefined;
  const soon = value("expiring") !== undefined;
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
      sort: soon ? "expiring" : serverSort(sort),
    },
    sort,
    (request) => !soon || expiresSoon(request, Date.now()),
  );
  const phone = useMedia("(max-width: 820px)");
  const [folded, fold] = useFolding();
  /** A row was opened with Enter, so the focus goes with it; a click or j and k leave it in the list. */
  const entering = useRef(false);
  const [bulk, setBulk] = useState<Request[] | null>(null);
  const text = query.toString();
  const search = text ? `?${text}` : "";
  const groups = grouped(inbox.items);
  const order = groups.flatMap((group) => group.requests);
  const ids = groups.flatMap((group) =>
    group.requests.length > 1 && folded(group.key, group.requests.length)
      ? []
      : group.requests.map((request) => request.id),
  );
  const filtered = [...FILTERS, "run", "thread"].some((name) => query.has(name));
  const go = (to: string | null, replace = false) =>
    navigate(to ? `/inbox/${to}${search}` : `/inbox${search}`, { replace });

  const waiting = inbox.items.filter((request) => request.status === "pending").length;
  // On a phone the list is the page, until a request is opened.
  const alone = phone && !id;
  const ListTag = alone ? "main" : "section";
  useEffect(() => {
    document.title = waiting ? `(${waiting}${inbox.next ? "+" : ""}) Inbox · Sayso` : "Inbox · Sayso";
  }, [waiting, inbox.next]);

  const move = (by: 1 | -1) => {
    const at = (document.activeElement as HTMLElement | null)?.dataset.row ?? id;
    const next = step(ids, at, by);
    if (!next) return;
    if (!phone) go(next, id !== undefined);
    focusRow(next);
  };
  const back = () => {
    if (!id) return;
    if (phone) go(null);
    focusRow(id);
  };
  useShortcuts({ j: () => move(1), k: () => move(-1), Escape: back });
  const arrows = (event: KeyboardEvent) => {
    if (event.key === "Enter") entering.current = true;
    if (event.key === "Enter" && (event.target as HTMLElement).dataset.row === id) focusHeading();
    const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (!by || !(event.target as HTMLElement).dataset.row) return;
    event.preventDefault();
    const next = step(ids, (event.target as HTMLElement).dataset.row, by);
    if (next) document.querySelector<HTMLElement>(`[data-row="${CSS.escape(next)}"]`)?.focus();
  };
  const decided = (request: Request) => {
    if (request.status === "pending") return inbox.update(request);
    const next = nextAfter(order, request.id);
    inbox.remove([request.id]);
    go(phone ? null : next, true);
  };
  const cached = inbox.items.find((request) => request.id === id);
  const empty = inbox.items.length === 0;
  return (
    <div className={`inbox${id ? " has-detail" : ""}`}>
      <ListTag className="inbox-list" aria-label="Inbox">
        {alone && <h1 className="sr-only">Inbox</h1>}
        <Filters
          query={query}
          sort={sort}
          seen={{
            agents: inbox.items.map((request) => request.agent),
            tools: inbox.items.flatMap((request) => (request.tool ? [request.tool] : [])),
          }}
        />
        <div className="sr-only" aria-live="polite" data-testid="arrivals">
          {inbox.arrived.length > 0
            ? `${inbox.arrived.length} new ${inbox.arrived.length === 1 ? "request" : "requests"}`
            : ""}
        </div>
        {inbox.arrived.length > 0 && (
          <button type="button" className="new-pill" onClick={inbox.showArrived}>
            {inbox.arrived.length} new
          </button>
        )}
        <div className="inbox-rows">
          {inbox.error ? (
            <Failed what="The inbox" error={inbox.error} retry={inbox.reload} />
          ) : inbox.loading && empty ? (
            <Skeleton rows={6} label="Loading requests" />
          ) : empty ? (
            filtered ? (
              <FilteredEmpty query={query} />
            ) : (
              <NothingWaits />
            )
          ) : (
            <List
              groups={groups}
              current={id}
              search={search}
              folded={folded}
              onFold={fold}
              onBulk={setBulk}
              onKeyDown={arrows}
            />
          )}
          {inbox.next && !empty && (
            <button type="button" className="button inbox-more" onClick={inbox.loadMore}>
              Load more
            </button>
          )}
        </div>
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
          onRead={inbox.update}
        />
      ) : (
        !phone && (
          <main className="inbox-detail inbox-overview">
            <Overview
              waiting={inbox.loading && empty ? null : waiting + inbox.arrived.length}
              more={inbox.next !== null}
              filtered={filtered}
            />
          </main>
        )
      )}
      <div className="inbox-effects">
        <Effects />
      </div>
      {bulk && (
        <BulkDialog
          requests={bulk}
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
