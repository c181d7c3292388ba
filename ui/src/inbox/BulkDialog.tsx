/** Decide several similar requests together, as a table: what they share is above it, and each row is complete. */

import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useCallback, useEffect, useMemo, useRef, useState, type ReactElement } from "react";
import { ApiError, api, type OneOfMany, type Outcome } from "../shared/api";
import { Button } from "../shared/components/Button";
import { Dialog } from "../shared/components/Dialog";
import { Notice } from "../shared/components/States";
import { toast } from "../shared/components/Toasts";
import { EndMark } from "../shared/decision/LongValue";
import { readJson } from "../shared/decision/schema";
import { humanName } from "../shared/decision/values";
import { thousands } from "../shared/format";
import { useOffline } from "../shared/live";
import { useMe } from "../shared/session";
import type { Json, Request } from "../shared/types";
import { visible } from "../shared/visible";
import { separateReason } from "./order";
import { useMediaQuery } from "./useMediaQuery";

interface Props {
  requests: Request[];
  /** The size of the whole group. */
  count: number;
  /** How many of the group are loaded, while more are. */
  loaded?: number;
  /** The requests that were selected in the list. */
  selected?: string[];
  onClose: () => void;
  onDecided: (ids: string[]) => void;
}

/** The most decisions that the server takes in one request. */
const AT_ONCE = 100;

/** Send decisions in batches. If a batch fails, the outcomes of the earlier ones are kept. */
async function decideAll(body: OneOfMany[], me: string, progress: (sent: number) => void): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  for (let from = 0; from < body.length; from += AT_ONCE) {
    progress(from);
    const part = body.slice(from, from + AT_ONCE);
    try {
      outcomes.push(...(await api.decideAll(part)).items);
    } catch (error) {
      const unanswered = error instanceof ApiError && error.status === 0;
      if (from === 0 && !unanswered) throw error;
      const message = error instanceof Error ? error.message : String(error);
      const asked = unanswered ? await Promise.all(part.map((item) => recorded(item, me, message))) : [];
      const unsent = body.slice(from + asked.length).map(({ id }) => ({ id, error: message }));
      return [...outcomes, ...asked, ...unsent];
    }
  }
  return outcomes;
}

/** Find out whether a decision was recorded although the response was lost. */
async function recorded({ id, type }: OneOfMany, me: string, message: string): Promise<Outcome> {
  const found = await api.recorded(id).catch(() => null);
  if (!found) return { id, error: `${message} The decision may or may not have been recorded.` };
  if (found.decision?.by === me && found.decision.type === type) return { id, request: found };
  return { id, error: `${message} The request is ${found.status}.` };
}

/** A number this many times the median of its column is marked. */
const OUTLIER = 3;
/** With more columns, each row is a block. */
const MOST_COLUMNS = 6;

interface Column {
  name: string;
  cell: (request: Request) => string;
  /** For a column of numbers: their sum, and their median. */
  sum?: number;
  median?: number;
}

/** A value as text. A string is quoted if it could be taken for another value, or for none. */
function asText(value: Json | undefined): string {
  if (value === undefined) return "";
  return typeof value === "string" && value.trim() !== "" && readJson(value).error ? value : JSON.stringify(value);
}

/** A column per argument, and one for whatever else a row must show. */
function columnsOf(requests: Request[]): Column[] {
  const names = [...new Set(requests.flatMap((each) => Object.keys(each.shown.args as Record<string, Json>)))];
  const columns = names.map((name): Column => {
    const values = requests.map((each) => (each.args as Record<string, Json>)[name]);
    const column: Column = { name, cell: (each) => asText((each.shown.args as Record<string, Json>)[name]) };
    if (!values.every((value) => typeof value === "number")) return column;
    const sorted = [...values].sort((a, b) => a - b);
    return { ...column, sum: values.reduce((sum, value) => sum + value, 0), median: sorted[Math.floor(sorted.length / 2)]! };
  });
  const others: Column[] = [
    { name: "Preview", cell: (each) => asText(each.shown.preview ?? undefined) },
    { name: "Bound facts", cell: (each) => asText((each.shown.binds ?? undefined) as Json | undefined) },
    { name: "Agent says (not verified)", cell: (each) => each.shown.note },
    { name: "Rejected before", cell: (each) => each.refusals.map(({ by, message }) => `${visible(by ?? "someone")}: ${visible(message ?? "")}`).join("; ") },
    { name: "Warnings", cell: (each) => each.shown.warnings.join(" ") },
  ];
  const titles: Column = { name: "Request", cell: (each) => each.shown.title };
  const descriptions: Column = { name: "Description", cell: (each) => each.shown.description };
  return [titles, descriptions, ...columns, ...others].filter(({ cell }) => requests.some((each) => cell(each) !== ""));
}

