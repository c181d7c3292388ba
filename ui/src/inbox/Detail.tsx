import { useEffect, useRef, useState, type ReactElement } from "react";
import { api } from "../shared/api";
import { KindBadge, RiskBadge } from "../shared/components/Badge";
import { IconButton } from "../shared/components/Button";
import { CopyButton } from "../shared/components/CopyButton";
import { Icon } from "../shared/components/Icon";
import { EmptyState, LoadError, Notice, Skeleton } from "../shared/components/States";
import { Age, Countdown } from "../shared/components/Time";
import { DecisionLine } from "../shared/decision/Outcome";
import { RequestBody } from "../shared/decision/RequestBody";
import { sentHere } from "../shared/decision/useDecide";
import { showsRisk, toolName } from "../shared/decision/values";
import { exact, long, useNow } from "../shared/format";
import { useChanges } from "../shared/live";
import { useResource } from "../shared/useResource";
import { Link } from "../shared/router";
import { useMe } from "../shared/session";
import { loadSetting, saveSetting } from "../shared/theme";
import type { Request, RequestDetail } from "../shared/types";
import { personName, Rail } from "./Rail";
import { QuorumDots } from "./RequestRow";
import { useMediaQuery } from "./useMediaQuery";

interface Props {
  id: string;
  /** The request from the list, shown until its details are loaded. */
  cached: Request | undefined;
  back: string;
  phone: boolean;
  /** Whether the user opened the request with Enter, so that the focus moves here. */
  entering: { current: boolean };
  onDecided: (request: Request) => void;
  onRead: (request: Request) => void;
}

const RAIL = "sayso.rail";
/** Longer titles, in characters, take more than four lines of a phone. */
const LONG_TITLE = 120;

/** False until the first request is shown: the focus must not move right after the page has loaded. */
let settled = false;

/** Keep revealed values while the revision is the same; take everything else from `fresh`. */
function keepRevealed(fresh: RequestDetail, revealed: RequestDetail | null): RequestDetail {
  if (!revealed || revealed.revision !== fresh.revision || !fresh.masked) return fresh;
  const { args, original, written, preview, question, risk, digest, masked, shown, decision, execution } = revealed;
  const kept = { ...fresh, args, original, written, preview, question, risk, digest, masked, shown };
  const moved = fresh.status !== revealed.status || fresh.execution.status !== execution.status;
  return moved ? kept : { ...kept, decision, execution };
}

export function Detail({ id, cached, back, phone, entering, onDecided, onRead }: Props): ReactElement {
  const me = useMe();
  const read = useResource<RequestDetail>(id, (signal) => api.request(id, signal));
  const [revealed, setRevealed] = useState<RequestDetail | null>(null);
  const [railOpen, setRailOpen] = useState(loadSetting(RAIL) !== "shut");
  const wide = useMediaQuery("(min-width: 1240px)");
  const heading = useRef<HTMLHeadingElement>(null);
  const known = read.data ?? (cached as RequestDetail | undefined);
  const request = known && keepRevealed(known, revealed);
  const first = useRef<Request | undefined>(undefined);
  if (request && !first.current) first.current = request;
  const there = request !== undefined;

  useChanges((events) => {
    if (events.some((event) => event.type === "resync" || ("request" in event && event.request === id))) read.reload();
  });
  useEffect(() => () => void sentHere.delete(id), [id]);
  useEffect(() => {
    if (read.data) onRead(read.data);
  }, [read.data]);
  useEffect(() => {
    // Focus the heading, never a button. While the user moves through the list, the focus stays on its rows.
    const inList = document.activeElement?.closest(".inbox-list");
    const wanted = settled && (!inList || phone || entering.current);
    if (there && wanted) heading.current?.focus({ preventScroll: true });
    if (!there) return;
    entering.current = false;
    settled = true;
  }, [there]);

  if (!request) {
    if (read.error?.status === 404) {
      return (
        <main className="inbox-detail">
          <EmptyState icon="search" title="Request not found">
            <p className="muted">It may be for someone else, or the link may be wrong.</p>
            <Link to={back}>Back to the inbox</Link>
          </EmptyState>
        </main>
      );
    }
    return (
      <main className="inbox-detail">
        {read.error ? (
          <LoadError what="the request" error={read.error} retry={read.reload} />
        ) : (
          <Skeleton rows={8} label="Loading request" />
        )}
      </main>
    );
  }
  const showRail = (open: boolean) => {
    setRailOpen(open);
    saveSetting(RAIL, open ? null : "shut");
  };
  const elsewhere = first.current?.status === "pending" && request.status !== "pending" && !sentHere.has(id);
  const changed =
    first.current !== undefined && first.current.revision !== request.revision && request.status === "pending";
  // A long title scrolls with the request, or it would leave no room for it.
  const longTitle = request.shown.title.length > LONG_TITLE;
  const head = (
    <header className="detail-head">
      {phone && (
        <Link to={back} className="inbox-back">
          <Icon name="chevronLeft" /> Inbox
        </Link>
      )}
      <div className="detail-title">
        <h1 ref={heading} tabIndex={-1} className="wrap">
          {request.shown.title}{" "}
          {request.kind !== "question" && request.tool && <code className="detail-tool">{toolName(request)}</code>}
        </h1>
        {showsRisk(request) && <RiskBadge level={request.risk.level} long />}
        {request.kind === "in_doubt" && <KindBadge kind={request.kind} />}
        {wide && (
          <IconButton
            className="rail-toggle"
            icon="panel"
            aria-expanded={railOpen}
            label={railOpen ? "Hide context" : "Show context"}
            onClick={() => showRail(!railOpen)}
          />
        )}
      </div>
      <Metadata request={request} />
      <Identifiers request={request} />
    </header>
  );
  return (
    <>
      <main className="inbox-detail">
        {!longTitle && head}
        {elsewhere && request.decision && (
          <div className="detail-conflict" role="alert" data-testid="conflict">
            <Notice tone="warn">
              <p>
                <DecisionLine decision={request.decision} mine={request.decision.by === me.name} /> somewhere else
                while you had it open here.
              </p>
            </Notice>
          </div>
        )}
        {changed && (
          <div className="detail-conflict" role="alert">
            <Notice tone="warn" title="This request has changed since you opened it">
              <p>Read it again before you decide.</p>
            </Notice>
          </div>
        )}
        <RequestBody
          key={request.revision}
          request={request}
          head={longTitle && head}
          onDecided={(result) => {
            if (result.status === "pending") read.reload();
            onDecided(result);
          }}
          onStale={read.reload}
          onRevealed={setRevealed}
        >
          {!wide && <Rail request={request} loading={read.loading} />}
        </RequestBody>
      </main>
      {wide && railOpen && (
        <aside className="inbox-rail" aria-label="Context" tabIndex={0}>
          <Rail request={request} loading={read.loading} />
        </aside>
      )}
    </>
  );
}

