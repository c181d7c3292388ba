/** What surrounds the arguments of a request: warnings, the agent's note, the preview. */

import { useState, type ReactElement } from "react";
import { ApiError, api } from "../api";
import { Button } from "../components/Button";
import { Icon } from "../components/Icon";
import { Notice } from "../components/States";
import { Age } from "../components/Time";
import { toast } from "../components/Toasts";
import { eventReason } from "../eventLabels";
import { thousands } from "../format";
import { Link } from "../router";
import type { EarlierRejection, Json, Opinion, Request, RequestDetail, RequestEvent } from "../types";
import { visible } from "../visible";
import { LARGE_BYTES } from "./values";
import { ValueView } from "./ValueView";
import { converted } from "./edit";

/** That people rejected an equal call before: who, when and why, as far as the reader may know. */
export function EarlierRejections({ rejections }: { rejections: EarlierRejection[] }): ReactElement | null {
  if (rejections.length === 0) return null;
  const title = rejections.length === 1 ? "An equal call was rejected before" : `Equal calls were rejected ${rejections.length} times before`;
  return (
    <div data-testid="earlier-rejections">
      <Notice tone="bad" title={title}>
        {rejections.map(({ id, request, by, at, message }) =>
          by === null ? (
            <p key={id}>You cannot see who rejected it, or why.</p>
          ) : (
            <div key={id}>
              <p>
                <strong>{visible(by)}</strong> rejected it {at && <Age at={at} />}
                {request && (
                  <>
                    {" · "}
                    <Link to={`/inbox/${request}`}>See the request</Link>
                  </>
                )}
              </p>
              {message && <blockquote className="wrap">{visible(message)}</blockquote>}
            </div>
          ),
        )}
      </Notice>
    </div>
  );
}

const MARKED = /hidden|mixes|brackets|normalised/;

export function Warnings({
  request,
  onRevealed,
}: {
  request: RequestDetail;
  onRevealed?: (request: RequestDetail) => void;
}): ReactElement | null {
  const [busy, setBusy] = useState(false);
  const reveal = async () => {
    setBusy(true);
    try {
      onRevealed?.(await api.reveal(request.id));
    } catch (error) {
      toast(error instanceof ApiError ? error.message : String(error), "bad");
    }
    setBusy(false);
  };
  const large = request.size > LARGE_BYTES;
  const again = askedAgain(request.events);
  const none = !request.masked && !large && request.original === null && request.shown.warnings.length === 0;
  if (none && again === null && converted(request).length === 0) return null;
  return (
    <div className="warnings" role="group" aria-label="Warnings" data-testid="warnings">
      {request.shown.warnings.map((warning) => (
        <Notice key={warning} tone="warn" title={MARKED.test(warning) ? sentence(warning) : undefined}>
          {MARKED.test(warning) ? (
            <p>{/hidden/.test(warning) ? "Each is shown in place as ⟨U+…⟩." : ""}</p>
          ) : (
            warning
          )}
        </Notice>
      ))}
      {again !== null && (
        <Notice tone="warn" title="This was approved before and needs approval again">
          <p>{again}</p>
        </Notice>
      )}
      {request.masked && (
        <Notice tone="warn" title="Some values look like secrets and are masked">
          <p>Reveal them before you approve. Revealing is recorded in the audit log.</p>
          {onRevealed && (
            <Button small icon="eye" disabled={busy} onClick={() => void reveal()}>
              Reveal masked values
            </Button>
          )}
        </Notice>
      )}
      {large && (
        <Notice
          tone="warn"
          title={`Large payload: ${thousands(Math.round(request.size / 1_024))} KB of arguments`}
        />
      )}
      {converted(request).length > 0 && (
        <Notice tone="info" title="The tool's validators changed these arguments">
          <details open>
            <summary>What was written</summary>
            <ValueView value={request.shown.written} />
          </details>
        </Notice>
      )}
      {request.original !== null && (
        <Notice tone="info" title="The arguments were edited">
          <details>
            <summary>What the agent asked for</summary>
            <ValueView value={request.shown.original} />
          </details>
        </Notice>
      )}
    </div>
  );
}

/** Why an earlier approval is no longer valid; null if there was none. */
function askedAgain(events: RequestEvent[] = []): string | null {
  const last = events.findLast((event) => event.type === "reasked");
  return last ? sentence(eventReason(last.body) || "something has changed since the approval") : null;
}

function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** The note of the request: the agent's own words, which nothing verifies. */
export function AgentNote({ request }: { request: Request }): ReactElement | null {
  const [open, setOpen] = useState(true);
  if (!request.shown.note) return null;
  return (
    <section className="agent-says" aria-label="Agent says">
      <button type="button" className="disclosure" aria-expanded={open} onClick={() => setOpen(!open)}>
        <Icon name={open ? "chevronDown" : "chevronRight"} size={14} />
        Agent says
        <span className="agent-label">written by the agent, not verified</span>
      </button>
      {open && <p className="wrap">{request.shown.note}</p>}
    </section>
  );
}

/** What the model says that reviewed the request first, if it left it to people. */
export function ModelOpinion({ request }: { request: Request }): ReactElement | null {
  const opinion = request.shown.opinion;
  if (!opinion) return null;
  return (
    <section className="agent-says" aria-label="A model says" data-testid="opinion">
      <h3>
        A model, unverified <span className="agent-label">{visible(opinion.model)}</span>
      </h3>
      <p className="wrap">
        <strong>{OPINIONS[opinion.answer]}</strong> {opinion.reason}
      </p>
    </section>
  );
}

const OPINIONS: Record<Opinion["answer"], string> = {
  allow: "It would allow this.",
  ask: "It leaves this to people.",
  reject: "It would reject this.",
};

interface Dated {
  at: string;
  revision: number;
  shows: Json;
}

/** A preview made by the tool has a time and a revision. Any other preview came with the request. */
function dated(preview: Json): Dated | null {
  if (preview === null || typeof preview !== "object" || Array.isArray(preview)) return null;
  const { at, revision, shows } = preview;
  if (typeof at !== "string" || typeof revision !== "number" || shows === undefined) return null;
  return { at, revision, shows };
}

export function Preview({ request }: { request: Request }): ReactElement | null {
  const preview = request.shown.preview ?? null;
  if (preview === null) return null;
  const made = dated(preview);
  const old = made !== null && made.revision !== request.revision;
  return (
    <section className="preview" aria-label="Preview">
      <h3>
        Preview{" "}
        <span className="preview-when">
          {made ? "generated" : "from the agent,"} <Age at={made?.at ?? request.created_at} />
          {old ? ", before the arguments were edited" : "; may be out of date"}
        </span>
      </h3>
      <ValueView value={made ? made.shows : preview} />
    </section>
  );
}
