/** Decide several similar requests together. All are shown in full, and the end of the list must be seen to approve. */

import { useState, type ReactElement } from "react";
import { ApiError, api, type OneOfMany, type Outcome } from "../shared/api";
import { Button } from "../shared/components/Button";
import { Dialog } from "../shared/components/Dialog";
import { Notice } from "../shared/components/States";
import { toast } from "../shared/components/Toasts";
import { EndMark } from "../shared/decision/LongValue";
import { toolName } from "../shared/decision/values";
import { thousands } from "../shared/format";
import { useOffline } from "../shared/live";
import { useMe } from "../shared/session";
import type { Request } from "../shared/types";
import { separateReason } from "./order";

interface Props {
  requests: Request[];
  /** The size of the whole group. */
  count: number;
  onClose: () => void;
  onDecided: (ids: string[]) => void;
}

/** The most decisions that the server takes in one request. */
export const AT_ONCE = 100;

/** Send decisions in batches. If a batch fails, the outcomes of the earlier ones are kept. */
async function decideAll(body: OneOfMany[], me: string): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  for (let from = 0; from < body.length; from += AT_ONCE) {
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

export function BulkDialog({ requests, count, onClose, onDecided }: Props): ReactElement {
  const me = useMe();
  const offline = useOffline();
  const [picked, setPicked] = useState(
    () => new Set(requests.filter((each) => !separateReason(each)).map((each) => each.id)),
  );
  const [ended, setEnded] = useState(false);
  const [rejecting, setRejecting] = useState(false);
  const [message, setMessage] = useState("");
  const [busy, setBusy] = useState(false);
  const [problems, setProblems] = useState<string[]>([]);
  const chosen = requests.filter((request) => picked.has(request.id));
  const named = (id: string) => requests.find((request) => request.id === id)?.shown.title ?? id;
  const toggle = (id: string) => {
    const next = new Set(picked);
    if (!next.delete(id)) next.add(id);
    setPicked(next);
  };
  const send = async (type: "approve" | "reject") => {
    setBusy(true);
    setProblems([]);
    try {
      const body = chosen.map(({ id, digest }) => ({
        id,
        type,
        seen_digest: digest,
        ...(type === "reject" ? { message: message.trim() } : {}),
      }));
      const items = await decideAll(body, me.name);
      const failed = items.filter((item) => item.error !== undefined);
      const done = items.filter((item) => item.error === undefined).map((item) => item.id);
      if (done.length) {
        toast(
          `${type === "approve" ? "Approved" : "Rejected"} ${done.length} of ${chosen.length}`,
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
    setBusy(false);
  };
  const many =
    count > requests.length
      ? `The first ${requests.length} of ${thousands(count)}`
      : String(requests.length);
  const reason = offline || (ended ? "" : "Scroll to the end of the list first.");
  return (
    <Dialog title={`${many} ${count === 1 ? "request" : "requests"} for ${toolName(requests[0]!)}`} onClose={onClose} wide>
      <div className="bulk-list" role="region" aria-label="Requests to decide" tabIndex={0}>
        {requests.map((request) => {
          const alone = separateReason(request);
          return (
            <div key={request.id} className="bulk-item">
              <label className="check">
                <input
                  type="checkbox"
                  disabled={alone !== ""}
                  checked={picked.has(request.id)}
                  onChange={() => toggle(request.id)}
                />
                <span className="wrap">{request.shown.title}</span>
              </label>
              {alone ? (
                <p className="muted small">Decide this one separately: {alone}.</p>
              ) : (
                <pre className="wrap">{request.shown.lines.join("\n")}</pre>
              )}
              {request.shown.warnings.map((warning) => (
                <p key={warning} className="bulk-warning small">
                  {warning}
                </p>
              ))}
            </div>
          );
        })}
        <EndMark name="the list" onSeen={() => setEnded(true)} />
      </div>
      {problems.length > 0 && (
        <Notice tone="bad" title="Not recorded">
          {problems.map((problem) => (
            <p key={problem}>{problem}</p>
          ))}
        </Notice>
      )}
      {rejecting && (
        <label className="field">
          <span className="field-label">Reason for all</span>
          <textarea rows={2} value={message} onChange={(event) => setMessage(event.target.value)} />
        </label>
      )}
      <div className="dialog-actions">
        {reason && <span className="decide-reason">{reason}</span>}
        <Button onClick={onClose}>Cancel</Button>
        <Button
          tone="danger"
          disabled={busy || offline !== "" || chosen.length === 0}
          onClick={() => (rejecting ? void send("reject") : setRejecting(true))}
        >
          {rejecting ? `Send ${chosen.length} ${chosen.length === 1 ? "rejection" : "rejections"}` : `Reject ${chosen.length}`}
        </Button>
        {!rejecting && (
          <Button
            tone="primary"
            disabled={busy || reason !== "" || chosen.length === 0}
            onClick={() => void send("approve")}
          >
            {`Approve ${chosen.length}`}
          </Button>
        )}
      </div>
    </Dialog>
  );
}