/** Whether a column says the same in each row, so that it is shown once, above the table. */
function isShared({ cell }: Column, requests: Request[]): boolean {
  return requests.length > 1 && requests.every((each) => cell(each) === cell(requests[0]!));
}

interface Table {
  /** The requests that can be selected. */
  complete: Request[];
  /** What they all share. */
  shared: Column[];
  columns: Column[];
}

function tableOf(requests: Request[]): Table {
  const complete = requests.filter((each) => !separateReason(each));
  const all = columnsOf(complete.length ? complete : requests);
  const shared = all.filter((column) => column.name !== "Request" && column.sum === undefined && isShared(column, complete));
  return { complete, shared, columns: all.filter((column) => !shared.includes(column)) };
}

function isOutlier({ name, median }: Column, request: Request): boolean {
  return median !== undefined && median > 0 && Number((request.args as Record<string, number>)[name]) >= OUTLIER * median;
}

function sumOf({ name }: Column, requests: Request[]): number {
  const sum = requests.reduce((total, each) => total + Number((each.args as Record<string, Json>)[name]), 0);
  return Number(sum.toFixed(6));
}

/** How many of the decisions that were not recorded are listed. */
const MOST_PROBLEMS = 20;
/** The estimated height of a row, until it is measured. */
const ROW = 50;

interface RowsProps {
  requests: Request[];
  columns: Column[];
  picked: Set<string>;
  box: HTMLElement;
  onToggle: (id: string) => void;
  /** Called when the last row is drawn, or is not any more. */
  onLast: (drawn: boolean) => void;
}

/** The rows of the table, virtualized: those off the screen are one empty row above and one below. */
function Rows({ requests, columns, picked, box, onToggle, onLast }: RowsProps): ReactElement {
  const body = useRef<HTMLTableSectionElement>(null);
  const [above, setAbove] = useState(0);
  useEffect(() => {
    setAbove(body.current!.getBoundingClientRect().top - box.getBoundingClientRect().top + box.scrollTop);
  }, [columns, box]);
  const list = useVirtualizer({
    count: requests.length,
    getScrollElement: () => box,
    estimateSize: () => ROW,
    getItemKey: (index) => requests[index]!.id,
    scrollMargin: above,
    overscan: 8,
  });
  const items = list.getVirtualItems();
  const last = items.at(-1)?.index === requests.length - 1;
  useEffect(() => onLast(last), [last, onLast]);
  const before = items.length ? items[0]!.start - above : 0;
  const after = items.length ? list.getTotalSize() - (items.at(-1)!.end - above) : 0;
  return (
    <tbody ref={body}>
      {before > 0 && <tr aria-hidden="true" className="bulk-gap" style={{ height: before }} />}
      {items.map(({ index, key }) => (
        <Row
          key={key}
          index={index}
          measure={list.measureElement}
          request={requests[index]!}
          columns={columns}
          picked={picked.has(requests[index]!.id)}
          onToggle={onToggle}
        />
      ))}
      {after > 0 && <tr aria-hidden="true" className="bulk-gap" style={{ height: after }} />}
    </tbody>
  );
}

interface RowProps {
  index: number;
  request: Request;
  columns: Column[];
  picked: boolean;
  measure: (row: HTMLTableRowElement | null) => void;
  onToggle: (id: string) => void;
}

const Row = memo(function Row({ index, request, columns, picked, measure, onToggle }: RowProps): ReactElement {
  const alone = separateReason(request);
  return (
    <tr ref={measure} data-index={index} aria-rowindex={index + 2} className="bulk-item">
      <td>
        <label className="bulk-check">
          <input
            type="checkbox"
            aria-label={request.shown.title}
            disabled={alone !== ""}
            checked={picked}
            onChange={() => onToggle(request.id)}
          />
        </label>
      </td>
      {alone ? (
        <td colSpan={columns.length}>
          <span className="wrap">{request.shown.title}</span>
          <p className="muted small">Decide this one separately: {alone}.</p>
        </td>
      ) : (
        columns.map((column) => (
          <td key={column.name} data-label={visible(column.name)} className={column.sum === undefined ? "wrap" : "number"}>
            {column.cell(request)}
            {isOutlier(column, request) && <strong className="bulk-warning small"> far above the others</strong>}
          </td>
        ))
      )}
    </tr>
  );
});

