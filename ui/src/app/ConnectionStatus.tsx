import type { ReactElement } from "react";
import { retryNow, useLive } from "../shared/live";
import { clock, useNow } from "../shared/format";

/** The state of the live feed, and so whether the page is up to date. */
export function ConnectionStatus(): ReactElement | null {
  const live = useLive();
  const now = useNow();
  const since = live.heardAt ? `, last updated ${clock(live.heardAt)}` : "";
  const wait = live.retryAt ? Math.max(0, Math.ceil((live.retryAt - now) / 1_000)) : 0;
  const text = {
    connecting: "connecting",
    live: "live",
    reconnecting: wait > 0 ? `reconnecting in ${wait} s` : "reconnecting",
    offline: `offline${since}`,
    ended: `signed out${since}`,
    closed: "",
  }[live.state];
  if (live.state === "closed") return null;
  const down = live.state === "offline" || live.state === "reconnecting";
  return (
    <span className={`live live-${live.state}`} data-testid="live" title={live.reason}>
      <span className="live-dot" aria-hidden="true" />
      <span role="status" className="live-text">
        {text}
      </span>
      {live.state === "ended" && (
        <a href={`/login?next=${encodeURIComponent(location.pathname + location.search)}`}>Sign in</a>
      )}
      {down && (
        <button type="button" className="link" onClick={retryNow}>
          Retry now
        </button>
      )}
    </span>
  );
}
