import { memo, type ReactElement } from "react";
import { KindBadge, RiskBadge, StatusBadge } from "../shared/components/Badge";
import { Icon } from "../shared/components/Icon";
import { Age, Countdown } from "../shared/components/Time";
import { showsRisk, toolName } from "../shared/decision/values";
import { Link } from "../shared/router";
import type { Request } from "../shared/types";

/** One dot per required approval, filled for those given. */
export function QuorumDots({ request }: { request: Request }): ReactElement | null {
  if (request.quorum < 2) return null;
  const have = Math.min(request.votes.length, request.quorum);
  return (
    <span className="dots" title={`${have} of ${request.quorum} approvals`}>
      <span aria-hidden="true">
        {"●".repeat(have)}
        {"○".repeat(request.quorum - have)}
      </span>
      <span className="sr-only">
        {have} of {request.quorum} approvals
      </span>
    </span>
  );
}

interface Props {
  request: Request;
  to: string;
  current: boolean;
  selected: boolean;
  /** Whether this row is the one in the tab order; the arrow keys move between rows. */
  reachable: boolean;
  onFocus: (id: string) => void;
}

/** One line of the list. Rendered again only if its own properties change. */
export const RequestRow = memo(function RequestRow({ request, to, current, selected, reachable, onFocus }: Props): ReactElement {
  const settled = request.status !== "pending";
  return (
    <div className={`row${settled ? " row-settled" : ""}${selected ? " row-selected" : ""}`}>
      <Link
        to={to}
        className="row-link"
        aria-current={current ? "true" : undefined}
        tabIndex={reachable ? 0 : -1}
        data-row={request.id}
        data-testid="row"
        onFocus={() => onFocus(request.id)}
      >
        <span className="row-top">
          {selected && (
            <span className="row-mark">
              <Icon name="check" size={14} />
              <span className="sr-only">Selected: </span>
            </span>
          )}
          <span className="row-title">{request.shown.title}</span>
          <span className="row-age muted">
            {!settled && <Countdown until={request.expires_at} />}
            <QuorumDots request={request} />
            <Age at={request.created_at} bare />
          </span>
        </span>
        <span className="row-bottom">
          {settled ? (
            <StatusBadge status={request.status} />
          ) : (
            showsRisk(request) && <RiskBadge level={request.risk.level} />
          )}
          <KindBadge kind={request.kind} />
          <span className="row-agent muted">
            {request.kind !== "question" && request.tool && <code>{toolName(request)}</code>}
            {request.shown.agent ?? request.agent}
          </span>
        </span>
      </Link>
    </div>
  );
});
