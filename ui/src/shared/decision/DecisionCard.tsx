/** A request as a card in a conversation, without shortcuts. */

import type { ReactElement } from "react";
import { KindBadge, RiskBadge } from "../components/Badge";
import { Countdown } from "../components/Time";
import type { api } from "../api";
import type { Request } from "../types";
import { RequestBody } from "./RequestBody";
import { showsRisk, toolName } from "./values";

interface Props {
  request: Request;
  onDecided: (request: Request) => void;
  onStale: () => void;
  decide?: typeof api.decide;
}

export function DecisionCard(props: Props): ReactElement {
  const { request } = props;
  return (
    <article
      className="card decision-card"
      aria-label={`${toolName(request)}: ${request.status}`}
      data-testid="decision-card"
    >
      <header className="decision-card-head">
        {showsRisk(request) && <RiskBadge level={request.risk.level} long />}
        <KindBadge kind={request.kind} />
        {request.kind !== "question" && <strong className="wrap">{request.shown.title}</strong>}
        {request.kind !== "question" && request.tool && <code className="muted small">{toolName(request)}</code>}
        <Countdown until={request.status === "pending" ? request.expires_at : null} />
      </header>
      <RequestBody {...props} shortcuts={false} />
    </article>
  );
}