function Metadata({ request }: { request: RequestDetail }): ReactElement {
  return (
    <dl className="detail-meta">
      <div>
        <dt>Agent</dt>
        <dd>{request.shown.agent ?? request.agent}</dd>
      </div>
      {request.requester && (
        <div>
          <dt>Requester</dt>
          <dd>{request.shown.requester ?? request.requester}</dd>
        </div>
      )}
      <div>
        <dt>Asked</dt>
        <dd>
          <Age at={request.created_at} />
        </dd>
      </div>
      {request.status === "pending" && request.expires_at && (
        <div>
          <dt>Expires</dt>
          <dd>
            <Countdown until={request.expires_at} always />
            <span className="muted">. Won't run after that.</span>
          </dd>
        </div>
      )}
      {request.status === "pending" && request.escalate_to.length > 0 && <Escalation request={request} />}
      {request.quorum > 1 && (
        <div>
          <dt>Approvals</dt>
          <dd>
            <QuorumDots request={request} /> {request.votes.length} of {request.quorum}
          </dd>
        </div>
      )}
    </dl>
  );
}

/** When more people may decide, or that they may already, and who they are. */
function Escalation({ request }: { request: RequestDetail }): ReactElement {
  const now = useNow(5);
  const people = request.escalate_to.map(personName).join(", ");
  if (request.escalated || request.escalates_at === null) {
    return (
      <div>
        <dt>Escalated</dt>
        <dd>{people} may decide too</dd>
      </div>
    );
  }
  const seconds = (Date.parse(request.escalates_at) - now) / 1_000;
  return (
    <div>
      <dt>Escalates</dt>
      <dd>
        <time dateTime={request.escalates_at} title={exact(request.escalates_at)}>
          in {long(seconds)}
        </time>
        <span className="muted">. Then {people} may decide too.</span>
      </dd>
    </div>
  );
}

/** Identifiers that are not needed to decide. */
function Identifiers({ request }: { request: RequestDetail }): ReactElement {
  return (
    <details className="identifiers">
      <summary>Details</summary>
      <dl className="detail-meta">
        <div>
          <dt>Run</dt>
          <dd>
            <Link to={`/runs/${encodeURIComponent(request.run)}`} className="mono">
              {request.run}
            </Link>
          </dd>
        </div>
        <div>
          <dt>Request</dt>
          <dd>
            <span className="mono">{request.id}</span>
            <CopyButton text={request.id} label="Copy request ID" />
          </dd>
        </div>
        {request.policy?.digest && (
          <div>
            <dt>Policy</dt>
            <dd>
              <span className="mono" title={request.policy.digest}>
                {request.policy.digest.slice(0, 12)}
              </span>
            </dd>
          </div>
        )}
        {request.digest && (
          <div>
            <dt>Digest</dt>
            <dd>
              <span className="mono" title={request.digest}>
                {request.digest.slice(0, 12)}
              </span>
              <CopyButton text={request.digest} label="Copy full digest" />
            </dd>
          </div>
        )}
      </dl>
    </details>
  );
}