export function BulkDialog({ requests, count, loaded, selected, onClose, onDecided }: Props): ReactElement {
  const opened = useRef(Date.now());
  const me = useMe();
  const offline = useOffline();
  const [picked, setPicked] = useState(new Set(selected));
  const [last, setLast] = useState(false);
  const [ended, setEnded] = useState(false);
  const [rejecting, setRejecting] = useState(false);
  /** The approval waits for its confirmation. */
  const [armed, setArmed] = useState(false);
  const [sent, setSent] = useState(0);
  const [message, setMessage] = useState("");
  const [busy, setBusy] = useState(false);
  const [problems, setProblems] = useState<string[]>([]);
  const [box, setBox] = useState<HTMLElement | null>(null);
  const { complete, shared, columns } = useMemo(() => tableOf(requests), [requests]);
  const chosen = useMemo(() => requests.filter((request) => picked.has(request.id)), [requests, picked]);
  const named = (id: string) => requests.find((request) => request.id === id)?.shown.title ?? id;
  const toggle = useCallback((id: string) => {
    setPicked((old) => {
      const next = new Set(old);
      if (!next.delete(id)) next.add(id);
      return next;
    });
    setArmed(false);
  }, []);
  const send = async (type: "approve" | "reject") => {
    setBusy(true);
    setProblems([]);
    try {
      const body = chosen.map(({ id, digest }) => ({
        id,
        type,
        seen_digest: digest,
        shown: { seconds: Math.max(0, Date.now() - opened.current) / 1_000, complete: ended },
        ...(type === "reject" ? { message: message.trim() } : {}),
      }));
      const items = await decideAll(body, me.name, setSent);
      const failed = items.filter((item) => item.error !== undefined);
      const done = items.filter((item) => item.error === undefined).map((item) => item.id);
      if (done.length) {
        toast(
          `${type === "approve" ? "Approved" : "Rejected"} ${thousands(done.length)} of ${thousands(chosen.length)}`,
          failed.length ? "info" : "good",
        );
        onDecided(done);
      }
      if (failed.length === 0) return onClose();
      setProblems(failed.map(({ id, error }) => `${named(id)}: ${typeof error === "string" ? error : error!.message}`));
      setPicked(new Set(failed.map((item) => item.id)));
    } catch (error) {
      setProblems([error instanceof ApiError ? error.message : String(error)]);
    }
    setArmed(false);
    setBusy(false);
  };
  const many = `${count > requests.length && loaded === undefined ? `The first ${thousands(requests.length)} of ` : ""}${thousands(count)}`;
  // A column off the screen would not be read.
  const stacked = useMediaQuery("(max-width: 820px)") || columns.length > MOST_COLUMNS;
  const open = complete.map(({ id }) => id);
  const all = open.length > 0 && open.every((id) => picked.has(id));
  const first = requests[0]!;
  const loading = loaded !== undefined;
  const wait = loading ? `Loading ${thousands(loaded)} of ${thousands(count)}…` : "";
  const reason = offline || wait || (ended ? "" : "Scroll to the end of the list first.");
  const rejectable = requests.filter((each) => each.can.includes("reject")).map(({ id }) => id);
  const unusual = useMemo(() => complete.filter((each) => columns.some((column) => isOutlier(column, each))).length, [complete, columns]);
  const totals = columns.filter(({ sum }) => sum !== undefined);
  const rejectAll = () => {
    setPicked(new Set(rejectable));
    setRejecting(true);
  };
  return (
    <Dialog
      title={
        <>
          {`${humanName(first.tool!)}: ${many} ${count === 1 ? "request" : "requests"} `}
          <small className="muted">
            for <code>{first.shown.tool}</code>
          </small>
        </>
      }
      onClose={onClose}
      wide
    >
      <div className="bulk-list" role="region" aria-label="Requests to decide" tabIndex={0} ref={setBox}>
        <p className="muted wrap">
          Asked by {first.shown.agent}.
          {totals.map((column) => ` Sum of ${visible(column.name)} ${sumOf(column, complete)}.`)}
          {unusual > 0 && ` ${thousands(unusual)} ${unusual === 1 ? "row is" : "rows are"} marked: at least ${OUTLIER} times the median.`}
        </p>
        {shared.length > 0 && (
          <dl className="bulk-shared" aria-label="The same in all">
            {shared.map((column) => (
              <div key={column.name}>
                <dt>{visible(column.name)}</dt>
                <dd className="wrap">{column.cell(complete[0]!)}</dd>
              </div>
            ))}
          </dl>
        )}
        <table className={`bulk-table${stacked ? " bulk-stacked" : ""}`} aria-rowcount={requests.length + 1}>
          <thead>
            <tr>
              <th scope="col">
                <label className="bulk-check">
                  <input
                    type="checkbox"
                    aria-label="Select all"
                    disabled={open.length === 0 || loading}
                    checked={all}
                    onChange={() => {
                      setPicked(new Set(all ? [] : open));
                      setArmed(false);
                    }}
                  />
                </label>
              </th>
              {columns.map(({ name }) => (
                <th scope="col" key={name} className={name === "Request" ? "bulk-title" : undefined}>
                  {visible(name)}
                </th>
              ))}
            </tr>
          </thead>
          {box && <Rows requests={requests} columns={columns} picked={picked} box={box} onToggle={toggle} onLast={setLast} />}
          {totals.length > 0 && (
            <tfoot>
              {[["Sum", complete] as const, ...(chosen.length ? [["Selected", chosen] as const] : [])].map(([label, rows]) => (
                <tr key={label}>
                  <th scope="row">{label}</th>
                  {columns.map((column) => (
                    <td key={column.name} data-label={visible(column.name)} className="number">
                      {column.sum === undefined ? "" : sumOf(column, rows)}
                    </td>
                  ))}
                </tr>
              ))}
            </tfoot>
          )}
        </table>
        {last && !loading && <EndMark name="the list" onSeen={() => setEnded(true)} />}
      </div>
      {problems.length > 0 && (
        <Notice tone="bad" title="Not recorded">
          {problems.slice(0, MOST_PROBLEMS).map((problem) => (
            <p key={problem}>{problem}</p>
          ))}
          {problems.length > MOST_PROBLEMS && <p>And {thousands(problems.length - MOST_PROBLEMS)} more.</p>}
        </Notice>
      )}
      {rejecting && (
        <label className="field">
          <span className="field-label">Reason for all</span>
          <textarea rows={2} value={message} onChange={(event) => setMessage(event.target.value)} />
        </label>
      )}
      <div className="dialog-actions">
        {busy && <span role="status">{`Sending ${thousands(sent)} of ${thousands(chosen.length)}…`}</span>}
        {!busy && reason && <span className="decide-reason">{reason}</span>}
        {armed && !busy && (
          <span className="decide-reason" role="status">
            {`Each of the ${thousands(chosen.length)} is approved as shown. `}
            {totals.map((column) => `${visible(column.name)}: ${sumOf(column, chosen)}`).join(", ")}
          </span>
        )}
        <Button onClick={onClose}>Cancel</Button>
        {!rejecting && (
          <Button tone="ghost" disabled={busy || offline !== "" || wait !== "" || rejectable.length === 0} onClick={rejectAll}>
            {`Reject all ${thousands(rejectable.length)} like this…`}
          </Button>
        )}
        <Button
          tone="danger"
          disabled={busy || offline !== "" || chosen.length === 0}
          onClick={() => (rejecting ? void send("reject") : setRejecting(true))}
        >
          {rejecting ? `Send ${thousands(chosen.length)} ${chosen.length === 1 ? "rejection" : "rejections"}` : `Reject ${thousands(chosen.length)}`}
        </Button>
        {!rejecting && (
          <Button
            tone="primary"
            className={armed ? "button-armed" : undefined}
            disabled={busy || reason !== "" || chosen.length === 0}
            onClick={() => (armed ? void send("approve") : setArmed(true))}
          >
            {armed ? `Confirm: approve ${thousands(chosen.length)}` : `Approve ${thousands(chosen.length)}`}
          </Button>
        )}
      </div>
    </Dialog>
  );
}
